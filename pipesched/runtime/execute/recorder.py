"""Records the start and end of each instruction of a rank, and its time spent waiting for messages.

    begin ── waits ── computes ── sleeps ── end        end - begin - waited >= the pace of this operation

A copy to or from host memory takes as long as its pace, if it has one, on an engine of its own while the rank computes:
a later O, and the I or B after an L, wait for its end.

    recorder = Recorder(runtime)              before the first step that is to be measured
    runtime.step(inputs, targets)             any number of times; the first one is a warm-up
    Path(f"rank{rank}.json").write_text(recorder.dumps())     for `pipesched show --measured` and `calibrate`

Times are seconds on a clock shared by all processes of a machine, so that the ranks of a local run can be compared;
ranks on several machines use the clocks of their machines. If compute operations have a pace, the clock and not the
number of cores determines the step time: the operations of small nets end much earlier, and sleeping needs no core.

On a GPU the process runs ahead of its kernels, and a wait for a message only orders the kernels. The recorder therefore
synchronizes with the GPU after every instruction and every wait, so that launches are no longer asynchronous.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from pipesched.runtime.execute.executor import Runtime
from pipesched.runtime.execute.messages import Message
from pipesched.runtime.execute.trace_events import dumps
from pipesched.stream import Instruction

now = time.monotonic


def settling(device: torch.device) -> Callable[[], object]:
    """Return a function that waits until the device is idle; on a CPU it does nothing."""
    return partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None


class Recorder:
    """Records the times of one rank's instructions. Hooks set earlier are still called, but not measured.

    steps: for each step, [index, begin, end, waited] of each instruction, in order.
    """

    def __init__(
        self,
        runtime: Runtime,
        pace: Mapping[str, Sequence[float | Sequence[float]]] | None = None,
        settle: Callable[[], object] | None = None,
    ) -> None:
        """Replace the runtime's hooks. pace: as in `launch.Job`. settle: waits until the rank's device is idle."""
        self.steps: list[list[list[float]]] = []
        self._runtime, self._pace, self._settle = runtime, pace or {}, settle or settling(runtime._device)
        self._before, self._after = runtime.before, runtime.after
        self._begin = self._waited = 0.0
        self._out = {_key("O", x) for x in runtime.stream.ranks[runtime.rank] if x.op == "O"}
        self._copied: dict[tuple[str, int, int, int], float] = {}  # the end of each copy
        self._free = {"O": 0.0, "L": 0.0}  # the end of the last copy on each engine
        self._wall = time.time() - now()
        runtime.before, runtime.after = self.before, self.after
        self._take, runtime._channels.take = runtime._channels.take, self.take  # type: ignore[method-assign]

    def before(self, instruction: Instruction, index: int) -> None:
        """Record the start of an instruction. The runtime calls this before each instruction."""
        if index == 0 and self._measures:
            self.steps.append([])
        if self._before is not None:
            self._before(instruction, index)
        self._begin, self._waited = now(), 0.0

    def take(self, message: Message) -> tuple[Tensor, ...]:
        """Wait for a message in place of the runtime, and measure the time."""
        self._settle()
        began = now()
        taken = self._take(message)
        self._settle()
        self._waited += now() - began
        return taken

    def after(self, instruction: Instruction, index: int) -> None:
        """Record the end of an instruction. The runtime calls this after each instruction."""
        self._settle()
        parts = instruction.parts or (instruction,)
        copied = (self._copied.get(_key("O" if x.op == "O" else "L", x), 0.0) for x in parts if x.op in ("O", "I", "B"))
        self._waited = max([self._waited, *(end - self._begin for end in copied)])
        left = self._begin + self._waited + self._least(instruction) - now()
        if left > 0:
            time.sleep(left)
        end = now()
        for way, x in (("O" if x.op == "F" else "L", x) for x in parts if x.op == "L" or _key("O", x) in self._out):
            if way in self._pace and x.op in ("F", "L"):
                self._free[way] = max(self._free[way], end) + self._lasting(way, x)
                self._copied[_key(way, x)] = self._free[way]
        if self._measures:
            self.steps[-1].append([index, self._begin, end, self._waited])
        if self._after is not None:
            self._after(instruction, index)

    def dumps(self) -> str:
        """Return the trace of this rank so far, as Chrome's trace events."""
        first = next((step[0][1] for step in self.steps if step), 0.0)
        base = round((self._wall + first) * 1e9)
        return dumps(self._runtime.stream, {self._runtime.rank: self.steps}, base=base)

    @property
    def _measures(self) -> bool:
        """True during `Runtime.step`, False during `Runtime.evaluate`, which runs only the forwards."""
        return self._runtime.instructions is self._runtime.stream.ranks[self._runtime.rank]

    def _least(self, instruction: Instruction) -> float:
        """Return the shortest duration of an instruction, in seconds. A pair of F and I takes the sum of both."""
        parts = instruction.parts or (instruction,)
        if [part.op for part in parts] == ["F", "B"]:
            return self._lasting("FB", parts[0]) if self._pace else 0.0
        return sum(
            self._lasting(part.op, part) for part in parts if part.op in self._pace and part.op not in self._free
        )

    def _lasting(self, key: str, part: Instruction) -> float:
        seconds = self._pace[key][part.stage]
        return seconds if isinstance(seconds, float | int) else seconds[part.microbatch]


def _key(way: str, x: Instruction) -> tuple[str, int, int, int]:
    return way, x.route, x.stage, x.microbatch
