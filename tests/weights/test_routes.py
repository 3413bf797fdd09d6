"""Families of routes, placement by microbatch and skipped stages give the right orders and gradients, and SYNC sums any
number of copies."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

import pipesched
from pipesched.compile import load, lower
from pipesched.examine import Options
from pipesched.library.assets import asset
from pipesched.model.ops import Op
from pipesched.model.schedule import Program
from pipesched.stream import loads, meetings
from pipesched.support.source import Source

HEAD = "schedule f(p, m)\n"
ONE_LIST = "rank r { repeat m { F  B } }\n"


def stream_of(name: str, **sizes: int) -> dict[str, object]:
    """Return the stream of a library file as data."""
    made: dict[str, object] = json.loads(pipesched.emit(name, **sizes))
    return made


@pytest.mark.parametrize("p", [2, 4, 6, 8])
@pytest.mark.parametrize("units", [1, 3])
def test_one_pair_has_the_fingerprint_of_chimera(p: int, units: int) -> None:
    """Streams of the file for any number of pairs are equal to those of the file that writes out one pair."""
    one, other = stream_of("chimera_n", p=p, m=units * p, n=1), stream_of("chimera", p=p, m=units * p)
    assert one["fingerprint"] == other["fingerprint"]


@pytest.mark.parametrize(
    ("p", "m", "fingerprint"),
    [
        (4, 4, "ee7938a520e84287f69a63ec280ca7181d55b2720b1bf7cc183a832051663071"),
        (4, 12, "c406f2b97340f479ada40d6a76a4d77033544610679fedc17cc56e0354d16043"),
        (8, 8, "71a46a53572e6ab8942bc3703e030316ad5c6b6467b3299afb43461c9e8dfc6e"),
        (8, 24, "e4638e7b52cb71a63e97432bc5c61e0dc88ae1849aff4b5d5973de4b132cfe08"),
    ],
)
def test_chimera2_is_an_alias_with_the_fingerprints_that_it_had(p: int, m: int, fingerprint: str) -> None:
    """The library had a file that wrote out two pairs; these are fingerprints of its streams at 9aad0854."""
    assert stream_of("chimera2", p=p, m=m)["fingerprint"] == fingerprint


def test_four_pairs_have_no_idle_time() -> None:
    """With 2n = p routes every slot is taken: makespan is the work of a rank."""
    report = pipesched.verify("chimera_n", p=8, m=16, n=4)
    assert report.ok and report.time is not None and report.time.makespan == 16 * 3


@pytest.mark.parametrize("p", range(2, 9))
def test_attention_is_in_no_bubble_of_helix(p: int) -> None:
    """Idle time is that of the other stages, however long an attention takes; its claims hold there too."""
    for m in (p, 2 * p):
        idle = set()
        for time in (1, 4, 25):
            each = [time if stage % 2 else 1 for stage in range(2 * p - 1)]
            report = pipesched.verify("helix", p=p, m=m, costs={"F": each, "I": each, "W": 1})
            assert report.ok and report.time is not None
            idle.add(max(report.time.idle))
        assert len(idle) == 1


@pytest.mark.parametrize("n", [3, 4])
def test_a_lost_rank_costs_no_more_than_its_work(n: int) -> None:
    """Each rank of n pipelines lost in turn: the makespan is the work of a peer and the way to it, which bound it."""
    p, m = 2, 2 * n * (n - 1)
    for lost in range(n * p):
        report = pipesched.verify("recycle", p=p, n=n, m=m, lost=lost)
        assert report.ok and report.time is not None
        assert report.time.makespan == 3 * (m // n + m // n // (n - 1)) + lost % p


@pytest.mark.parametrize("copies", range(1, 40))
def test_all_copies_have_the_sum(copies: int) -> None:
    """By the contract: a meeting adds what two copies hold, or hands over a whole that contains the other's; each pair
    meets once, and only the last meetings of a number that is no power of 2 hand over.
    """
    held = [{i} for i in range(copies)]
    pairs = meetings([10 + i for i in range(copies)])
    for one, other in ((low - 10, high - 10) for low, high in pairs):
        assert held[one].isdisjoint(held[other]) or held[other] < held[one]
        held[one] = held[other] = held[one] | held[other]
    assert held == [{*range(copies)}] * copies and len({*pairs}) == len(pairs)


def test_sync_of_three_copies_needs_version_3() -> None:
    """A reader of version 2 would add a sum twice; without the key, or with it on two copies, it is no stream."""
    made = stream_of("recycle", p=2, n=3, m=6, lost=0)
    assert (made["version"], made["sync"]) == (3, "any")
    text = pipesched.emit("recycle", p=2, n=3, m=6, lost=0)
    assert loads(text).sync == "any" and pipesched.verify(Source("x.json", text)).ok
    lacks = pipesched.verify(Source("x.json", text.replace('  "sync": "any",\n', "")))
    assert [str(x.code) for x in lacks.diagnostics] == ["PS811"]
    assert "sync" not in stream_of("chimera2", p=4, m=4) and stream_of("chimera2", p=4, m=4)["version"] == 2


def program(text: str, **sizes: int) -> Program:
    """Return the lowered program of a file."""
    return lower(load(Source("f.ps", text), Options(sizes)).schedule)


SOME = """schedule some(p = 5, m = 6)
stage s in 0 .. p on rank s when s == 0 or s == p - 1 or i % 3 == 2 for microbatch i in 0 .. m
rank r { let n = if r == 0 or r == p - 1 then m else m // 3  repeat n { F }  repeat n { B } }
"""


@pytest.mark.parametrize("text", ["", SOME])
def test_a_stage_that_is_left_out_is_passed_by(text: str) -> None:
    """Each microbatch goes through exactly the stages of its route, in order, and back. From rank to rank there is a
    message, and its other end is the next stage that it has; the stages left out run nothing of it.
    """
    made = program(text or asset("schedules", "skippipe.ps").read_text("utf-8"), p=5, m=6)
    for i in range(6):
        way = [s for s in range(5) if s in (0, 4) or (i % 3 == 2 if text else i % 3 != s - 1)]
        ran = sorted({int(s) for s in made.stage[(made.op == Op.F) & (made.microbatch == i)]})
        assert ran == way and made.other is not None
        for send, there in ((Op.SEND_F, way), (Op.SEND_B, way[::-1])):
            sends = (made.op == send) & (made.microbatch == i)
            ends = zip(made.stage[sends].tolist(), made.other[sends].tolist(), strict=True)
            assert sorted(ends) == sorted(pairwise(there))


def test_what_is_left_out_is_not_missed() -> None:
    """Where one operation is missing, the findings name it and no other, frozen stages or not."""
    for frozen in ("", "frozen 0\n"):
        text = SOME + frozen
        right = pipesched.verify(Source("some.ps", text), p=5, m=6)
        assert right.ok and right.memory.notes == ()  # no stage has several copies
        report = pipesched.verify(Source("some.ps", text.replace("n { B }", "n - r // 4 { B }")), p=5, m=6)
        assert [x.message for x in report.diagnostics] == [
            "stage 4 never runs B (or I and W) of microbatch 5 on rank 4"
        ]


def test_a_chunk_is_the_copy_of_a_stage() -> None:
    """Where microbatches are placed one by one, `F[c]` takes the next microbatch that runs there; a name of another
    microbatch is refused with those that do.
    """
    text = "schedule f(p, m)\nstage s in 0 .. 2 on rank i % 2 for microbatch i in 0 .. m\n"
    order = load(
        Source("f.ps", text + "rank r { repeat m // 2 { F[0]  F[1]  B[1]  B[0] } }"), Options({"p": 2, "m": 6})
    )
    made = order.schedule
    assert made.microbatch[(made.rank == 1) & (made.op == Op.F) & (made.stage == 0)].tolist() == [1, 3, 5]
    wrong = pipesched.verify(Source("f.ps", text + "rank r { F[0](r + 1) }"), p=2, m=6)
    assert "runs only microbatches 0 to 4 except 1, 3" in wrong.diagnostics[0].message


ERRORS = {
    "no member": ("route a[k] in 0 .. 0: stage s in 0 .. p on rank s for microbatch 0 .. m\n", "PS216", "0 members"),
    "a rank without a member": (
        "route a[k] in 0 .. 2: stage s in 0 .. p on rank s * k for microbatch 2 * k .. 2 * k + 2\n",
        "PS216",
        "rank 0 has 1 stages of route a2, and 2 of a",
    ),
    "two names": (
        "route a[k] in 0 .. 2: stage s in 0 .. p on rank s for microbatch k .. k + 1\n"
        "route a2: stage s in 0 .. p on rank s for microbatch 2 .. 4\n",
        "PS216",
        "two routes are called `a2`",
    ),
    "the last stage": ("stage s in 0 .. p on rank s when s < p - 1\n", "PS215", "the last stage computes the loss"),
    "the first stage": (
        "stage s in 0 .. p on rank s when s + i > 0 for microbatch i in 0 .. m\n",
        "PS215",
        "the input of",
    ),
    "run by nobody": ("stage s in 0 .. 4 on rank s % p when s != 2\n", "PS215", "no route contains stage 2"),
    "left out twice": (
        "stage s in 0 .. 4 on rank s % p\nstage 2 on rank 0 when m < 0\nstage 2 on rank 0 when m < 0\n",
        "PS215",
        "stage 2 is placed twice",
    ),
    "a hole": ("stage 0 on rank 0\nstage 2 on rank 1\n", "PS215", "stage 1 is not placed"),
    "two routes of a microbatch": (
        "route a: stage s in 0 .. p on rank s for microbatch 0 .. 3\n"
        "route b: stage s in 0 .. p on rank s for microbatch 2 .. 4\n",
        "PS216",
        "microbatch 2 takes more than one route",
    ),
    "with reads": (
        "stage s in 0 .. 4 on rank s % p reads 0 - 1 when s != 2\n",
        "PS215",
        "no stage reads",
    ),
    "a microbatch without a place": (
        "stage s in 0 .. p on rank s for microbatch i in 0 .. m - 1\n",
        "PS216",
        "microbatch 3 takes no route",
    ),
    "a condition that is a number": ("stage s in 0 .. p on rank s when s\n", "PS205", "expected a boolean"),
    "too many": (
        "stage s in 0 .. 10000 on rank s % p for microbatch i in 0 .. 1000\n",
        "PS210",
        "at least 10000000 stages",
    ),
}


@pytest.mark.parametrize("what", ERRORS)
def test_a_wrong_placement_is_refused_at_its_line(what: str) -> None:
    """Each mistake has one error, at a `stage` line."""
    lines, code, said = ERRORS[what]
    (found,) = pipesched.verify(Source("f.ps", HEAD + lines + ONE_LIST), p=2, m=4).diagnostics
    assert str(found.code) == code and said in found.message, found
    assert found.where is not None and found.where.source.text[: found.where.start].count("\n") >= 1


@pytest.mark.usefixtures("one_supervisor")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("recycle", {"p": 2, "n": 3, "m": 6}), pytest.param("skippipe", {"p": 4, "m": 4}, marks=pytest.mark.nightly)],
)
def test_gradients_are_those_of_the_undivided_model(name: str, sizes: dict[str, int]) -> None:
    """On processes: three copies of a stage sum their gradients, and a model that leaves out the same stages agrees."""
    made = pipesched.run(name, **sizes, steps=2, pace=0)
    assert isinstance(made, pipesched.Rehearsal) and made.ok and made.error < 1e-12
    assert made.counted == made.peak


def test_frozen_copies_have_no_gradients() -> None:
    """Copies of frozen stages are said to cost parameters only; one stage is not called stages."""
    notes = [
        str(pipesched.verify(name, **sizes)) for name, sizes in (("helix", {"p": 3}), ("recycle", {"p": 2, "m": 6}))
    ]
    assert "3 copies of stages 1, 3: frozen parameters take 3 times as much" in notes[0]
    assert "3 copies of stage 0, 2 copies of stage 1: parameters and their gradients take 3 times" in notes[1]
