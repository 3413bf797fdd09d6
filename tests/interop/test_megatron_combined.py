"""Megatron-core's combined 1F1B, executed: its passes are the overlaps of `interleaved_overlap`.

Every size of p 2 to 8, v 2 to 4, m in p, 2p and 4p, by hand, some 20 s a release: `python -m
tests.interop.test_megatron_combined FOLDER ...`, where FOLDER has a package megatron.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest

import pipesched
from pipesched.interop.frameworks import megatron, megatron_rank
from pipesched.model.ops import Op
from tests.depth import deep
from tests.interop.test_megatron import each, executed

OPTION = "overlap_moe_expert_parallel_comm"
ISSUED = ["I.combine", "F.attn", "I.mlp", "F.dispatch", "W.mlp", "I.dispatch", "F.mlp", "F.combine", "I.attn", "W.attn"]
"""What a layer of each launches (a comment in the release says so too); dispatch and combine on the stream `comm`."""


@cache
def core(site: Path) -> megatron.Core:
    return megatron.load(site / "megatron" / "core")


def recorded(site: Path, p: int, v: int, m: int, **options: object) -> tuple[list[list[str]], list[str]]:
    """Return the computes of every rank, overlaps joined by +, and the parts of the first pair."""
    rows, issued = [], list[str]()
    for here in range(p):
        rank = megatron_rank.Rank(str(core(site).folder), p, here)
        megatron.run(core(site), "interleaved", (p, v, m), {OPTION: True, **options}, rank)
        rows.append([word for word, _ in megatron_rank.words(rank) if word[0] in "FB" and ":" not in word])
        issued = issued or rank.issued
    return rows, issued


def published(p: int, v: int, m: int) -> list[list[str]]:
    """Return the library's order in the same words."""
    made = pipesched.load("interleaved_overlap", p=p, v=v, m=m)
    rows: list[list[str]] = [[] for _ in range(p)]
    columns = (made.op, made.stage, made.microbatch, made.joined, made.rank)
    for op, stage, i, joined, rank in zip(*(x.tolist() for x in columns), strict=True):
        word = f"{Op(op).name}{stage}.{i}"
        rows[rank][-1:] = [f"{rows[rank][-1]}+{word}"] if joined else [*rows[rank][-1:], word]
    return rows


def grid(most: int) -> list[tuple[int, int, int]]:
    return [(p, v, m) for p in range(2, most + 1) for v in (2, 3, 4) for m in (p, 2 * p, 4 * p)]


@each
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("sizes", grid(8) if deep(1) > 1 else [(2, 2, 4), (3, 3, 6), (4, 2, 8)])
def test_passes_are_the_overlaps_of_the_library(site: Path, sizes: tuple[int, int, int], delayed: bool) -> None:
    """Every compute and every pair, in order, with weight gradients delayed and not."""
    assert recorded(site, *sizes, delay_wgrad_compute=delayed)[0] == published(*sizes)


def layer(parts: Sequence[str]) -> list[str]:
    """Return the parts of the first layer of each, without streams and layers; `post_attn` of older releases aside."""
    first = [part.partition("@")[0].rstrip("0123456789") for part in parts[: len(parts) // 2]]
    return [part for part in first if not part.endswith("post_attn")]


@each
def test_parts_are_issued_as_published(site: Path) -> None:
    """Ten parts of a layer of each, two of each on the stream of communication; one weight gradient waits for it."""
    parts = recorded(site, 2, 2, 4, delay_wgrad_compute=True)[1]
    assert layer(parts) == ISSUED
    assert {x.partition("@")[0][2:].rstrip("0123456789") for x in parts if "@comm" in x} == {"dispatch", "combine"}
    whole = layer(recorded(site, 2, 2, 4)[1])
    assert whole == [x.replace("I.mlp", "B.mlp").replace("I.attn", "B.attn") for x in ISSUED if x[0] != "W"]


@each
def test_an_early_release_moves_attention(site: Path) -> None:
    """The backward of attention before the forward of the MLP, where the release can."""
    option = "ep_overlap_early_attn_memory_release"
    if option not in core(site).options():
        pytest.skip("this release cannot")
    made = layer(recorded(site, 2, 2, 4, delay_wgrad_compute=True, **{option: True})[1])
    assert made == [*ISSUED[:6], "I.attn", "F.mlp", "F.combine", "W.attn"]


def asked_at(site: Path, here: int, *, combined: bool) -> list[tuple[int, int]]:
    """Return the chunks for whose reduction a rank asks, each with the number of events before; then all events."""
    rank, asked = megatron_rank.Rank(str(core(site).folder), 4, here), list[tuple[int, int]]()
    functions = [lambda _, chunk=chunk: asked.append((chunk, len(rank.events))) for chunk in range(2)]
    options = {OPTION: combined, "grad_sync_func": functions, "no_sync_func": nullcontext}
    megatron.run(core(site), "interleaved", (4, 2, 8), options, rank)
    return [*asked, (-1, len(rank.events))]


@each
def test_reductions_are_asked_for_at_the_end(site: Path) -> None:
    """The page in schedules/found: nothing runs behind a backward of chunk 0, so above rank 0 chunk 1 is late."""
    rows = (Path(__file__).parents[2] / "schedules/found/megatron_combined_sync.md").read_text("utf-8")
    for here in range(4):
        plain, combined = (asked_at(site, here, combined=on) for on in (False, True))
        assert [chunk for chunk, _ in plain] == [1, 0, -1] and plain[0][1] < plain[1][1]
        assert (sorted(combined)[1][1] == sorted(combined)[2][1]) == (here > 0)
        said = [f"{dict(x)[1]}, {dict(x)[0]} of {dict(x)[-1]}" for x in (plain, combined)]
        assert f"| {here} | {said[0]} | {said[1]} |" in rows


@executed
def test_the_command_derives_the_pair_from_parts() -> None:
    """`verify megatron:interleaved` with the option holds, joins F and B, and takes their time from parts."""
    options = {OPTION: True, "overlap_p2p_comm": True, "batch_p2p_comm": False}
    report = pipesched.verify("megatron:interleaved", p=4, v=2, m=8, parts="deepseek-v3", **options)
    ours = pipesched.verify("interleaved_overlap", p=4, v=2, m=8, parts="deepseek-v3")
    assert report.ok and report.makespan == ours.makespan and report.peak == ours.peak
    assert any("a pair as issued" in note for note in report.notes)


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        sizes = [(*size, delayed) for size in grid(8) for delayed in (False, True)]
        wrong = [x for x in sizes if recorded(folder, *x[:3], delay_wgrad_compute=x[3])[0] != published(*x[:3])]
        print(f"megatron-core {core(folder).version}: {len(sizes)} runs, {len(wrong)} differ {wrong[:3]}")
