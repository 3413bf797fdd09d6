"""The published form of a program: instruction streams, versions 1 and 2. Contract: ``emit/README.md``.

A stream is plain data: this module needs nothing but the standard library, and a runtime needs nothing but this
module. The fingerprint is the SHA-256 of the canonical text of placement and ranks; ranks that agree on it run the
same program.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

VERSION = 1
NEWEST = 2
"""Version 2 has batches and communicators. `loads` and a runtime take it; what `pipesched emit` writes is version 1."""

# The fields of each instruction, in the order in which they are written.
FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("F", "I", "W", "B"), ("stage", "microbatch", "route")),
    **dict.fromkeys(("SEND_F", "RECV_F", "SEND_B", "RECV_B"), ("stage", "microbatch", "route", "peer")),
    "OVERLAP": ("parts",),
    "REDUCE_GRAD": ("stage",),
    "SYNC": ("stage", "peer"),
    "STEP": (),
}
BATCH = "BATCH"
"""Of version 2: messages that are posted together, its parts."""


class StreamError(ValueError):
    """A text that is no stream: what is wrong, and where, as a path such as ``ranks[0][3].stage``."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path, self.message = path, message


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of one rank. `stage` is the stage of this rank, for RECV_F and SEND_B too.

    route: left out of the text where the placement has one route. parts: of OVERLAP, an F and a B or I; of BATCH, the
    sends and receives that are posted together. communicator: of a message; left out of the text where it is 0.
    """

    op: str
    stage: int = -1
    microbatch: int = -1
    route: int = 0
    peer: int = -1
    parts: tuple[Instruction, ...] = ()
    communicator: int = 0

    @property
    def messages(self) -> tuple[Instruction, ...]:
        """The sends and receives that it is."""
        return tuple(x for x in self.parts or (self,) if x.op.startswith(("SEND", "RECV")))

    def __str__(self) -> str:
        """torch's notation: ``0F1``, ``2RECV_F0``, ``(3F0;3B1)OVERLAP``."""
        if self.parts:
            return f"({';'.join(map(str, self.parts))}){self.op}"
        stage = "" if self.stage < 0 else str(self.stage)
        return f"{stage}{self.op}" + ("" if self.microbatch < 0 else str(self.microbatch))


@dataclass(frozen=True, slots=True)
class Route:
    """One way through the ranks: the rank of every stage, and the microbatches ``first .. end`` that take it."""

    name: str
    ranks: tuple[int, ...]
    microbatches: tuple[int, int]


@dataclass(frozen=True)
class Stream:
    """A program as published. `ranks[r]` are the instructions of rank r, in order."""

    name: str
    parameters: Mapping[str, int]
    placement: tuple[Route, ...]
    ranks: tuple[tuple[Instruction, ...], ...]
    frozen: tuple[int, ...] = ()

    def __repr__(self) -> str:
        count = sum(map(len, self.ranks))
        return f"<Stream {self.name}: {count} instructions of {self.stages} stages on {len(self.ranks)} ranks>"

    @cached_property
    def version(self) -> int:
        """The oldest that has words for it."""
        every = (x for rank in self.ranks for x in rank)
        return NEWEST if any(x.op == BATCH or x.communicator for x in every) else VERSION

    @property
    def forward_only(self) -> bool:
        """Whether there is no backward at all."""
        return not any(x.op in ("I", "B", "OVERLAP") for rank in self.ranks for x in rank)

    @property
    def stages(self) -> int:
        return len(self.placement[0].ranks)

    @property
    def microbatches(self) -> int:
        return max(route.microbatches[1] for route in self.placement)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of placement and ranks."""
        lines = ([instruction_text(x, len(self.placement)) for x in rank] for rank in self.ranks)
        return fingerprint(placement_text(self.placement), lines)

    def held_by(self, rank: int) -> tuple[tuple[int, int], ...]:
        """(route, stage) of every chunk of a rank, by route, then by stage."""
        return tuple((r, s) for r, route in enumerate(self.placement) for s, at in enumerate(route.ranks) if at == rank)


def fingerprint(placement: str, ranks: Iterable[Iterable[str]]) -> str:
    """The fingerprint from the canonical texts of the placement and of every instruction, by rank."""
    digest = sha256(placement.encode())
    for rank in ranks:
        digest.update(b"\n")
        digest.update("\n".join(rank).encode())
    return digest.hexdigest()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def placement_text(placement: tuple[Route, ...]) -> str:
    """The canonical text of a placement."""
    return _compact([{"name": r.name, "ranks": r.ranks, "microbatches": r.microbatches} for r in placement])


def instruction_text(instruction: Instruction, routes: int) -> str:
    """The canonical text of an instruction, on one line."""
    return _compact(_plain(instruction, routes))


def _plain(instruction: Instruction, routes: int) -> dict[str, object]:
    made: dict[str, object] = {"op": instruction.op}
    for name in FIELDS.get(instruction.op, ("parts",)):
        if name == "parts":
            made[name] = [_plain(part, routes) for part in instruction.parts]
        elif name != "route" or routes > 1:
            made[name] = getattr(instruction, name)
    return made | ({"communicator": instruction.communicator} if instruction.communicator else {})


def text(
    name: str,
    parameters: Mapping[str, int],
    placement: str,
    ranks: Iterable[Iterable[str]],
    mark: str,
    version: int = VERSION,
) -> Iterator[str]:
    """A stream's text in pieces, one instruction a line, from the canonical texts of its parts."""
    yield "{\n"
    yield f'  "version": {version},\n  "name": {_compact(name)},\n  "parameters": {_compact(dict(parameters))},\n'
    yield f'  "placement": {placement},\n  "fingerprint": "{mark}",\n  "ranks": ['
    for number, rank in enumerate(ranks):
        yield ("," if number else "") + "\n    ["
        lines = ",\n      ".join(rank)
        yield f"\n      {lines}\n    ]" if lines else "]"
    yield "\n  ]\n}\n"


def dumps(stream: Stream) -> str:
    """The text of a stream. ``loads(dumps(x)) == x``, and the same stream gives the same bytes."""
    routes = len(stream.placement)
    lines = [[instruction_text(x, routes) for x in rank] for rank in stream.ranks]
    placement = placement_text(stream.placement)
    return "".join(text(stream.name, stream.parameters, placement, lines, stream.fingerprint, stream.version))


def loads(content: str, newest: int = NEWEST) -> Stream:
    """The stream of a text. newest: the last version that the caller knows.

    Unknown keys of the stream are ignored, as a later minor addition would be; everything else is strict.

    Raises:
        StreamError: not JSON, another version, an instruction with wrong fields, or a fingerprint that does not agree.
    """
    try:
        data = json.loads(content, object_pairs_hook=_members)
    except StreamError:
        raise
    except (ValueError, RecursionError) as error:
        raise StreamError("", f"not JSON: {error}") from None
    name, parameters, routes = header(data, newest)
    new = data["version"] > VERSION
    ranks = tuple(
        tuple(_instruction(x, f"ranks[{r}][{i}]", len(routes), new) for i, x in enumerate(_list(rank, f"ranks[{r}]")))
        for r, rank in enumerate(_list(data.get("ranks"), "ranks"))
    )
    stream = Stream(name, parameters, routes, ranks)
    _need(data.get("fingerprint") == stream.fingerprint, "fingerprint", "does not agree with placement and ranks")
    return stream


def header(data: Any, newest: int = VERSION) -> tuple[str, dict[str, int], tuple[Route, ...]]:
    """Name, parameters and placement of a stream, as JSON gives it.

    Raises:
        StreamError: another version, or one of them is no such value.
    """
    _need(isinstance(data, dict), "", "a stream is an object")
    version = data.get("version")
    known = " and ".join(map(str, range(VERSION, newest + 1)))
    right = type(version) is int and VERSION <= version <= newest
    _need(right, "version", f"this reader knows version {known}, not {version}")
    routes = tuple(_route(x, f"placement[{i}]") for i, x in enumerate(_list(data.get("placement"), "placement")))
    _need(bool(routes), "placement", "there is no route")
    _need(len({len(r.ranks) for r in routes}) == 1, "placement", "every route places every stage")
    parameters = data.get("parameters")
    _need(isinstance(parameters, dict) and all(map(_whole, parameters.values())), "parameters", "whole numbers by name")
    _need(isinstance(data.get("name"), str), "name", "a text")
    return data["name"], parameters, routes


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are different: of two equal ones some readers take the first, some the last."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise StreamError("", f"an object has the key {next(key for key in made if keys.count(key) > 1)!r} twice")
    return made


def _need(holds: bool, path: str, message: str) -> None:
    if not holds:
        raise StreamError(path, message)


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**53


def _list(value: Any, path: str) -> list[Any]:
    _need(isinstance(value, list), path, "a list")
    made: list[Any] = value
    return made


def _route(value: Any, path: str) -> Route:
    _need(
        isinstance(value, dict) and set(value) == {"name", "ranks", "microbatches"}, path, "name, ranks, microbatches"
    )
    ranks, ends = _list(value["ranks"], f"{path}.ranks"), _list(value["microbatches"], f"{path}.microbatches")
    _need(isinstance(value["name"], str), f"{path}.name", "a text")
    _need(all(_whole(x) and x >= 0 for x in ranks) and bool(ranks), f"{path}.ranks", "the rank of every stage")
    _need(
        len(ends) == 2 and all(map(_whole, ends)) and 0 <= ends[0] <= ends[1], f"{path}.microbatches", "first and end"
    )
    return Route(value["name"], tuple(ranks), (ends[0], ends[1]))


def _instruction(value: Any, path: str, routes: int, new: bool) -> Instruction:
    """new: whether words of version 2 are known."""
    op = value.get("op") if isinstance(value, dict) else None
    known = isinstance(op, str) and (op in FIELDS or (new and op == BATCH))
    _need(known, f"{path}.op", f"no instruction is called {op!r}")
    assert isinstance(op, str)
    fields = [name for name in FIELDS.get(op, ("parts",)) if name != "route" or routes > 1]
    fields += ["communicator"] if new and "communicator" in value and op.startswith(("SEND", "RECV")) else []
    _need(set(value) == {"op", *fields}, path, f"{op} has the fields op, {', '.join(fields)}".rstrip(", "))
    if fields == ["parts"]:
        listed = enumerate(_list(value["parts"], path))
        parts = tuple(_instruction(x, f"{path}.parts[{i}]", routes, new) for i, x in listed)
        made = Instruction(op, parts=parts)
        if op == BATCH:
            _need(parts == made.messages != (), f"{path}.parts", "sends and receives")
        else:
            good = len(parts) == 2 and parts[0].op == "F" and parts[1].op in ("B", "I")
            _need(good, f"{path}.parts", "an F, then a B or I")
        return made
    for name in fields:
        _need(_whole(value[name]) and value[name] >= 0, f"{path}.{name}", "a whole number from 0 up")
    _need(value.get("route", 0) < routes, f"{path}.route", f"there are {routes} routes")
    return Instruction(**value)
