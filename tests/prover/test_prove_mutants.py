"""No false property is proved: after one word in an order or a claim is changed, `prove` agrees with `verify` at small
sizes and random costs, and refutes a false property at its smallest size.

`python -m tests.prover.test_prove_mutants --cases 500` is the long run, over every claim and every line of every order
of the library: sizes up to p = 6, m = 24. With `--random` the files are those of `tests/makers/ps_theorems.py`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import count, islice
from pathlib import Path

import pytest

from pipesched import compile as compiler
from pipesched.compile import Options
from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.ps_theorems import program

pytest.importorskip("islpy")

LIBRARY = Path(__file__).parents[2] / "schedules"
QUICK = {"1f1b", "gpipe", "gpipe_reversed", "zb_h1", "forward_only", "naive", "seq1f1b"}
WORD = re.compile(r"\b\d+\b|\b(?:min|max|p|m|r|i|F|B|I|W|warmup|tF|tB|tI|tW|tC|tM)\b|[<>=!]=|[<>]|[-+*]|//|%")
REPEAT = re.compile(r"(?<=repeat )[^{]+?(?= *\{)|(?<=let warmup = ).+$|(?<=\.\. )[^{]+?(?= *\{)")
OTHERS = [
    ("<", "<="),
    (">=", ">"),
    ("==", "<="),
    ("+", "-"),
    ("min", "max"),
    ("F", "B", "I", "W"),
    ("p", "m", "r", "i"),
]
OTHERS += [("tF", "tB", "tI", "tW", "tC"), ("//", "%"), ("*", "+"), ("warmup", "m")]
_OF_CLAIMS = ("PS221", "PS206")  # false, and a quotient by 0, of which `prove` says that it is not meant
Size = tuple[int, int]


@dataclass(frozen=True)
class Line:
    """A line of a file of the library that can be changed."""

    file: str
    number: int
    claim: bool


@cache
def lines() -> tuple[Line, ...]:
    """Return every claim and every line of every order, those of the orders first, mixed."""
    found = []
    for path in sorted(LIBRARY.glob("*.ps")):
        place = ""
        for number, line in enumerate(path.read_text("utf-8").splitlines()):
            place = next((word for word in ("claim", "rank") if line.startswith(word)), place)
            if place and WORD.search(line.partition("#")[0]):
                found.append(Line(path.stem, number, place == "claim"))
    random.Random(0).shuffle(found)
    return tuple(found)


def changed(line: str, *, claim: bool, rng: random.Random) -> str:
    """Return a line with one word changed, one pass more or fewer, a cost that counts twice."""
    code = line.partition("#")[0].rstrip()
    passes, costs = [*REPEAT.finditer(code)], [*re.finditer(r"\bt[FBIWM]\b", code)]
    if not claim and passes and rng.random() < 0.4:
        found = rng.choice(passes)
        return f"{code[: found.start()]}{found[0]} {rng.choice('+-')} 1{code[found.end() :]}"
    if claim and costs and rng.random() < 0.2:
        found = rng.choice(costs)
        return f"{code[: found.start()]}2 * {found[0]}{code[found.end() :]}"
    found = rng.choice([*WORD.finditer(code)])
    word = found[0]
    of = [other for row in OTHERS if word in row for other in row if other != word]
    other = str(max(0, int(word) + rng.choice((-1, 1)))) if word.isdigit() else rng.choice(of) if of else word
    return code[: found.start()] + other + code[found.end() :]


def mutant(case: int) -> tuple[str, str]:
    """Return a file of the library with one line changed: each line has its turn."""
    line, rng = lines()[case % len(lines())], random.Random(case)
    body = (LIBRARY / f"{line.file}.ps").read_text("utf-8").splitlines()
    body[line.number] = changed(body[line.number], claim=line.claim, rng=rng)
    return line.file, "\n".join(body) + "\n"


def costs(rng: random.Random) -> Iterator[Costs | None]:
    """Yield the costs at which claims are tried; one of them is 0 now and then, and messages are late now and then."""
    yield None
    for k in range(3):
        made = {key: Fraction(rng.choice((0, 1, 1, 2, 3, 4, 5))) for key in "FBIW"}
        made |= {"C": Fraction(rng.choice((0, 0, 0, 1, 3)))} | ({} if k % 2 else {"B": made["I"] + made["W"]})
        if any(made[key] for key in "FBIW"):
            yield Costs(made)


def wrong(
    source: Source, sizes: list[Size], rng: random.Random, *, once: bool = False
) -> tuple[dict[Size, str], dict[int, dict[Size, str]]]:
    """Return, as `verify` reports them, the errors of the order by size, and by claim and size the costs at which it is
    false. once: only the first error of the order is asked for.
    """
    orders: dict[Size, str] = {}
    claims: dict[int, dict[Size, str]] = {}
    for p, m in sizes:
        if once and orders:
            break
        asked = Options({"p": p, "m": m})
        try:
            loaded = compiler.load(source, asked)
        except PipeschedError as error:
            if any(found.code != "PS209" for found in error.diagnostics):
                orders[p, m] = str(error.diagnostics[0].message)
            continue
        for own in costs(rng):
            report = compiler.examine(loaded, Options({"p": p, "m": m}, own)).report
            if other := [x for x in report.diagnostics if x.severity == "error" and x.code not in _OF_CLAIMS]:
                orders[p, m] = other[0].message
                break
            for number, claim in enumerate(report.claims):
                if claim.holds is False:
                    claims.setdefault(number, {}).setdefault((p, m), f"{claim.text} {claim.detail} {own}")
    return orders, claims


def smallest(found: Mapping[Size, str]) -> Size:
    return min(found, key=lambda size: (sum(size), size))


def tried(text: str, seed: int, ranks: int = 6, microbatches: int = 24) -> Counter[str]:
    """Return how a mutant fares; raises AssertionError where something is proved that is false."""
    from pipesched.prover.prove import prove

    source, rng = Source("mutant.ps", text), random.Random(seed)
    try:
        answers = prove(source, {}).answers
    except PipeschedError:
        return Counter(invalid=1)
    sizes = sorted(((p, m) for p in range(1, ranks + 1) for m in range(1, microbatches + 1)), key=lambda x: (sum(x), x))
    unproved = all(finding.outcome != "proved" for answer in answers for finding in answer.findings)
    orders, claims = wrong(source, sizes, rng, once=unproved)
    counts = Counter(finding.outcome for answer in answers for finding in answer.findings)
    for answer in answers:
        proved = {finding.number for finding in answer.findings if finding.outcome == "proved"}
        mine = answer.given.get("p")
        for size, said in orders.items():
            assert mine not in (None, size[0]) or not {0, 1} <= proved, f"{size} {said}\n{text}"
        for number, sizes_of in claims.items():
            for size, said in sizes_of.items():
                assert mine not in (None, size[0]) or number + 2 not in proved, f"{size} {said}\n{text}"
    refuted = {x.number: x for x in answers[0].findings if x.outcome == "refuted"}
    false = {0: orders} if orders else {number + 2: sizes_of for number, sizes_of in claims.items()}
    for number, found in false.items():
        counts["false"] += 1
        counterexample = refuted[number].counterexample if number in refuted else None
        if counterexample is not None:
            counts["false, refuted"] += 1
            size = counterexample.parameters["p"], counterexample.parameters["m"]
            first = (sum(size), size) <= (sum(smallest(found)), smallest(found))
            counts["false, refuted at the smallest size"] += first
        if counterexample is None or not first:
            counts[f"missed: {number} {smallest(found)} {counterexample and size} {found[smallest(found)]}"] += 1
    return counts


def test_nothing_false_is_proved() -> None:
    """A proved property holds at every small size with random costs; a false one is refuted at its smallest size."""
    found: Counter[str] = Counter()
    for case in range(deep(2, usual=2)):
        found += tried(program(case), case, 4, 9)
    quick = (case for case in count() if lines()[case % len(lines())].file in QUICK)
    for case in islice(quick, deep(3, usual=3)):
        found += tried(mutant(case)[1], case, 4, 9)
    assert found["proved"] and found["false"]
    assert 10 * found["false, refuted at the smallest size"] >= 9 * found["false"], found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--random", action="store_true")
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    for case in range(asked.first, asked.first + asked.cases):
        made, body = ("random", program(case)) if asked.random else mutant(case)
        one = tried(body, case)
        total += Counter({key: count for key, count in one.items() if not key.startswith("missed")})
        print(case, made, json.dumps(dict(one)), flush=True)
    print(json.dumps(dict(total)))
