"""Calls of every command from Python, and uses of its value."""

from fractions import Fraction
from pathlib import Path

import pipesched


def asked(name: str) -> list[str]:
    """Return one line of each function's value."""
    why: pipesched.Why = pipesched.why(name, p=2, m=4, costs={"F": 1, "B": "3/2"})
    table: pipesched.Comparison = pipesched.compare(name, "gpipe", library=False, p=[2, 3], m="4,8", mem_cap=[8])
    other: pipesched.Difference = pipesched.diff(name, pipesched.load("gpipe", p=2, m=4), p=2, m=4)
    figure: pipesched.Picture = pipesched.show(name, "svg", style="megatron", begin=0, end=Fraction(9, 2), p=2, m=4)
    bubbles: list[Fraction | None] = [row.bubble for row in table.rows]
    growth = why.growth.makespan if why.growth is not None else None
    stream: str = pipesched.emit(name, "torch-csv", torch_version="2.13", p=2, m=4)
    return [str(growth), str(bubbles), *(str(move.rank) for move in other.moves), figure.drawn, stream]


def values(name: str) -> list[dict[str, object]]:
    """Return the objects that the commands print with --json."""
    made = (
        pipesched.why(name, p=2),
        pipesched.compare(name, p=2),
        pipesched.show(name, p=2),
        pipesched.verify(name, p=2),
    )
    return [value.to_json() for value in made] + [pipesched.diff(name, name, p=2).to_json()]


def rehearsed(name: str, trace: Path) -> pipesched.Optimum:
    """Return a run, its measurements, and the best schedule at those costs."""
    ran: pipesched.Rehearsal = pipesched.run(name, p=2, m=4, steps=2, pace=1, trace=True, net="mlp")
    seconds: float | None = ran.measured
    trace.write_text(ran.trace if seconds is not None else "{}", "utf-8")
    fitted: pipesched.Calibration = pipesched.calibrate(trace, digits=2)
    return pipesched.optimize(name, costs=fitted.costs, p=2, m=4, time_limit=5)


def messages(file: pipesched.Source) -> int:
    """Return the number of messages that a file names; none if it has computes alone."""
    schedule: pipesched.Schedule = pipesched.load(file)
    program: pipesched.Program | None = schedule.program
    return 0 if program is None else program.messages
