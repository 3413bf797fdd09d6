"""The built-in schedules equal the published ones, operation for operation, according to three independent sources.

tests/orders/    recorded from the authors' own code, p = 4, m = 8
tests/oracles/rules.py   the rules of the papers, at any size
torch 2.13       the generators of its schedule classes
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.orders import order_write
from pipesched.report.report import Report
from tests.depth import in_usual_run
from tests.oracles import rules

ORDERS = Path(__file__).parents[1] / "orders"
RECORDED = {
    "gpipe": ("gpipe_p4_m8", []),
    "1f1b": ("1f1b_p4_m8", []),
    "interleaved": ("interleaved_p4_v2_m8", ["--v", "2"]),
    "zb_h1": ("zbh1_p4_m8", []),
    "zb_h2": ("zbh2_p4_m8", []),
    "zb_v": ("zbv_handcrafted_p4_m8", []),
    "dualpipe": ("dualpipe_p4_m8", []),
    "dualpipev": ("dualpipev_p4_m8", []),
}
RANKS = (1, 2, 3, 4, 6) if in_usual_run() else (1, 2, 3, 4, 6, 8, 16)
"""Ranks, of which those with routes both ways take the even ones."""
STEPS: dict[str, Callable[[int], int]] = {
    "dualpipe": lambda _: 2,
    "terapipe": lambda _: 2,
    "chimera": lambda p: p,
    "chimera2": lambda p: p,
    "bitpipe": lambda p: p,
}
"""The number that m is a multiple of, by schedule."""


def least(name: str, p: int) -> int:
    """Return the smallest m that the schedule allows."""
    return {"zb_h2": 2 * p - 1, "dualpipe": 2 * p, "dualpipev": 2 * p}.get(name, 1)


def recorded(name: str) -> str:
    lines = (ORDERS / f"{name}.txt").read_text("utf-8").splitlines()
    return "".join(f"{' '.join(line.split())}\n" for line in lines if line and not line.startswith("#"))


def ours(name: str, **sizes: int) -> str:
    schedule = pipesched.load(name, **sizes)
    return order_write.write(schedule)


@pytest.mark.parametrize("name", RECORDED)
def test_order_prints_what_was_recorded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``pipesched emit NAME --p 4 --m 8 --target order`` equals the order of the authors' code, token for token."""
    file, options = RECORDED[name]
    assert main(["emit", name, "--target", "order", "--p", "4", "--m", "8", *options]) == 0
    assert capsys.readouterr().out == recorded(file)


@pytest.mark.parametrize("name", rules.RULES)
@pytest.mark.parametrize("p", RANKS)
def test_the_rules_give_the_same_order(name: str, p: int) -> None:
    """At every p, from the least m that the schedule allows: less than p, odd, p, 2p and beyond."""
    step = STEPS.get(name, lambda _: 1)(p)
    if name in STEPS and name != "terapipe" and p % (4 if name == "chimera2" else 2):
        assert not pipesched.verify(name, p=p, m=2 * p).ok
        return
    fewest = least(name, p)
    for m in sorted({fewest, fewest + 1, fewest + 3, p, p + 1, 2 * p, 2 * p + 1, 3 * p, 4 * p + 2}):
        if m >= fewest and (m % step == 0 or (name == "chimera" and m < p)):
            assert ours(name, p=p, m=m) == rules.text([rules.RULES[name](p, m, r) for r in range(p)]), m


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("name", rules.LOOPED)
def test_the_rules_of_several_chunks(name: str, p: int) -> None:
    """Schedules with v chunks per rank have their rules too: with whole groups of p microbatches, and with other sizes
    that each accepts."""
    for v, m in ((1, 3 * p), (2, p), (2, 5 * p), (3, 2 * p), (4, p), (2, 2 * p + 2), (3, max(1, p - 1))):
        if m % p and (name in ("interleaved", "interleaved_overlap", "hanayo") or m % max(1, m // p)):
            continue
        if name == "hanayo" and v % 2:
            continue
        assert ours(name, p=p, v=v, m=m) == rules.text([rules.LOOPED[name](p, v, m, r) for r in range(p)]), (v, m)


@pytest.mark.parametrize("p", RANKS)
def test_the_rule_of_groups(p: int) -> None:
    """Groups of n are from p up; the last one may be shorter."""
    for v, m, n in (
        (2, 2 * p, p),
        (2, 2 * p + 1, p + 1),
        (3, 2 * p + 2, p + 2),
        (2, 2 * p + 2, p + 1),
        (4, p + 1, p + 1),
    ):
        expected = rules.text([rules.interleaved(p, v, m, r, n) for r in range(p)])
        assert ours("interleaved_n", p=p, v=v, m=m, n=n) == expected, (v, m, n)


@pytest.mark.parametrize("p", RANKS)
def test_the_rule_of_smaller_groups(p: int) -> None:
    """The rule holds for groups of p or fewer, down to half of p."""
    for v in (1, 2, 3):
        for n in {(p + 1) // 2, max(1, p - 1), p}:
            for m in (n, 2 * n, 5 * n):
                expected = rules.text([rules.grouped(p, v, m, r, n) for r in range(p)])
                assert ours("grouped_interleaved", p=p, v=v, m=m, n=n) == expected, (v, n, m)


@pytest.mark.parametrize("name", rules.BLOCKS)
@pytest.mark.parametrize("p", RANKS)
def test_the_blocks_give_the_same_order(name: str, p: int) -> None:
    """The V family follows from a block of six slots for each microbatch, from its slots alone."""
    for m in (1, p, 2 * p + 1):
        assert ours(name, p=p, m=m) == rules.text([rules.BLOCKS[name](p, m, r) for r in range(p)]), m


@pytest.mark.parametrize("p", [*RANKS, 5, 7, *([] if in_usual_run() else [9, 12])])
def test_v1f1b_is_the_order_of_its_authors(p: int) -> None:
    """At every size it is the order that the authors' code makes of the block; that code's own order at p=4, m=8, word
    for word. It holds what the block holds at most.
    """
    for m in (1, p, 2 * p + 1):
        order = rules.text([iter(words) for words in rules.moved_1f1b_v(p, m)])
        assert ours("v1f1b", p=p, m=m) == order, m
        moved, block = (pipesched.verify(name, p=p, m=m) for name in ("v1f1b", "1f1b_v"))
        assert max(peaks(moved)) == max(peaks(block))
    if p == 4:
        assert ours("v1f1b", p=4, m=8) == recorded("1f1bv_p4_m8")


def test_the_rules_of_slices_and_small_caps() -> None:
    """The rules hold for Seq1F1B with two slices per sequence, and for k microbatches that circulate under a cap."""
    for p in RANKS:
        for m in (2, 2 * p, 6 * p):
            assert ours("seq1f1b", p=p, m=m) == rules.text([rules.seq1f1b(p, m, r) for r in range(p)])
        for v, q, m in ((2, 1, 2 * p), (2, 2, 2 * p), (3, 2, 4 * p), (2, p, 3 * p), (1, 3, 3 * p)):
            if p % q == 0 or v == 1:
                expected = rules.text([rules.seq1f1b_i(p, v, m, r, q) for r in range(p)])
                assert ours("seq1f1b_i", p=p, v=v, m=m, q=q) == expected, (p, v, m, q)
        for k in range(2, (2 * p + 2) // 3 + 1, 3):
            for m in (k + 1, 2 * k, 3 * k + 2):
                assert ours("capped", p=p, m=m, k=k) == rules.text([rules.capped(p, k, m, r) for r in range(p)])


def test_the_orders_that_lack_backwards() -> None:
    """A forward-only order has GPipe's forwards; with e frozen stages, it is 1F1B whose first e ranks run no
    backward."""
    for p in RANKS:
        for m in (1, 2 * p):
            forwards = [iter([word for word in rules.gpipe(p, m, r) if word[0] == "F"]) for r in range(p)]
            assert ours("forward_only", p=p, m=m) == rules.text(forwards)
            for e in range(min(p, 3)):
                ranks = [[x for x in rules.one_f_one_b(p, m, r) if r >= e or x[0] == "F"] for r in range(p)]
                assert ours("frozen_encoder", p=p, m=m, e=e) == rules.text([iter(words) for words in ranks])


def of_torch(name: str, p: int, v: int, m: int) -> str:
    """Return the compute order that a schedule class of torch makes, in our words."""
    from torch.distributed.pipelining import schedules as torch_schedules

    stages = [mock.MagicMock(num_stages=p * v, group_size=p, group_rank=0) for _ in range(v)]
    made = getattr(torch_schedules, name)(stages, m).pipeline_order
    return rules.text([iter([_word(x) for x in made[r] if x is not None]) for r in range(p)])


def _word(action: Any) -> str:
    if action.sub_actions:
        return "+".join(map(_word, action.sub_actions))
    short = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    return f"{short[action.computation_type.name]}{action.stage_index}.{action.microbatch_index}"


@pytest.mark.parametrize(
    ("p", "v", "m"), [(2, 1, 4), (2, 2, 2), (3, 2, 6), (4, 2, 8), (4, 3, 12), (6, 4, 6), (8, 2, 32)]
)
def test_torch_generates_the_same_interleaved_order(p: int, v: int, m: int) -> None:
    """interleaved == ScheduleInterleaved1F1B of torch 2.13, if m is a multiple of p."""
    assert ours("interleaved", p=p, v=v, m=m) == of_torch("ScheduleInterleaved1F1B", p, v, m)


BREADTH = [(2, 1, 3), (2, 3, 2), (3, 2, 5), (4, 2, 8), (6, 2, 4), (8, 3, 8), (16, 2, 3)]
ROUNDS = [(2, 1, 4), (2, 2, 6), (3, 2, 8), (4, 3, 10), (6, 2, 4), (8, 3, 8), (16, 2, 34)]


@pytest.mark.parametrize(("p", "v", "m"), BREADTH)
def test_torch_generates_the_same_breadth_first_order(p: int, v: int, m: int) -> None:
    """looped_bfs equals ScheduleLoopedBFS of torch 2.13, at any m."""
    assert ours("looped_bfs", p=p, v=v, m=m) == of_torch("ScheduleLoopedBFS", p, v, m)


@pytest.mark.parametrize(("p", "v", "m"), ROUNDS)
def test_torch_generates_the_same_rounds(p: int, v: int, m: int) -> None:
    """interleaved_zb equals ScheduleInterleavedZeroBubble, and interleaved_n ScheduleInterleaved1F1B, at any m of
    theirs."""
    assert ours("interleaved_zb", p=p, v=v, m=m) == of_torch("ScheduleInterleavedZeroBubble", p, v, m)
    assert ours("interleaved_n", p=p, v=v, m=m) == of_torch("ScheduleInterleaved1F1B", p, v, m)


@pytest.mark.parametrize(("p", "m"), [(2, 2), (2, 6), (3, 9), (4, 8), (6, 12), (8, 32)])
def test_torch_generates_the_same_zb_h1(p: int, m: int) -> None:
    """zb_h1 equals ScheduleInterleavedZeroBubble of torch 2.13 with one stage per rank."""
    assert ours("zb_h1", p=p, m=m) == of_torch("ScheduleInterleavedZeroBubble", p, 1, m)


@pytest.mark.parametrize("p", RANKS)
def test_torch_generates_the_same_v_schedules(p: int) -> None:
    """zb_v equals ScheduleZBVZeroBubble of torch 2.13 at any m, and dualpipev equals its ScheduleDualPipeV from m = 2p
    on."""
    for m in (1, p, 2 * p - 2, 2 * p - 1, 2 * p, 2 * p + 1, 3 * p + 2, 4 * p):
        if m > 0:
            assert ours("zb_v", p=p, m=m) == of_torch("ScheduleZBVZeroBubble", p, 2, m), m
        if m >= 2 * p:
            assert ours("dualpipev", p=p, m=m) == of_torch("ScheduleDualPipeV", p, 2, m), m


def verified(file: str, costs: str = "F=1") -> Report:
    report = pipesched.verify(ORDERS / f"{file}.txt", costs=costs)
    assert report.ok, report.text()
    return report


def peaks(report: Report) -> list[Fraction]:
    assert report.memory is not None
    return list(report.memory.peak)


def times(report: Report) -> list[Fraction]:
    """Return makespan, idle, span idle."""
    assert report.time is not None
    return [report.time.makespan, max(report.time.idle), max(report.time.span_idle)]


def test_zb_v_has_no_bubble_in_its_span() -> None:
    """At p = 4, ZB-V has p microbatches (2p chunks) on every rank, span idle 0 and makespan idle p - 1 chunk times."""
    report = verified("zbv_handcrafted_p4_m8")
    assert peaks(report) == [4] * 4
    assert times(report)[1:] == [3, 0]


@pytest.mark.parametrize(
    ("file", "makespan", "chunks"), [("vmin_head_p4_m8_F1I1W1c0", 59, 4), ("vhalf_head_p4_m8_F1I1W1c0", 53, 6)]
)
def test_the_controllable_memory_schedules(file: str, makespan: int, chunks: int) -> None:
    """At p = 4, m = 8, V-Min and V-Half have makespans 59 and 53 over 48 of work, idle 4p - 5 and 3p - 7, and hold 4
    and 6 chunks."""
    report = verified(file)
    assert max(peaks(report)) == Fraction(chunks, 2)
    assert times(report)[:2] == [makespan, makespan - 48]
    assert report.time is not None and set(report.time.work) == {Fraction(48)}


def test_1f1b_v_needs_less_memory_than_1f1b() -> None:
    """At p = 4, 1F1B-V holds 6 chunks where 1F1B holds 8, and idles 15 chunk times at F = 1, B = 2."""
    report = verified("1f1bv_p4_m8", "F=1,B=2")
    assert max(peaks(report)) == 3
    assert times(report)[1] == 15


def test_chimera_meets_in_the_middle() -> None:
    """At p = 4, one unit of p, Chimera holds p/2 + 1 at the ends and p in the middle, and idles p - 2 at F = B, 4 of 16
    at B = 2F."""
    assert ours("chimera", p=4, m=4) == recorded("chimera_p4_d2_m4")
    assert peaks(verified("chimera_p4_d2_m4")) == [3, 4, 4, 3]
    assert times(verified("chimera_p4_d2_m4", "F=1,B=1"))[1] == 2
    assert times(verified("chimera_p4_d2_m4", "F=1,B=2"))[:2] == [16, 4]


def test_dualpipev_holds_one_chunk_more_than_all_stages() -> None:
    """At p = 4, DualPipeV holds 2p + 1 chunks on every rank."""
    assert peaks(verified("dualpipev_p4_m8")) == [Fraction(9, 2)] * 4
