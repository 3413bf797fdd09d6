"""Nothing is proved that is false: of orders and claims with one word changed, what `prove` says is held against
`verify` at small sizes and random costs.

`python -m tests.prover.test_prove_mutants --cases 500` is the long run.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from pipesched import compile as compiler
from pipesched.compile import Options
from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.report.report import Report
from pipesched.support.source import Source
from tests.depth import deep

pytest.importorskip("islpy")

LIBRARY = Path(__file__).parents[2] / "schedules"
FILES = ("1f1b", "gpipe", "gpipe_reversed", "eager_1f1b", "zb_h1", "zb_h2", "naive", "forward_only", "mario", "unet")
FILES += ("seq1f1b", "looped_bfs", "interleaved", "terapipe", "dualpipev", "zb_v", "chimera")
WORD = re.compile(r"\b\d+\b|\b(?:min|max|p|m|r|i|F|B|I|W|warmup|tF|tB|tI|tW|tC)\b|[<>=!]=|[<>]|[-+*]|//|%")
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


def swapped(word: str, rng: random.Random) -> str:
    if word.isdigit():
        return str(max(0, int(word) + rng.choice((-1, 1))))
    of = [other for row in OTHERS if word in row for other in row if other != word]
    return rng.choice(of) if of else word


def mutant(seed: int) -> tuple[str, str]:
    """A file of the library with one word of its order, its requirements or its claims changed."""
    rng = random.Random(seed)
    name = rng.choice(FILES)
    lines = (LIBRARY / f"{name}.ps").read_text("utf-8").splitlines()
    at = rng.choice([k for k, line in enumerate(lines) if k > 2 and WORD.search(line.partition("#")[0])])
    words = [*WORD.finditer(lines[at].partition("#")[0])]
    word = rng.choice(words)
    lines[at] = lines[at][: word.start()] + swapped(word[0], rng) + lines[at][word.end() :]
    return name, "\n".join(lines) + "\n"


def reports(source: Source, p: int, m: int, given: dict[str, int], rng: random.Random) -> Iterator[tuple[str, Report]]:
    """What `verify` says at a size, at several costs."""
    for k in range(4):
        costs = {key: Fraction(rng.randint(1, 5)) for key in "FBIW"} | {"C": Fraction(rng.choice((0, 0, 1, 3)))}
        costs |= {} if k % 2 else {"B": costs["I"] + costs["W"]}
        options = Options({**given, "p": p, "m": m}, None if not k else Costs(costs))
        try:
            yield str(costs) if k else "", compiler.examine(compiler.load(source, options), options).report
        except PipeschedError as error:
            if all(found.code == "PS209" for found in error.diagnostics):
                return
            yield "", Report(None, None, diagnostics=error.diagnostics)


def tried(text: str, seed: int, ranks: int = 5, microbatches: int = 12) -> Counter[str]:
    """How a mutant fares; raises AssertionError where something is proved that is false."""
    from pipesched.prover.prove import prove

    source, rng = Source("mutant.ps", text), random.Random(seed)
    try:
        answers = prove(source, {}).answers
    except PipeschedError:
        return Counter(invalid=1)
    outcomes: Counter[str] = Counter()
    for answer in answers:
        proved = {finding.number for finding in answer.findings if finding.outcome == "proved"}
        outcomes.update(finding.outcome for finding in answer.findings)
        for p in [answer.given["p"]] if "p" in answer.given else range(1, ranks + 1):
            for m in range(1, microbatches + 1):
                for costs, report in reports(source, p, m, {}, rng):
                    where = f"p={p} m={m} {costs} {report.fault}\n{text}"
                    other = [x for x in report.diagnostics if x.severity == "error" and x.code != "PS221"]
                    assert not (proved & {0, 1} == {0, 1} and other), where
                    for number, claim in enumerate(report.claims, 2):
                        assert not (claim.holds is False and number in proved), f"{claim.text} {claim.detail} {where}"
    return outcomes


def test_nothing_false_is_proved() -> None:
    """Random mutants: what is proved holds at every small size and random costs."""
    found: Counter[str] = Counter()
    for seed in range(deep(8)):
        found += tried(mutant(seed)[1], seed)
    assert found["proved"] and found["refuted"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    for case in range(asked.first, asked.first + asked.cases):
        made, body = mutant(case)
        one = tried(body, case)
        total += one
        print(case, made, dict(one), flush=True)
    print(dict(total))
