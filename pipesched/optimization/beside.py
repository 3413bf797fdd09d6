"""The schedules to begin with and to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from pipesched.compile import Options, load, parameters_of, read
from pipesched.diagnostics import PipeschedError
from pipesched.inputs import built_in
from pipesched.optimization.aim import Target
from pipesched.optimize.answer.beside import Known
from pipesched.optimize.problem import Problem
from pipesched.optimize.sizes import MAX_OPS


def known(target: Target, problem: Problem) -> Iterator[Known]:
    """The schedule that was given, and those of the library with the same stages and microbatches."""
    loaded = [] if target.given is None else [(PurePath(target.given.source).stem, target.given.schedule)]
    size = {name: target.sizes[name] for name in ("p", "v", "m") if name in target.sizes}
    for name in built_in():
        try:
            options = Options(_fitting(name, size), max_ops=MAX_OPS)
            loaded.append((name, load(read(name), options).schedule))
        except PipeschedError:
            continue
    seen = set()
    for name, schedule in loaded:
        if name not in seen and schedule.stages == target.instance.placement.stages:
            seen.add(name)
            yield Known.of(name, schedule, target.instance, problem)


def _fitting(name: str, size: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a library schedule has parameters for."""
    known = parameters_of(read(name))
    return {key: value for key, value in size.items() if key in known}
