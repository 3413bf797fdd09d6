"""Only ranks exchange data: a process without the secret is ignored and does not delay any rank."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipesched.runtime.execute import launch, peers
from pipesched.runtime.execute.errors import RunError
from pipesched.runtime.execute.launch import Launcher
from pipesched.runtime.execute.peers import LOOPBACK, Peers, meet
from tests.runtime.test_faults import Case, processes

RANKS = 3


class Collective:
    """`everybody` for threads instead of processes. at: the addresses of the ranks, to eavesdrop."""

    def __init__(self) -> None:
        self.barrier, self.texts = threading.Barrier(RANKS), [""] * RANKS
        self.rank = threading.local()
        self.before: Any = None

    def __call__(self, value: object, group: Any) -> list[Any]:
        self.texts[self.rank.number] = json.dumps(value)
        if self.barrier.wait() == 0 and self.before is not None:
            self.before([json.loads(text) for text in self.texts])
        self.barrier.wait()
        told = [json.loads(text) for text in self.texts]
        self.barrier.wait()
        return told


@pytest.fixture
def collective(monkeypatch: pytest.MonkeyPatch) -> Collective:
    made = Collective()
    monkeypatch.setattr(peers, "everybody", made)
    return made


def met(collective: Collective) -> list[Peers]:
    def one(rank: int) -> Peers:
        collective.rank.number = rank
        return meet(rank, RANKS, None, 10.0)

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(one, range(RANKS)))


def hear(one: Peers, count: int) -> dict[int, str]:
    """Return the texts until the given number of ranks was heard or is closed."""
    found: dict[int, str] = {}
    until = time.monotonic() + 10
    while len(found) + len(one.closed) < count and time.monotonic() < until:
        found |= one.hear(0.1)
    return found


def close(every: list[Peers]) -> None:
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(Peers.close, every))


def test_everybody_hears_everybody(collective: Collective) -> None:
    """Each rank hears the last text of each, long ones too; then the close of each."""
    every = met(collective)
    for number, text in enumerate(("", "x" * 200_000, "ö")):
        for rank, one in enumerate(every):
            one.say(f"{rank} {number} {text}")
        for rank, one in enumerate(every):
            found: dict[int, str] = {}
            until = time.monotonic() + 10
            others = {other: f"{other} {number} {text}" for other in range(RANKS) if other != rank}
            while found != others and time.monotonic() < until:
                found |= one.hear(0.1)
            assert found == others
    close(every)
    assert all(set(one.closed.values()) == {"its process ended"} for one in every)


def test_nobody_listens_once_they_have_met(collective: Collective) -> None:
    """On one machine they listen on its loopback only, until all have met."""
    told: list[dict[str, Any]] = []
    collective.before = told.extend
    every = met(collective)
    addresses = [(one["host"], one["port"]) for one in told if "port" in one]

    assert {host for host, _ in addresses} == {LOOPBACK} and len(addresses) == RANKS
    for address in addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 1)
    close(every)


@pytest.mark.parametrize("said", [b"", b"\0" * 3, b"\0" * 36, b"\0\0\0\1" + b"x" * 32, b"GET / HTTP/1.1\r\n" * 9])
def test_a_stranger_at_the_door_is_nobody(collective: Collective, said: bytes) -> None:
    """A stranger who connects first, and sends nothing, too little or something wrong, neither takes a rank's place nor
    delays one.
    """
    strangers: list[socket.socket] = []

    def knock(told: list[dict[str, Any]]) -> None:
        for one in told * 3:
            if "port" in one:
                strangers.append(socket.create_connection((one["host"], one["port"]), 1))
                strangers[-1].sendall(said)

    collective.before = knock
    every = met(collective)
    for rank, one in enumerate(every):
        one.say(str(rank))
    assert [hear(one, RANKS - 1) for one in every] == [{1: "1", 2: "2"}, {0: "0", 2: "2"}, {0: "0", 1: "1"}]
    assert len(strangers) == 3 * RANKS
    for stranger in strangers:
        stranger.close()
    close(every)


def frames(one: Peers, other: int, *texts: str) -> list[bytes]:
    """Return the bytes on the wire for texts, taken from the link itself, which sends none of them."""
    link, real = one._links[other], one._links[other].socket
    here, there = socket.socketpair()
    link.socket = here
    made = []
    for text in texts:
        link.say(text.encode())
        made.append(there.recv(1 << 16))
    link.socket = real
    here.close()
    there.close()
    return made


@pytest.mark.parametrize(
    "forgery", ["changed", "again", "out of order", "of the other direction", "endless", "unsigned"]
)
def test_what_is_not_signed_ends_the_connection(collective: Collective, forgery: str) -> None:
    """A changed, repeated, moved, returned or unsigned text is never received."""
    every = met(collective)
    first, second = frames(every[1], 0, "fault", "other")
    sent = {
        "changed": first[:-1] + b"T",
        "again": first + first,
        "out of order": second,
        "of the other direction": frames(every[0], 1, "fault")[0],
        "endless": b"\xff" * 40,
        "unsigned": b"\0\0\0\5" + b"\0" * 32 + b"fault",
    }[forgery]
    every[1]._links[0].socket.sendall(sent)

    assert hear(every[0], 1) == {}
    assert every[0].closed == {1: "its connection delivered data without a valid signature"}
    close(every)


def test_a_rank_that_reads_nothing_holds_up_nobody(collective: Collective) -> None:
    """The buffer of the rank fills, further texts are dropped, and those that it reads in the end are complete."""
    every = met(collective)
    began = time.monotonic()
    for number in range(300):
        every[0].say(f"{number} " + "x" * 100_000)
    assert time.monotonic() - began < 5
    for one in every[1:]:
        found = hear(one, 1)[0]
        assert found.endswith("x" * 100_000) and 0 <= int(found.split()[0]) < 300
    close(every)


ADDRESSES = [
    (["a", "a"], ["10.0.0.1", "10.0.0.1"], LOOPBACK),
    (["a", "b"], ["10.0.0.1", "10.0.0.2"], "10.0.0.1"),
    (["a", "b"], ["fd00::7", "fd00::8"], "fd00::7"),
]


@pytest.mark.parametrize(("machines", "addresses", "listens"), ADDRESSES)
def test_where_a_rank_listens(machines: list[str], addresses: list[str], listens: str) -> None:
    """A rank listens on the loopback of one machine, else on the address for the others; never on all interfaces."""
    told = [{"machine": machine, "address": address} for machine, address in zip(machines, addresses, strict=True)]

    assert peers._address(0, told) == listens


def test_a_loopback_is_no_address_for_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if MASTER_ADDR is the machine's own name, which Debian resolves to 127.0.1.1. The route to
    the others decides.
    """
    told = [{"machine": "a", "address": "127.0.1.1"}, {"machine": "b", "address": "10.0.0.2"}]
    monkeypatch.setattr(peers, "_towards", lambda host: "10.0.0.1" if host == "10.0.0.2" else "127.0.0.1")

    assert peers._address(0, told) == "10.0.0.1"
    with pytest.raises(RunError, match="PS820"):
        peers._address(0, [told[0], {"machine": "b", "address": ""}])


def listening(pids: list[int]) -> set[str]:
    """Return the addresses on which these processes listen, by the kernel."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(entry.readlink().name.removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def test_a_local_run_listens_on_the_loopback_alone(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the transport nor the guard of any rank can be reached from other machines, for any environment."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.2")
    environment = launch._environment()
    assert (environment["GLOO_SOCKET_IFNAME"], environment["MASTER_ADDR"]) == ("lo", LOOPBACK)

    found: set[str] = set()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher.run, replace(Case("1f1b", "stall@0:1", "PS822").job, timeout=2.0))
        while not running.done():
            with suppress(OSError):  # a rank that has just ended
                found |= listening(processes(launcher.pid))
            time.sleep(0.05)
    assert found == {"0100007F"}, "127.0.0.1, in the order of this machine's bytes"
