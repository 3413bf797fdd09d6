"""Measures a runtime: when each instruction began and ended, for `pipesched show --measured` and `calibrate`.

    recorder = Recorder(runtime)              before the first step that is to be measured
    runtime.step(inputs, targets)             as often as you like; the first one warms up
    Path(f"rank{rank}.json").write_text(recorder.dumps())

A file a rank. Ranks are put side by side by the clocks of their machines.
"""

from __future__ import annotations

import time

from pipesched.runtime.clock import Clock, now, settling
from pipesched.runtime.executor import Runtime
from pipesched.runtime.recorded import dumps
from pipesched.stream import Instruction


class Recorder:
    """The times of one rank, from its next step on. Hooks that are there are called too, and not measured."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._clock = runtime, Clock({}, settling(runtime._device))
        self._before, self._after = runtime.before, runtime.after
        self._wall = time.time() - now()
        runtime.before, runtime.after = self._begin, self._end
        self._clock.watch(runtime)

    def dumps(self) -> str:
        """The trace of this rank so far, as Chrome's trace events."""
        steps = self._clock.steps
        first = next((step[0][1] for step in steps if step), 0.0)
        base = round((self._wall + first) * 1e9)
        return dumps(self._runtime.stream, {self._runtime.rank: steps}, base=base)

    def _begin(self, instruction: Instruction, index: int) -> None:
        if index == 0:
            self._clock.step()
        if self._before is not None:
            self._before(instruction, index)
        self._clock.before(instruction, index)

    def _end(self, instruction: Instruction, index: int) -> None:
        self._clock.after(instruction, index)
        if self._after is not None:
            self._after(instruction, index)
