"""Reports as text and as JSON have exact numbers, the documented layout and the published schema."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from textwrap import dedent
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.library.assets import asset
from pipesched.model.units import NO_UNIT
from pipesched.report.parts import Claim, Communication, Memory, Parts, Time
from pipesched.report.report import Report
from pipesched.support.source import Source

pytestmark = pytest.mark.quick

SCHEMA = json.loads(asset("emit", "report.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def fractions(*values: int | str) -> tuple[Fraction, ...]:
    return tuple(Fraction(value) for value in values)


INTERLEAVED = Report(
    name="interleaved",
    source="schedules/interleaved.ps",
    parameters={"p": 4, "v": 2, "m": 8},
    parts=Parts(
        ranks=4,
        stages=8,
        microbatches=8,
        operations=128,
        slots=128,
        messages=112,
        communication=Communication("strict", ("strict", "one-stream", "pair-stream", "async"), (), 0),
        memory=Memory("W", "one microbatch through 1/p of the model", fractions("11/2", "9/2", "7/2", "5/2")),
        time=Time(
            Fraction(57),
            fractions(57, 54, 51, 48),
            fractions(48, 48, 48, 48),
            {"F": 1, "B": Fraction(3, 2), "C": [Fraction(0), Fraction(1, 3)]},
        ),
    ),
    claims=(Claim("peak(r) == 1", True), Claim("idle == 9", True)),
)
SOURCE = Source("mine.csv", "0F0,0F0\n")
TWICE = Diagnostic(CheckCode.TWICE, "F of stage 0, microbatch 0 runs twice", (Label(SOURCE.span(4, 7), "again"),))
WARNING = Diagnostic(CheckCode.IDLE_RANK, "rank 1 does nothing")
BAD = Report("mine", "mine.csv", diagnostics=(TWICE, TWICE, WARNING))


def having(**parts: Any) -> Report:
    """Return the report with other parts."""
    return replace(INTERLEAVED, parts=replace(INTERLEAVED.parts, **parts))


def drawn(text: str) -> str:
    return dedent(text).strip("\n")


def test_a_verified_schedule_reads_as_the_design_draws_it() -> None:
    """Head, checks, memory, time, claims: the sample of the documentation, with its numbers."""
    assert str(INTERLEAVED) == drawn("""
        ok  interleaved  p=4 v=2 m=8   128 ops, 112 messages
            complete · data flow · channels FIFO · deadlock-free (strict, so under every model)
            peak 5.5 of cap none, on rank 0      [5.5  4.5  3.5  2.5]
            makespan 57 = 48 work + 9 idle   bubble 15.8 % (3/19)
            claims 2 of 2 hold
    """)


def test_a_broken_file_reads_as_findings_and_their_number() -> None:
    """Every diagnostic with its place, and a last line that counts them."""
    text = str(BAD)
    assert text.startswith("error[PS302]: F of stage 0") and "\n\nwarning[PS902]: rank 1 does nothing\n\n" in text
    assert text.endswith("\n\n2 errors, 1 warning in mine.csv")


def test_a_warning_leaves_the_verdict() -> None:
    """Warnings come first; the schedule still holds, and its head mentions them."""
    report = replace(INTERLEAVED, diagnostics=(WARNING,))
    warned, verdict = str(report).split("\n\n")
    assert report.ok and report.exit_status == 0 and warned == "warning[PS902]: rank 1 does nothing"
    assert verdict.split("\n")[0].endswith("128 ops, 112 messages, 1 warning")


@pytest.mark.parametrize(
    ("communication", "said"),
    [
        (Communication("async", ("async",), ("strict",), None), "(async; not under strict)"),
        (
            Communication("buffered(2)", ("buffered(2)", "async"), ("strict", "one-stream"), 2),
            "(buffered(2); also under async; not under strict, one-stream; a buffer of 2 is enough)",
        ),
        (Communication("async", ("strict", "async"), (), 0), "(async; under every model)"),
    ],
)
def test_deadlock_freedom_always_names_its_model(communication: Communication, said: str) -> None:
    """The requested model, the other models that hold, the models that fail, and the least capacity."""
    assert f"deadlock-free {said}\n" in str(having(communication=communication))


def test_a_peak_names_its_cap_its_rule_and_its_rank() -> None:
    """The report names the cap of the rank with the peak, and a rule other than W; it says if ranks are equal."""
    memory = Memory(
        "torch", "u", fractions(2, 3, 1), fractions(5, 4, 3), ("every rank holds 2 copies of its parameters",)
    )
    lines = str(having(memory=memory)).split("\n")
    assert lines[2:4] == [
        "    peak 3 of cap 4 (release torch), on rank 1      [2  3  1]",
        "    every rank holds 2 copies of its parameters",
    ]
    level = str(having(memory=Memory("W", "u", fractions(5, 5), fractions(5, 5))))
    assert "peak 5 of cap 5, on every rank      [5  5]\n" in level
    alone = str(having(memory=Memory("W", "u", fractions(5))))
    assert "peak 5 of cap none, on rank 0      [5]\n" in alone


def test_many_ranks_keep_both_ends() -> None:
    """A list of 64 ranks does not fill the screen."""
    memory = Memory("W", "u", fractions(*range(64, 0, -1)))
    assert "[64  63  62 … 2  1]\n" in str(having(memory=memory))


def test_numbers_are_exact_or_fractions() -> None:
    """A number is a decimal if a few digits are exact, otherwise a fraction; the ratio has both forms."""
    time = replace(
        INTERLEAVED.time or pytest.fail("no time"),
        makespan=Fraction(16, 3),
        spans=fractions(5, 5),
        work=fractions(4, 4),
    )
    line = "makespan 16/3 = 4 work + 4/3 idle   bubble 25 % (1/4);  span 5, bubble by span 20 % (1/5)\n"
    assert line in str(having(time=time))
    memory = Memory("W", "u", fractions("1/8", "100000000000000000001/2"))
    assert "[0.125  50000000000000000000.5]" in str(having(memory=memory))


def test_claims_that_say_nothing_here_are_not_counted() -> None:
    """A claim that is not applicable neither holds nor fails."""
    claims = (Claim("a", True), Claim("b", None), Claim("c", None))
    assert str(replace(INTERLEAVED, claims=claims)).endswith("claims 1 of 1 hold, 2 not applicable")
    assert str(replace(INTERLEAVED, claims=claims[1:])).endswith("claims: none of 2 is applicable")
    assert "claims" not in str(replace(INTERLEAVED, claims=()))


def test_one_line_tells_the_verdict() -> None:
    """For many files and sizes a line has the file, sizes, peak and makespan, or the first error and the number of
    others."""
    assert (
        INTERLEAVED.line() == "ok  schedules/interleaved.ps  p=4 v=2 m=8   128 ops, 112 messages   peak 5.5   "
        "makespan 57   bubble 15.8 % (3/19)"
    )
    assert BAD.line() == (
        "fail  mine.csv  mine.csv:1:5: error[PS302]: F of stage 0, microbatch 0 runs twice (and 1 more)"
    )


def test_whose_fault_it_is_decides_the_exit_status() -> None:
    """0 holds, 1 the file, 2 the command line; the worst in a report counts."""
    usage = Diagnostic(Code.PARAMETER_MISSING, "needs m")
    assert [r.exit_status for r in (INTERLEAVED, BAD, Report("x", "x", diagnostics=(TWICE, usage)))] == [0, 1, 2]


KEYS = [
    "ok",
    "name",
    "title",
    "source",
    "parameters",
    "ranks",
    "stages",
    "microbatches",
    "forward_only",
    "operations",
    "slots",
    "messages",
    "diagnostics",
    "communication",
    "memory",
    "time",
    "claims",
    "proved",
    "optimum",
]


@pytest.mark.parametrize(
    "report", [INTERLEAVED, BAD, Report(None, None), replace(INTERLEAVED, claims=(Claim("x", None),))], ids=str
)
def test_json_has_the_published_keys_whatever_happened(report: Report) -> None:
    """A right or wrong, known or unknown schedule gives the same keys, valid under the schema, and text that JSON can
    carry."""
    value = json.loads(json.dumps(report.to_json()))
    assert list(value) == KEYS
    assert list(value["communication"]) == ["model", "holds", "fails", "capacity", "makespan", "makespan_decimal"]
    assert list(value["memory"]) == ["release", "unit", *twice("peak", "cap"), "received", "unsent"]
    assert list(value["time"]) == [
        *twice("costs"),
        "assumed_costs",
        "cost_remarks",
        *twice("makespan", "span", "bubble", "span_bubble", "work", "idle", "span_idle"),
    ]
    VALIDATOR.validate(value)
    VALIDATOR.validate({"ok": True, "runs": [value]})


def test_a_title_is_told_where_there_is_one() -> None:
    """Without a title it is null."""
    assert replace(INTERLEAVED, title="Interleaved 1F1B").to_json()["title"] == "Interleaved 1F1B"
    assert INTERLEAVED.to_json()["title"] is None


def twice(*names: str) -> list[str]:
    """Return a number as it is, and as a decimal."""
    return [key for name in names for key in (name, f"{name}_decimal")]


def test_json_numbers_are_integers_or_fractions() -> None:
    """Whole numbers are integers, others strings; a list by stage stays one. Each has its decimals beside it."""
    value = INTERLEAVED.to_json()
    assert value["memory"] == {
        "release": "W",
        "unit": "one microbatch through 1/p of the model",
        "peak": ["11/2", "9/2", "7/2", "5/2"],
        "peak_decimal": [5.5, 4.5, 3.5, 2.5],
        "cap": None,
        "cap_decimal": None,
        "received": None,
        "unsent": None,
    }
    assert value["time"] == {
        "costs": {"F": 1, "B": "3/2", "C": [0, "1/3"]},
        "costs_decimal": {"F": 1.0, "B": 1.5, "C": [0.0, 1 / 3]},
        "assumed_costs": {},
        "cost_remarks": [],
        "makespan": 57,
        "makespan_decimal": 57.0,
        "span": 57,
        "span_decimal": 57.0,
        "bubble": "3/19",
        "bubble_decimal": 3 / 19,
        "span_bubble": "3/19",
        "span_bubble_decimal": 3 / 19,
        "work": [48] * 4,
        "work_decimal": [48.0] * 4,
        "idle": [9] * 4,
        "idle_decimal": [9.0] * 4,
        "span_idle": [9, 6, 3, 0],
        "span_idle_decimal": [9.0, 6.0, 3.0, 0.0],
    }


@pytest.mark.parametrize(("cap", "told"), [(("4", "4"), 4), (("9/2", "9/2"), "9/2"), (("4", "5"), [4, 5])])
def test_a_cap_is_one_number_where_it_is_the_same(cap: tuple[str, ...], told: object) -> None:
    """A cap is one number for all ranks, or a list by rank."""
    memory = Memory("W", "u", fractions(1, 2), fractions(*cap))
    value: Any = having(memory=memory).to_json()
    assert value["memory"]["cap"] == told
    VALIDATOR.validate(value)


def test_a_claim_is_true_false_or_not_applicable() -> None:
    """The exit value has three forms, one of them a string."""
    claims = (Claim("a", True), Claim("b", False), Claim("c", None, "why"))
    assert replace(INTERLEAVED, claims=claims).to_json()["claims"] == [
        {"text": "a", "holds": True},
        {"text": "b", "holds": False},
        {"text": "c", "holds": "not applicable"},
    ]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"ok": None},
        {"ranks": -1},
        {"parameters": {"p": "4"}},
        {"claims": [{"text": "a", "holds": "true"}]},
        {"diagnostics": [{"code": "401"}]},
        {"memory": {"release": "W", "unit": "u", "peak": [5.5], "cap": None}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_is_no_report(change: dict[str, object]) -> None:
    """The schema is strict: it refuses another key, a float, and a wrong type."""
    assert not VALIDATOR.is_valid({**INTERLEAVED.to_json(), **change})


def test_a_short_makespan_that_grows_by_queueing_is_longer() -> None:
    """Three quarters of a unit are 50 % more than half a unit, also where both are below 1."""
    part = Communication("one-stream", ("one-stream",), (), 0, Fraction(3, 4))
    (line,) = part.queued(Fraction(1, 2), NO_UNIT)
    assert line.startswith("makespan 0.75 under one-stream") and line.endswith("50 % more")
