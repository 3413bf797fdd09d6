"""Find counterexamples by trying small sizes in turn, with the checks of `verify`, until a size fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from pipesched import compile as compiler
from pipesched.common.library import takes
from pipesched.compile import Options
from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.formats.readers import Loaded, checked
from pipesched.language.claims import judge_all
from pipesched.model.costs import Costs
from pipesched.prover.sizes import ascending
from pipesched.report.report import Report
from pipesched.support.source import Source

MOST = {"p": 6, "m": 12}
OPERATIONS = 20_000  # most operations of a size that is tried
TOO_MANY = (Code.TOO_MANY_OPERATIONS, Code.TOO_MANY_STEPS)
NO_FAULT = (Code.CLAIM, Code.REQUIRE, *TOO_MANY)
Priced = Mapping[str, int]
SOME: Sequence[Priced] = [
    {"F": f, "I": i, "W": w, "C": c}
    for f, i, w, c in ((1, 2, 1, 0), (2, 1, 1, 0), (0, 1, 1, 0), (0, 0, 1, 0), (1, 4, 2, 0), (1, 1, 1, 1))
]
"""The costs at which a claim is tried if the prover does not support the form of its condition."""


@dataclass(frozen=True)
class Counterexample:
    """A size and costs at which a check or a claim fails, with the verdict of `verify` there."""

    parameters: Mapping[str, int]
    costs: Priced
    found: Diagnostic

    def arguments(self) -> str:
        """Return the size and costs as command-line arguments."""
        sizes = [
            f"--{name} {value}" if name in "pvm" else f"-D {name}={value}" for name, value in self.parameters.items()
        ]
        costs = ",".join(f"{name}={value}" for name, value in self.costs.items())
        return " ".join([*sizes, *([f"--cost {costs}"] if costs else [])])


@dataclass(eq=False)
class Small:
    """The small sizes of a file. given: fixed values of some parameters; p and m vary unless they are given."""

    source: Source
    given: Mapping[str, int]
    varying: tuple[str, ...]
    _reports: dict[tuple[tuple[str, int], ...], Report] = field(default_factory=dict)
    _wrong: dict[tuple[tuple[str, int], ...], dict[int, Diagnostic | None]] = field(default_factory=dict)
    _loaded: dict[tuple[tuple[str, int], ...], Loaded | Report] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> list[dict[str, int]]:
        """The small sizes that the file accepts: the smallest p + m first, then the fewest ranks."""
        sizes = ({**self.given, **size} for size in ascending({name: MOST[name] for name in self.varying}))
        file = checked(self.source)
        return [each for each in sizes if takes(file, each)]

    def judged(self) -> list[dict[str, int]]:
        """Return the small sizes that are not too large for `verify` here."""
        return [x for x in self.sizes if not any(found.code in TOO_MANY for found in self.report(x, {}).diagnostics)]

    def wrong(self) -> Counterexample | None:
        """Return, as a counterexample, the smallest size with an error that is neither a failed claim nor a limit."""
        for size in self.sizes:
            for found in self.report(size, {}).diagnostics:
                if found.severity == "error" and found.code not in NO_FAULT:
                    return Counterexample(size, {}, found)
        return None

    def false(self, number: int, costs: Sequence[Priced]) -> Counterexample | None:
        """Return the smallest size at which a claim, by its index in the file, is false for some of these costs."""
        for size in self.sizes:
            for priced in costs:
                if (found := self.at(number, size, priced)) is not None:
                    return found
        return None

    def at(self, number: int, size: Mapping[str, int], costs: Priced) -> Counterexample | None:
        """Return this size as a counterexample if the claim is false here."""
        if number not in (wrong := self._false(size, costs)):
            return None
        report, found = self.report(size, costs), wrong[number]
        if report.claims[number].holds is False:
            said = f"claim {report.claims[number].text} does not hold"
            found = next(x for x in report.diagnostics if x.code is Code.CLAIM and x.message.startswith(said))
        return None if found is None else Counterexample(dict(size), dict(costs), found)

    def _false(self, size: Mapping[str, int], costs: Priced) -> Mapping[int, Diagnostic | None]:
        """Return the indices of the claims that are false at a size with some costs, or that name a rank that does not
        exist there, with the error about such a rank. If the order is wrong at that size, no claims are returned.
        """
        key = (*size.items(), *costs.items())
        if key not in self._wrong:
            loaded, self._wrong[key] = self._load(size), {}
            if isinstance(loaded, Loaded) and loaded.unit is not None:
                made = compiler.examine(loaded, self._options(size, costs)).analysis
                verdicts = judge_all(loaded.unit.checked.claims, made, loaded.unit.names) if made.finished else ()
                self._wrong[key] = {
                    k: x.error
                    for k, x in enumerate(verdicts)
                    if x.holds is False or (x.error and x.error.code is Code.CLAIM)
                }
        return self._wrong[key]

    def report(self, size: Mapping[str, int], costs: Priced) -> Report:
        """Return the verdict of `verify` at a size."""
        key = (*size.items(), *costs.items())
        if key not in self._reports:
            loaded = self._load(size)
            if isinstance(loaded, Report):
                return loaded
            self._reports[key] = compiler.examine(loaded, self._options(size, costs)).report
        return self._reports[key]

    @staticmethod
    def _options(size: Mapping[str, int], costs: Priced) -> Options:
        asked = Costs({name: Fraction(value) for name, value in costs.items()}) if costs else None
        return Options(dict(size), asked, max_ops=OPERATIONS)

    def _load(self, size: Mapping[str, int]) -> Loaded | Report:
        """Load the file at a size, or return the findings if it is not a schedule at that size."""
        key = (*size.items(),)
        if key not in self._loaded:
            try:
                self._loaded[key] = compiler.load(self.source, Options(dict(size), max_ops=OPERATIONS))
            except PipeschedError as error:
                self._loaded[key] = Report(None, None, diagnostics=error.diagnostics)
        return self._loaded[key]


def interior(cones: Sequence[Sequence[Priced]]) -> Iterator[Priced]:
    """Yield costs inside each cone: the sum of its generators, and each sum in which one generator is counted twice."""
    for generators in cones:
        for extra in [None, *generators]:
            names = {name for each in generators for name in each}
            of = [*generators, *([extra] if extra is not None else [])]
            yield {name: sum(each.get(name, 0) for each in of) for name in sorted(names)}
