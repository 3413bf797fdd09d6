"""The schedules to begin with and to compare with."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import PurePath

from pipesched.compile import Options, load, parameters_of, read
from pipesched.diagnostics import PipeschedError
from pipesched.inputs import built_in
from pipesched.model.schedule import Schedule
from pipesched.optimizer.answer.baselines import Known
from pipesched.optimizer.instance import MAX_OPS
from pipesched.optimizer.problem import Problem
from pipesched.verbs.optimize_request import Target

_READING = 10e-6  # seconds for an operation of a schedule


def known(target: Target, problem: Problem, until: float = inf) -> Iterator[Known]:
    """The schedule that was given, and those of the library with the same stages and microbatches, while there is time
    for one more (monotonic).
    """
    seen = set()
    if target.given is not None:
        seen.add(name := PurePath(target.given.source).stem)
        yield Known.of(name, target.given.schedule, target.instance, problem)
    for name in built_in():
        if name not in seen and time.monotonic() + _READING * problem.operations < until:
            seen.add(name)
            schedule = _read(name, target)
            if schedule is not None and schedule.stages == target.instance.placement.stages:
                yield Known.of(name, schedule, target.instance, problem)


def _read(name: str, target: Target) -> Schedule | None:
    """A schedule of the library at these sizes, None where it has none."""
    size = {name: target.sizes[name] for name in ("p", "v", "m") if name in target.sizes}
    try:
        return load(read(name), Options(_fitting(name, size), max_ops=MAX_OPS)).schedule
    except PipeschedError:
        return None


def _fitting(name: str, size: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a library schedule has parameters for."""
    known = parameters_of(read(name))
    return {key: value for key, value in size.items() if key in known}
