"""``python -m tests.engines.meetings_on_gloo N [SEED]`` runs random sets of calls on real processes, with real
all-to-alls.

A process per rank, a thread per engine, gloo beneath: a collective call is `all_to_all_single` on its group, a message
a blocking send or receive, those of a batch in threads of their own. Sets that hold under strict must end, the others
must stop; the names of calls travel in the data, and those that arrive are the own ones exactly where calls agree.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from zlib import crc32

from pipesched.analysis.communication import STRICT
from pipesched.engines.calls import read
from pipesched.engines.meetings import Meetings
from pipesched.support.source import Source
from tests.engines.calls_drawn import drawn
from tests.oracles.calls_by_states import Called, Groups, Machine, Ranks, agree, written

QUIET, LIMIT = 2.0, 40.0  # seconds without progress that count as a stop; and at most


def be_rank(rank: int, ranks: Ranks, groups: Groups, store: str, quiet: float, out: Connection) -> None:
    """Run the engines of a rank, and send the outcome: ``ended``, ``wrong`` (data of other calls), ``stopped``."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(store, len(ranks)), rank=rank, world_size=len(ranks))
    made = {name: dist.new_group(list(members)) for name, members in groups.items()}
    posted = {name: dist.new_group(list(members)) for name, members in groups.items()}
    pairs = {(a, b): dist.new_group([a, b]) for b in range(len(ranks)) for a in range(b)}
    row, count = ranks[rank], {"ended": 0, "wrong": 0}
    done = {call.key: threading.Event() for call in row}
    number: dict[tuple[str, int, str], int] = {}
    batches: list[list[tuple[Called, int]]] = []
    for call in row:
        tag = number.get((call.way, call.peer, call.group), 0)
        number[call.way, call.peer, call.group] = tag + 1
        batches[-1:] = [[*batches[-1], (call, tag)]] if call.joined else [*batches[-1:], [(call, tag)]]

    def run(call: Called, tag: int) -> None:
        name = crc32(call.name.encode())
        if call.group and not call.way:
            size = len(groups[call.group])
            got = torch.zeros(size, dtype=torch.int64)
            dist.all_to_all_single(got, torch.full((size,), name), group=made[call.group])
            count["wrong"] += bool((got != name).any())
        elif call.way:
            pair = posted.get(call.group) or pairs[min(rank, call.peer), max(rank, call.peer)]
            data = torch.tensor([name if call.way == ">" else 0])
            (dist.send if call.way == ">" else dist.recv)(data, call.peer, group=pair, tag=tag)
            count["wrong"] += int(data[0]) != name
        done[call.key].set()
        count["ended"] += 1

    def serve(engine: str) -> None:
        for batch in batches:
            if batch[0][0].engine == engine:
                for need in (need for call, _ in batch for need in call.needs):
                    done[need].wait()
                together = [threading.Thread(target=run, args=one, daemon=True) for one in batch]
                for thread in together:
                    thread.start()
                for thread in together:
                    thread.join()

    threads = [threading.Thread(target=serve, args=(engine,), daemon=True) for engine in {call.engine for call in row}]
    dist.barrier()
    for thread in threads:
        thread.start()
    seen, since = -1, time.monotonic()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.02)
        if count["ended"] != seen:
            seen, since = count["ended"], time.monotonic()
        if time.monotonic() - since > quiet:
            out.send("stopped")
            time.sleep(0.5)
            os._exit(0)
    out.send("wrong" if count["wrong"] else "ended")
    out.recv()  # a process that leaves early would break the groups of others
    os._exit(0)


def executed(ranks: Ranks, groups: Groups, quiet: float = QUIET) -> set[str]:
    """Run calls on processes; return the outcome of each rank."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        store, ends, processes = str(Path(folder) / "store"), [], []
        for rank in range(len(ranks)):
            ours, theirs = context.Pipe()
            arguments = (rank, ranks, groups, store, quiet, theirs)
            process = context.Process(target=be_rank, args=arguments, daemon=True)
            process.start()
            ends.append(ours)
            processes.append(process)
        found, until = set(), time.monotonic() + LIMIT
        for end in ends:
            found.add(str(end.recv()) if end.poll(max(0, until - time.monotonic())) else "nothing")
        for end in ends:
            end.send("leave")
        for process in processes:
            process.join(2)
            process.kill()
            process.join()
    return found


def predicted(ranks: Ranks, groups: Groups) -> str | None:
    """Return our verdict on calls under rendezvous; None if some have no partner."""
    made = Meetings(read(Source("made.calls", written(ranks, groups))))
    if made.uneven:
        return None
    if not made.holds(STRICT):
        return "stopped"
    return "wrong" if list(made.differing()) else "ended"


def right(ranks: Ranks, groups: Groups, said: str) -> bool:
    """Return True if the run is as predicted: a stop on some rank, else data of other calls on some rank, else none."""
    found = executed(ranks, groups)
    if said != "stopped" and "stopped" in found:  # a busy machine
        found = executed(ranks, groups, 8 * QUIET)
    worst = next(word for word in ("nothing", "stopped", "wrong", "ended") if word in found)
    return (
        worst == said
        and (said == "stopped") == (not Machine(ranks, groups, "strict", None).ends())
        and (said == "stopped" or agree(ranks, groups) == (said == "ended"))
    )


def differences(seed: int, count: int) -> tuple[int, dict[str, int]]:
    """Run random calls on processes; return the number of wrong predictions, and the number of each verdict."""
    rng, wrong, seen = random.Random(seed), 0, dict[str, int]()
    while sum(seen.values()) < count:
        ranks, groups = drawn(rng)
        said = predicted(ranks, groups)
        if said is not None:
            seen[said] = seen.get(said, 0) + 1
            if not right(ranks, groups, said):
                wrong += 1
                print(said, written(ranks, groups), sep="\n", file=sys.stderr)
    return wrong, seen


if __name__ == "__main__":
    import torch.distributed  # noqa: F401  (before the forks)

    wrong, seen = differences(int((*sys.argv, 1828)[2]), int(sys.argv[1]))
    print(f"{sys.argv[1]} sets of calls on processes: {wrong} not as predicted; {dict(sorted(seen.items()))}")
    sys.exit(wrong > 0)
