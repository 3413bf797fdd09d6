"""The published stream: what is written is what `dumps` writes, what is read is what was written, and nothing else.

Golden streams are in ``emit/v1``; ``pytest --update-golden`` writes them anew after a change that is meant.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched import compile as compiler
from pipesched import stream
from pipesched.assets import asset
from pipesched.compile import Options
from pipesched.diagnostics import PipeschedError
from pipesched.formats import stream_read, stream_write
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.source import Source
from pipesched.verbs import emit as emissions
from pipesched.verbs.verify import verify
from tests.depth import deep
from tests.makers import strategies

EMIT = Path(__file__).resolve().parent.parent / "emit" / "v1"
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
CALM = settings(derandomize=True, deadline=None, max_examples=deep(40))
VALIDATOR = Draft202012Validator(json.loads(asset("emit", "v1", "stream.schema.json").read_text("utf-8")))
COLUMNS = ("op", "stage", "microbatch", "peer", "second", "start")


def emitted(name: str, parameters: dict[str, int]) -> str:
    emission = emissions.emit(compiler.read(name), Options(parameters), "stream")
    assert emission.report.ok, str(emission.report)
    return "".join(emission.pieces())


def golden(name: str) -> Path:
    return EMIT / f"{name}_{'_'.join(f'{k}{v}' for k, v in GOLDEN[name].items())}.json"


def text_of(name: str) -> str:
    return golden(name).read_text("utf-8")


def slowly(program: Program, parameters: dict[str, int]) -> stream.Stream:
    """The stream of a program, an object an instruction."""
    placement = program.placement
    routes = [np.flatnonzero(placement.route_of == r).tolist() for r in range(placement.routes)]
    ranks = []
    for rank in range(program.ranks):
        made: list[stream.Instruction] = []
        for x in program.instructions(rank):
            route = int(placement.route_of[x.microbatch]) if x.microbatch >= 0 else 0
            one = stream.Instruction(x.op.name, x.stage, x.microbatch, route, x.peer)
            made.append(stream.Instruction("OVERLAP", parts=(made.pop(), one)) if x.second else one)
        ranks.append(tuple(made))
    return stream.Stream(
        program.name,
        parameters,
        tuple(
            stream.Route(name, tuple(placement.rank_of[r].tolist()), (taken[0], taken[-1] + 1) if taken else (0, 0))
            for r, (name, taken) in enumerate(zip(placement.route_names, routes, strict=True))
        ),
        tuple(ranks),
    )


def ranged(schedule: Schedule) -> Schedule:
    """The same schedule with microbatches numbered so that those of a route follow each other."""
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
    """The same schedule gives the same bytes, in this version and the next."""
    made = emitted(name, GOLDEN[name])
    if update_golden:
        golden(name).write_text(made, "utf-8")

    assert made == text_of(name)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_streams_hold(name: str) -> None:
    """What is published is verified without a finding, and follows the schema."""
    report = verify(Source("golden.json", text_of(name)), Options())

    assert (report.ok, report.diagnostics) == (True, ())
    VALIDATOR.validate(json.loads(text_of(name)))


@pytest.mark.parametrize("name", GOLDEN)
def test_a_stream_emitted_again_is_the_same(name: str) -> None:
    """Name, parameters, placement, order and fingerprint go through the program and back."""
    emission = emissions.emit(Source("any.json", text_of(name)), Options(), "stream")

    assert "".join(emission.pieces()) == text_of(name)


# Written


@CALM
@given(strategies.schedules())
def test_columns_write_what_dumps_writes(schedule: Schedule) -> None:
    """The fast writer is `dumps`, for every placement, overlap pairs and two routes included."""
    program = compiler.lower(ranged(schedule))

    assert "".join(stream_write.pieces(program, {"p": 3})) == stream.dumps(slowly(program, {"p": 3}))


@pytest.mark.parametrize("name", GOLDEN)
def test_the_parts_of_the_ranks_make_the_stream(name: str) -> None:
    """Each rank's own file has its instructions and the fingerprint of all."""
    whole = json.loads(text_of(name))
    parts = emissions.emit(compiler.read(name), Options(GOLDEN[name]), "stream").by_rank()

    for rank, part in enumerate(map(json.loads, parts)):
        VALIDATOR.validate(part)
        instructions = part.pop("instructions")
        assert part == {key: whole[key] for key in whole if key != "ranks"} | {"rank": rank}
        assert instructions == whole["ranks"][rank]


def test_scattered_microbatches_of_a_route_are_refused() -> None:
    """A route has a range of microbatches; the first gap is named."""
    text = "rank 0: F0.0 F1.1 F0.2 B1.1 B0.0 B0.2\nrank 1: F1.0 F0.1 F1.2 B1.0 B0.1 B1.2\n"

    with pytest.raises(PipeschedError, match=r"PS814.* 0 takes it and 1 does not"):
        list(stream_write.pieces(compiler.lower(compiler.load(Source("a", text), Options()).schedule), {}))


@pytest.mark.parametrize("word", ["unshard:0", "( send:F0.0>1 )", "send:F0.0>1@1"])
def test_what_version_1_has_no_words_for_is_refused(word: str) -> None:
    """Sharding, fused batches and second communicators: PS814 at the instruction."""
    send = word if "send" in word else f"{word} send:F0.0>1"
    back = "recv:F0.0<0@1" if "@1" in word else "recv:F0.0<0"
    text = f"rank 0: F0.0 {send} recv:B1.0<1 B0.0 reduce:0\nrank 1: {back} F1.0 B1.0 send:B1.0>0 reduce:1\n"
    emission = emissions.emit(Source("a.txt", text), Options(), "stream")

    assert [str(d.code) for d in emission.report.diagnostics] == ["PS814"]
    span = emission.report.diagnostics[0].labels[0].span
    assert span is not None and span.line == 1 and emission.order is None


# Read


@CALM
@given(strategies.schedules())
def test_both_readers_read_what_was_written(schedule: Schedule) -> None:
    """As we lay it out, and on one line: the same columns, parameters and placement."""
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
    """A label shows the JSON of the very instruction, in any layout; a part of an overlap shows the part."""
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
    """A slip of the hand in a stream: what the fast reader takes, `loads` takes too, and it is the same text."""
    rng, taken = random.Random(0), 0
    for _ in range(2000):
        text = text_of(rng.choice(list(GOLDEN)))
        at = rng.randrange(len(text))
        letter = rng.choice(["", *'0123456789,:"{}[] \n+-FB'])
        broken = text[:at] + letter + text[at + rng.randrange(2) :]
        made = stream_read._as_written(Source("a", broken))
        if made is not None and broken != text:
            taken += 1
            assert stream.dumps(stream.loads(broken)) == broken == "".join(stream_write.pieces(*made))
    assert 0 < taken < 500  # names and parameters may change, and nothing else


def edited(name: str, change: Callable[[dict[str, Any]], object], *, sign: bool = True) -> str:
    """A golden stream with a change, under the fingerprint of the changed one where that can be said."""
    data = json.loads(text_of(name))
    change(data)
    if sign:
        routes = tuple(stream.Route(x["name"], tuple(x["ranks"]), tuple(x["microbatches"])) for x in data["placement"])
        lines = [[json.dumps(x, separators=(",", ":")) for x in rank] for rank in data["ranks"]]
        data["fingerprint"] = stream.fingerprint(stream.placement_text(routes), lines)
    return json.dumps(data)


def first(data: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = data["ranks"][0][0]
    return made


BROKEN: dict[str, tuple[str, str, Callable[[dict[str, Any]], object]]] = {
    "no such instruction": ("PS811", '"FORWARD"', lambda x: first(x).update(op="FORWARD")),
    "UNSHARD is torch's": ("PS811", '"UNSHARD"', lambda x: x["ranks"][0].insert(0, {"op": "UNSHARD", "stage": 0})),
    "a field is missing": ("PS811", '{"op": "F", "stage": 0}', lambda x: first(x).pop("microbatch")),
    "a field too many": ("PS811", '"peer": 1}', lambda x: first(x).update(peer=1)),
    "a route without routes": ("PS811", '"route": 0}', lambda x: first(x).update(route=0)),
    "a text for a number": ("PS811", '"0"', lambda x: first(x).update(stage="0")),
    "a fraction": ("PS811", "0.5", lambda x: first(x).update(microbatch=0.5)),
    "a truth for a number": ("PS811", "true", lambda x: first(x).update(microbatch=True)),
    "a negative number": ("PS811", "-1", lambda x: first(x).update(stage=-1)),
    "a rank is no list": ("PS811", '"F0"', lambda x: x["ranks"].__setitem__(1, "F0")),
    "an instruction is no object": ("PS811", '"F0"', lambda x: x["ranks"][0].__setitem__(1, "F0")),
    "version 2": ("PS812", "2", lambda x: x.update(version=2)),
    "no version": ("PS812", "{", lambda x: x.pop("version")),
    "version true": ("PS812", "true", lambda x: x.update(version=True)),
    "no placement": ("PS811", "{", lambda x: x.pop("placement")),
    "no route": ("PS811", "[]", lambda x: x.update(placement=[])),
    "a route without a name": ("PS811", '{"ranks"', lambda x: x["placement"][0].pop("name")),
    "parameters are a list": ("PS811", "[1]", lambda x: x.update(parameters=[1])),
    "a name that is no text": ("PS811", "7", lambda x: x.update(name=7)),
    "an instruction was dropped": ("PS813", '"', lambda x: x["ranks"][0].pop()),
    "no fingerprint": ("PS813", "{", lambda x: x.pop("fingerprint")),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_stream_is_told_with_its_place(what: str) -> None:
    """Each slip has its code, and the label begins at the value that is wrong; the schema refuses it too."""
    code, shown, change = BROKEN[what]
    text = edited("gpipe", change, sign=False)
    report = verify(Source("a.json", text), Options())
    (found,) = report.diagnostics
    span = found.labels[0].span

    assert str(found.code) == code
    assert span is not None and (shown in span.text if shown != "{" else span.start == 0), span.text
    assert what == "an instruction was dropped" or not VALIDATOR.is_valid(json.loads(text))


@pytest.mark.parametrize(
    ("name", "change", "code", "words"),
    [
        ("gpipe", lambda x: x["placement"][0].update(ranks=[0, 5]), "PS811", "rank 5, but the stream has 2 ranks"),
        ("gpipe", lambda x: x["placement"][0].update(microbatches=[1, 3]), "PS811", "microbatch 0 has no route"),
        ("gpipe", lambda x: x["placement"][0].update(microbatches=[0, 0]), "PS811", "no route has microbatches"),
        ("gpipe", lambda x: x["placement"][0].update(microbatches=[0, 10**9]), "PS304", "1,000,000,000 microbatches"),
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
    """A stream with a fingerprint of its own is judged as any program is, and no number makes tables of its size."""
    report = verify(Source("a.json", edited(name, change)), Options())
    said = [diagnostic.message for diagnostic in report.diagnostics if str(diagnostic.code) == code]

    assert said and words in said[0], str(report)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expecting property name"),
        ("[]", "a stream is an object"),
        ('{"version": 1, "version": 1}', "'version' twice"),
        ('{"version": 1' + "0" * 5000 + "}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (text_of("gpipe") + "\n  ]\n}\n", "extra data"),
        (text_of("gpipe").replace('"m":3}', '"m":"3"}'), "parameters: whole numbers by name"),
        (text_of("gpipe").replace('"ranks": [', '"note": 0,\n  "ranks": [').replace(": 1,", ": 1.0,"), "version"),
    ],
)
def test_other_texts_are_no_stream(text: str, words: str) -> None:
    """PS811, and no exception, whatever the text."""
    report = verify(Source("a.json", text), Options())

    assert [str(x.code) for x in report.diagnostics] == ["PS812" if words == "version" else "PS811"]
    assert words in report.diagnostics[0].message


def test_other_keys_of_the_outer_object_are_ignored() -> None:
    """As a later addition to version 1 would be; the program is the same."""
    text = text_of("gpipe").replace('"ranks": [\n', '"note": {"by": []},\n  "ranks": [\n')

    assert "".join(stream_write.pieces(*read(text))) == text_of("gpipe") != text


@pytest.mark.parametrize("sizes", [{"m": 5}, {"p": 4}, {"v": 3}, {"x": 1}])
def test_sizes_given_must_be_those_of_the_stream(sizes: dict[str, int]) -> None:
    """A stream has one size; another one asked for is a mistake (PS803), the same one is none."""
    source = Source("a.json", text_of("interleaved"))

    assert [str(x.code) for x in verify(source, Options(sizes)).diagnostics] == ["PS803"]
    assert verify(source, Options(GOLDEN["interleaved"])).ok
