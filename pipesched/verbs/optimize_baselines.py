"""The schedules to begin with and to compare with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import PurePath

from pipesched.inputs import built_in, read
from pipesched.optimizer.answer.baselines import Known
from pipesched.optimizer.instance import MAX_OPS
from pipesched.optimizer.problem import Problem
from pipesched.verbs.library import sized
from pipesched.verbs.optimize_request import Target

_READING = 10e-6  # seconds for an operation of a schedule


def known(target: Target, problem: Problem, until: float = inf) -> Iterator[Known]:
    """The schedule that was given, and those of the library with the same stages and microbatches, while there is time
    for one more (monotonic).
    """
    seen, stages = set(), target.instance.placement.stages
    sizes = {name: target.sizes[name] for name in ("p", "v", "m") if name in target.sizes}
    if target.given is not None:
        seen.add(name := PurePath(target.given.source).stem)
        yield Known.of(name, target.given.schedule, target.instance, problem)
    for name in built_in():
        if name not in seen and time.monotonic() + _READING * problem.operations < until:
            seen.add(name)
            schedule = sized(read(name), sizes, placed=lambda x: x.stages == stages, max_ops=MAX_OPS)
            if schedule is not None:
                yield Known.of(name, schedule, target.instance, problem)
