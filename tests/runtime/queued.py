"""Runs one gloo process per rank, with messages that go through queues; on gloo every message is a rendezvous.

A queue is a thread: it posts an element (one message, or what a batch has in the queue), waits until all of it is
complete, and takes the next. The rank itself walks its list: it puts messages into queues, and waits where a compute
needs a receive; under strict it waits at every message. Nothing is computed, and a message carries a number.

Processes play one program after the other, until one hangs. Threads that wait for messages have no alarm clock, and
gloo's loops look at their sockets every 10 ms: where no such thread runs while each loop has looked twice, nothing is
under way and nothing ever will be. Then all ranks report their positions, and new ones replace them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program
from tests.runtime.harness import forks

CONSUMED = {Op.F: Op.RECV_F, Op.I: Op.RECV_B, Op.B: Op.RECV_B}
WAIT = 0.03  # seconds without a word from any rank, before it is asked
BETWEEN, LOOKS = 0.01, 50  # seconds between two looks at the threads, and how many there are at most
LIMIT = 60.0  # seconds for a program


@dataclass
class Element:
    """An element of a queue: places in the list."""

    places: list[int]
    works: list[tuple[int, torch.Tensor, Any]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@dataclass
class Walk:
    """The state of one rank. at: its current instruction. got: the number that each receive took, by its place."""

    rank: int
    listed: Sequence[Instruction]
    model: str
    groups: dict[int, Any]
    at: int = 0
    got: dict[int, int] = field(default_factory=dict)
    element: dict[int, Element] = field(default_factory=dict)
    queues: dict[object, SimpleQueue[Element | None]] = field(default_factory=dict)

    def run(self) -> None:
        """Walk the list. At its end the rank waits until all its sends are received."""
        latest: dict[tuple[Op, int, int], int] = {}
        while (i := self.at) < len(self.listed):
            line = self._line(i)
            x = self.listed[i]
            if x.op.send or x.op.receive:
                self._post(line)
                waited = line if self.model == "strict" else []
                latest |= {(self.listed[j].op, self.listed[j].stage, self.listed[j].microbatch): j for j in line}
            elif x.op is Op.SYNC:
                self._sync(x.peer)
                waited = []
            else:
                used = [(CONSUMED.get(self.listed[j].op), self.listed[j]) for j in line]
                keys = [(op, y.stage, y.microbatch) for op, y in used if op is not None]
                waited = [] if self.model == "strict" else [latest[key] for key in keys if key in latest]
            self._over(waited)
            self.at = line[-1] + 1
        self._over([j for j in self.element if self.listed[j].op.send])
        self.at = -1
        for queue in self.queues.values():
            queue.put(None)

    def _line(self, i: int) -> list[int]:
        """Return the line from here: a batch, an overlap pair, or an instruction."""
        line, x = [i], self.listed[i]
        for j in range(i + 1, len(self.listed)):
            y = self.listed[j]
            message = y.op.send or y.op.receive
            if not ((x.op.compute and y.second) or (message and y.group == x.group >= 0)):
                break
            line.append(j)
        return line

    def _post(self, line: list[int]) -> None:
        """Post a line as an element of each queue that it concerns; without queues, immediately."""
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
        """Return an element whose sends and receives are under way."""
        for j in element.places:
            x, value = self.listed[j], torch.tensor([1000 * self.rank + j])
            post = dist.isend if x.op.send else dist.irecv
            element.works.append((j, value, post(value, x.peer, group=self.groups[x.communicator])))
        return element

    def _serve(self, queue: SimpleQueue[Element | None]) -> None:
        """Serve a queue, as its thread."""
        while (element := queue.get()) is not None:
            for _, _, work in element.works or self._posted(element).works:
                work.wait()
            self.got |= {j: int(value) for j, value, _ in element.works if self.listed[j].op.receive}
            element.over.set()

    def _over(self, places: list[int]) -> None:
        """Wait for messages."""
        for j in places:
            self.element[j].over.wait()

    def _sync(self, peer: int) -> None:
        """Meet another rank, regardless of the queues."""
        here, there = torch.zeros(1), torch.zeros(1)
        works = [dist.isend(here, peer, group=self.groups[-1]), dist.irecv(there, peer, group=self.groups[-1])]
        for work in works:
            work.wait()  # type: ignore[union-attr]


@dataclass(frozen=True)
class Place:
    """The position of a rank. threads: those that wait for messages, by number; -1 is one that has not begun. loops: of
    gloo, for its sockets.
    """

    at: int
    got: dict[int, int]
    threads: frozenset[int]
    loops: int


def _be_rank(rank: int, size: int, port: int, set_: int, pipe: Connection) -> None:
    """Life of a process: play programs, and report its position at the end, or on request."""
    torch.set_num_threads(1)
    store = dist.PrefixStore(str(set_), dist.TCPStore("127.0.0.1", port))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    groups: dict[int, Any] = {}
    while True:
        lists, model = pipe.recv()
        numbers = {x.communicator for listed in lists for x in listed if x.op.send or x.op.receive}
        for number in sorted({-1, *numbers} - {*groups}):
            groups[number] = dist.new_group()
        walk = Walk(rank, lists[rank], model, groups)
        threading.Thread(target=_play, args=(walk, pipe), daemon=True).start()
        while pipe.recv() == "where":
            pipe.send(_place(walk))


def _play(walk: Walk, pipe: Connection) -> None:
    walk.run()
    pipe.send(_place(walk))


def _place(walk: Walk) -> Place:
    ours = [thread.native_id for thread in threading.enumerate() if thread is not threading.main_thread()]
    return Place(walk.at, dict(walk.got), frozenset(x or -1 for x in ours), len(walk.groups) + 1)


class Players:
    """The processes for programs of a number of ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._pipes: list[Connection] = []
        self._processes: list[ForkServerProcess] = []
        self._started = 0

    def play(self, case: Program, model: str) -> list[Place]:
        """Return the final position of every rank: the length of its list if it lacks a send there, -1 if it has
        finished."""
        if not self._processes:
            self._start()
        lists, until = [case.instructions(rank) for rank in range(case.ranks)], time.monotonic() + LIMIT
        for pipe in self._pipes:
            pipe.send((lists, model))
        places: dict[int, Place] = {}
        while len(places) < self.size:
            assert time.monotonic() < until, "neither through nor still"
            if not self._heard(places, WAIT):
                asked = self._asked(places)
                if asked is not None and self._still(asked):
                    again = self._asked(places)
                    if again is not None and [x.at for x in again] == [x.at for x in asked]:
                        self.close()
                        return again
        for pipe in self._pipes:
            pipe.send("next")
        return [places[rank] for rank in range(self.size)]

    def _heard(self, places: dict[int, Place], seconds: float) -> bool:
        """Return True if a rank has reported its end."""
        left = [pipe for rank, pipe in enumerate(self._pipes) if rank not in places]
        ready = wait(left, seconds)
        for pipe in ready:
            rank = self._pipes.index(pipe)  # type: ignore[arg-type]
            places[rank] = self._pipes[rank].recv()
        return bool(ready)

    def _asked(self, places: dict[int, Place]) -> list[Place] | None:
        """Return the positions of all ranks; None if one of them reports its end instead."""
        found, known = dict(places), len(places)
        for rank, pipe in enumerate(self._pipes):
            if rank not in found:
                pipe.send("where")
                found[rank] = pipe.recv()
                if found[rank].at == -1:
                    places[rank] = found[rank]
                    pipe.recv()  # the answer, and the word that it is through, come in either order
        return [found[rank] for rank in range(self.size)] if len(places) == known else None

    def _still(self, asked: Sequence[Place]) -> bool:
        """Return True if no waiting thread has run, while each loop of gloo has looked twice at its sockets."""
        first = self._runs()
        for _ in range(LOOKS):
            time.sleep(BETWEEN)
            now = self._runs()
            ours = {thread for place in asked if place.at != -1 for thread in place.threads}
            if any(first.get(thread, ("", 0))[0] != "S" or now.get(thread) != first[thread] for thread in ours):
                return False
            looked = sum(now[x][1] >= first[x][1] + 2 for x in now.keys() & first.keys() if x not in ours)
            if looked >= sum(place.loops for place in asked):
                return True
        return False

    def _runs(self) -> dict[int, tuple[str, int]]:
        """Return the state of every thread, and the number of times it has run."""
        found = {}
        for process in self._processes:
            for task in os.listdir(f"/proc/{process.pid}/task"):
                with suppress(OSError):  # it has just ended
                    text = Path(f"/proc/{process.pid}/task/{task}/status").read_text("utf-8")
                    rows = dict(line.split(":", 1) for line in text.splitlines())
                    ran = int(rows["voluntary_ctxt_switches"]) + int(rows["nonvoluntary_ctxt_switches"])
                    found[int(task)] = (rows["State"].split()[0], ran)
        return found

    def _start(self) -> None:
        self._started += 1
        context, port = forks(), self._store.port
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_be_rank, args=(rank, self.size, port, self._started, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def close(self) -> None:
        """Kill every process."""
        for process in self._processes:
            process.kill()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join(10)
            pipe.close()
            assert process.exitcode is not None, "a process is left"
        self._processes, self._pipes = [], []


@contextmanager
def players(size: int) -> Iterator[Players]:
    """Yield a set of processes, which are ended afterwards."""
    made = Players(size)
    try:
        yield made
    finally:
        made.close()
