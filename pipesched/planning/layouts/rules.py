"""Rules of thumb from the literature, each compared with the predictions, and the reasons why other choices are slower
or do not fit.

A rule that the fastest choice satisfies is confirmed, unless the rule does not apply. For a broken rule, the fastest
choice that satisfies it shows why the rule does not hold here: how much slower that choice is and in which terms, or
that no such choice fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from pipesched.model.units import SECONDS
from pipesched.planning.layouts.prediction import Prediction, Refused, bound, differences
from pipesched.planning.layouts.search import Search
from pipesched.planning.layouts.space import NAMES, Choice, Size

TERMS = {
    "compute": "compute",
    "recompute": "recomputation",
    "tensor": "tensor-parallel messages",
    "context": "context-parallel messages",
    "experts": "messages to experts",
    "copies": "ZeRO's messages in every microbatch",
    "idle": "idle time",
    "gradients": "messages between copies once per step",
}


@dataclass(frozen=True)
class Rule:
    """A rule of thumb. lacks: returns the reason why the rule does not apply, or an empty string. breaks: returns
    whether the fastest choice breaks the rule. keeps: returns whether a choice satisfies it, given the fastest choice.
    """

    text: str
    source: str
    lacks: Callable[[Search, Choice], str]
    breaks: Callable[[Search, Choice], bool]
    keeps: Callable[[Search, Choice, Choice], bool]


@dataclass(frozen=True)
class Judged:
    """A rule and its verdict. lacks: the reason why the rule does not apply, or an empty string. other: if the plan
    breaks the rule, the fastest choice that satisfies it; None if no such choice fits.
    """

    rule: Rule
    kept: bool
    lacks: str = ""
    other: Prediction | None = None

    def text(self, best: Prediction) -> str:
        """Return the rule and its verdict."""
        if self.lacks:
            return f"{self.rule.text}: not applicable, since {self.lacks}"
        if self.kept:
            return f"{self.rule.text}: holds here"
        if self.other is None:
            return f"{self.rule.text}: does not hold, since no choice that follows it fits"
        return f"{self.rule.text}: does not hold: {self.other.choice} {slower(self.other, best)}"


def slower(other: Prediction, best: Prediction) -> str:
    """Return ``is 3.1 % slower: 1.20 s more idle time, 0.10 s less gradient reduction``; without times, ``ranks below
    the plan …``.
    """
    if not best.trust.timed:
        return f"ranks below the plan in the predicted order; {best.trust.why}"
    found, little = differences(other.terms, best.terms), float(best.seconds) / 2000
    said = [f"{SECONDS.text(Fraction(by))} more {TERMS[name]}" for name, by in found[:2] if by >= little]
    less = [f"{SECONDS.text(Fraction(-by))} less {TERMS[name]}" for name, by in found[-1:] if by <= -little]
    share = float(other.seconds / best.seconds - 1) * 100
    why = ", ".join([*said, *less]) or "about as fast, but with more memory"
    return f"is {share:.{0 if share >= 10 else 1}f} % slower: {why}"


def _lacks(said: str, *there: bool) -> str:
    return "" if all(there) else said


def _pipeline(search: Search, best: Choice) -> str:
    return _lacks("there is no pipeline", best.p > 1)


def _same(one: Choice, other: Choice, *but: str) -> bool:
    return all(one[name] == other[name] for name in NAMES if name not in but)


RULES = (
    Rule(
        "tensor parallelism fills a node before a pipeline is used",
        "Narayanan et al., SC 2021, takeaway 1",
        lambda search, best: _pipeline(search, best) or _lacks("no choice divides a layer", search.widest > 1),
        lambda search, best: best.training.tensor < search.widest,
        lambda search, best, x: x.p == 1 or x.training.tensor == search.widest,
    ),
    Rule(
        "tensor parallelism stays within a node",
        "Narayanan et al., SC 2021, takeaway 1",
        lambda search, best: _lacks("no layer is divided", best.training.tensor > 1),
        lambda search, best: best.training.tensor > search.problem.device.node_size,
        lambda search, best, x: x.training.tensor <= search.problem.device.node_size,
    ),
    Rule(
        "the pipeline is only as deep as memory requires, the rest is data parallelism",
        "Narayanan et al., SC 2021, takeaway 2",
        lambda search, best: _lacks("no choice has a pipeline", any(x.p > 1 for x in search.possible())),
        lambda search, best: bool(search.best(1, lambda x: _less_pipeline(best, x))),
        lambda search, best, x: _less_pipeline(best, x),
    ),
    Rule(
        "a pipeline has at least four microbatches per rank",
        "Huang et al., NeurIPS 2019, section 2.3",
        _pipeline,
        lambda search, best: best.m < 4 * best.p,
        lambda search, best, x: x.p == 1 or x.m >= 4 * x.p,
    ),
    Rule(
        "with fewer than 4 microbatches per rank, a rank has several stages",
        "Narayanan et al., SC 2021, section 2.2",
        lambda search, best: _pipeline(search, best) or _lacks("m is at least 4 p", best.m < 4 * best.p),
        lambda search, best: best.v == 1,
        lambda search, best, x: x.v > 1,
    ),
    Rule(
        "recomputation is used only if nothing fits without it",
        "Korthikanti et al. 2022, section 5",
        lambda search, best: _lacks("no choice recomputes", any(map(_recomputes, search.possible()))),
        lambda search, best: _recomputes(best) and bool(search.best(1, lambda x: _without_recomputation(best, x))),
        lambda search, best, x: _without_recomputation(best, x),
    ),
)


def _less_pipeline(best: Choice, x: Choice) -> bool:
    return x.p < best.p and all(x[name] == best[name] for name in ("t", "c", "recompute", "zero"))


def _recomputes(x: Choice) -> bool:
    return x.training.recompute != "none"


def _without_recomputation(best: Choice, x: Choice) -> bool:
    return not _recomputes(x) and _same(best, x, "recompute")


def judge(search: Search, best: Prediction) -> Iterator[Judged]:
    """Check every rule against the fastest choice."""
    for rule in RULES:
        lacks = rule.lacks(search, best.choice)
        if lacks or not rule.breaks(search, best.choice):
            yield Judged(rule, True, lacks)
            continue
        found = search.best(1, partial(rule.keeps, search, best.choice))
        yield Judged(rule, False, "", *found)


@dataclass(frozen=True)
class Explained:
    """The reasons why the fastest choice with the requested sizes is not the plan. count: the number of such choices.
    refused: if none fits, one refused choice for each reason.
    """

    asked: Mapping[str, Size]
    count: int
    found: Prediction | None
    refused: Mapping[str, Refused]

    def text(self, best: Prediction) -> Iterator[str]:
        """Yield the lines of the explanation."""
        said = ", ".join(f"{name}={value}" for name, value in self.asked.items())
        many = "1 choice" if self.count == 1 else f"{self.count:,} choices"
        if self.found is None:
            yield f"{said}: none of {many} fits"
        elif self.found.choice == best.choice:
            yield f"{said}: the fastest of {many} is the plan"
        else:
            yield f"{said}: the fastest of {many}, {self.found.choice}, {slower(self.found, best)}"
        for one in self.refused.values():
            yield f"{one.choice}: {one.reason}"


def explain(search: Search, asked: Mapping[str, Size]) -> Explained:
    """Return the fastest choice with these sizes; if none fits, the choice closest to fitting for each reason."""

    def meant(x: Choice) -> bool:
        return all(x[name] == value for name, value in asked.items())

    found, refused = search.best(1, meant), dict[str, Refused]()
    matching = [number for number, x in enumerate(search.choices) if meant(x)]
    for number in () if found else matching:
        made = search.known.get(number) or bound(search.problem, search.choices[number])
        if isinstance(made, Refused) and (made.kind not in refused or made.over < refused[made.kind].over):
            refused[made.kind] = made
    return Explained(asked, len(matching), found[0] if found else None, refused)
