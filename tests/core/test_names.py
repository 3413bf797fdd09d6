"""A name that a file defines refers to that definition, whatever else the name means in the language or in claims.

The corpus is the library with one of its names after another replaced: the words that stand only where no name can, the
letters and words of other tools, and the names that claims and programs know unless a file has them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pipesched
from pipesched.language.tokens import SOFT
from pipesched.lift.printer import format_source
from pipesched.support.source import Source
from tests.depth import deep, in_usual_run

LIBRARY = sorted((Path(__file__).parents[2] / "schedules").glob("*.ps"))
SIZES = {"interleaved": {"p": 4, "v": 2, "m": 8}, "dualpipe": {"p": 4, "m": 12}, "dualpipev": {"p": 4, "m": 16}}
WORDS = sorted(
    {
        *SOFT,
        "R",
        "L",
        "O",
        "K",
        "length",
        "slices",
        "reads",
        "frozen",
        "bubble",
        "span_bubble",
        "host",
        "tO",
        "batch",
        "block",
        "wait",
    }
    | {"send", "recv", "greedy", "held", "pending", "fill", "entry", "lists", "microbatches", "count", "pay"}
)
KNOWN = frozenset(
    re.findall(
        r"\w+",
        """schedule require let route stage in on rank for microbatch costs claim release when repeat if then else
        overlap drain and or not true false torch split m min max abs makespan span bubble span_bubble work idle
        span_idle peak host pending tF tI tW tB tR tFB tC tM tK tO tL F I W B R O L C M K FB slices frozen reads
        versions stash latest delay STEP staleness crossed period period_bubble parts of greedy backfill held""",
    )
)


def names(text: str) -> list[str]:
    """Return the names that a file defines, except m, which is the number of microbatches."""
    code = re.sub(r'#.*|"[^"]*"', "", text)
    return sorted(set(re.findall(r"\b[A-Za-z_]\w*\b", code)) - KNOWN)


def renamed(text: str, old: str, new: str) -> str:
    """Return the text with one name replaced, outside comments and strings."""
    return re.sub(rf'#.*|"[^"]*"|\b{old}\b', lambda x: new if x[0] == old else x[0], text)


def verdict(text: str, sizes: dict[str, int]) -> tuple[object, ...]:
    """Return the order, times and memory of a file, and the verdict on each of its claims."""
    report = pipesched.verify(Source("x.ps", text), **sizes)
    schedule = pipesched.load(Source("x.ps", text), **sizes)
    columns = tuple(getattr(schedule, x).tolist() for x in ("op", "stage", "microbatch", "second", "start"))
    assert report.ok and report.time is not None and report.memory is not None
    return columns, report.time.makespan, report.memory.peak, [claim.holds for claim in report.claims]


EVERY = 68 if in_usual_run() else 34
CASES = [(p, w) for i, p in enumerate(LIBRARY) for j, w in enumerate(WORDS) if deep(1) > 1 or (i + j) % EVERY == 0]


@pytest.mark.parametrize(("path", "word"), CASES, ids=[f"{path.stem}-{word}" for path, word in CASES])
def test_any_name_may_be_any_word(path: Path, word: str) -> None:
    """With one of its names replaced by such a word, a schedule is unchanged, its claims hold as before, and its
    canonical form has the new name. A seventeenth of all pairs, with ``--depth 2`` all.
    """
    text = path.read_text("utf-8")
    options = word in ("frozen", "parts")  # of the function that is called here
    own = [name for name in names(text) if not options or name not in ("p", "e")]
    old = own[WORDS.index(word) % len(own)]
    if word in own or re.search(rf"\b{word}\b", re.sub(r'#.*|"[^"]*"', "", text)):
        pytest.skip("the file has this name, or speaks of it")
    sizes = SIZES.get(path.stem, {"p": 4, "m": 8})
    if options and old in sizes:
        pytest.skip("an option of the function that is called here")
    given = {word if name == old else name: value for name, value in sizes.items()}
    made = renamed(text, old, word)
    assert verdict(made, given) == verdict(text, sizes)
    same = "z" * len(word)
    assert renamed(format_source(Source("x.ps", renamed(text, old, same))), same, word) == format_source(
        Source("x.ps", made)
    )
