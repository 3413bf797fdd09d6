"""Runs Megatron-core's pipeline code on real processes, one per rank, whose sends and receives are connected by pipes.

    python -m tests.runtime.megatron_processes FOLDER [--configurations N]

A send is over when its receiver has read it and said so, never before: a rendezvous. A rank's messages run in threads,
one per queue:

    posted   a queue for each communicator, peer and direction: as posted
    queue    one for each communicator; a batch is one element of it, whose messages go on independently

A run hangs if no rank moves for `STALL` seconds. Every tensor carries the name of its producer, which is compared with
the one the schedule expects. Nothing here knows an order or a model.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from mmap import mmap
from pathlib import Path
from queue import SimpleQueue
from socket import socket, socketpair
from threading import Event as Flag
from threading import Thread
from typing import Any

from pipesched.interop.frameworks import megatron
from pipesched.interop.frameworks.megatron import Core
from pipesched.interop.frameworks.megatron_rank import Event, Rank, Token, words

STALL = 2.0
POSTED, QUEUE = "posted", "queue"
LABEL = 32


@dataclass(eq=False)
class Wires:
    """A pair of sockets for each communicator, source and target."""

    ranks: int
    ends: dict[tuple[int, int, int], tuple[socket, socket]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pairs = ((c, a, b) for c in (0, 1) for a in range(self.ranks) for b in range(self.ranks) if a != b)
        self.ends = {pair: socketpair() for pair in pairs}

    def close(self) -> None:
        for pair in self.ends.values():
            for end in pair:
                end.close()


class Real(Rank):
    """torch.distributed of one rank, with real messages."""

    def __init__(self, folder: str, ranks: int, here: int, wires: Wires, mode: str, moved: mmap) -> None:
        super().__init__(folder, ranks, here)
        self.wires, self.mode, self.moved = wires, mode, moved
        self.queues: dict[object, SimpleQueue[list[Event]]] = {}
        self.done: dict[Event, Flag] = {}
        self.arrived: dict[Token, str] = {}
        self.wrong = 0

    def place(self) -> tuple[tuple[str, int], ...]:
        return ()

    def isend(self, *given: Any, **named: Any) -> Any:
        made = super().isend(*given, **named)
        self.enqueue(made.posts)
        return made

    def irecv(self, *given: Any, **named: Any) -> Any:
        made = super().irecv(*given, **named)
        self.enqueue(made.posts)
        return made

    def batch_isend_irecv(self, ops: Iterable[tuple[Any, ...]]) -> Any:
        made = super().batch_isend_irecv([*ops])
        self.enqueue(made[0].posts)
        return made

    def enqueue(self, posts: list[Event]) -> None:
        self.move()
        for post in posts:
            self.done[post] = Flag()
        if self.mode == POSTED:
            for post in posts:
                self.put((post.communicator, post.peer, post.what), [post])
        else:
            self.put(posts[0].communicator, posts)

    def put(self, key: object, element: list[Event]) -> None:
        if key not in self.queues:
            self.queues[key] = SimpleQueue()
            Thread(target=self.serve, args=(self.queues[key],), daemon=True).start()
        self.queues[key].put(element)

    def serve(self, queue: SimpleQueue[list[Event]]) -> None:
        while True:
            element = queue.get()
            lanes = [[*lane] for _, lane in groupby(sorted(element, key=_lane), _lane)]
            threads = [Thread(target=self.lane, args=(lane,), daemon=True) for lane in lanes[1:]]
            for thread in threads:
                thread.start()
            self.lane(lanes[0])
            for thread in threads:
                thread.join()

    def lane(self, posts: list[Event]) -> None:
        """Messages between two ranks in one direction, one after the other."""
        for post in posts:
            assert post.token is not None
            if post.what == "send":
                wire = self.wires.ends[post.communicator, self.here, post.peer][0]
                wire.sendall(named(post.token).encode().ljust(LABEL))
                read(wire, 1)
            else:
                wire = self.wires.ends[post.communicator, post.peer, self.here][1]
                self.arrived[post.token] = read(wire, LABEL).decode().strip()
                wire.sendall(b"!")
            self.done[post].set()
            self.move()

    def move(self) -> None:
        self.moved[self.here] = (self.moved[self.here] + 1) % 256

    def wait(self, posts: Iterable[Event]) -> None:
        for post in posts:
            self.done[post].wait()
            self.under_way.pop(post, None)

    def take(self, tensor: object, label: tuple[str, int, int]) -> None:
        super().take(tensor, label)
        if isinstance(tensor, Token) and tensor in {post.token for post in self.done if post.what == "recv"}:
            self.wrong += self.arrived.get(tensor) != named(tensor)
            if tensor.shape is not None:
                self.wrong += self.arrived.get(tensor.shape) != named(tensor.shape)


def _lane(post: Event) -> tuple[int, str]:
    return post.peer, post.what


def named(token: Token) -> str:
    """Return the name of a tensor: its producer, or the shape of that."""
    label = token.label if token.of is None else token.of.label
    assert label is not None
    return f"{'' if token.of is None else 'shape of '}{label[0]}{label[1]}.{label[2]}"


def read(wire: socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += wire.recv(size - len(data)) or os._exit(3)
    return data


def outcome(core: Core, name: str, sizes: tuple[int, int, int], options: Mapping[str, object], mode: str) -> str:
    """Return ``right``, ``wrong`` if a tensor was taken for another, or ``hang``."""
    wires, moved = Wires(sizes[0]), mmap(-1, sizes[0])
    children = []
    sys.stdout.flush()
    for here in range(sizes[0]):
        if (child := os.fork()) == 0:
            try:
                rank = Real(str(core.folder), sizes[0], here, wires, mode, moved)
                megatron.run(core, name, sizes, options, rank)
                rank.synchronize()
                os._exit(1 if rank.wrong else 0)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(2)
        children.append(child)
    try:
        return _watched(children, moved)
    finally:
        wires.close()


def _watched(children: list[int], moved: mmap) -> str:
    left, codes = set(children), list[int]()
    seen, since = moved[:], time.monotonic()
    while left and time.monotonic() - since < STALL:
        for child in [*left]:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                left.discard(child)
                codes.append(os.waitstatus_to_exitcode(status))
                since = time.monotonic()
        if moved[:] != seen:
            seen, since = moved[:], time.monotonic()
        time.sleep(0.002)
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if 2 in codes or 3 in codes:
        return "failed"
    return "hang" if left else "wrong" if 1 in codes else "right"


EXCHANGES: Mapping[str, Mapping[str, object]] = {
    "batched": {},
    "unbatched": {"batch_p2p_comm": False},
    "overlap": {"batch_p2p_comm": False, "overlap_p2p_comm": True},
    "flush": {"batch_p2p_comm": False, "overlap_p2p_comm": True, "overlap_p2p_comm_warmup_flush": True},
}


def configurations(core: Core) -> Iterator[tuple[str, str, tuple[int, int, int], dict[str, object]]]:
    """Yield the exchange, function, sizes and options: p to 4, v to 3, m to 3p, larger groups, with shapes and
    without."""
    for p in (2, 3, 4):
        for v in (1, 2, 3):
            for m in (p, 2 * p, 3 * p):
                for exchange, options in EXCHANGES.items():
                    for more in ({}, {"variable_seq_lengths": True}, {"microbatch_group_size_per_vp_stage": p + 1}):
                        given = {**options, **more}
                        group = "microbatch_group_size_per_vp_stage" in more
                        if (v == 1 and ("overlap_p2p_comm" in given or group)) or (
                            group and m != 2 * p + 2 and m % (p + 1)
                        ):
                            continue
                        if given.keys() <= core.options().keys():
                            yield exchange, "1f1b" if v == 1 else "interleaved", (p, v, m), given


def predicted(core: Core, name: str, sizes: tuple[int, int, int], options: Mapping[str, object]) -> dict[str, str]:
    """Return the verdict of pipesched on both ways to run."""
    import pipesched
    from pipesched.support.source import Source

    rows = []
    for here in range(sizes[0]):
        rank = Rank(str(core.folder), sizes[0], here)
        megatron.run(core, name, sizes, options, rank)
        rows.append(f"rank {here}: {' '.join(word for word, _ in words(rank))}")
    found = {}
    for mode, model in ((POSTED, "async"), (QUEUE, "one-stream")):
        codes = {str(x.code) for x in pipesched.verify(Source("x.txt", "\n".join(rows)), comm=model).diagnostics}
        codes -= {"PS605", "PS606", "PS607", "PS902"}
        found[mode] = "hang" if "PS401" in codes else "wrong" if "PS403" in codes else "right"
        if codes - {"PS401", "PS403"}:
            found[mode] += " " + " ".join(sorted(codes))
    return found


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("folder", type=Path)
    asked.add_argument("--configurations", type=int, default=10**9)
    given = asked.parse_args()
    core = megatron.load(given.folder)
    tried: dict[str, int] = {}
    differences = 0
    for number, (exchange, name, sizes, options) in enumerate(configurations(core)):
        if number >= given.configurations:
            break
        expected = predicted(core, name, sizes, options)
        for mode in (POSTED, QUEUE):
            found = outcome(core, name, sizes, options, mode)
            tried[f"{mode} {found}"] = tried.get(f"{mode} {found}", 0) + 1
            if found != expected[mode]:
                differences += 1
                print(exchange, name, sizes, options, mode, "found", found, "predicted", expected[mode], flush=True)
    print(core.version, tried, f"{differences} differences", flush=True)
    return min(differences, 1)


if __name__ == "__main__":
    sys.exit(main())
