"""`pipesched prove` proves the theorems of the library, refutes false claims at their smallest size, and reports
properties that remain open."""

from __future__ import annotations

import contextlib
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.language.typecheck import check_text
from pipesched.library.assets import asset
from pipesched.library.inputs import read
from pipesched.prover import statements
from pipesched.prover.presburger import TooHard, bounded
from pipesched.prover.prove_report import Theorems
from pipesched.prover.question import Question
from pipesched.support.source import Source
from tests.depth import deep

pytest.importorskip("islpy")


def theorems(text: str, **sizes: int) -> Theorems:
    return pipesched.prove(Source("mine.ps", text), **sizes)


def outcomes(found: Theorems) -> list[list[str]]:
    return [[finding.outcome for finding in answer.findings] for answer in found.answers]


def test_one_p_is_asked_where_all_are_out_of_reach() -> None:
    """Interleaved 1F1B has quotients by p; each p alone is proved for every m."""
    found = pipesched.prove("interleaved", p=3)
    assert found.ok and found.answers[0].domain == "every size with m % 3 == 0 and m >= 1"
    assert "v = 2" in str(found) and "p = 3" in str(found)


MINE = """\
schedule mine(p, m = 2 * p)
require p >= 1 and m >= p
stage s in 0 .. p on rank s
rank r {
  let warmup = p - 1 - r
  repeat warmup     { F }
  repeat m - warmup { F  B }
  repeat warmup     { B }
}
claim peak(r) == (p - r) * tM
claim idle == (p - 1) * (tF + 2 * tB) when tC == 0
claim idle <= (p - 1) * (tF + tB) when tC == 0 and tF <= tB
"""


def test_a_false_claim_has_its_smallest_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The smallest size has the fewest ranks, then the fewest microbatches; `verify` finds the failure there."""
    path = tmp_path / "mine.ps"
    path.write_text(MINE, "utf-8")
    assert main(["prove", str(path), "--json"]) == 1
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    (answer,) = found["answers"]
    assert [x["outcome"] for x in answer["findings"]] == ["proved", "proved", "proved", "refuted", "proved"]
    smallest = answer["findings"][3]["counterexample"]["parameters"]
    assert smallest == {"p": 2, "m": 2} and main(["verify", str(path), "--p", "2", "--m", "2"]) == 1
    assert "--p 2 --m 2" in str(theorems(MINE))


FAR = """\
claim peak(r) == (if p == 9 and m > 20 then 1 else p - r) * tM
claim idle == (p - 1) * (tF + tB) + (if m > 30 and m % 7 == 3 then tF else 0) when tC == 0
"""


@pytest.mark.nightly
def test_a_claim_that_is_false_far_away_is_refuted_there() -> None:
    """No small size shows it: what is left of the proof is the smallest size, and `verify` agrees."""
    found = theorems(MINE.partition("claim")[0] + FAR)
    sizes = [x.counterexample and dict(x.counterexample.parameters) for x in found.answers[0].findings[2:]]
    assert sizes == [{"p": 9, "m": 21}, {"p": 1, "m": 31}]


KEPT = """\
claim peak(r) == min(p - r, m) * tK + (tM - tK)
claim peak(r) == min(p - r, m) * tK
claim peak(r) <= min(p - r, m) * tM
claim peak <= 2 * tM
"""


def test_what_an_f_keeps_until_its_r_counts_less() -> None:
    """Mario: claims of M and of K are theorems for every K of at most M, and wrong ones are refuted where they fail."""
    found = theorems(read("mario").text.partition("claim")[0] + KEPT).answers[0].findings[2:]
    assert [x.outcome for x in found] == ["proved", "refuted", "proved", "refuted"]
    sizes = [x.counterexample and dict(x.counterexample.parameters) for x in found]
    assert sizes[1] == {"p": 1, "m": 1} and sizes[3] == {"p": 3, "m": 3}


WAVES = """rank r {
  repeat m { F }
  for i in 0 .. m { I  if i % 2 == 1 { W } }
  drain W
}
claim peak(r) == m * tM
claim work(r) == m * (if p > 0 then tF + tI + tW else 0) when p * tF <= p * max(tI, tW)
"""


def test_every_second_w_may_be_drained() -> None:
    """As many W are drained as odd microbatches; a weight above 0 on both sides of a condition does not matter."""
    made = theorems(f"schedule waves(p, m)\nrequire p >= 1 and m >= 1\n{LINEAR.partition('rank r')[0]}{WAVES}")
    assert {x.outcome for x in made.answers[0].findings} == {"proved"}


COUNTED = """\
claim peak(r) == p - r
claim peak(r) == p - r - (if p > 3 then 1 else 0)
claim peak == p when m > p
"""


def test_a_number_of_activations_is_of_those_of_1() -> None:
    """A claim on peaks without a cost is proved at tM == 1, and refuted there, whatever the file's M."""
    for costs in ("", "costs M = 2\n"):
        (answer,) = theorems(MINE.partition("claim")[0] + costs + COUNTED).answers
        claims = answer.findings[2:]
        assert [x.outcome for x in claims] == ["proved", "refuted", "proved"]
        assert claims[0].line().endswith("peak(r) == p - r: at tM == 1") and claims[0].costs == ((("M", 1),),)
        (wrong,) = (x.counterexample for x in claims if x.counterexample is not None)
        assert dict(wrong.parameters) == {"p": 4, "m": 4} and dict(wrong.costs) == ({"M": 1} if costs else {})


@pytest.mark.parametrize(("condition", "where"), [("tC == 0", ": where work > 0"), ("tC == 0 and tF + tB > 0", "")])
def test_a_quotient_is_proved_where_its_divisor_is_not_0(condition: str, where: str) -> None:
    """`verify` refuses to divide by the work of operations that take no time."""
    claim = f"idle / work == (p - 1) / m when {condition}"
    *_, found = theorems(f"{MINE.partition('claim')[0]}claim {claim}\n").answers[0].findings
    assert found.outcome == "proved" and found.line().endswith(claim + where)


def test_an_order_that_is_wrong_somewhere_is_refuted() -> None:
    """1F1B without its last backwards of rank 0 is refuted; nothing is missing at p = 1."""
    found = theorems(MINE.replace("repeat warmup     { B }", "repeat min(warmup, 1) { B }"))
    assert found.exit_status == 1 and outcomes(found) == [["refuted"]]
    counterexample = found.answers[0].findings[0].counterexample
    assert counterexample is not None and dict(counterexample.parameters) == {"p": 3, "m": 3}


def test_a_claim_about_a_rank_that_does_not_exist_is_refuted() -> None:
    """Where a claim names no rank, `verify` finds an error, and so does `prove`: at the smallest such size."""
    found = theorems(MINE.partition("claim")[0] + "claim work(0) == work(1)\nclaim peak(m) >= 0 when m >= p\n")
    for claim in found.answers[0].findings[2:]:
        assert claim.counterexample is not None and claim.counterexample.parameters == {"p": 1, "m": 1}
        assert "rank 1 does not exist" in claim.counterexample.found.message


def test_a_file_that_places_no_stage_is_refuted() -> None:
    """Without a `stage` line there is no size at which the order is right."""
    found = theorems("schedule s(p, m = 2 * p)\nrank r { F B }\n")
    assert found.exit_status == 1 and "PS215" in str(found)


def test_what_is_wrong_from_a_large_size_on_is_not_proved() -> None:
    """An order with one warm-up too few from p = 9 on, which no small size shows, is neither refuted nor proved."""
    order = MINE.partition("claim")[0]
    found = theorems(order.replace("repeat warmup     { F }", "repeat warmup - (if p > 8 then 1 else 0) { F }"))
    assert found.exit_status == 3 and "proved" not in outcomes(found)[0]


def test_what_is_not_known_is_said_with_its_place() -> None:
    """A `greedy` order has no proof, and the answer says why."""
    found = theorems(
        "schedule g(p, m)\nstage s in 0 .. p on rank s\nrank r {\n  greedy { B  F when held < p - r }\n}\n"
    )
    assert found.exit_status == 3 and "line 4" in str(found) and "greedy" in str(found)


def test_a_kind_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with operations of a kind that has no relations here is not settled; the reason names kind and line."""
    monkeypatch.setattr(statements, "KNOWN", {*"FB"})
    found = theorems(
        "schedule g(p, m)\nstage s in 0 .. p on rank s\nrank r {\n  repeat m { F }\n  repeat m { R B }\n}\n"
    )
    assert "proved" not in outcomes(found)[0] and "line 5: `R`: R is not supported by `prove`" in str(found)


BOUNDS = """\
claim peak == min(p, m) * tM
claim peak == p
claim peak == p - 1 when p > 1 and m >= p
claim makespan >= (m + p - 1) * (tF + tB)
claim makespan >= (m + p) * (tF + tB) - tF
claim idle >= (p - 1) * (tF + tB)
claim idle >= (p - 1) * (tF + tB) + tC
claim (m + p - 1) * (tF + tB) <= makespan
"""


@pytest.mark.nightly
def test_bounds_on_all_ranks_hold_at_every_latency() -> None:
    """A peak, makespan or idle time without a rank is that of all; 1F1B is never shorter than without latencies."""
    found = theorems(MINE.partition("claim")[0] + BOUNDS).answers[0].findings[2:]
    refuted = {k: dict(x.counterexample.parameters) for k, x in enumerate(found) if x.counterexample is not None}
    assert refuted == {2: {"p": 2, "m": 2}, 4: {"p": 1, "m": 1}, 6: {"p": 1, "m": 1}}
    assert {x.outcome for k, x in enumerate(found) if k not in refuted} == {"proved"}


SHARES = """\
claim bubble == (p - 1) / (m + p - 1) when tC == 0
claim bubble == (p - 1) / (m + p) when tC == 0 and tF + tB > 0
claim bubble == 0 when p == 1
claim span_bubble == 0 when p == 1
claim peak(r) == (p - r) * tM when r > 0
claim peak(r) == p * tM when r <= 1
claim r < p and m != 0
claim p > 1 when tF == 0
claim idle == 7 * tF when m < p
claim bubble <= 1
claim period >= 0
"""


@pytest.mark.nightly
def test_shares_ranks_and_sizes_in_claims() -> None:
    """A bubble with even work is a quotient; a condition may name the rank; a claim on sizes must hold whatever the
    costs; one that never applies says so; what has no form is named.
    """
    found = theorems(MINE.partition("claim")[0] + SHARES, p=3).answers[0].findings[2:]
    assert [x.outcome[0] for x in found] == [*"prppprpppnn"]
    found = theorems(MINE.partition("claim")[0] + SHARES).answers[0].findings[2:]
    assert [x.outcome[0] for x in found] == [*"prppprprpnn"]
    smallest = {k: dict(x.counterexample.parameters) for k, x in enumerate(found) if x.counterexample is not None}
    assert smallest == {1: {"p": 2, "m": 2}, 5: {"p": 2, "m": 2}, 7: {"p": 1, "m": 1}}
    said = [x.line().rpartition(": ")[2] for x in found]
    assert said[0] == "where makespan > 0" and said[8] == "the claim's condition holds at no size"
    assert "equal to a quotient" in found[9].detail and "`prove` does not support `period`" in found[10].detail


NUMBERS = """\
claim makespan == 3 * (m + p - 1) when tF == 1 and tB == 2 and tC == 0
claim makespan == 3 * (m + p) when tF == 1 and tB == 2 and tC == 0
claim makespan - m * tB == m + p - 1 + (p - 1) * tB when tF == 1 and tC == 0
claim idle <= 3 * (p - 1) when tF <= 1 and tB <= 2 and tC == 0
claim idle >= 3 * (p - 1) when tF <= 1 and tB <= 2 and tC == 0
claim bubble == (p - 1) / (m + p - 1) when 2 * tF == 1 and tC == 0
claim peak(r) == 2 * (p - r) when tM == 2
claim peak <= 3 * p when 2 <= tM and tM <= 3 and tF > tB
claim peak(r) <= 2 when tM <= 2
"""


def test_claims_may_give_costs_in_numbers() -> None:
    """Both sides and the condition may have numbers beside costs; `verify` agrees where a claim is refuted."""
    found = theorems(MINE.partition("claim")[0] + NUMBERS).answers[0].findings[2:]
    assert [x.outcome[0] for x in found] == [*"prpprpppr"]
    smallest = {k: dict(x.counterexample.parameters) for k, x in enumerate(found) if x.counterexample is not None}
    assert smallest == {1: {"p": 1, "m": 1}, 4: {"p": 2, "m": 2}, 8: {"p": 2, "m": 2}}
    forwards = "schedule f(p, m)\nstage s in 0 .. p on rank s\nrank r { repeat m { F } }\n"
    claims = "claim peak == 2 when tM == 2\nclaim makespan == m + (p - 1) * (1 + tC) when tF == 1\n"
    assert theorems(forwards + claims).ok


def test_uneven_work_has_no_quotient() -> None:
    """With twice the work on one rank the bubble is not idle / makespan, and no quotient is proved."""
    text = "schedule uneven(p, m)\nrequire p == 2\nstage s in 0 .. 3 on rank s % 2\nrank r {\n"
    text += "  repeat m { F[0] }  if r == 0 { repeat m { F[1] } }\n}\n"
    text += "claim bubble == 1 / 4 when m >= MORE and tC == 0 and tF > 0\n"
    (*_, found) = theorems(text.replace("MORE", "2")).answers[0].findings
    assert found.outcome == "not settled" and "unequal work" in found.detail
    (*_, found) = theorems(text.replace("MORE", "99")).answers[0].findings
    assert found.outcome == "not settled" and "no size" in found.detail


@pytest.mark.parametrize(("p", "said"), [(50_000, "no size up to m=12"), (300, "no size in the domain")])
def test_a_size_that_is_too_large_is_no_fault(p: int, said: str) -> None:
    """A limit of `verify` refutes nothing, and sizes beyond it count as not tried."""
    found = theorems(MINE, p=p)
    assert found.exit_status == 3 and said in str(found)


JOINED = """\
schedule joined(p, m)
stage s in 0 .. p on rank s
rank r { repeat m { F }  I  repeat m - 1 { overlap(I, W) }  W }
claim work(r) == m * (tF + tI + tW)
claim peak(r) == m * tM
"""


@pytest.mark.nightly
def test_the_cost_of_a_pair_that_no_claim_can_name_is_assumed_and_said() -> None:
    """An overlap of I and W may cost less than both: a proof says that it takes the sum, and none is given where the
    file has another cost of it or parts; `verify` shows why.
    """
    *_, work, peak = theorems(JOINED).answers[0].findings
    assert work.line().endswith("(tF + tI + tW): where tIW == tI + tW") and peak.line().endswith("tM")
    parts = "parts F = 1 of (a 4, b 6 on comm)\nparts I = 1 of (b 6 on comm, a 8)\nparts W = 1 of (a 4)\n"
    for costs in ("costs IW = 1\n", parts):
        *_, work, peak = theorems(JOINED + costs).answers[0].findings
        assert (work.outcome, peak.outcome) == ("refuted", "proved")
        assert pipesched.verify(Source("mine.ps", JOINED + costs), p=2, m=3).exit_status == 1


FAMILY = """\
schedule family(p, m, n = 3)
require m % n == 0
let q = m // n
route a[k] in 0 .. n: stage s in 0 .. p on rank if k % 2 == 0 then s else p - 1 - s for microbatch k * q .. (k + 1) * q
rank r { for k in 0 .. n { repeat q { F[k] } }  for k in 0 .. n { repeat q { B[k] } } }
claim peak(r) == m * tM
claim work(r) == m * tF
"""


@pytest.mark.parametrize("members", [2, 3, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_family_of_routes_is_known_by_its_members(members: int) -> None:
    """Any number of copies of a stage; a rank with fewer stages of one member is an error of every size."""
    found = theorems(FAMILY, n=members).answers[0]
    assert [x.outcome for x in found.findings] == ["proved", "proved", "proved", "refuted"]
    assert f"m % {members} == 0 and p >= 1" in found.domain
    lame = theorems(FAMILY.replace("else p - 1 - s", "else s + 1"), n=members)
    assert outcomes(lame) == [["refuted"]] and "PS216" in str(lame)


def test_the_first_stages_may_be_frozen() -> None:
    """They run F only and keep nothing; frozen stages after a trained one, all of them, and pairs are refused."""
    order = "schedule f(p, m)\nrequire p > 2\nstage s in 0 .. p on rank s\nfrozen s in 0 .. 2\n"
    order += "rank r { repeat m { F }  repeat m { I }  drain W }\n"
    claims = (
        "claim peak(r) == (if r < 2 then 1 else m) * tM\nclaim work(r) == m * (if r < 2 then tF else tF + tI + tW)\n"
    )
    claims += "claim peak(r) == m * tM\nclaim work(0) == m * (tF + tI)\n"
    found = theorems(order + claims).answers[0].findings
    assert [x.outcome[0] for x in found] == [*"pppprr"] and found[0].detail.endswith("of frozen stages only F")
    for frozen, said in (("1 .. 2", "after a trained one"), ("0 .. p", "every stage is frozen")):
        assert said in str(theorems(order.replace("0 .. 2", frozen)))
    joined = order.replace("{ I }  drain W", "{ overlap(I, W) }").replace("repeat m { F }", "repeat m { F }  I")
    assert "proved" not in outcomes(theorems(joined))[0]


def test_a_quotient_by_few_values_is_known_at_one_p() -> None:
    """At p = 2 a round has 2 or 3 microbatches, so that `m // n` has a form; the text of the domain is as wide."""
    found = pipesched.prove("interleaved_n", p=2)
    assert found.ok and "(m <= 3 or (m % 2 == 0 and m >= 4))" in found.answers[0].domain


ROUNDS = """\
schedule rounds(p, m)
let n = m // max(1, m // p)
require m % n == 0
stage s in 0 .. p on rank s
rank r {
  repeat m { F }
  repeat m { B }
}
claim peak(r) == m * tM
claim makespan == (m + p - 1) * (tF + tB) when tC == 0
"""
SINGLE = [m for m in range(10, 400) if m % 5 and m % (m // (m // 5)) == 0]


@pytest.mark.nightly
def test_sizes_with_other_rounds_are_cases_at_one_p() -> None:
    """At p = 5, rounds have 5 microbatches, or there is one round, or m is one of a few: each is a case of its own, and
    all of them together are every m that the file accepts.
    """
    from pipesched.formats.readers import checked
    from pipesched.prover.question import asked

    found = theorems(ROUNDS, p=5)
    assert found.ok and len(SINGLE) == 4 and "once, on its rank; in 6 cases of m" in str(found)
    cases = asked(checked(Source("mine.ps", ROUNDS)).file, {"p": 5}).cases
    assert [x.evidence.where for x in cases] == [
        "m % p == 0",
        "m % p != 0 and m < 2 * p",
        *(f"m == {m}" for m in SINGLE),
    ]


@pytest.mark.parametrize("m", [SINGLE[-1], pytest.param(25, marks=pytest.mark.nightly)])
def test_a_claim_that_is_false_in_one_case_is_refuted_there(m: int) -> None:
    """One size in any of the cases makes a claim false; the others stay proved."""
    found = theorems(ROUNDS.replace("m * tM", f"(m + (if m == {m} then 1 else 0)) * tM"), p=5)
    assert outcomes(found) == [["proved", "proved", "refuted", "proved"]]
    counterexample = found.answers[0].findings[2].counterexample
    assert counterexample is not None and counterexample.parameters == {"p": 5, "m": m}


@pytest.mark.nightly
def test_an_order_that_is_wrong_in_one_case_is_not_proved() -> None:
    """The size is beyond those that are tried; the case that is not settled is named. A certificate of the right order
    is refused with the text of this one.
    """
    far = SINGLE[2]
    wrong = ROUNDS.replace("repeat m { B }", f"repeat m - (if m == {far} then 1 else 0) {{ B }}")
    found = theorems(wrong, p=5)
    assert not any("proved" in x for x in outcomes(found)) and f"where m == {far}: " in str(found)
    entries = theorems(ROUNDS, p=5).to_json()
    assert pipesched.verify(Source("cert.json", json.dumps(entries))).exit_status == 0
    entries["schedule"] = {"text": wrong, "sha256": sha256(wrong.encode()).hexdigest()}
    assert "PS721" in str(pipesched.verify(Source("cert.json", json.dumps(entries))))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(p - 1 - r) + (v", "(p - 2 - r) + (v"),
        ("v - 1 - fwd", "fwd"),
        ("k // n % v else", "k // p % v else"),
        ("F[fwd(warmup + k)]", "F[fwd(k)]"),
        (" .. warmup ", " .. warmup - 1 "),
    ],
)
def test_a_wrong_order_of_rounds_is_refuted_at_one_p(old: str, new: str) -> None:
    """One changed word of the interleaved order in groups of n, at p = 5."""
    text = asset("schedules", "interleaved_n.ps").read_text("utf-8")
    found = theorems(text.replace(old, new), p=5)
    assert old in text and not any("proved" in x for x in outcomes(found)) and found.exit_status == 1


@pytest.mark.parametrize("name", ["interleaved_n", "interleaved_zb"])
def test_interleaved_rounds_are_proved_at_one_p(name: str) -> None:
    """All claims at p = 5, for every m."""
    if deep(1) < 2:
        pytest.skip("with --depth 2")
    assert pipesched.prove(name, p=5).ok


LINEAR = "stage s in 0 .. p on rank s\nrank r { repeat m { F B } }\n"


@pytest.mark.parametrize(
    ("text", "given", "code", "said"),
    [
        ("schedule g(p, m)\n" + LINEAR, {"p": 2, "m": 4}, "PS225", "leave out --m"),
        ("schedule g(n = 4)\n" + LINEAR.replace(" p ", " 3 ").replace("m", "n"), {}, "PS225", "pipesched verify"),
        ("schedule g(p, m)\n" + LINEAR, {"mm": 4}, "PS208", "did you mean `m`?"),
        ("schedule g(m)\n" + LINEAR.replace(" p ", " 3 "), {"p": 4}, "PS208", "its parameters: m"),
        ("schedule g(p, m, cap)\n" + LINEAR, {}, "PS207", "add -D cap=N"),
        ("schedule g(p, m, n[m] = 1)\n" + LINEAR, {"n": [1, 2]}, "PS226", "leave it out"),
        ("schedule g(p, m)\n" + LINEAR.replace("repeat", "repat"), {}, "PS101", "did you mean `repeat`?"),
        ("rank 0: F0.0 B0.0\n", {}, "PS225", "pipesched verify"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_remedy(text: str, given: dict[str, Any], code: str, said: str) -> None:
    """A single size, an unknown or missing parameter, a list, a typing error and an order are refused."""
    with pytest.raises(pipesched.PipeschedError) as refused:
        pipesched.prove(Source("mine", text), **given)
    assert code in str(refused.value) and said in str(refused.value)


def test_sizes_that_are_all_large_are_not_settled() -> None:
    """Guesses are made from small sizes; where there are none, that is said."""
    found = theorems("schedule g(p, m)\nrequire p >= 64\n" + LINEAR)
    assert found.exit_status == 3 and "no size up to p=6 m=12 is accepted by the file" in str(found)


HOSTILE = (
    "  repeat 1000000 { repeat m { F } }",
    "  for i in 0 .. m { for j in 0 .. i { for k in 0 .. j { if (i * 7 + j * 5 + k) % 97 < 13 { F B } } } }",
    "  " + "repeat m { F B W I } " * 90,
    "  repeat m { F B }\n}\nclaim idle == 0 when " + " or ".join(["(tF <= tB and tB <= tI)"] * 40) + "\n",
    "  repeat m { F B }\n}\nclaim idle >= max(" + ", ".join(f"{k} * tF + {99 - k} * tB" for k in range(60)) + ")\n",
)


@pytest.mark.parametrize(
    "body", [pytest.param(x, marks=pytest.mark.nightly if i == 3 else ()) for i, x in enumerate(HOSTILE)]
)
def test_hostile_files_end(body: str) -> None:
    """A file with many operations, nested loops, statements, conditions or cases gets an answer, or is not settled."""
    text = f"schedule g(p, m)\nstage s in 0 .. p on rank s\nrank r {{\n{body}\n"
    with contextlib.suppress(pipesched.PipeschedError):
        assert theorems(text + ("}\n" if "claim" not in body else "")).exit_status in (1, 3)


def test_wherever_the_steps_end_that_is_what_is_said() -> None:
    """If any function of isl runs out of steps, few or many, the answer is that the question is too hard, and no other
    error."""
    outcomes = []
    for steps in (500, 1_500, 3_000, 4_000, 5_000, 7_000, 9_000, 12_000, 16_000, 20_000, 30_000, 50_000):
        question = Question(check_text(read("seq1f1b")).file, {})
        with contextlib.suppress(TooHard), bounded(question.model.context, steps):
            outcomes.append(question.complete)
    assert not outcomes
