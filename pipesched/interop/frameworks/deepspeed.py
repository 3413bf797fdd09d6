"""Records DeepSpeed's pipeline schedules: the instructions that a `PipeSchedule` generates for every stage.

    deepspeed:TrainSchedule, deepspeed:InferenceSchedule, …    a class of the installed `runtime/pipe/schedule.py`
    deepspeed:module:Class, deepspeed:path/to/file.py:Class    your own subclass

Only `schedule.py` is executed, without torch; all other modules of DeepSpeed are replaced by Fakes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from pipesched.common.functions import Unknown, found
from pipesched.interop.frameworks import pipe_instructions
from pipesched.interop.frameworks.fakes import Finder
from pipesched.interop.frameworks.recording import (
    FOLDERS,
    Nonsense,
    Options,
    Place,
    Recorded,
    needed,
    shown,
    version_of,
)

FILE = "deepspeed.runtime.pipe.schedule"


def record(name: str, options: Options) -> Recorded:
    """Record the instructions that a schedule generates for every stage."""
    schedule = _schedule()
    kind = _class(schedule, name)
    p, m = needed(options, "p", "m")
    given = {key: value for key, value in options.items() if key not in ("p", "m", "max-ops")}
    takes = [*inspect.signature(kind).parameters][3:]
    if strangers := [key for key in given if key not in takes]:
        raise Unknown(f"{kind.__name__} has no {', '.join(strangers)}", f"it takes {', '.join(['p', 'm', *takes])}")
    made = [kind(micro_batches=m, stages=p, stage_id=rank, **given) for rank in range(p)]
    rows = [list(_instructions(schedule, one.steps(), int(options["max-ops"]))) for one in made]
    return pipe_instructions.recorded(rows, version_of("deepspeed"))


class _DeepSpeed(Finder):
    """A finder that replaces all other modules of DeepSpeed by Fakes and does not affect other packages."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return super().find_spec(name, path, target) if name.partition(".")[0] == "deepspeed" else None


@cache
def _schedule() -> ModuleType:
    """Import `schedule.py`, and make each instruction store the line that created it."""
    package = find_spec("deepspeed")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'deepspeed'", name="deepspeed")
    file = Path(package.submodule_search_locations[0], "runtime", "pipe", "schedule.py")
    sys.meta_path.insert(0, _DeepSpeed({FILE: file}, {}))
    module = import_module(FILE)
    begin = module.PipeInstruction.__init__

    def traced(self: object, **fields: object) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_name == "__init__" and frame.f_back is not None:
            frame = frame.f_back
        vars(self)["made_at"] = frame.f_code.co_filename, frame.f_lineno
        begin(self, **fields)

    module.PipeInstruction.__init__ = traced
    return module


def _class(schedule: ModuleType, name: str) -> type:
    """Return the class with this name in `schedule.py`, or, for `module:Class`, that subclass of `PipeSchedule`."""
    base = schedule.PipeSchedule
    kinds = {
        key: x for key, x in vars(schedule).items() if inspect.isclass(x) and issubclass(x, base) and x is not base
    }
    if ":" in name:
        _, kind = found(name, FOLDERS)
        if not (inspect.isclass(kind) and issubclass(kind, base)):
            raise Unknown(f"{name.rpartition(':')[2]} is not a subclass of DeepSpeed's PipeSchedule")
        return kind
    if name not in kinds:
        near = get_close_matches(name, kinds, 1)
        meant = f"did you mean `deepspeed:{near[0]}`?" if near else f"it has {', '.join(kinds)}"
        raise Unknown(f"DeepSpeed has no schedule {name}", meant)
    return kinds[name]


def _instructions(
    schedule: ModuleType, steps: Iterable[Iterable[object]], most: float
) -> Iterator[tuple[object, Place]]:
    """Yield the instructions of a stage, each with the line that created it."""
    files: dict[str, str] = {}
    for count, given in enumerate(one for step in steps for one in step):
        if not isinstance(given, schedule.PipeInstruction):
            raise Nonsense(f"it yields {type(given).__name__}, which is not a PipeInstruction")
        if count > 8 * most:
            raise Nonsense(f"a stage does not end after {count:,} instructions", "--max-ops raises the limit")
        file, line = vars(given)["made_at"]
        if file not in files:
            files[file] = shown(file)
        yield given, (files[file], line)
