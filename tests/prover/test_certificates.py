"""`verify` derives each certificate of `prove --json` again, and refuses one whose text was changed.

`python -m tests.prover.test_certificates --cases 2000` damages certificates of the library's files, by random.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from hashlib import sha256
from itertools import product
from math import floor
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.prover import presburger
from pipesched.prover.evidence import Shown
from pipesched.support.source import Source
from tests.depth import deep

isl = pytest.importorskip("islpy")

Entries = dict[str, Any]
CHEAP = ("1f1b", "gpipe", "forward_only", "zb_h1")
SMALL = """\
schedule small(p, m)
stage s in 0 .. p on rank s
rank r { repeat m { F }  repeat m { B } }
claim peak(r) == m * tM
claim makespan == (m + p - 1) * (tF + tB) when tC == 0
"""
OPEN = SMALL.replace("claim makespan", "claim bubble <= 1 when p == 1\nclaim makespan")
FALSE = SMALL.replace("m * tM", "(m + (if p > 2 then 1 else 0)) * tM")


@cache
def written(text: str) -> str:
    """Return the certificate of a text, or of a schedule of the library."""
    source = Source("small.ps", text) if "\n" in text else text
    return json.dumps(pipesched.prove(source).to_json())


def certificate(text: str = SMALL) -> Entries:
    made: Entries = json.loads(written(text))
    return made


def verdict(entries: object) -> Any:
    text = entries if isinstance(entries, str) else json.dumps(entries)
    return pipesched.verify(Source("cert.json", text))


def accepted(entries: object) -> bool:
    return verdict(entries).exit_status in (0, 3)


@pytest.mark.parametrize(
    "name", ["1f1b", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("gpipe", "forward_only"))]
)
def test_what_is_written_is_accepted(name: str) -> None:
    """Indented, and with its names in another order, it is accepted; sizes and properties equal the output of
    `prove`."""
    proved = pipesched.prove(name)
    entries = certificate(name)
    found = verdict(json.dumps(entries, indent=3, sort_keys=True))
    assert found.exit_status == 0 and str(proved) in str(found)
    assert found.to_json()["certificate"]["answers"][0]["domain"] == proved.answers[0].domain


def test_the_command_line_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`prove -o cert.json`, `verify cert.json`, and `show cert.json` of its schedule."""
    path = str(tmp_path / "cert.json")
    assert main(["prove", "gpipe", "-o", path]) == main(["verify", path]) == 0
    assert "every size with p >= 1 and m >= 1" in capsys.readouterr().out
    assert main(["show", path, "--p", "2", "--m", "2"]) == 0
    assert main(["verify", path, "--p", "2"]) == 2 and "PS225" in capsys.readouterr().err
    assert main(["verify", "gpipe", "--second-opinion", "--p", "2"]) == 2


@pytest.mark.nightly
def test_what_is_open_stays_open() -> None:
    """A property that the prover leaves open is not one that the certificate proves, whatever it says of it."""
    entries = certificate(OPEN)
    finding = next(x for x in entries["answers"][0]["findings"] if x["outcome"] == "not settled")
    finding["detail"] = "proved by others"
    found = verdict(entries)
    assert found.exit_status == 3 and "proved by others" not in str(found)
    finding["outcome"] = "proved"
    assert not accepted(entries)


def test_a_counterexample_is_tried() -> None:
    """A refuted claim is refuted again; at a size at which it holds it is not."""
    entries = certificate(FALSE)
    found = verdict(entries)
    assert found.exit_status == 1 and [str(x.code) for x in found.diagnostics] == ["PS221"]
    (wrong,) = (x for x in entries["answers"][0]["findings"] if x["outcome"] == "refuted")
    wrong["counterexample"]["parameters"] = {"p": 2, "m": 1}
    assert [str(x.code) for x in verdict(entries).diagnostics] == ["PS721"]


def first(entries: Entries) -> Entries:
    made: Entries = entries["answers"][0]
    return made


def with_text(entries: Entries, old: str, new: str) -> None:
    """Changes the schedule, and its digest with it."""
    text = entries["schedule"]["text"].replace(old, new)
    assert text != entries["schedule"]["text"]
    entries["schedule"] = {"text": text, "sha256": sha256(text.encode()).hexdigest()}


def guess(entries: Entries, name: str) -> Entries:
    made: Entries = next(x for key, x in first(entries)["guesses"].items() if key.startswith(name))[0]
    return made


def _claims_dropped(entries: Entries) -> None:
    del first(entries)["findings"][2:]


def _claim_replaced(entries: Entries) -> None:
    with_text(entries, "(m + p - 1)", "(m + p)")
    first(entries)["findings"][-1]["property"] = "makespan == (m + p) * (tF + tB) when tC == 0"


def _cone_without_an_edge(entries: Entries) -> None:
    first(entries)["findings"][-1]["costs"].pop()


def _guesses_of_a_rank(entries: Entries) -> None:
    """The makespan of each rank is when it ends: one of them is the largest, as before."""
    for name, cases in first(entries)["guesses"].items():
        if name.startswith("makespan at F=1"):
            cases[0]["value"] += " - r"


def _empty_domain(entries: Entries) -> None:
    first(entries)["given"] = {"p": 0}


FORGERIES: dict[str, Callable[[Entries], object]] = {
    "domain wider": lambda e: first(e).update(domain="every size with p >= 1 and m >= 0"),
    "domain narrower": lambda e: first(e).update(domain="every size with p >= 2 and m >= 1"),
    "one p, said of all": lambda e: first(e)["given"].update(p=3),
    "no size": _empty_domain,
    "claims dropped": _claims_dropped,
    "claim replaced": _claim_replaced,
    "claims swapped": lambda e: first(e)["findings"].reverse(),
    "order not proved": lambda e: first(e)["findings"][0].update(outcome="not settled"),
    "another text": lambda e: with_text(e, "repeat m { F }", "repeat m - 1 { F }  F"),
    "a wrong text": lambda e: with_text(e, "repeat m { B }", "repeat m - 1 { B }"),
    "a text of another kind": lambda e: with_text(e, "schedule", "F0 F1"),
    "wider require": lambda e: with_text(e, "stage", "require m >= 2\nstage"),
    "cone": _cone_without_an_edge,
    "clock not total": lambda e: guess(e, "start at F=1, B=0, C=0")["where"].append("r == 0"),
    "clock decreasing": lambda e: guess(e, "start at F=1, B=0, C=0").update(value="-i0"),
    "clock a fraction": lambda e: guess(e, "start at F=1, B=0, C=0").update(value="1/2*i0 + r"),
    "start late": lambda e: guess(e, "start at F=1, B=0").update(value="m + r + i0"),
    "start on fewer sizes": lambda e: guess(e, "start at F=1, B=0")["where"].append("m - 3 >= 0"),
    "peak lower": lambda e: guess(e, "peak").update(value="m - 1"),
    "peak unknown": lambda e: first(e)["guesses"].pop("peak"),
    "makespan of each rank": _guesses_of_a_rank,
    "a guess that nobody needs": lambda e: first(e)["guesses"].update({"peak at W": [{"where": [], "value": "m"}]}),
    "an obligation less": lambda e: first(e)["obligations"].pop(),
    "an entry more": lambda e: e.update(proved_for="all"),
    "no answers": lambda e: e.update(answers=[]),
    "answers twice": lambda e: e["answers"].append(copy.deepcopy(first(e))) or e["answers"][1].update(domain="all"),
    "another format": lambda e: e.update(format="pipesched-prof"),
    "another version": lambda e: e.update(version=2),
    "true for 1": lambda e: e.update(version=True),
    "syntax of isl": lambda e: guess(e, "peak").update(value="m } ; { [0]"),
    "an unusual spelling": lambda e: guess(e, "peak").update(value="1*m"),
    "a huge number": lambda e: guess(e, "peak").update(value="m + 9999999999999999999999"),
    "a division by 0": lambda e: guess(e, "peak").update(value="1/0*m"),
    "an unknown name": lambda e: guess(e, "peak").update(value="m + __import__"),
    "another type": lambda e: guess(e, "peak").update(value=3),
    "many cases": lambda e: first(e)["guesses"].update(peak=[{"where": [], "value": "m"}] * 9999),
    "not ok": lambda e: e.update(ok=False),
    "statement": lambda e: first(e)["statements"][0].update(letter="B"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(name: str) -> None:
    """With a code, a reason and a remedy, and without what it says."""
    entries = certificate()
    FORGERIES[name](entries)
    found = verdict(entries)
    assert found.exit_status in (1, 2) and all(x.help or x.labels for x in found.diagnostics), str(found)
    assert "proved  " not in str(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version": 1', '"version": 1, "version": 1'),
        ('"line": 3', '"line": 3.0'),
        ('"line": 3', '"line": NaN'),
        ('"line": 3', f'"line": {10**20}'),
        ('"line": 3', f'"line": {"9" * 5000}'),
        ('"answers": [', '"answers": [['),
    ],
)
def test_json_of_its_own_is_refused(old: str, new: str) -> None:
    """A name twice, a float, a number that is none, one that is too large."""
    assert verdict(written(SMALL).replace(old, new, 1)).exit_status in (1, 2)


def test_a_text_that_changed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file of this name has another text, or the library's schedule has."""
    monkeypatch.chdir(tmp_path)
    assert accepted(certificate())
    Path("small.ps").write_text(SMALL, "utf-8")
    assert accepted(certificate())
    Path("small.ps").write_text(SMALL + "# more\n", "utf-8")
    assert [str(x.code) for x in verdict(certificate()).diagnostics] == ["PS722"]


def test_a_second_opinion_agrees_and_can_contradict() -> None:
    """On the library's proofs Z3 finds the same; where an inclusion is false it finds that."""
    pytest.importorskip("z3")
    from pipesched.prover.second_opinion import judged

    found = pipesched.verify(Source("cert.json", written(SMALL)), second_opinion=True)
    assert found.exit_status == 0 and "Z3 agrees on every inclusion" in str(found)
    inside = "[m] -> { [i] : 0 <= i < m and (i + m) mod 3 = 1 }"
    for wider, status in ((" or i = m", "agreed"), (" and i != 4", "PS721")):
        outside = isl.Set(inside.replace(" }", wider + " }"))
        try:
            said = str(judged([Shown("numbers", isl.Set(inside), outside)]).agreed and "agreed")
        except pipesched.PipeschedError as error:
            said = str(error.diagnostics[0].code)
        assert said == status


def test_a_second_opinion_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of Z3 cover all inclusions together: inclusions after the limit are open, and so not settled."""
    pytest.importorskip("z3")
    text = written(SMALL)
    monkeypatch.setattr("pipesched.prover.second_opinion.IN_ALL", 1)
    found = pipesched.verify(Source("cert.json", text), second_opinion=True)
    assert found.opinion.agreed <= 1 < len(found.opinion.open) and found.exit_status == 3


@pytest.mark.nightly
def test_a_question_has_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that takes more is not settled, and a certificate that takes more is refused."""
    text = written(SMALL)
    monkeypatch.setattr("pipesched.prover.presburger.MEMORY", -(2**50))
    assert pipesched.prove(Source("small.ps", SMALL)).exit_status == 3
    assert [str(x.code) for x in verdict(text).diagnostics] == ["PS721"]


def test_limits_end_with_their_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a question may take limits nothing after it, however large the process becomes."""
    context = presburger.isl().Context()
    monkeypatch.setattr(presburger, "MEMORY", -(2**50))
    with pytest.raises(presburger.TooHard), presburger.bounded(context):
        presburger.spend(1)
    presburger.spend(1)


# Damage


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all entries of a tree."""
    if place:
        yield place
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from _places(child, (*place, key))


MANY = re.compile(r"start at (\w+=1, )+C=0 |start between|clock")
"""The guesses that are not the only right ones: a clock, and a part of the longest ways."""
NUMBER = re.compile(r"\d+")


def _other(value: Any, rng: random.Random) -> Any:
    """Return a value that is nearly the same."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1))
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        numbers = [*NUMBER.finditer(value)]
        if numbers and rng.random() < 0.6:
            found = rng.choice(numbers)
            return f"{value[: found.start()]}{int(found[0]) + rng.choice((-1, 1))}{value[found.end() :]}"
        swaps = [("+", "-"), (">=", "=="), ("==", ">="), ("p", "m"), ("m", "p"), ("r", "i0"), ("F", "B"), ("1", "2")]
        fitting = [swap for swap in swaps if swap[0] in value]
        if fitting and rng.random() < 0.8:
            return value.replace(*rng.choice(fitting), 1)
        return value[:at] + rng.choice("0123456789 pmri+-*/><=") + value[at + rng.randrange(2) :]
    if isinstance(value, list) and len(value) > 1:
        made = [*value]
        rng.shuffle(made)
        return made
    return rng.choice((0, "", None, [], {}, "0", True))


def damaged(entries: Entries, rng: random.Random) -> Entries:
    """Return a certificate with an entry changed, left out, doubled, or in the place of another."""
    made = copy.deepcopy(entries)
    places = [*_places(made)]
    inner = [place for place in places if "guesses" in place]
    place = rng.choice(inner if inner and rng.random() < 0.6 else places)
    parent = made
    for key in place[:-1]:
        parent = parent[key]
    key, how = place[-1], rng.random()
    if how < 0.6:
        parent[key] = _other(parent[key], rng)
    elif how < 0.75:
        del parent[key]
    elif isinstance(parent, list):
        parent.insert(key, copy.deepcopy(rng.choice(parent)))
    else:
        parent[key] = copy.deepcopy(parent[rng.choice([*parent])])
    if place[:2] == ("schedule", "text") and rng.random() < 0.9 and isinstance(parent.get("text"), str):
        parent["sha256"] = sha256(parent["text"].encode()).hexdigest()
    return made


def _said(entries: Entries) -> str:
    """Return everything but the guesses, the details of open properties, and the name of the text, in one spelling."""
    made = {**copy.deepcopy(entries), "source": ""}
    for answer in made["answers"]:
        answer.pop("guesses")
        for finding in answer["findings"]:
            if finding["outcome"] == "not settled":
                finding.pop("detail")
    return json.dumps(made, sort_keys=True)


def _value(cases: list[Entries], point: dict[str, int]) -> set[float]:
    """Return the values of a guess at a point, as Python reads it."""

    def at(text: str, names: dict[str, Any]) -> Any:
        return eval(re.sub(r"(\d+)/(\d+)", r"F(\1,\2)", text), {"__builtins__": {}, "F": Fraction}, names)

    found = []
    for case in cases:
        names: dict[str, Any] = dict(point)
        for k, text in enumerate(case.get("floors", [])):
            names[f"e{k}"] = floor(at(text, names))
        if all(at(text, names) for text in case["where"]):
            found.append(at(case["value"], names))
    return {sum(found)} if found else set()


def same(one: Entries, other: Entries) -> str:
    """Return the reason why two certificates are equivalent: their statements are equal, and both have the same correct
    count, time and peak at small sizes; "" if they are not.
    """
    if _said(one) != _said(other):
        return ""
    for mine, others in zip(one["answers"], other["answers"], strict=True):
        for name in mine["guesses"].keys() | others["guesses"].keys():
            pair = [answer["guesses"].get(name) for answer in (mine, others)]
            if pair[0] != pair[1] and not MANY.match(name) and (None in pair or not _alike(mine, name, others)):
                return ""
    return "the same is said"


def _alike(mine: Entries, name: str, others: Entries) -> bool:
    """Return True if a guess has the same values at all points of small sizes at which its statement runs."""
    statement = next((x for x in mine["statements"] if name.split(" where ")[0].endswith(f" at {x['name']}")), None)
    names = ["p", "m", "r", *(f"i{k}" for k in range(4))]
    for p, m in product(range(1, 6), range(1, 10)):
        for rest in product(range(p), *[range(m + 1)] * (len(statement["place"]) if statement else 0)):
            point = dict(zip(names, (p, m, *rest, 0, 0, 0), strict=False))
            inside = statement is None or any(_value([{**x, "value": "1"}], point) for x in statement["domain"])
            if inside and _value(mine["guesses"][name], point) != _value(others["guesses"][name], point):
                return False
    return True


def tried(name: str, seed: int) -> str:
    """Return the outcome for a damaged certificate; raise AssertionError if it is accepted with another meaning."""
    entries = certificate(name)
    made = damaged(entries, random.Random(seed))
    if json.dumps(made, sort_keys=True) == json.dumps(entries, sort_keys=True):
        return "not changed"
    found = verdict(made)
    assert found.exit_status in (0, 1, 2, 3)
    if found.exit_status not in (0, 3):
        return f"refused, {found.diagnostics[0].code}"
    assert same(entries, made), (name, seed)
    return "accepted, the same is said"


def test_damage_is_refused() -> None:
    """Unless the certificate says the same as before."""
    counted = Counter(tried(SMALL, seed) for seed in range(deep(30)))
    assert sum(count for how, count in counted.items() if how.startswith("refused")) > sum(counted.values()) * 0.8


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("names", nargs="*", default=[*CHEAP, "zb_h2", "gpipe_reversed", "unet", "seq1f1b"])
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    for case in range(asked.first, asked.first + asked.cases):
        total[tried(asked.names[case % len(asked.names)], case)] += 1
        if case % 100 == 99:
            print(case + 1, dict(total), flush=True)
    print(dict(total))
