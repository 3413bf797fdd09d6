"""A rank whose messages go through queues, on gloo, where every message is a rendezvous.

A queue is a thread: it posts an element (one message, or what a batch has in the queue), waits until all of it is
over, and takes the next. The rank itself walks its list: it puts messages into queues, and waits where a compute needs
a receive; under strict it waits at every message. Nothing is computed, and a message carries a number.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from pipesched.model.ops import Instruction, Op

CONSUMED = {Op.F: Op.RECV_F, Op.I: Op.RECV_B, Op.B: Op.RECV_B}


@dataclass
class Element:
    """What goes through a queue as one: places in the list."""

    places: list[int]
    works: list[tuple[int, torch.Tensor, Any]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@dataclass
class Walk:
    """One rank at work. got: the number that each receive took, by its place."""

    rank: int
    listed: Sequence[Instruction]
    model: str
    groups: dict[int, Any]
    got: dict[int, int] = field(default_factory=dict)
    element: dict[int, Element] = field(default_factory=dict)
    failed: threading.Event = field(default_factory=threading.Event)
    queues: dict[object, SimpleQueue[Element]] = field(default_factory=dict)

    def run(self) -> int:
        """The instruction at which it stands for ever, the length of the list if it lacks a send there, or -1."""
        latest: dict[tuple[Op, int, int], int] = {}
        i = 0
        while i < len(self.listed):
            line = self._line(i)
            x = self.listed[i]
            if x.op.send or x.op.receive:
                self._post(line)
                waited = line if self.model == "strict" else []
                latest |= {(self.listed[j].op, self.listed[j].stage, self.listed[j].microbatch): j for j in line}
            elif x.op is Op.SYNC:
                if not self._sync(x.peer):
                    return i
                waited = []
            else:
                used = [(CONSUMED.get(self.listed[j].op), self.listed[j]) for j in line]
                keys = [(op, y.stage, y.microbatch) for op, y in used if op is not None]
                waited = [] if self.model == "strict" else [latest[key] for key in keys if key in latest]
            if not self._over(waited):
                return i
            i = line[-1] + 1
        return -1 if self._over([j for j in self.element if self.listed[j].op.send]) else i

    def _line(self, i: int) -> list[int]:
        """What is done as one from here: a batch, an overlap pair, or an instruction."""
        line, x = [i], self.listed[i]
        for j in range(i + 1, len(self.listed)):
            y = self.listed[j]
            message = y.op.send or y.op.receive
            if not ((x.op.compute and y.second) or (message and y.group == x.group >= 0)):
                break
            line.append(j)
        return line

    def _post(self, line: list[int]) -> None:
        """A line as an element of each queue that it concerns; without queues, under way at once."""
        elements: dict[object, list[int]] = defaultdict(list)
        for j in line:
            x = self.listed[j]
            keys = {"one-stream": x.communicator, "pair-stream": (x.communicator, x.peer)}
            elements[keys.get(self.model, j)].append(j)
        for key, places in elements.items():
            element = Element(places)
            self.element |= dict.fromkeys(places, element)
            if key not in self.queues:
                self.queues[key] = SimpleQueue()
                threading.Thread(target=self._serve, args=(self.queues[key],), daemon=True).start()
            self.queues[key].put(element if self.model in keys else self._posted(element))

    def _posted(self, element: Element) -> Element:
        """An element whose sends and receives are under way."""
        for j in element.places:
            x, value = self.listed[j], torch.tensor([1000 * self.rank + j])
            post = dist.isend if x.op.send else dist.irecv
            element.works.append((j, value, post(value, x.peer, group=self.groups[x.communicator])))
        return element

    def _serve(self, queue: SimpleQueue[Element]) -> None:
        """The thread of a queue."""
        try:
            while True:
                element = queue.get()
                for _, _, work in element.works or self._posted(element).works:
                    work.wait()
                self.got |= {j: int(value) for j, value, _ in element.works if self.listed[j].op.receive}
                element.over.set()
        except RuntimeError:  # gloo's, after the time that counts as a hang
            self.failed.set()

    def _over(self, places: list[int]) -> bool:
        """Waits for messages; False where they never come."""
        for j in places:
            while not self.element[j].over.wait(0.02):
                if self.failed.is_set():
                    return False
        return True

    def _sync(self, peer: int) -> bool:
        """Meets another rank, whatever is in the queues."""
        here, there = torch.zeros(1), torch.zeros(1)
        try:
            works = [dist.isend(here, peer, group=self.groups[-1]), dist.irecv(there, peer, group=self.groups[-1])]
            for work in works:
                work.wait()  # type: ignore[union-attr]
        except RuntimeError:
            return False
        return True


def queued(rank: int, lists: Sequence[Sequence[Instruction]], model: str, timeout: float) -> tuple[int, dict[int, int]]:
    """Where a rank stops, as the analysis says it, and what its receives took. Each communicator is a group."""
    numbers = sorted({x.communicator for listed in lists for x in listed if x.op.send or x.op.receive})
    limit = timedelta(seconds=timeout)
    groups = {number: dist.new_group(timeout=limit) for number in (-1, *numbers)}
    walk = Walk(rank, lists[rank], model, groups)
    with suppress(RuntimeError):
        return walk.run(), walk.got
    return -2, walk.got
