"""A published stream is written as `dumps` writes it and read back unchanged; everything else is refused.

Golden streams are in ``emit/v2``; ``pytest --update-golden`` rewrites them after an intended change.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched import compile as compiler
from pipesched import stream
from pipesched.compile import Options
from pipesched.diagnostics import PipeschedError
from pipesched.formats import stream_write
from pipesched.library.assets import asset
from pipesched.model.ops import RECEIVES, SENDS, SHAPES, Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.orders import order_text, order_write, stream_read, stream_strict
from pipesched.support.source import Source
from pipesched.verbs import emit as emissions
from pipesched.verbs.verify import verify
from tests.depth import deep
from tests.makers import strategies
from tests.makers.programs import of_instructions

EMIT = Path(__file__).resolve().parents[2] / "emit"
MESSAGES = [op for op in (*SENDS, *RECEIVES) if op not in SHAPES]  # those that a stream can say
GOLDEN = {
    "gpipe": {"p": 2, "m": 3},
    "1f1b": {"p": 3, "m": 4},
    "interleaved": {"p": 2, "v": 2, "m": 4},
    "zb_h1": {"p": 3, "m": 4},
    "zb_h2": {"p": 3, "m": 5},
    "zb_v": {"p": 2, "m": 4},
    "dualpipe": {"p": 4, "m": 8},
    "dualpipev": {"p": 2, "m": 4},
}
BATCHED = """\
rank 0: F0.0 send:F0.0>1 F0.1 ( send:F0.1>1 recv:B1.0<1@1 ) B0.0 recv:B1.1<1@1 B0.1 reduce:0 step
rank 1: recv:F0.0<0 F1.0 B1.0 ( send:B1.0>0@1 recv:F0.1<0 ) F1.1 B1.1 send:B1.1>0@1 reduce:1 step
"""
SHARDED = """\
0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD
1RECV_F0,1UNSHARD,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0
"""
FROZEN = """\
schedule frozen(p = 3, m = 2)
stage s in 0 .. p on rank s
frozen 0
rank r { repeat m { F } repeat m { B } }
"""
READS = """\
schedule reads(p = 3, m = 2)
stage s in 0 .. p on rank s
stage 2 on rank 2 reads 1, 0
rank r { repeat m { F } repeat m { B } }
"""
SLICES = """\
schedule slices(p = 2, m = 4)
slices 2
stage s in 0 .. p on rank s
rank r { repeat m { F } repeat m { B } }
"""
OFFLOADED = """\
schedule offloaded(p = 2, m = 3)
stage s in 0 .. p on rank s
rank r { F F O F O L(0) B L B R(2) B }
"""
NEW = {
    "batched_p2_m2": (".txt", BATCHED),
    "sharded_p2_m1": (".csv", SHARDED),
    "frozen_p3_m2": (".ps", FROZEN),
    "reads_p3_m2": (".ps", READS),
    "slices_p2_m4": (".ps", SLICES),
    "offloaded_p2_m3": (".ps", OFFLOADED),
}
STEPPED = """\
schedule stepped(p = 3, m = 4)
stage s in 0 .. p on rank s
versions stash
rank r { let w = p - 1 - r  for i in 0 .. w + m { if i < m { F }  if i >= w { B  STEP } } }
"""
CALM = settings(derandomize=True, deadline=None, max_examples=deep(10))
VALIDATOR = Draft202012Validator(json.loads(asset("emit", "v2", "stream.schema.json").read_text("utf-8")))
COLUMNS = ("op", "stage", "microbatch", "peer", "communicator", "second", "start")


def emitted(source: Source, parameters: dict[str, int] | None = None) -> str:
    emission = emissions.emit(source, Options(parameters or {}), "stream")
    assert emission.report.ok, str(emission.report)
    return "".join(emission.pieces())


def golden(name: str) -> Path:
    return EMIT / "v2" / f"{name}_{'_'.join(f'{k}{v}' for k, v in GOLDEN[name].items())}.json"


def text_of(name: str) -> str:
    return golden(name).read_text("utf-8")


def slowly(program: Program, parameters: dict[str, int]) -> stream.Stream:
    """Return the stream of a program, one object per instruction."""
    placement = program.placement
    routes = [np.flatnonzero(placement.route_of == r).tolist() for r in range(placement.routes)]
    ranks = []
    for rank in range(program.ranks):
        made: list[stream.Instruction] = []
        batch = -1
        for x in program.instructions(rank):
            route = int(placement.route_of[x.microbatch]) if x.microbatch >= 0 else 0
            far = {"other": x.other, "communicator": x.communicator}
            one = stream.Instruction(x.op.name, x.stage, x.microbatch, route, x.peer, **far)
            if x.group >= 0:
                earlier = made.pop().parts if x.group == batch else ()
                one = stream.Instruction("BATCH", parts=(*earlier, one))
            made.append(stream.Instruction("OVERLAP", parts=(made.pop(), one)) if x.second else one)
            batch = x.group
        ranks.append(tuple(made))
    return stream.Stream(
        program.name,
        parameters,
        tuple(
            stream.Route(name, tuple(placement.rank_of[r].tolist()), (taken[0], taken[-1] + 1) if taken else (0, 0))
            for r, (name, taken) in enumerate(zip(placement.route_names, routes, strict=True))
        ),
        tuple(ranks),
        frozen=placement.frozen,
        reads=placement.reads,
        slices=placement.slices,
    )


def random_program(seed: int) -> Program:
    """Return a program with everything possible, in any order: pairs, batches, communicators, waits, frozen stages,
    routes."""
    rng = random.Random(seed)
    ranks, stages, microbatches, routes = rng.randint(1, 3), rng.randint(1, 4), rng.randint(2, 12), rng.randint(1, 2)

    def one(*kinds: Op, group: int = -1, second: bool = False) -> Instruction:
        op = rng.choice(kinds)
        stage = rng.randrange(stages) if op is not Op.STEP else -1
        microbatch = rng.randrange(microbatches) if op < Op.REDUCE_GRAD else -1
        message = op in MESSAGES
        peer = rng.randrange(ranks) if message or op is Op.SYNC else -1
        communicator = rng.choice((0, 0, 1, 12)) if message else 0
        skips = [t for s in reads for t in reads[s] if s == stage and 0 <= t < s - 1]
        back = [s for s in reads if stage in reads[s] and s > stage + 1]
        ends = {Op.SEND_F: back, Op.RECV_B: back, Op.RECV_F: skips, Op.SEND_B: skips}.get(op, [])
        other = rng.choice([-1, *ends])
        return Instruction(op, stage, microbatch, peer, group, communicator, second, other)

    reads = {}
    for stage in range(1, stages):
        read = {stage - 1, *rng.sample(range(-1, stage), rng.randint(0, 2 if stage > 1 else 1))}
        reads |= {stage: tuple(sorted(read, reverse=True))} if len(read) > 1 and rng.random() < 0.5 else {}
    lists = []
    for _ in range(ranks):
        made: list[Instruction] = []
        for batch in range(rng.randint(0, 9)):
            made += [one(*(op for op in Op if op not in SHAPES))] if rng.random() < 0.5 else []
            made += [one(Op.F), one(Op.I, Op.B, second=True)] if rng.random() < 0.3 else []
            made += [one(*MESSAGES, group=batch) for _ in range(rng.randint(0, 3))]
        lists.append(made)
    table = np.array([[rng.randrange(ranks) for _ in range(stages)] for _ in range(routes)], dtype=np.int32)
    route_of = np.sort(np.array([rng.randrange(routes) for _ in range(microbatches)], dtype=np.int32))
    frozen = tuple(sorted(rng.sample(range(stages), rng.randint(0, stages))))
    cuts = {0, microbatches, int(np.count_nonzero(route_of == 0))}
    slices = rng.choice([q for q in range(1, 5) if not any(cut % q for cut in cuts)])
    placement = Placement(table, route_of, ranks, ("down", "up")[:routes], frozen, reads, slices)
    program = of_instructions(lists, placement, "ä b")
    flat = [x for own in lists for x in own]
    far = [x.other if x.other >= 0 else x.stage + x.op.kind.of for x in flat]
    ends = [end if x.op in MESSAGES else -1 for x, end in zip(flat, far, strict=True)]
    return program if placement.chain else replace(program, other=np.array(ends, dtype=np.int32))


def ranged(schedule: Schedule) -> Schedule:
    """Return the same schedule, with the microbatches of each route numbered consecutively."""
    route_of = schedule.placement.route_of
    number = np.empty(len(route_of), dtype=np.int64)
    number[np.argsort(route_of, kind="stable")] = np.arange(len(route_of))
    placement = replace(schedule.placement, route_of=np.sort(route_of))
    return replace(schedule, placement=placement, microbatch=number[schedule.microbatch])


def read(text: str, **sizes: int) -> tuple[Program, dict[str, int]]:
    return stream_read.read(Source("a.json", text), sizes)


# Golden streams


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_streams_to_the_byte(name: str, update_golden: bool) -> None:
    """A schedule gives the same bytes in this release and the next."""
    made = emitted(compiler.read(name), GOLDEN[name])
    if update_golden:
        golden(name).write_text(made, "utf-8")

    assert made == text_of(name)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_streams_hold(name: str) -> None:
    """A published stream is verified without a finding, and follows the schema."""
    text = text_of(name)
    report = verify(Source("golden.json", text), Options())

    assert (report.ok, report.diagnostics) == (True, ())
    VALIDATOR.validate(json.loads(text))


@pytest.mark.parametrize("name", GOLDEN)
def test_a_stream_emitted_again_is_the_same(name: str) -> None:
    """Name, parameters, placement, order and fingerprint survive the round trip."""
    assert emitted(Source("any.json", text_of(name))) == text_of(name)


def test_a_step_inside_needs_version_3(update_golden: bool) -> None:
    """An order with STEPs inside is published as version 3, with its rule; the bytes are equal after a round trip. The
    same file as version 2, or a STEP without its stage, is refused.
    """
    path = EMIT / "v3" / "stepped_p3_m4.json"
    made = emitted(Source("stepped.ps", STEPPED))
    if update_golden:
        path.write_text(made, "utf-8")

    assert made == path.read_text("utf-8")
    Draft202012Validator(json.loads(asset("emit", "v3", "stream.schema.json").read_text("utf-8"))).validate(
        json.loads(made)
    )
    assert emitted(Source(path.name, made)) == made
    assert stream.dumps(stream.loads(made)) == made
    for text in (
        made.replace('"version": 3', '"version": 2'),
        made.replace('"versions": "stash"', '"versions": "newest"'),
        made.replace('{"op":"STEP","stage":1}', '{"op":"STEP"}', 1),
        made.replace('"stash"', '"latest"'),
    ):
        with pytest.raises(stream.StreamError):
            stream.loads(text)
    bare = [[replace(x, stage=-1) if x.op == "STEP" else x for x in of] for of in stream.loads(made).ranks]
    with pytest.raises(stream.StreamError, match="and only then, STEP has a stage"):  # its fingerprint is right
        stream.loads(stream.dumps(replace(stream.loads(made), ranks=tuple(map(tuple, bare)))))


@pytest.mark.parametrize("name", NEW)
def test_all_that_a_stream_can_say_is_published(name: str, update_golden: bool) -> None:
    """The published schema holds batches and communicators, torch's actions, frozen stages, readers, slices,
    recomputation and offloading; the bytes are equal after a round trip.
    """
    path = EMIT / "v2" / f"{name}.json"
    ending, text = NEW[name]
    made = emitted(Source(name.partition("_")[0] + ending, text))
    if update_golden:
        path.write_text(made, "utf-8")

    assert made == path.read_text("utf-8")
    VALIDATOR.validate(json.loads(made))
    assert emitted(Source(path.name, made)) == made


# The order notation


def test_the_page_of_the_notation_has_every_word() -> None:
    """Each word of emit/v2/README.md is read as the instruction next to it, and that instruction is written as the
    word."""
    page = (EMIT / "v2" / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| `(\{[^`]*\})` \|", page, re.MULTILINE)
    placement = Placement(np.arange(4, dtype=np.int32)[None], np.zeros(2, dtype=np.int32), 4, ("",))
    named = set()
    for word, text in rows:
        program = of_instructions([_instructions(word), [], [], []], placement)
        assert order_write.write(program).split("\n")[0] == f"rank 0: {word}"
        (one,) = slowly(program, {}).ranks[0]
        assert stream.instruction_text(one, 1) == text
        named |= {x.op for x in (one, *one.parts)}
    assert named == set(stream.FIELDS)


def _instructions(word: str) -> list[Instruction]:
    """Return the instructions of a word, read in a program that ends with another one."""
    found = order_text.read(Source("a.txt", f"rank 0: {word} step"))
    assert isinstance(found, Program)
    return found.instructions(0)[:-1]


# Written


@CALM
@given(strategies.schedules())
def test_columns_write_what_dumps_writes(schedule: Schedule) -> None:
    """The fast writer equals `dumps`, for every placement, with overlap pairs and two routes."""
    program = compiler.lower(ranged(schedule))

    assert "".join(stream_write.pieces(program, {"p": 3})) == stream.dumps(slowly(program, {"p": 3}))


@CALM
@given(strategies.SEEDS)
def test_a_stream_says_every_program(seed: int) -> None:
    """The text equals `dumps`, follows the schema, and reads back to the same columns, in any layout."""
    program = random_program(seed)
    text = "".join(stream_write.pieces(program, {"k": 3}))

    assert text == stream.dumps(slowly(program, {"k": 3}))
    assert stream.dumps(stream.loads(text)) == text
    VALIDATOR.validate(json.loads(text))
    for layout in (text, json.dumps(json.loads(text), indent=1)):
        made, _ = read(layout)
        for name in (*COLUMNS, "group"):
            a, b = getattr(made, name), getattr(program, name)
            assert np.array_equal(*map(numbered, (a, b), (made, program))) if name == "group" else np.array_equal(a, b)
        assert (made.placement.frozen, made.placement.reads) == (program.placement.frozen, program.placement.reads)
        assert [str(made[i]) for i in range(len(program))] == [str(program[i]) for i in range(len(program))]
        for index in range(len(program)):
            span = made.origin.place(index).span
            assert span is not None and json.loads(span.text)["op"] == program[index].op.name


def numbered(group: np.ndarray[Any, Any], program: Program) -> np.ndarray[Any, Any]:
    """Return the batches by their number over all ranks."""
    edge = np.diff(group, prepend=-2) != 0
    edge[program.start[:-1][program.start[:-1] < len(group)]] = True
    return np.where(group < 0, -1, np.cumsum(edge & (group >= 0)))


@pytest.mark.parametrize("name", GOLDEN)
def test_the_parts_of_the_ranks_make_the_stream(name: str) -> None:
    """Each rank's own file has its instructions and the common fingerprint."""
    whole = json.loads(text_of(name))
    parts = emissions.emit(compiler.read(name), Options(GOLDEN[name]), "stream").by_rank()

    for rank, part in enumerate(map(json.loads, parts)):
        VALIDATOR.validate(part)
        instructions = part.pop("instructions")
        assert part == {key: whole[key] for key in whole if key != "ranks"} | {"rank": rank}
        assert instructions == whole["ranks"][rank]


def test_scattered_microbatches_of_a_route_are_refused() -> None:
    """A route has one range of microbatches; the first gap is named."""
    text = "rank 0: F0.0 F1.1 F0.2 B1.1 B0.0 B0.2\nrank 1: F1.0 F0.1 F1.2 B1.0 B0.1 B1.2\n"

    with pytest.raises(PipeschedError, match=r"PS814.* microbatch 0 takes the route, but 1 does not"):
        list(stream_write.pieces(compiler.lower(compiler.load(Source("a", text), Options()).schedule), {}))


def test_what_a_stream_has_no_words_for_is_counted() -> None:
    """PS814 is reported at the first inexpressible instruction, with the number of others."""
    text = "rank 0: F0.0 sendshape:F0.0>1 send:F0.0>1 sendshape:F0.1>1\nrank 1: recvshape:F0.0<0 recv:F0.0<0\n"
    program = order_text.read(Source("a.txt", text))
    assert isinstance(program, Program)
    with pytest.raises(PipeschedError) as caught:
        stream_write.require_words(program.placement, program)
    (found,) = caught.value.diagnostics
    assert (str(found.code), found.notes) == ("PS814", ("and 2 more of this kind",))
    assert found.labels[0].span is not None and found.labels[0].span.text == "sendshape:F0.0>1"


# Read


@CALM
@given(strategies.schedules())
def test_both_readers_read_what_was_written(schedule: Schedule) -> None:
    """Our layout and a text on one line give the same columns, parameters and placement."""
    program = compiler.lower(ranged(schedule))
    text = "".join(stream_write.pieces(program, {"p": 3, "x": -7}))
    fast, slow = read(text), read(json.dumps(json.loads(text)))

    assert stream_read._as_written(Source("a", text)) is not None
    for made, parameters in (fast, slow):
        assert parameters == {"p": 3, "x": -7}
        for name in COLUMNS:
            assert np.array_equal(getattr(made, name), getattr(program, name)), name
        assert np.array_equal(made.placement.rank_of, program.placement.rank_of)
        assert np.array_equal(made.placement.route_of, program.placement.route_of)


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("indent", [None, 1])
def test_every_instruction_is_found_in_its_text(name: str, indent: int | None) -> None:
    """The label shows the JSON of the instruction at that place, in any layout; for a part of an overlap, the JSON of
    the part."""
    text = text_of(name)
    for layout in (text, json.dumps(json.loads(text), indent=indent)):
        program, _ = read(layout)
        for index in range(len(program)):
            span = program.origin.place(index).span
            assert span is not None
            found, x = json.loads(span.text), program[index]
            assert (found["op"], found.get("stage", -1), found.get("peer", -1)) == (x.op.name, x.stage, x.peer)
            assert found.get("microbatch", -1) == x.microbatch


def test_the_fast_reader_is_never_more_lenient() -> None:
    """`loads` accepts every stream with a mistake that the fast reader accepts, and returns the same text."""
    rng, taken = random.Random(0), 0
    for _ in range(deep(1000, usual=420)):
        text = text_of(rng.choice(list(GOLDEN)))
        at = rng.randrange(len(text))
        letter = rng.choice(["", *'0123456789,:"{}[] \n+-FB'])
        broken = text[:at] + letter + text[at + rng.randrange(2) :]
        made = stream_read._as_written(Source("a", broken))
        if made is not None and broken != text:
            taken += 1
            assert stream.dumps(stream.loads(broken)) == broken
    assert 0 < taken < deep(250)  # names and parameters may change, and nothing else


@pytest.mark.parametrize("name", [path.stem for path in sorted((EMIT / "v2").glob("*_p*.json"))])
def test_a_stream_is_read_alike_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns do not depend on the size of blocks; a text that ends early is refused (PS811)."""
    text = (EMIT / "v2" / f"{name}.json").read_text("utf-8")
    whole, _ = read(text)
    monkeypatch.setattr(stream_read, "_BLOCK", 1)
    pieces, _ = read(text)
    for column in (*COLUMNS, "group"):
        assert np.array_equal(getattr(pieces, column), getattr(whole, column))
    for end in (text.index('"ranks": [') + 10, len(text) // 2, len(text) - 3):
        assert [str(x.code) for x in verify(Source("a.json", text[:end]), Options()).diagnostics] == ["PS811"]


def edited(name: str, change: Callable[[dict[str, Any]], object], *, sign: bool = True) -> str:
    """Return a changed golden stream, with a matching fingerprint if possible."""
    data = json.loads(text_of(name))
    change(data)
    if sign:
        routes = tuple(stream.Route(x["name"], tuple(x["ranks"]), tuple(x["microbatches"])) for x in data["placement"])
        lines = [[json.dumps(x, separators=(",", ":")) for x in rank] for rank in data["ranks"]]
        said = [json.dumps(data[key], separators=(",", ":")) for key in ("frozen", "reads") if key in data]
        data["fingerprint"] = stream.fingerprint("\n".join([stream.placement_text(routes), *said]), lines)
    return json.dumps(data)


def first(data: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = data["ranks"][0][0]
    return made


SEND = {"op": "SEND_F", "stage": 0, "microbatch": 0, "peer": 1}
BROKEN: dict[str, tuple[str, str, Callable[[dict[str, Any]], object]]] = {
    "no such instruction": ("PS811", '"FORWARD"', lambda x: first(x).update(op="FORWARD")),
    "a field is missing": ("PS811", '{"op": "F", "stage": 0}', lambda x: first(x).pop("microbatch")),
    "a field too many": ("PS811", '"peer": 1}', lambda x: first(x).update(peer=1)),
    "a route without routes": ("PS811", '"route": 0}', lambda x: first(x).update(route=0)),
    "a text for a number": ("PS811", '"0"', lambda x: first(x).update(stage="0")),
    "a fraction": ("PS811", "0.5", lambda x: first(x).update(microbatch=0.5)),
    "a truth for a number": ("PS811", "true", lambda x: first(x).update(microbatch=True)),
    "a negative number": ("PS811", "-1", lambda x: first(x).update(stage=-1)),
    "a rank is no list": ("PS811", '"F0"', lambda x: x["ranks"].__setitem__(1, "F0")),
    "an instruction is no object": ("PS811", '"F0"', lambda x: x["ranks"][0].__setitem__(1, "F0")),
    "version 1": ("PS812", "1", lambda x: x.update(version=1)),
    "version 4": ("PS812", "4", lambda x: x.update(version=4)),
    "version 3 without versions": ("PS811", "{", lambda x: x.update(version=3)),
    "no version": ("PS812", "{", lambda x: x.pop("version")),
    "version true": ("PS812", "true", lambda x: x.update(version=True)),
    "no placement": ("PS811", "{", lambda x: x.pop("placement")),
    "no route": ("PS811", "[]", lambda x: x.update(placement=[])),
    "a route without a name": ("PS811", '{"ranks"', lambda x: x["placement"][0].pop("name")),
    "parameters are a list": ("PS811", "[1]", lambda x: x.update(parameters=[1])),
    "a name that is no text": ("PS811", "7", lambda x: x.update(name=7)),
    "an instruction was dropped": ("PS813", '"', lambda x: x["ranks"][0].pop()),
    "no fingerprint": ("PS813", "{", lambda x: x.pop("fingerprint")),
    "an empty batch": ("PS811", "[]", lambda x: x["ranks"][0].insert(0, {"op": "BATCH", "parts": []})),
    "a compute in a batch": ("PS811", "[", lambda x: x["ranks"][0].insert(0, {"op": "BATCH", "parts": [first(x)]})),
    "a message in a pair": ("PS811", "[", lambda x: x["ranks"][0].insert(0, {"op": "OVERLAP", "parts": [SEND, SEND]})),
    "three in a pair": (
        "PS811",
        "[",
        lambda x: x["ranks"][0].insert(0, {"op": "OVERLAP", "parts": [first(x), *[first(x) | {"op": "B"}] * 2]}),
    ),
    "communicator 0": ("PS811", "0", lambda x: x["ranks"][0].insert(0, SEND | {"communicator": 0})),
    "a compute has none": ("PS811", '"communicator": 1', lambda x: first(x).update(communicator=1)),
    "no stage is frozen": ("PS811", "[]", lambda x: x.update(frozen=[])),
    "frozen twice": ("PS811", "[0, 0]", lambda x: x.update(frozen=[0, 0])),
    "nothing is read": ("PS811", "{}", lambda x: x.update(reads={})),
    "a stage that is no number": ("PS811", '"one"', lambda x: x.update(reads={"one": [0]})),
    "frozen without the fingerprint": ("PS813", '"', lambda x: x.update(frozen=[0])),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_stream_is_told_with_its_place(what: str) -> None:
    """Each slip has its code, and the label begins at the wrong value; the schema refuses it too."""
    code, shown, change = BROKEN[what]
    text = edited("gpipe", change, sign=False)
    report = verify(Source("a.json", text), Options())
    (found,) = report.diagnostics
    span = found.labels[0].span

    assert str(found.code) == code
    assert span is not None and (shown in span.text if shown != "{" else span.start == 0), span.text
    assert shown == "{" or len(span.text) < 200
    holds = VALIDATOR.is_valid(json.loads(text))
    assert not holds or what in ("an instruction was dropped", "frozen without the fingerprint")


def test_every_value_of_a_text_is_found_by_its_path() -> None:
    """In any layout of the text, the value that a path names begins at its place."""
    rng = random.Random(0)

    def grown(depth: int) -> Any:
        if depth and rng.random() < 0.6:
            inner = [grown(depth - 1) for _ in range(rng.randint(0, 3))]
            return inner if rng.random() < 0.5 else dict(zip("abc", inner, strict=False))
        return rng.choice([7, -1, "x", 'a": [', "{,}", "\\", "", None, True, [], {}])

    def paths(value: Any, path: str) -> Iterator[tuple[str, Any]]:
        yield path, value
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in inner:
            yield from paths(each, f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}")

    for _ in range(deep(150)):
        value = grown(4)
        text = json.dumps(value, indent=rng.choice([None, 1]), separators=rng.choice([(",", ":"), (" , ", " : ")]))
        for path, each in paths(value, ""):
            begin = stream_strict.begin_of(f"\n {text}", path)
            found, _ = json.JSONDecoder().raw_decode(f"\n {text}", begin)
            assert json.dumps(found) == json.dumps(each), (text, path)


def test_another_version_is_refused_with_a_remedy() -> None:
    """PS812 at the number, whatever else the stream has; a stream of version 1 is right with a 2 in its place."""
    text = text_of("gpipe").replace('"version": 2', '"version": 1')
    (found,) = verify(Source("a.json", text), Options()).diagnostics
    span = found.labels[0].span

    assert (str(found.code), found.message) == ("PS812", "this reader supports versions 2 and 3, not 1")
    assert span is not None and text[: span.start].endswith('"version": ') and "emit the stream again" in found.help
    assert verify(Source("a.json", text[: span.start] + "2" + text[span.start + 1 :]), Options()).ok


def test_two_slips_at_once_have_a_place() -> None:
    """A message whose parts are an object, after a batch with a compute: the first is reported."""
    batch = {"op": "BATCH", "parts": [{"op": "F", "stage": 0, "microbatch": 0}]}
    text = edited("gpipe", lambda x: x["ranks"][0].__setitem__(slice(0, 1), [SEND | {"parts": {}}, batch]))
    (found,) = verify(Source("a.json", text), Options()).diagnostics
    assert str(found.code) == "PS811" and "ranks[0][0]" in found.message


def test_what_json_schema_cannot_say_is_refused_too() -> None:
    """Frozen stages that do not exist, or out of order; a neighbour that is named; readers."""
    send = SEND | {"microbatch": 2}
    changes: tuple[tuple[Callable[[dict[str, Any]], object], str], ...] = (
        (lambda x: x.update(frozen=[1, 0]), "frozen: existing stages, ascending"),
        (lambda x: x.update(frozen=[7]), "frozen: existing stages, ascending"),
        (lambda x: x["ranks"][0].insert(9, send | {"other": 1}), "other: omit it if it is the neighbouring stage"),
        (lambda x: x["ranks"][0].insert(9, send | {"other": 2}), "stage 2 does not read stage 0"),
        (lambda x: x.update(reads={"1": [0]}), "reads.1: omit it if it contains only the previous stage"),
        (lambda x: x.update(reads={"1": [-1]}), "reads: no stage reads stage 0"),
        (lambda x: x.update(reads={"1": [-1, 0]}), "reads.1: earlier stages, the nearest first"),
        (lambda x: x.update(reads={"2": [0]}), "reads: stage 2 does not exist"),
        (lambda x: x.update(slices=7), "slices: the number of microbatches per sequence, on one route"),
    )
    for change, words in changes:
        report = verify(Source("a.json", edited("gpipe", change)), Options())
        assert words in report.diagnostics[0].message, str(report)
    report = verify(Source("a.json", edited("dualpipe", lambda x: first(x).update(route=2))), Options())
    assert "route: there are 2 routes" in report.diagnostics[0].message, str(report)


def test_the_key_of_odd_copies_is_there_exactly_where_they_are() -> None:
    """Two copies of a stage sync alike in every version: the key, with a right fingerprint, would say otherwise."""
    odd = replace(stream.loads(text_of("dualpipe")), sync="any")
    with pytest.raises(stream.StreamError, match="sync"):
        stream.loads(stream.dumps(odd))


@pytest.mark.parametrize(
    ("name", "change", "code", "words"),
    [
        ("gpipe", lambda x: x["placement"][0].update(ranks=[0, 5]), "PS811", "rank 5, but the stream has 2 ranks"),
        ("gpipe", lambda x: x["placement"][0].update(microbatches=[1, 3]), "PS811", "microbatch 0 has no route"),
        ("gpipe", lambda x: x["placement"][0].update(microbatches=[0, 0]), "PS811", "no route has microbatches"),
        ("gpipe", lambda x: x["placement"][0].update(microbatches=[0, 10**9]), "PS304", "1,000,000,000 microbatches"),
        ("gpipe", lambda x: x["parameters"].update(m=9), "PS811", "m is 9, but the routes have"),
        ("gpipe", lambda x: x.update(version="2"), "PS812", 'not "2"'),
        ("gpipe", lambda x: first(x).update(stage=10**9), "PS304", "beyond the limit"),
        ("gpipe", lambda x: first(x).update(microbatch=7), "PS304", "out of range"),
        ("gpipe", lambda x: x["ranks"][0][1].update(peer=9), "PS404", "names rank 9"),
        ("gpipe", lambda x: x["ranks"].append([]), "PS902", "rank 2"),
        ("dualpipe", lambda x: x["placement"][1].update(microbatches=[3, 8]), "PS811", "microbatch 3 has two routes"),
        ("dualpipe", lambda x: first(x).update(route=1), "PS811", "takes route 0, not 1"),
        ("zb_h1", lambda x: x["ranks"][0].pop(0), "PS301", "stage 0 never runs F"),
    ],
)
def test_what_is_json_and_no_program_is_told_too(
    name: str, change: Callable[[dict[str, Any]], object], code: str, words: str
) -> None:
    """A stream with a right fingerprint is judged like any program, and no number causes large tables."""
    report = verify(Source("a.json", edited(name, change)), Options())
    said = [diagnostic.message for diagnostic in report.diagnostics if str(diagnostic.code) == code]

    assert said and words in said[0], str(report)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expecting property name"),
        ("[]", "a stream must be an object"),
        ('{"version": 2, "version": 2}', "'version' twice"),
        ('{"version": 2' + "0" * 5000 + "}", "300 digits"),
        ("[" * 100_000, "100 deep"),
        (text_of("gpipe") + "\n  ]\n}\n", "extra data"),
        (text_of("gpipe").replace('"m":3}', '"m":"3"}'), "parameters: whole numbers by name"),
        (text_of("gpipe").replace('"ranks": [', '"note": 0,\n  "ranks": [').replace(": 2,", ": 2.0,"), "version"),
    ],
)
def test_other_texts_are_no_stream(text: str, words: str) -> None:
    """Any other text gives PS811, or the error of a version or a budget, and no exception."""
    report = verify(Source("a.json", text), Options())
    others = {"version": "PS812", "300 digits": "PS843", "100 deep": "PS843"}

    assert [str(x.code) for x in report.diagnostics] == [others.get(words, "PS811")]
    assert words in report.diagnostics[0].message


def test_other_keys_of_the_outer_object_are_ignored() -> None:
    """A later addition to the version is ignored by today's reader; the program is the same."""
    text = text_of("gpipe").replace('"ranks": [\n', '"note": {"by": []},\n  "ranks": [\n')

    assert "".join(stream_write.pieces(*read(text))) == text_of("gpipe") != text


def test_empty_ranks_cost_what_they_say() -> None:
    """Many ranks, only two of which have operations, are refused at once (PS304), in any layout."""
    many = deep(100_000, usual=20_000)
    text = edited("gpipe", lambda x: x["ranks"].extend([] for _ in range(many)))
    for layout in (text, stream.dumps(stream.loads(text))):
        (found,) = verify(Source("a.json", layout), Options()).diagnostics
        assert str(found.code) == "PS304" and f"{many + 2:,} ranks" in found.message


@pytest.mark.parametrize("sizes", [{"m": 5}, {"p": 4}, {"v": 3}, {"x": 1}])
def test_sizes_given_must_be_those_of_the_stream(sizes: dict[str, int]) -> None:
    """A stream has one size: a request for another size is a mistake (PS803), a request for the same size is not."""
    source = Source("a.json", text_of("interleaved"))

    assert [str(x.code) for x in verify(source, Options(sizes)).diagnostics] == ["PS803"]
    assert verify(source, Options(GOLDEN["interleaved"])).ok
