"""The time that one more batch adds is exact, and weight versions appear correctly in claims, bytes and `compare`."""

from __future__ import annotations

from fractions import Fraction

import pytest

import pipesched
from pipesched.compile import examined, read
from pipesched.examine import Options
from pipesched.insight.batches import claimed, claimed_bubble
from pipesched.model.costs import Costs
from pipesched.support.source import Source
from pipesched.views import svg
from pipesched.views.chart import text
from pipesched.views.chart.chart import chart

LIBRARY = ("pipedream", "pipedream_2bw", "pipemare", "vertical_sync")
DEEP = """\
schedule deep(p, m)
stage s in 0 .. p on rank s
versions stash
rank r {
  let w = 2 * (p - 1 - r)
  repeat w     { F }
  repeat m - w { F  B  STEP }
  repeat w     { B  STEP }
}
"""


@pytest.mark.parametrize("name", LIBRARY)
def test_the_claims_of_the_papers_hold(name: str) -> None:
    """Versions, staleness, crossings and the period of each file hold for p = 2 to 8 (Narayanan et al., SOSP 2019 and
    ICML 2021; Yang et al., MLSys 2021).
    """
    for p in range(2, 9):
        report = pipesched.verify(name, p=p)
        assert report.ok and sum(claim.holds is True for claim in report.claims) >= 4, str(report)


@pytest.mark.parametrize(
    ("source", "p", "message", "expected"),
    [
        (read("pipedream"), 4, 1, Fraction(9, 2)),
        (Source("deep.ps", DEEP), 4, 2, Fraction(24, 7)),
        (read("pipedream"), 8, 2, Fraction(13, 2)),
    ],
)
def test_periods_with_messages_are_exact(source: Source, p: int, message: int, expected: Fraction) -> None:
    """tF + tB + 2 (p - 1) tC / p a microbatch; with twice the warm-up (p (tF + tB) + 2 (p - 1) tC) / (2 p - 1)."""
    options = Options({"p": p, "m": 8 * p}, Costs.parse(f"F=1,B=2,C={message}"))
    made = examined(source, options).analysis
    assert claimed(made) == expected and claimed_bubble(made) == 1 - 3 / expected


@pytest.mark.parametrize("p", range(2, 9))
def test_a_flush_after_every_p_microbatches_costs_its_bubble(p: int) -> None:
    """A batch of p microbatches takes (2 p - 1) (tF + tB): 21/4 a microbatch at p = 4, 45/8 at p = 8, in place of 3."""
    made = examined(read("1f1b"), Options({"p": p, "m": p})).analysis
    assert claimed(made) == 3 * (2 * p - 1)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb_h1", "v_half", "interleaved", "dualpipe", "zb_h2", "zb_v"])
def test_a_batch_after_another_adds_the_span(name: str) -> None:
    """Repeated without a barrier, these orders add their span with every batch, not their makespan: on zb_h2 and zb_v
    the two differ.
    """
    made = examined(read(name), Options({"p": 4, "m": 12})).analysis
    assert made.idle is not None
    assert claimed(made) == made.idle.span and (made.idle.span < made.makespan) == (name in ("zb_h2", "zb_v"))


def test_a_repeated_order_is_simulated() -> None:
    """The period is what a repetition adds in a run of many, for orders whose ranks differ in their spans."""
    text = "schedule uneven(p = 3, m)\nstage s in 0 .. p on rank s\n"
    text += "costs F = [1, 2, 1], B = [3, 1, 2], C = 1\nrank r {{ {} }}\n"
    body = "let w = min(p - 1 - r, 3)  repeat w { F }  repeat 3 - w { F  B }  repeat w { B }"
    one = examined(Source("x.ps", text.format(body)), Options({"m": 3})).analysis
    times = [
        examined(Source("x.ps", text.format(f"repeat {n} {{ {body} }}")), Options({"m": 3 * n})).analysis.makespan
        for n in (12, 18)
    ]
    assert claimed(one) == (times[1] - times[0]) / 6


def test_versions_are_held_in_bytes() -> None:
    """On rank 0 of 8 a flush holds the weights of compute once, PipeDream-2BW twice, PipeDream eight times."""
    rows = pipesched.compare("1f1b", "pipedream_2bw", "pipedream", p=8, m=64, model="megatron-7.5b").rows
    assert [row.versions for row in rows] == [None, 2, 8]
    most = [row.bytes[0] for row in rows]
    weights = most[1] - most[0]
    report = pipesched.verify("1f1b", p=8, m=64, model="megatron-7.5b").to_json()
    assert weights == report["bytes"]["ranks"][0]["parameters"]  # type: ignore[index]
    assert most[2] - most[0] == 7 * weights


def test_why_says_what_a_further_batch_adds() -> None:
    """Where STEPs take batches, the period of a batch, as the verdict says it: four microbatches of 9/2."""
    said = str(pipesched.why("pipedream_2bw", p=4, m=16, costs="F=1,B=2,C=1"))
    assert "each further batch of 4 microbatches adds 18 to the makespan" in said


def test_steps_are_drawn() -> None:
    """A picture in characters has a sign after each last backward of a batch, and its meaning; a figure a triangle."""
    drawn = {
        name: chart(examined(read(name), Options({"p": 2, "m": 4})).analysis.schedule) for name in ("pipedream", "1f1b")
    }
    said = text.render(drawn["pipedream"])
    assert said.count("!") == 2 * 4 + 1 and "B1   !" in said and "! a STEP" in said
    assert svg.render(drawn["pipedream"]).count("<title>STEP</title>") == 8
    assert "STEP" not in text.render(drawn["1f1b"]) + svg.render(drawn["1f1b"])


def test_a_step_alone_is_no_order() -> None:
    """Without any operation a STEP takes nothing: each stage lacks its F, and no version but the first is alive."""
    source = Source("mine.ps", "schedule mine(p, m = 2)\nstage s in 0 .. p on rank s\nrank r { STEP }\n")
    report = pipesched.verify(source, p=2)
    assert [str(x.code) for x in report.diagnostics if x.severity == "error"] == ["PS301", "PS301"]
    assert report.to_json()["versions"]["alive"] == [1, 1]  # type: ignore[index]
