"""Fits costs to the trace of a measured run, for use by other schedules.

    trace ── read ──> Measured ── fits ──> medians by stage ── rounded ──> costs.toml ──> --costs of every command

Costs are in microseconds. Gaps are filled and reported: a message for which no rank waited costs 0; if a stage ran only
full backwards while others split them, its B is divided into I and W in the proportion of the other stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import PurePath

from pipesched.diagnostics import Code, fail
from pipesched.model.costs import TIMES, Costs
from pipesched.model.units import MICROSECONDS
from pipesched.runtime.measured import measured_traces as reader
from pipesched.runtime.measured.measured_run import Fit, Measured, fits, running
from pipesched.support.source import Source
from pipesched.views.tables import table

DIGITS = 3
"""The default number of significant digits of a cost; two runs of a schedule usually agree on fewer."""

_KERNELS = "the trace has GPU kernels, which may run on after the recorded operation that launched them has ended"
_NANO = 1000  # nanoseconds in a microsecond
_SKEW = Fraction(1, 100)  # share of a step; a larger difference between clocks is reported
_FINEST = 9  # most decimals of a cost


@dataclass(frozen=True)
class Calibration:
    """The costs of a run in microseconds, by stage, with the fits behind them and warnings about them."""

    sources: tuple[str, ...]
    measured: Measured
    fits: tuple[Fit, ...]
    decimals: Mapping[str, tuple[Decimal, ...]]
    notes: tuple[str, ...]
    digits: int

    def __repr__(self) -> str:
        return f"<Calibration of {', '.join(self.decimals)} from {_count(len(self.sources), 'trace')}>"

    def __str__(self) -> str:
        return self.text()

    @property
    def costs(self) -> Costs:
        """The costs as a `Costs` value."""
        return Costs({key: tuple(map(Fraction, row)) for key, row in self.decimals.items()}, unit=MICROSECONDS)

    def text(self) -> str:
        """Return the costs as text, one line per kind and stage, followed by the warnings."""
        headers = ("cost", "stage", "time", "spread", "samples", "left out")
        rows = [
            (
                fit.cost,
                str(fit.stage),
                f"{plain(self.decimals[fit.cost][fit.stage])} us",
                f"{100 * fit.spread:.1f} %",
                str(fit.samples),
                str(fit.left_out),
            )
            for fit in self.fits
        ]
        spread = "spread: the interquartile range in % of the time; left out: the number of outliers"
        return "\n".join([table(headers, rows), "", spread, *(f"note: {note}" for note in self.notes)])

    def toml(self) -> str:
        """Return the costs in the TOML form that `--costs` reads."""
        run, names = self.measured.schedule, ", ".join(PurePath(source).name for source in self.sources)
        digits = _count(self.digits, "significant digit")
        lines = [
            f"# fitted by pipesched calibrate from {names}: {_count(self.measured.steps, 'step')} of "
            f"{_count(run.microbatches, 'microbatch')} on {_count(run.ranks, 'rank')}",
            f"# {digits}; a number for each stage, from stage 0 on",
            *(f"# {note}" for note in self.notes),
            f'unit = "{MICROSECONDS.name}"',
            *(f"{key} = [{', '.join(map(plain, row))}]" for key, row in self.decimals.items()),
        ]
        return "\n".join(" ".join(line.split()) for line in lines) + "\n"

    def to_json(self) -> dict[str, object]:
        """Return the published JSON form (see ``emit/README.md``)."""
        run = self.measured.schedule
        return {
            "ok": True,
            "sources": list(self.sources),
            "ranks": run.ranks,
            "stages": run.stages,
            "microbatches": run.microbatches,
            "steps": self.measured.steps,
            "unit": MICROSECONDS.name,
            "costs": {key: [_exact(plain(x)) for x in row] for key, row in self.decimals.items()},
            "costs_decimal": {key: [float(x) for x in row] for key, row in self.decimals.items()},
            "fits": [
                {
                    "cost": fit.cost,
                    "stage": fit.stage,
                    "median": float(fit.value) / _NANO,
                    "low": float(fit.low) / _NANO,
                    "high": float(fit.high) / _NANO,
                    "samples": fit.samples,
                    "left_out": fit.left_out,
                }
                for fit in self.fits
            ],
            "notes": list(self.notes),
            "file": None,
            "diagnostics": [],
        }


def calibrate(sources: Sequence[Source], digits: int = DIGITS) -> Calibration:
    """Fit costs to a run.

    Raises:
        PipeschedError: PS816 or PS818, as for `runtime.measured.measured_traces.read`; PS225 if digits is not 1 to 9.
    """
    if not 1 <= digits <= _FINEST:
        raise fail(Code.USAGE, f"{digits} significant digits are not allowed; choose 1 to {_FINEST}")
    measured = reader.read(sources)
    found = tuple(fits(measured))
    values = {(fit.cost, fit.stage): fit.value / _NANO for fit in found}
    notes: list[str] = []
    filled = {key: row for key in TIMES if (row := _row(key, values, measured, notes))}
    notes += _doubts(measured)
    decimals = {key: tuple(rounded(x, digits) for x in row) for key, row in filled.items()}
    return Calibration(tuple(source.name for source in sources), measured, found, decimals, tuple(notes), digits)


def rounded(value: Fraction, digits: int) -> Decimal:
    """Round to the given number of significant digits, with at most as many decimals as a cost can have."""
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    last = max(exact.adjusted() - digits + 1, -_FINEST) if exact else 0
    return exact.quantize(Decimal(1).scaleb(last), ROUND_HALF_EVEN) + 0


def plain(value: Decimal) -> str:
    """Format a number without an exponent and without trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _exact(text: str) -> int | str:
    """Convert a decimal to JSON as all commands do: an integer if it is whole, otherwise a string."""
    return int(text) if text.isdecimal() else text


Values = Mapping[tuple[str, int], Fraction]


def _row(key: str, values: Values, measured: Measured, notes: list[str]) -> list[Fraction] | None:
    """Return the cost of every stage, with gaps filled in; None if no stage was measured."""
    stages = range(measured.schedule.stages)
    known = [stage for stage in stages if (key, stage) in values]
    if not known:
        return None
    missing = [stage for stage in stages if stage not in known]
    if missing:
        notes.append(_missing(key, missing))
    return [values[key, stage] if (key, stage) in values else _instead(key, stage, values) for stage in stages]


def _missing(key: str, stages: Sequence[int]) -> str:
    which = f"stage{'s' * (len(stages) > 1)} {', '.join(map(str, stages))}"
    reasons = {
        "C": f"no rank waited for a message from {which}, so C is 0 there",
        "B": f"{which} never ran a full backward, so B is I + W there",
        "FB": f"{which} never ran an overlap pair, so FB is F + B there",
        "F": f"{which} ran F only in overlap pairs: F is assumed to be the same part of FB as elsewhere",
    }
    return reasons.get(key, f"{which} never ran {key} alone: {key} is assumed to be the same part of B as elsewhere")


def _instead(key: str, stage: int, values: Values) -> Fraction:
    """Derive a missing cost from measured costs."""
    zero = Fraction(0)
    if key == "C":
        return zero
    if key == "B":
        return values.get(("I", stage), zero) + values.get(("W", stage), zero)
    if key == "FB":
        whole = values.get(("B", stage), values.get(("I", stage), zero) + values.get(("W", stage), zero))
        return values.get(("F", stage), zero) + whole
    mine, others = ("F", ("B", "I", "W")) if key == "F" else (key, ("I", "W"))
    parts = _total(mine, values), sum((_total(other, values) for other in dict.fromkeys((mine, *others))), zero)
    return values.get(("FB" if key == "F" else "B", stage), zero) * (parts[0] / parts[1] if parts[1] else zero)


def _total(key: str, values: Values) -> Fraction:
    return sum((value for (cost, _), value in values.items() if cost == key), Fraction(0))


def _doubts(measured: Measured) -> Iterator[str]:
    """Yield warnings about the fitted costs."""
    seen = running(measured)
    schedule = measured.schedule
    if not (schedule.forward_only or schedule.split):
        yield (
            "every backward was full, so I and W were not measured, and each counts as half of B; `optimize "
            "--backward fused` needs only B"
        )
    if schedule.ranks > 1 and not seen.waiting.any():
        yield "no rank waited for a message, so C is 0"
    step = int(measured.end[-1].max() - measured.begin[-1].min())
    if seen.skew > _SKEW * step:
        yield (
            f"an operation ended {seen.skew / 1e6:.3g} ms before its input was made: the clocks of the ranks "
            "disagree, so C and the waits are unknown"
        )
    if measured.kernels:
        yield f"{_KERNELS}: synchronize the GPU while you measure"
    if measured.steps == 1:
        yield "only one step was measured: the first operation of each kind and stage counts as warm-up"


def _count(number: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural if number != 1 else ''}"
