"""The smallest size at which a file fails in the same way as at the requested size: `verify --smallest`.

The least sum of p, v and m comes first, then the fewest ranks: p=3 m=4 is before p=4 m=4, which is before p=2 m=31.
All sizes are tried in this order, within a limit of steps. If the limit is reached, the prover finds the smallest size
at which a claim is false; for any other fault, sizes are halved as long as they fail. Other parameters keep their
values, since a different cap or switch makes a different schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from math import lcm, prod

from pipesched import compile as compiler
from pipesched import render
from pipesched.common.library import placement_at, takes
from pipesched.compile import Options
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.examine import Examination
from pipesched.formats.readers import checked, reader_of
from pipesched.language import ast
from pipesched.language.claims import COSTS
from pipesched.language.typecheck import Checked
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value
from pipesched.prover.claims import Proof
from pipesched.prover.forms import UNIT
from pipesched.prover.question import Question
from pipesched.prover.relations import Unsettled
from pipesched.prover.scope import NotAffine
from pipesched.prover.sizes import ascending
from pipesched.report.report import Report
from pipesched.support.foreign import foreign
from pipesched.support.source import Source

NAMES = ("p", "v", "m")
STEPS = 12_000_000  # one per operation; some ten seconds
PATIENCE = 9_000_000  # of them left when the prover is asked
_A_REPORT, _A_LOOK = 5_000, 200  # steps, whatever the size: for a verdict, and for a size that the file does not accept
_ANY, _EACH = 10_000, 50  # most operations of a tried size: in total, and per stage and microbatch
_NEAR = 64  # most sizes to try for a size that the file accepts
_TOO_LARGE = (Code.TOO_MANY_OPERATIONS, Code.TOO_MANY_STEPS)
_NOT_JUDGED = {str(Code.REQUIRE), str(Code.TOO_MANY_OPERATIONS), str(Code.TOO_MANY_STEPS)}
Size = Mapping[str, int]
Fault = tuple[str, str]
"""A code, and for a claim also its text."""


@dataclass(frozen=True)
class Smallest:
    """The option `--smallest`: whether to report the smallest size that fails in the same way."""

    smallest: bool = False


def faults(report: Report) -> set[Fault]:
    """Return the faults in a report, without places and numbers."""
    codes = {(str(found.code), "") for found in report.diagnostics if found.severity == "error"}
    claims = {(str(Code.CLAIM), claim.text) for claim in report.claims if claim.holds is False}
    return (codes - {(str(Code.CLAIM), "")} if claims else codes) | claims


def smallest(report: Report, made: Examination | None, source: Source | None, options: Options) -> Report:
    """Return the report on the smallest size, with a note on how the size was found; without a search, the given
    report.

    Raises:
        PipeschedError: PS225: the source is not a .ps file.
    """
    if source is None or reader_of(source).name != "ps":
        raise fail(
            Code.USAGE,
            "--smallest needs a .ps file: a CSV, an order or a stream has only one size",
            help="leave it out, or give the file that produced the order",
        )
    why = _not_sought(report, source)
    costs = None if made is None else options.counted(made.loaded)
    found, said = (report, why) if why else _Search(source, options, report, costs).found()
    return replace(found, notes=(*found.notes, foreign(f"--smallest: {said}")))


def _not_sought(report: Report, source: Source) -> str:
    """Return the reason not to search for a smaller size; empty if there is no such reason."""
    codes = {code for code, _ in faults(report)}
    if not codes:
        return "nothing fails at this size, and smaller sizes were not tried; `pipesched prove` covers every size"
    if codes & _NOT_JUDGED or report.exit_status == 2:
        return "no smaller size was tried, since the file cannot be checked at this size"
    try:
        checked(source)
    except PipeschedError:
        return "no smaller size was tried, since the file is wrong at every size"
    return ""


@dataclass(eq=False)
class _Search:
    """A search below the size of a report that failed. left: the remaining steps.

    otherwise: sizes that fail in a different way, and their codes. long: the number of sizes that take too many steps
    to try.
    """

    source: Source
    options: Options
    failed: Report
    costs: Costs | None = None
    left: int = field(default_factory=lambda: STEPS)
    otherwise: list[tuple[dict[str, int], str]] = field(default_factory=list)
    long: int = 0

    @cached_property
    def file(self) -> Checked:
        return checked(self.source)

    @cached_property
    def most(self) -> dict[str, int]:
        """The requested size, by name."""
        known = {**self.failed.parameters}
        for name in NAMES:
            if (declared := self.file.parameters.get(name)) is not None and name not in known:
                own = declared.default.value if isinstance(declared.default, ast.Number) else None
                known |= {name: own} if isinstance(own, int) else {}
        if "m" in self.file.parameters and "m" not in known:
            known["m"] = placement_at(self.file, self.options.parameters).microbatches
        sizes = {name: known[name] for name in NAMES if name in self.file.parameters and name in known}
        return {name: size for name, size in sizes.items() if isinstance(size, int)}

    @cached_property
    def wanted(self) -> set[Fault]:
        return faults(self.failed)

    def parameters(self, size: Size) -> dict[str, Value]:
        """Return all parameters at a size; a list whose length depends on the size is cut to that length."""
        made = {**self.options.parameters, **size}
        for name, value in made.items():
            declared = self.file.parameters.get(name)
            if isinstance(value, tuple) and declared and isinstance(declared.size, ast.Name):
                made[name] = value[: size.get(declared.size.id, len(value))]
        return made

    def report(self, size: Size) -> Report | None:
        """Return the verdict at a size; None if the file does not accept the size, or verify gives no verdict."""
        parameters = self.parameters(size)
        if not takes(self.file, parameters):
            self.left -= _A_LOOK
            return None
        most = min(_ANY + _EACH * prod(size.values()), self.options.max_ops)
        options = replace(self.options, parameters=parameters, max_ops=most)
        try:
            found = compiler.examine(compiler.load(self.source, options), options).report
        except PipeschedError as error:
            found = Report(None, self.source.name, parameters, diagnostics=error.diagnostics)
        many = found.parts.operations
        self.left -= _A_REPORT + (most if many is None else many)
        return None if found.exit_status == 2 else found

    def fails(self, report: Report | None) -> bool:
        return report is not None and not self.wanted.isdisjoint(faults(report))

    def found(self) -> tuple[Report, str]:
        """Return the report on the smallest size, and how the size was found."""
        if not self.most:
            return self.failed, "the file has no p, v or m"
        tried, asked = 0, False
        for size in ascending(self.most):
            if size == self.most:
                break
            if self.left < PATIENCE and not asked:
                asked = True
                if (proved := self._proved()) is not None:
                    return proved
            report = self.report(size)
            if report is not None and self.fails(report):
                return report, f"{self._head(size)}; {self._all(tried)}"
            if self.left < 0:
                return self._halved(tried, sum(size.values()))
            if report is not None and any(found.code in _TOO_LARGE for found in report.diagnostics):
                self.long += 1
            elif report is not None:
                tried += 1
                if report.fault is not None:
                    self.otherwise.append((size, str(report.fault.code)))
        return self.failed, f"{self._head(self.most)}; {self._all(tried)}"

    def _head(self, size: Size) -> str:
        order = " + ".join(self.most)
        return (
            f"{render.sizes(size)} has the least {order} of all sizes up to {render.sizes(self.most)} with this failure"
        )

    def _all(self, tried: int) -> str:
        if not tried and not self.long:
            return "the file does not allow a smaller size"
        said = (
            f"all {tried} smaller sizes that the file allows were tried"
            if tried != 1
            else "the only smaller size was tried"
        )
        some = "1 smaller size was tried" if tried == 1 else f"{tried} smaller sizes were tried"
        return (some if self.long else said) + self._others()

    def _others(self) -> str:
        """Report the sizes that fail in a different way, and the number of untried sizes."""
        many = "1 size takes" if self.long == 1 else f"{self.long} sizes take"
        said = f"; {many} too many steps" if self.long else ""
        if not self.otherwise:
            return said
        (size, code), more = self.otherwise[0], len(self.otherwise) - 1
        return (f"{said}; {render.sizes(size)} fails in a different way, with {code}") + (
            f", and {more} more" if more else ""
        )

    def _proved(self) -> tuple[Report, str] | None:
        """Ask the prover for the smallest size at which a claim is false."""
        given = {name: x for name, x in self.failed.parameters.items() if isinstance(x, int)}
        given = {name: x for name, x in given.items() if name not in ("p", "m") or name not in self.most}
        for number, claim in enumerate(self.failed.claims):
            own = {(str(Code.CLAIM), claim.text)}
            if self.costs is None or not own <= self.wanted:
                continue
            found = _smallest_false(self.file.file, given, number, self.costs)
            size = {name: (found or {}).get(name, most) for name, most in self.most.items()}
            report = self.report(size) if found else None
            if report is not None and own <= faults(report):
                fixed = f" with v={size['v']}" if "v" in size else ""
                return (
                    report,
                    f"{render.sizes(size)} has the least p + m of all sizes{fixed} with this failure (proved)",
                )
        return None

    def _halved(self, tried: int, total: int) -> tuple[Report, str]:
        """Halve a size as long as it fails in the same way, then lower its numbers by one while steps remain."""
        self.left, size, report = STEPS, self.most, self.failed
        for shift in range(1, max(size.values()).bit_length() + 1):
            while (found := self._less(size, shift)) is not None:
                size, report = found
        tested = f"none of the {tried} allowed sizes with {' + '.join(size)} < {total} fails this way{self._others()}"
        return (
            report,
            f"{render.sizes(size)} has this failure, found by halving; {tested}; other smaller sizes were not tried",
        )

    def _less(self, size: Size, shift: int) -> tuple[dict[str, int], Report] | None:
        """Return a size that fails in the same way, in which all or some numbers are lower by a half, a quarter, and so
        on.
        """
        for chosen in sorted(product((True, False), repeat=len(size)), key=lambda which: -sum(which))[:-1]:
            down = [max(1, k >> shift) if fewer else 0 for k, fewer in zip(size.values(), chosen, strict=True)]
            near = self._near(
                {name: max(1, k - less) for (name, k), less in zip(size.items(), down, strict=True)}, size
            )
            if near is None or self.left < 0:
                continue
            report = self.report(near)
            if report is not None and self.fails(report):
                return near, report
        return None

    def _near(self, less: Size, size: Size) -> dict[str, int] | None:
        """Return the first size from `less` up to `size` that the file accepts, or None after a limited number of
        sizes.
        """
        room = {name: size[name] - less[name] + 1 for name in size}
        for step in islice(ascending(room), _NEAR):
            near = {name: less[name] + step[name] - 1 for name in size}
            if near != size and takes(self.file, self.parameters(near)):
                return near
        return None


def _smallest_false(file: ast.File, given: Mapping[str, int], number: int, costs: Costs) -> Size | None:
    """Return the size with the smallest p + m at which a claim is false; None if the prover cannot decide.

    given: the fixed parameters. number: the claim's index in the file.
    """
    values = {key: costs.scalar(key) for key in COSTS.values()}
    scale = lcm(*(x.denominator for x in values.values() if x is not None))
    whole = {key: int(x * scale) for key, x in values.items() if x is not None}
    whole |= {UNIT: scale}
    if len(whole) <= len(values):
        return None
    claim = [item for item in file.items if isinstance(item, ast.Claim)][number]
    try:
        found = [*Proof(Question(file, given), claim).false(whole)]
    except (Unsettled, NotAffine, PipeschedError):
        return None
    return min(found, key=lambda size: (sum(size.values()), *size.values()), default=None)
