"""When Megatron-core's combined 1F1B is executed, its passes are the overlaps of `interleaved_overlap`.

Every size of p 2 to 8, v 2 to 4, m in p, 2p and 4p, by hand, some 20 s a release: `python -m
tests.interop.test_megatron_combined FOLDER ...`, where FOLDER has a package megatron.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.engines.calls import Call, Calls, read
from pipesched.engines.meetings import MODELS, Meetings
from pipesched.interop.frameworks import megatron, megatron_rank, streams
from pipesched.library.assets import asset
from pipesched.model.ops import Op
from pipesched.support.source import Source
from tests.depth import deep, some
from tests.interop.test_megatron import SITES, each, executed

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


GRID = grid(8) if deep(1) > 1 else [(2, 2, 4), (3, 3, 6), (4, 2, 8)]


@each
@pytest.mark.parametrize(("sizes", "delayed"), some([*itertools.product(GRID, (False, True))], 1, usual=3))
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
    value = json.loads(json.dumps(report.to_json()))
    Draft202012Validator(json.loads(asset("emit", "report.schema.json").read_text("utf-8"))).validate(value)
    met = value["meetings"]
    assert met["meetings"] == 4 * 8 * 2 * 2 * 4 and met["peers"] == 2 and not met["fails"]


LAYOUTS = ("1", "2", "3", "4", "tt+t++tt", "ttt+ttt+ttt+L", "E+tt+tt+tt")


def meetings(site: Path, sizes: tuple[int, int, int], layouts: Sequence[object], **options: object) -> Meetings:
    """Return the calls of a pipeline for each of these layouts of its layers, whose ranks are expert peers."""
    (p, v, m), peers = sizes, list[tuple[streams.Streams, list[str]]]()
    for layout in layouts:
        for here in range(p):
            rank = megatron_rank.Rank(str(core(site).folder), p, here)
            settings = {OPTION: True, "overlap_p2p_comm": True, "batch_p2p_comm": False, "layers": layout, **options}
            megatron.run(core(site), "interleaved", (p, v, m), settings, rank)
            peers.append((rank.streams, megatron_rank.messages(rank)))
    text = "\n".join(line for line, _ in streams.calls(peers, len(layouts)))
    return Meetings(read(Source("recorded.calls", text)))


@each
@pytest.mark.parametrize("layout", some(LAYOUTS, 1, usual=2))
def test_calls_of_expert_peers_agree_and_end(site: Path, layout: str) -> None:
    """Megatron-LM#1810, #1828, #1852: odd, even and empty stages hold under every model if peers have one layout."""
    said = int(layout) if layout.isdigit() else layout
    made = meetings(site, (2, 2, 4), [said, said], delay_wgrad_compute=len(layout) % 2 > 0)
    assert not list(made.differing()) and not made.uneven and all(map(made.holds, MODELS))


@each
def test_every_part_of_every_layer_meets_once(site: Path) -> None:
    """Of 2 chunks of 2 layers and 4 microbatches: 4 calls a layer, half of them combines, all on the stream comm."""
    made = meetings(site, (2, 2, 4), [2, 2], delay_wgrad_compute=True)
    for of in (made.collective[f"ep{here}"] for here in range(2)):
        names = [made.call(i).name for i in of[0]]
        assert len(names) == len(set(names)) == 4 * 2 * 2 * 4 and sum("combine" in x for x in names) == len(names) / 2
        assert {made.call(i).engine for i in of[0]} == {"comm"}


@each
def test_peers_with_other_layouts_differ(site: Path) -> None:
    """Megatron-LM#1852: the first call that a peer with an empty last stage lacks is named, on both ranks."""
    found = list(meetings(site, (2, 2, 4), ["tt+tt+tt+tt", "tt+tt+tt+L"]).apart())
    assert [x.code for x in found] == ["PS407"] and "by rank 1" in found[0].message and "by rank 3" in found[0].message
    assert not list(meetings(site, (2, 2, 4), [2, 2]).apart())


@each
def test_an_order_that_two_streams_leave_open_is_refused(site: Path) -> None:
    """Megatron-LM#1810 says that two calls may become eligible at once: on two streams that is PS266."""
    made = meetings(site, (2, 2, 4), [2, 2])
    rows = [[replace(x, engine="comm1") if "combine" in x.name else x for x in row] for row in made.calls.ranks]
    with pytest.raises(PipeschedError) as refused:
        Calls(tuple(map(tuple, rows)), made.calls.groups)
    assert refused.value.diagnostics[0].code == "PS266" and "two engines" in refused.value.diagnostics[0].message


@each
def test_a_meeting_that_waits_for_what_it_delays_is_a_cycle(site: Path) -> None:
    """A combine that waits for an answer to the message behind it: PS408, with both ranks and their calls."""
    first, second, *peers = meetings(site, (2, 2, 4), [1, 1]).calls.ranks
    answer = Call("answer", "p2p2", way="<", peer=1)
    late = [replace(x, needs=(*x.needs, "answer<1")) if x.name == "F0.0.combine0" else x for x in first]
    sent = Call("answer", "p2p2", way=">", peer=0, needs=("F1.0.attn0",))
    calls = Calls(((answer, *late), (*second, sent), *peers), meetings(site, (2, 2, 4), [1, 1]).calls.groups)
    (found,) = Meetings(calls).deadlock(MODELS[-1])
    assert found.code == "PS408" and "ranks 0, 1 wait in a cycle" in found.message, found
    assert any("F0.0.combine0 waits for answer<1" in note for note in found.notes), found.notes


@executed
@pytest.mark.skipif(deep(1) == 1, reason="by hand: --depth 2, or python -m tests.engines.combined_on_gloo")
def test_real_processes_run_it_as_recorded() -> None:
    """The release itself with torch on gloo, two expert peers: gradients of the undivided model, order and parts."""
    command = [sys.executable, "-m", "tests.engines.combined_on_gloo", str(SITES[0])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0, ran.stdout + ran.stderr


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        sizes = [(*size, delayed) for size in grid(8) for delayed in (False, True)]
        wrong = [x for x in sizes if recorded(folder, *x[:3], delay_wgrad_compute=x[3])[0] != published(*x[:3])]
        print(f"megatron-core {core(folder).version}: {len(sizes)} runs, {len(wrong)} differ {wrong[:3]}")
