"""The smallest size at which something is wrong: found by trying small ones in turn, with the checks of `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from pipesched import compile as compiler
from pipesched.compile import Options
from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.formats.readers import checked
from pipesched.language.evaluate import takes
from pipesched.model.costs import Costs
from pipesched.report.report import Report
from pipesched.support.source import Source

RANKS, MICROBATCHES = 6, 12
OPERATIONS = 20_000  # of a size that is tried
Priced = Mapping[str, int]


@dataclass(frozen=True)
class Counterexample:
    """A size and costs at which something is wrong, and what `verify` says there."""

    parameters: Mapping[str, int]
    costs: Priced
    found: Diagnostic

    def arguments(self) -> str:
        """As a command line."""
        sizes = [
            f"--{name} {value}" if name in "pvm" else f"-D {name}={value}" for name, value in self.parameters.items()
        ]
        costs = ",".join(f"{name}={value}" for name, value in self.costs.items())
        return " ".join([*sizes, *([f"--cost {costs}"] if costs else [])])


@dataclass(eq=False)
class Small:
    """Small sizes of a file. given: the values of some parameters; p and m vary where they are not among them."""

    source: Source
    given: Mapping[str, int]
    varying: tuple[str, ...]
    _reports: dict[tuple[tuple[str, int], ...], Report] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> list[dict[str, int]]:
        """Those that the file takes, fewest ranks first, then fewest microbatches."""
        most = {"p": RANKS, "m": MICROBATCHES}
        made: list[dict[str, int]] = [dict(self.given)]
        for name in self.varying:
            made = [{**each, name: k} for each in made for k in range(1, most[name] + 1)]
        file = checked(self.source)
        return [each for each in made if takes(file, each)]

    def wrong(self) -> Counterexample | None:
        """Return the smallest size with a fault other than that of a claim."""
        for size in self.sizes:
            for found in self.report(size, {}).diagnostics:
                if found.severity == "error" and found.code is not Code.CLAIM:
                    return Counterexample(size, {}, found)
        return None

    def false(self, number: int, costs: Sequence[Priced]) -> Counterexample | None:
        """Return the smallest size at which a claim is false, at some of these costs. number: of the claim in the
        file.
        """
        for size in self.sizes:
            for priced in costs:
                if (found := self.at(number, size, priced)) is not None:
                    return found
        return None

    def at(self, number: int, size: Mapping[str, int], costs: Priced) -> Counterexample | None:
        """Return a size at which a claim is false, if it is."""
        report = self.report(size, costs)
        if number >= len(report.claims) or report.claims[number].holds is not False:
            return None
        said = f"claim {report.claims[number].text} does not hold"
        found = next(x for x in report.diagnostics if x.code is Code.CLAIM and x.message.startswith(said))
        return Counterexample(dict(size), dict(costs), found)

    def report(self, size: Mapping[str, int], costs: Priced) -> Report:
        """Return the verdict at a size."""
        key = (*size.items(), *costs.items())
        if key not in self._reports:
            asked = Costs({name: Fraction(value) for name, value in costs.items()}) if costs else None
            options = Options(dict(size), asked, max_ops=OPERATIONS)
            try:
                self._reports[key] = compiler.examine(compiler.load(self.source, options), options).report
            except PipeschedError as error:
                self._reports[key] = Report(None, None, diagnostics=error.diagnostics)
        return self._reports[key]


def interior(cones: Sequence[Sequence[Priced]]) -> Iterator[Priced]:
    """Yield the costs inside of cones: the sum of all generators, and of them with one twice."""
    for generators in cones:
        for extra in [None, *generators]:
            names = {name for each in generators for name in each}
            of = [*generators, *([extra] if extra is not None else [])]
            yield {name: sum(each.get(name, 0) for each in of) for name in sorted(names)}
