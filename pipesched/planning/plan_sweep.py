"""``plan --sweep``: the first row of a plan for each of several values, as a table and as a plot.

gpus=64,128,256     weak scaling: the batch grows with the GPUs
batch=256,512       the same cluster with other batches
b=1,2,4             any other size: the fastest choices with this value
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from pipesched.diagnostics import Code, fail
from pipesched.model.units import SECONDS
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.codes import PlanningCode
from pipesched.planning.layouts.plan import Request
from pipesched.planning.layouts.space import NAMES
from pipesched.planning.plans import Plan
from pipesched.planning.plans import only as sizes
from pipesched.views.tables import table


@dataclass(frozen=True)
class Sweep:
    """The plan for each swept value. said: the heading that explains the values."""

    name: str
    said: str
    plans: tuple[tuple[str, Plan], ...]

    @property
    def exit_status(self) -> int:
        """The exit status: 1 if nothing fits for some value."""
        return max(plan.exit_status for _, plan in self.plans)

    def text(self, *, verbose: bool = False) -> str:
        """Return the table of first rows; for rows without predicted times, the reasons follow."""
        heads = (self.name, "first row", "step", "tokens/s\nper GPU", "MFU", "most\nof a GPU")
        lines = [self.said, "", table(heads, self._rows(), left=(1,))]
        why = dict.fromkeys(doubt for _, plan in self.plans if (doubt := _doubt(plan)))
        return "\n".join([*lines, *([""] if why else []), *why])

    def _rows(self) -> Iterator[list[str]]:
        for value, plan in self.plans:
            if (best := plan.best) is None:
                yield [value, "nothing fits", "", "", "", ""]
                continue
            each = f"{float(best.tokens_per_second / best.gpus):,.0f}"
            times = [SECONDS.text(best.seconds), each, f"{float(best.utilisation) * 100:.1f} %"]
            yield [value, f"{best.choice}", *(["-"] * 3 if _doubt(plan) else times), gigabytes(best.peak)]

    def to_json(self) -> dict[str, object]:
        """Return the published JSON form (see ``emit/README.md``)."""
        made = [{"value": value, "plan": plan.to_json()} for value, plan in self.plans]
        return {"ok": self.exit_status == 0, "sweep": self.name, "plans": made}

    def plot(self) -> str:
        """Return a plot of tokens per second per GPU against the swept values, as SVG.

        Raises:
            PipeschedError: PS225 if no value has a time.
        """
        from pipesched.views.plot import Point, plot

        known = [(int(value), plan.best) for value, plan in self.plans if plan.best and not _doubt(plan)]
        if not known:
            why = next((doubt for _, plan in self.plans if (doubt := _doubt(plan))), "nothing fits")
            raise fail(Code.USAGE, f"nothing can be plotted: {why}", help="leave out --plot")
        points = [
            Point(
                Fraction(value),
                Fraction(round(best.tokens_per_second / best.gpus)),
                best.choice.schedule,
                best.choice.layout,
            )
            for value, best in known
        ]
        return plot(points, x=self.name, y="tokens per second per GPU", title=self.said)


def _doubt(plan: Plan) -> str:
    """Return why the first row of a plan has no time, or an empty string."""
    return "" if plan.best is None or plan.best.trust.timed else plan.best.trust.why


def sweep(asked: Request, text: str, plan: Callable[[Request], Plan]) -> Sweep:
    """Plan for each value of ``gpus=64,128``.

    Raises:
        PipeschedError: PS247 if the size is unknown; PS246 if the batch cannot grow with the GPUs; as for `plan`.
    """
    name, _, values = text.partition("=")
    made: list[tuple[str, Request]] = []
    if name not in ("gpus", "batch"):
        found = sizes([text])
        if len(found) != 1:
            raise fail(
                PlanningCode.CHOICE, "a sweep varies one size", help=f"sizes are gpus, batch, {', '.join(NAMES)}"
            )
        ((name, listed),) = found.items()
        made = [(str(value), replace(asked, only={**(asked.only or {}), name: (value,)})) for value in listed]
    for value in values.split(",") if not made else ():
        if not value.strip().isdecimal() or not 0 < int(value[:9]) <= 2**17:
            raise fail(PlanningCode.CHOICE, f"{name} is {value.strip()[:60]!r}, not a whole number from 1 to {2**17:,}")
        made.append((value.strip(), _with(asked, name, int(value))))
    said = {"gpus": "weak scaling: the batch grows with the GPUs", "batch": "by batch"}.get(name, f"by {name}")
    heading = f"{asked.model} on {asked.device.name}, {said}"
    return Sweep(name, heading, tuple((value, plan(one)) for value, one in made))


def _with(asked: Request, name: str, value: int) -> Request:
    if name == "batch":
        return replace(asked, batch=value)
    batch = Fraction(asked.batch * value, asked.gpus)
    if batch.denominator > 1:
        message = f"a batch of {asked.batch} on {asked.gpus} GPUs corresponds to {float(batch):g} on {value} GPUs"
        raise fail(PlanningCode.CLUSTER, message, help="give a --batch that is a multiple of --gpus")
    return replace(asked, gpus=value, batch=int(batch))
