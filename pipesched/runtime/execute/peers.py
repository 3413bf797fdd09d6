"""Sends signed messages between all pairs of ranks: no server, no listening socket after the start, no blocking call.

    meet     every rank listens on one address, sends the address to all ranks through their group, connects to the
             lower ranks, and accepts the connections of the higher ones; then it stops listening
    hello    <─ a nonce                               ─> rank, HMAC(key, "hello")
    text     length, HMAC(key, sender, number of earlier texts, text), text
    key      HMAC(secret, nonce, both ranks): a text is valid on one connection, in one direction, at one position

Rank 0 generates the secret, and the group distributes it: an attacker who can read it there could also change
gradients. If all ranks are on one machine they use its loopback, otherwise the address that leads to the other
machines. An unsigned message ends its connection. Messages to a stopped rank are dropped once its buffer is full, so
important messages are repeated.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TypedDict

import torch.distributed as dist

from pipesched.runtime.execute.errors import NEEDS, Fault, Place, RunError
from pipesched.runtime.execute.exchange import everybody

LONGEST = 1 << 18  # most bytes of a text
LOOPBACK = "127.0.0.1"
_NONCE, _MAC = 16, 32
_HEAD = struct.Struct(">I")
_HELLO = struct.Struct(f">I{_MAC}s")
_LINGER = 0.2  # seconds after closing in which the last texts can be read
_STRANGERS = 64  # most connections from unidentified callers
_NOWHERE = "192.0.2.1"  # an unused address: the interface that routes to it also routes to other machines


def _signed(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), "sha256")


def _key(secret: bytes, nonce: bytes, *ranks: int) -> bytes:
    return _signed(secret, nonce, *(_HEAD.pack(rank) for rank in sorted(ranks)))


class _Forged(Exception):
    """Raised if a message without a valid signature arrives."""


class _Card(TypedDict):
    """The address at which a rank listens; rank 0 adds the secret, in hexadecimal."""

    host: str
    port: int
    secret: str


@dataclass
class _Link:
    """The connection to one rank. sent, heard: numbers of messages so far, which the next signatures cover."""

    socket: socket.socket
    key: bytes
    me: int
    other: int
    sent: int = 0
    heard: int = 0
    outgoing: bytearray = field(default_factory=bytearray)
    incoming: bytearray = field(default_factory=bytearray)

    def say(self, text: bytes) -> None:
        """Send a message, unless earlier ones are still in the buffer."""
        if not self.outgoing:
            self.outgoing += _HEAD.pack(len(text)) + self._mac(self.me, self.sent, text) + text
            self.sent += 1
        with contextlib.suppress(OSError):  # the buffer is full, or the connection is closed, which a read will show
            del self.outgoing[: self.socket.send(self.outgoing)]

    def hear(self) -> str | None:
        """Return the last complete message that arrived, or None.

        Raises:
            OSError: if the other end is closed.
            _Forged: if a message has no valid signature.
        """
        with contextlib.suppress(BlockingIOError):
            chunk = self.socket.recv(LONGEST)
            if not chunk:
                raise ConnectionError
            self.incoming += chunk
        last = None
        while (text := self._next()) is not None:
            last = text
        return last

    def _next(self) -> str | None:
        if len(self.incoming) < _HEAD.size:
            return None
        (length,) = _HEAD.unpack_from(self.incoming)
        if length > LONGEST:
            raise _Forged
        begin = _HEAD.size + _MAC
        mac, text = self.incoming[_HEAD.size : begin], bytes(self.incoming[begin : begin + length])
        if len(text) < length:
            return None
        if not hmac.compare_digest(mac, self._mac(self.other, self.heard, text)):
            raise _Forged
        del self.incoming[: begin + length]
        self.heard += 1
        return text.decode()

    def _mac(self, sender: int, number: int, text: bytes) -> bytes:
        return _signed(self.key, struct.pack(">IQ", sender, number), text)


class Peers:
    """The connections to the other ranks, for use by one thread; only `wake` may be called from another thread.

    closed: the ranks whose connection has ended, with the reason.
    """

    def __init__(self, links: Sequence[_Link] = ()) -> None:
        self.closed: dict[int, str] = {}
        self._links = {link.other: link for link in links}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        for link in links:
            link.socket.setblocking(False)
            link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(link.socket, selectors.EVENT_READ, link)

    def say(self, text: str) -> None:
        """Send a message to every other rank. A rank that does not read misses the message."""
        for rank, link in self._links.items():
            if rank not in self.closed:
                link.say(text.encode())

    def hear(self, timeout: float) -> dict[int, str]:
        """Wait for a message, for `wake`, or for the timeout; return the last message of each rank that sent one."""
        texts = {}
        for key, _ in self._selector.select(timeout):
            link: _Link | None = key.data
            if link is None:
                self._woken.recv(4096)
            elif (text := self._heard(link)) is not None:
                texts[link.other] = text
        return texts

    def wake(self) -> None:
        """Interrupt a `hear` in another thread, or the next call of `hear`."""
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def close(self) -> None:
        """Close all connections, after giving the other ranks time to read."""
        open_ = [link for rank, link in self._links.items() if rank not in self.closed]
        for link in open_:
            with contextlib.suppress(OSError):
                link.socket.shutdown(socket.SHUT_WR)
        until = time.monotonic() + _LINGER
        while len(self.closed) < len(self._links) and time.monotonic() < until:
            self.hear(_LINGER / 4)
        for link in open_:
            link.socket.close()
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _heard(self, link: _Link) -> str | None:
        try:
            return link.hear()
        except (OSError, _Forged, UnicodeDecodeError) as error:
            ended = isinstance(error, OSError)
            self.closed[link.other] = (
                "its process ended" if ended else "its connection delivered data without a valid signature"
            )
            self._selector.unregister(link.socket)
            link.socket.close()
            return None


def meet(rank: int, ranks: int, group: dist.ProcessGroup | None, timeout: float) -> Peers:
    """Connect every rank with every other rank. A collective.

    Raises:
        RunError: PS820 if another rank cannot be reached.
    """
    if ranks == 1:
        return Peers()
    own = _towards(os.environ.get("MASTER_ADDR") or _NOWHERE)
    host = _address(rank, everybody({"machine": _machine(), "address": own}, group))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=max(ranks, _STRANGERS)) as listener:
        mine: _Card = {
            "host": host,
            "port": listener.getsockname()[1],
            "secret": secrets.token_hex(32) if rank == 0 else "",
        }
        cards = everybody(mine, group)
        secret = bytes.fromhex(cards[0]["secret"])
        links = [_connect(cards[other], rank, other, secret, timeout) for other in range(rank)]
        links += _accept(listener, rank, ranks, secret)
    return Peers(links)


def _connect(card: _Card, rank: int, other: int, secret: bytes, timeout: float) -> _Link:
    """Connect to a rank that listens."""
    at = card["host"], card["port"]
    try:
        made = socket.create_connection(at, timeout)
        nonce = b""
        while len(nonce) < _NONCE:
            if not (chunk := made.recv(_NONCE - len(nonce))):
                raise ConnectionError("it was closed")
            nonce += chunk
        key = _key(secret, nonce, rank, other)
        made.sendall(_HELLO.pack(rank, _signed(key, b"hello")))
    except OSError as error:
        message = f"rank {rank} cannot reach rank {other} at {at[0]}:{at[1]}: {error.strerror or error}"
        help = "ranks under `Guard` communicate over TCP on ports chosen by the system: allow this between your hosts"
        raise RunError(Fault(NEEDS, message, Place(rank), help=help)) from error
    return _Link(made, key, rank, other)


def _accept(listener: socket.socket, rank: int, ranks: int, secret: bytes) -> list[_Link]:
    """Accept the connections of all higher ranks; other callers cannot delay this."""
    links: dict[int, _Link] = {}
    with contextlib.closing(_hellos(listener, ranks + _STRANGERS)) as hellos:
        while len(links) < ranks - 1 - rank:
            made, nonce, hello = next(hellos)
            other, mac = _HELLO.unpack(hello)
            key = _key(secret, nonce, rank, other)
            if hmac.compare_digest(mac, _signed(key, b"hello")) and rank < other < ranks and other not in links:
                links[other] = _Link(made, key, rank, other)
            else:
                made.close()
    return list(links.values())


def _hellos(listener: socket.socket, most: int) -> Generator[tuple[socket.socket, bytes, bytes]]:
    """Yield each caller's socket, nonce and answer. If there are too many callers, the oldest is dropped."""
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as left:
        selector.register(listener, selectors.EVENT_READ)
        left.callback(_close_others, selector, listener)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    _greet(listener, selector, most)
                    continue
                made = _socket(key)
                nonce, said = key.data
                said += (chunk := _received(made, _HELLO.size - len(said)))
                if chunk and len(said) < _HELLO.size:
                    continue
                selector.unregister(made)
                if chunk:
                    yield made, nonce, bytes(said)
                else:
                    made.close()


def _close_others(selector: selectors.BaseSelector, listener: socket.socket) -> None:
    for other in _others(selector, listener):
        other.close()


def _others(selector: selectors.BaseSelector, listener: socket.socket) -> list[socket.socket]:
    return [_socket(key) for key in selector.get_map().values() if key.fileobj is not listener]


def _socket(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def _greet(listener: socket.socket, selector: selectors.BaseSelector, most: int) -> None:
    """Accept a caller and send it a nonce."""
    with contextlib.suppress(OSError):
        made, _ = listener.accept()
        nonce = secrets.token_bytes(_NONCE)
        made.settimeout(0)
        made.send(nonce)
        selector.register(made, selectors.EVENT_READ, (nonce, bytearray()))
    for left in _others(selector, listener)[:-most]:
        selector.unregister(left)
        left.close()


def _received(made: socket.socket, most: int) -> bytes:
    with contextlib.suppress(OSError):
        return made.recv(most)
    return b""


def _machine(there: str = "/proc") -> str:
    """Return an identifier of the machine: the same for all processes that share a loopback interface."""
    try:
        boot = Path(there, "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.stat(Path(there, 'self/ns/net')).st_ino}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode()}"


def _address(rank: int, cards: Sequence[Mapping[str, str]]) -> str:
    """Return the address at which this rank listens: the loopback if all ranks are on one machine.

    Raises:
        RunError: PS820 if no address leads to another machine.
    """
    if len({one["machine"] for one in cards}) == 1:
        return LOOPBACK
    elsewhere = [one["address"] for one in cards if one["machine"] != cards[rank]["machine"]]
    found = [cards[rank]["address"], *(_towards(other) for other in elsewhere if not _local(other)), _towards(_NOWHERE)]
    for address in found:
        if not _local(address):
            return address
    message = f"rank {rank} has no address at which ranks on other machines can reach it"
    raise RunError(Fault(NEEDS, message, Place(rank), help="set MASTER_ADDR to the address of the first machine"))


def _local(address: str) -> bool:
    return not address or ip_address(address.partition("%")[0]).is_loopback


def _towards(host: str) -> str:
    """Return this machine's address on the route to a host, or an empty string. Sends no packet."""
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return ""
