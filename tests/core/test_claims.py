"""The claims in a schedule file are evaluated exactly, and the claims in the built-in files are true."""

from __future__ import annotations

from collections import Counter

import pytest

import pipesched
from pipesched.diagnostics import Diagnostic
from pipesched.model.costs import Costs
from pipesched.report.parts import Claim
from pipesched.report.report import Report
from pipesched.support.source import Source
from tests.depth import deep, some
from tests.makers.grid import COSTS, SIZES, sized

RARE = ("capped", "pipedream_2bw", "pipeoffload", "v1f1b", "vertical_sync")  # whose claims apply to few of the sizes


@pytest.mark.parametrize("name", SIZES)
def test_every_claim_of_a_built_in_schedule_holds_where_it_applies(name: str) -> None:
    """At 7 sizes or more, with ``--full`` 10, each with one of the sets of costs, no claim fails, and each
    applies somewhere.

    With ``--depth 2`` twice as many, each with all of them, and each claim applies at many.
    """
    thorough = deep(1) > 1
    assert len(SIZES[name]) >= 20
    applied: Counter[str] = Counter()
    for i, sizes in enumerate(some(SIZES[name], 1 if name in RARE else 2, usual=1 if name in RARE else 3)):
        for costs in COSTS if thorough else (COSTS[i % len(COSTS)],):
            report = sized(name, sizes, costs)
            assert report.ok, (sizes, costs, report.text())
            applied.update(claim.text for claim in report.claims if claim.holds)
    claims = {claim.text for claim in sized(name, SIZES[name][0]).claims}
    assert claims == {text for text, times in applied.items() if times >= (10 if thorough else 1)}


GPIPE = """\
schedule mine(p, m = 2 * p)
let half = m // 2
stage s in 0 .. p on rank s
rank here {{ repeat m {{ F }}  repeat m {{ B }} }}
claim {claim}
"""


def verdict(
    claim: str, *, costs: str | Costs | None = None, p: int = 3
) -> tuple[Claim | None, list[Diagnostic], Report]:
    """Return the verdict on one claim about GPipe on p ranks, m = 2p; the findings; the report."""
    report = pipesched.verify(Source("mine.ps", GPIPE.format(claim=claim)), p=p, costs=costs)
    return (report.claims[0] if report.claims else None), list(report.diagnostics), report


@pytest.mark.parametrize(
    "claim",
    [
        "1 / 3 + 1 / 6 == 1 / 2",
        "(p > 1) == (m > 1) and (p > 1) != (m < 1)",
        "makespan == 24 and span == 24",
        "work(here) == 3 * m",
        "idle(here) == 6 and idle == 6",
        "span_idle(here) == 6 - 3 * here",
        "span_idle == 6",
        "peak(here) == 2 * half",
        "peak(p - 1) == peak(0)",
        "peak(here) == m release I",
        "peak(here) == m release split:1/4",
        "tF == 1 and tI == 1 and tW == 1 and tB == 2 and tC == 0 and tFB == 3",
        "makespan / work == 4 / 3",
        "bubble == 6 / 24 and span_bubble == 6 / 24",
        "idle < work or makespan != makespan",
        "(if p > 2 then idle else 0) == 6",
        "here * here >= 0 when here > 0",
    ],
)
def test_a_true_claim_holds(claim: str) -> None:
    """Names, rank variable, lets, release, exact division; at unit costs GPipe idles (p-1) * 3 of (m+p-1) * 3."""
    found, diagnostics, report = verdict(claim)
    assert found is not None and found.holds is True and diagnostics == [] and report.ok


@pytest.mark.parametrize(
    ("claim", "detail"),
    [
        ("idle == 7", "idle is 6"),
        ("peak(here) == m + here", "here = 1: peak(here) is 6, m + here is 7"),
        ("span_idle(here) == 6 - here", "here = 1: span_idle(here) is 3, 6 - here is 5"),
        ("idle / makespan == 1 / 3 when m > 1", "idle / makespan is 1/4, 1 / 3 is 1/3"),
        ("peak(here) == 0 when here == 2", "here = 2: peak(here) is 6"),
        ("makespan < 24", "makespan is 24"),
        ("peak(here) == 1 release torch", "here = 0: peak(here) is 6"),
    ],
)
def test_a_wrong_claim_is_told_with_both_sides(claim: str, detail: str) -> None:
    """PS221 is reported at the claim, with the values of both sides and the rank; the exit status is 1."""
    found, (diagnostic,), report = verdict(claim)
    assert found is not None and found.holds is False and found.detail == detail
    assert diagnostic.code == "PS221" and diagnostic.severity == "error" and report.exit_status == 1
    (label,) = diagnostic.labels
    assert label.span is not None and label.span.line == 5 and diagnostic.message.endswith(f": {detail}")
    assert report.to_json()["claims"] == [{"text": claim, "holds": False}]


@pytest.mark.parametrize(
    ("claim", "costs", "detail"),
    [
        ("idle == 99 when tC > 0", None, "the condition does not hold at this size"),
        ("peak(here) == 99 when here > p", None, "the condition does not hold at this size"),
        ("idle == (p - 1) * (tF + tB)", "F=[1,2,1],B=2", "tF differs from stage to stage"),
        ("idle == 99 when tB == 2", "W=[1,2,1]", "tB differs from stage to stage"),
        ("makespan == tFB", "I=[1,2,1]", "tFB differs from stage to stage"),
    ],
)
def test_a_claim_that_says_nothing_here_has_not_failed(claim: str, costs: str | None, detail: str) -> None:
    """With a false condition, or a cost that is not a single number, a claim is not applicable."""
    found, diagnostics, report = verdict(claim, costs=costs)
    assert found is not None and found.holds is None and found.detail == detail
    assert diagnostics == [] and report.to_json()["claims"] == [{"text": claim, "holds": "not applicable"}]


def test_a_list_of_equal_costs_is_one_cost() -> None:
    """F=[2,2,2] is tF = 2; a claim without costs is judged at any costs."""
    assert verdict("idle == (p - 1) * (tF + tB)", costs="F=[2,2,2]")[0] == Claim("idle == (p - 1) * (tF + tB)", True)
    found, _, _ = verdict("peak(here) == m", costs="F=[1,2,3]")
    assert found is not None and found.holds is True


def test_claims_of_a_wrong_schedule_are_not_judged() -> None:
    """If operations are missing, the figures are meaningless, so claims neither hold nor fail."""
    text = "schedule x(p = 2)\nstage s in 0 .. p on rank s for microbatch 0 .. 2\n"
    text += "rank r { F B F }\nclaim peak(r) == 1\nclaim peak(r) == 2\n"
    report = pipesched.verify(Source("x.ps", text))
    assert not report.ok and [claim.holds for claim in report.claims] == [None, None]
    assert "PS221" not in [d.code for d in report.diagnostics]


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ("makespan / (m - m) == 1", "PS206"),
        ("peak(p) == m", "PS221"),
        ("peak(0 - 1) == m", "PS221"),
        ("peaks == 1", "PS201"),
        ("makespan" + " / 999999999999999999" * 5 + " == 1", "PS219"),  # a denominator of 299 bits
        ("makespan", "PS205"),
        ("peak(0, 1) == 1", "PS204"),
    ],
)
def test_a_claim_that_means_nothing_is_an_error(claim: str, code: str) -> None:
    """Division by zero, a rank that does not exist, an unknown name, no truth value: each has a
    code, and no traceback.
    """
    assert [d.code for d in verdict(claim)[1]] == [code]


def test_a_condition_guards_its_claim() -> None:
    """A division by zero is not evaluated if the condition is false."""
    assert verdict("makespan / (m - 6) == 1 when m != 6")[0] == Claim(
        "makespan / (m - 6) == 1 when m != 6", None, "the condition does not hold at this size"
    )
