"""The published form of a program: instruction streams, versions 2 and 3. Contract: ``emit/README.md``.

A stream is plain data: this module needs only the standard library, and a runtime needs only this module. The
fingerprint is the SHA-256 of the canonical text of placement and ranks; ranks that agree on it run the same program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeGuard

VERSION = 2
STEPPED = 3
"""The version of streams with STEPs inside the order, SYNCs of any number of copies, or stages that a route skips."""
_TOO_LARGE = 2**53  # for a double, since some JSON readers convert every number to a double

COMPUTES = ("F", "I", "W", "B", "R", "O", "L")
"""The instructions that compute or copy for a microbatch."""

# The fields of each instruction, in the order in which they are written.
FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(COMPUTES, ("stage", "microbatch", "route")),
    **dict.fromkeys(
        ("SEND_F", "RECV_F", "SEND_B", "RECV_B"), ("stage", "microbatch", "route", "peer", "other", "communicator")
    ),
    **dict.fromkeys(("WAIT_SEND_F", "WAIT_SEND_B"), ("stage", "microbatch", "route", "other")),
    **dict.fromkeys(("OVERLAP", "BATCH"), ("parts",)),
    **dict.fromkeys(("REDUCE_GRAD", "WAIT_REDUCE_GRAD", "UNSHARD", "RESHARD"), ("stage",)),
    "SYNC": ("stage", "peer"),
    "STEP": ("stage",),  # in version 3 only
}
BATCH = "BATCH"
"""An instruction whose parts are messages that are posted together."""

OVERLAPS = (("F", "B"), ("F", "I"), ("F", "W"), ("I", "W"))
"""The kinds of the parts of an OVERLAP."""

DEFAULTS: Mapping[str, int] = {"other": -1, "communicator": 0}
"""Fields that are omitted if they have the given value."""

NEIGHBOUR: Mapping[str, int] = {
    **dict.fromkeys(("SEND_F", "RECV_B", "WAIT_SEND_F"), 1),
    **dict.fromkeys(("SEND_B", "RECV_F", "WAIT_SEND_B"), -1),
}
"""The stage at the other end of a message in a chain, relative to its own stage."""


class StreamError(ValueError):
    """Raised for text that is not a stream, with the fault and its place, such as ``ranks[0][3].stage``."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path, self.message = path, message


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a rank. `stage` is the stage of this rank, for RECV_F and SEND_B too.

    route: omitted in the text if the placement has one route. parts: in an OVERLAP, the operations, as in `OVERLAPS`;
    in a BATCH, the messages. other: the stage at the other end of a message, -1 for the neighbour.
    """

    op: str
    stage: int = -1
    microbatch: int = -1
    route: int = 0
    peer: int = -1
    parts: tuple[Instruction, ...] = ()
    communicator: int = 0
    other: int = -1

    @property
    def messages(self) -> tuple[Instruction, ...]:
        """The sends and receives that the instruction consists of."""
        return tuple(x for x in self.parts or (self,) if x.op.startswith(("SEND", "RECV")))

    def __str__(self) -> str:
        """Return torch's notation: ``0F1``, ``2RECV_F0``, ``(3F0;3B1)OVERLAP``; ``1SEND_F0>4`` over a distance."""
        if self.parts:
            return f"({';'.join(map(str, self.parts))}){self.op}"
        stage = "" if self.stage < 0 else str(self.stage)
        far = "" if self.other < 0 else f"{'<' if self.op.startswith('RECV') else '>'}{self.other}"
        return f"{stage}{self.op}{'' if self.microbatch < 0 else self.microbatch}{far}"


@dataclass(frozen=True, slots=True)
class Route:
    """A route: the rank of every stage, and the microbatches that take the route, from first to end (exclusive)."""

    name: str
    ranks: tuple[int, ...]
    microbatches: tuple[int, int]


@dataclass(frozen=True)
class Stream:
    """A program as published. `ranks[r]` are the instructions of rank r, in order.

    frozen: the stages that are not trained. reads: for stages that do not read exactly the previous stage, the stages
    that they read, the nearest first; -1 is the input of the model. slices: the number of consecutive microbatches that
    are the slices of one sequence. versions: ``stash``, ``latest`` or ``delay 1`` if STEPs are inside. sync: ``any`` if
    the number of copies of a synced stage is not a power of 2. Both need version 3, and so does a stage on rank -1,
    which its route skips.
    """

    name: str
    parameters: Mapping[str, int]
    placement: tuple[Route, ...]
    ranks: tuple[tuple[Instruction, ...], ...]
    frozen: tuple[int, ...] = ()
    reads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    slices: int = 1
    versions: str = ""
    sync: str = ""

    def __repr__(self) -> str:
        count = sum(map(len, self.ranks))
        return f"<Stream {self.name}: {count} instructions of {self.stages} stages on {len(self.ranks)} ranks>"

    @property
    def forward_only(self) -> bool:
        """True if the stream has no backward."""
        return not any(x.op in ("I", "B", "OVERLAP") for rank in self.ranks for x in rank)

    @property
    def stages(self) -> int:
        return len(self.placement[0].ranks)

    @property
    def microbatches(self) -> int:
        return max(route.microbatches[1] for route in self.placement)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of placement and ranks, in hexadecimal."""
        lines = ([instruction_text(x, len(self.placement)) for x in rank] for rank in self.ranks)
        return fingerprint(self.head, lines)

    @property
    def head(self) -> str:
        """The canonical text of the placement, and of frozen stages, readers and slices, if there are any."""
        return "\n".join(filter(None, (placement_text(self.placement), *self.model.values())))

    @property
    def version(self) -> int:
        """The version of the contract that the stream needs."""
        out = any(-1 in route.ranks for route in self.placement)
        return STEPPED if self.versions or self.sync or out else VERSION

    def copies(self, stage: int) -> list[int]:
        """Return the ranks that hold a copy of the stage, ascending."""
        return sorted({route.ranks[stage] for route in self.placement} - {-1})

    @property
    def model(self) -> dict[str, str]:
        """The canonical texts of frozen stages, readers, slices and versions, by key; empty ones are omitted."""
        reads = {str(stage): self.reads[stage] for stage in sorted(self.reads)}
        said = {"frozen": self.frozen, "reads": reads, "slices": self.slices * (self.slices > 1)}
        said |= {"versions": self.versions, "sync": self.sync}
        return {key: _compact(value) for key, value in said.items() if value}

    def read(self, stage: int, route: int = -1) -> tuple[int, ...]:
        """Return the stages that a stage reads, the nearest first; -1 is the input of the model. route: if given, a
        route that skips some stages.
        """
        source = stage - 1
        while route >= 0 < source and self.placement[route].ranks[source] < 0:
            source -= 1
        return self.reads.get(stage, (source,))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The stages that read each stage, the nearest first."""
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for stage in range(self.stages):
            for source in self.read(stage):
                if source >= 0:
                    found[source].append(stage)
        return tuple(map(tuple, found))

    def held_by(self, rank: int) -> tuple[tuple[int, int], ...]:
        """Return (route, stage) of every chunk of a rank, by route, then by stage."""
        return tuple((r, s) for r, route in enumerate(self.placement) for s, at in enumerate(route.ranks) if at == rank)


def meetings(copies: Sequence[int]) -> list[tuple[int, int]]:
    """Return, in order, the pairs of ranks whose copies of a stage SYNC, so that all get the sum. copies: ascending.

    With four copies these are 0 and 1, 2 and 3, then 0 and 2, 1 and 3. A number that is not a power of 2 needs
    additional rounds before and after: with three copies 0 and 2, 0 and 1, then 1 and 2, in which 2 takes the sum.
    """
    whole = 1 << len(copies).bit_length() >> 1
    early = [(i, whole + i) for i in range(len(copies) - whole)]
    rounds = [
        (i, i | bit) for k in range(whole.bit_length() - 1) for bit in [1 << k] for i in range(whole) if not i & bit
    ]
    late = [(i + 1, whole + i) for i, _ in early]
    return [(copies[i], copies[j]) for i, j in early + rounds + late]


def fingerprint(head: str, ranks: Iterable[Iterable[str]]) -> str:
    """Return the fingerprint of the canonical texts of the head and of every instruction, by rank."""
    from hashlib import sha256

    digest = sha256(head.encode())
    for rank in ranks:
        digest.update(b"\n")
        digest.update("\n".join(rank).encode())
    return digest.hexdigest()


_NO_STAGE = ("stage", -1)
_RULE = re.compile(r"stash|latest|delay (0|[1-9][0-9]{0,8})")
_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def placement_text(placement: tuple[Route, ...]) -> str:
    """Return the canonical text of a placement."""
    return _compact([{"name": r.name, "ranks": r.ranks, "microbatches": r.microbatches} for r in placement])


def instruction_text(instruction: Instruction, routes: int) -> str:
    """Return the canonical text of an instruction, on one line."""
    return _compact(_plain(instruction, routes))


def _plain(instruction: Instruction, routes: int) -> dict[str, object]:
    if "parts" in FIELDS[instruction.op]:
        return {"op": instruction.op, "parts": [_plain(part, routes) for part in instruction.parts]}
    named = {name: getattr(instruction, name) for name in FIELDS[instruction.op] if name != "route" or routes > 1}
    shown = {name: value for name, value in named.items() if value != DEFAULTS.get(name) and (name, value) != _NO_STAGE}
    return {"op": instruction.op, **shown}


def text(head: Stream, ranks: Iterable[Iterable[str]], mark: str) -> Iterator[str]:
    """Yield the text of a stream in pieces, an instruction per line. mark: its fingerprint. ranks: canonical texts."""
    yield f'{{\n  "version": {head.version},\n  "name": {_compact(head.name)},\n'
    yield f'  "parameters": {_compact(dict(head.parameters))},\n  "placement": {placement_text(head.placement)},\n'
    yield from (f'  "{key}": {value},\n' for key, value in head.model.items())
    yield f'  "fingerprint": "{mark}",\n  "ranks": ['
    for number, rank in enumerate(ranks):
        yield ("," if number else "") + "\n    ["
        lines = ",\n      ".join(rank)
        yield f"\n      {lines}\n    ]" if lines else "]"
    yield "\n  ]\n}\n"


def dumps(stream: Stream) -> str:
    """Return the text of a stream. ``loads(dumps(x)) == x``, and the same stream gives the same bytes."""
    routes = len(stream.placement)
    lines = [[instruction_text(x, routes) for x in rank] for rank in stream.ranks]
    return "".join(text(stream, lines, stream.fingerprint))


def loads(content: str) -> Stream:
    """Parse the text of a stream.

    Unknown keys of the stream are ignored, so that later versions can add keys; everything else is strict.

    Raises:
        StreamError: if it is not JSON, or has an unknown version, an instruction with wrong fields, or a wrong
        fingerprint.
    """
    try:
        data = json.loads(content, object_pairs_hook=_members)
    except StreamError:
        raise
    except (ValueError, RecursionError) as error:
        raise StreamError("", f"not JSON: {error}") from None
    head = header(data)
    ranks = tuple(
        tuple(_listed(x, f"ranks[{r}][{i}]", head) for i, x in enumerate(_list(rank, f"ranks[{r}]")))
        for r, rank in enumerate(_list(data.get("ranks"), "ranks"))
    )
    stream = replace(head, ranks=ranks)
    synced = {x.stage for rank in ranks for x in rank if x.op == "SYNC" and 0 <= x.stage < stream.stages}
    odd = any(len(copies) & len(copies) - 1 for copies in map(stream.copies, synced))
    _need(odd == bool(stream.sync), "sync", "`any` if the number of copies of a synced stage is not a power of 2")
    _need(data.get("fingerprint") == stream.fingerprint, "fingerprint", "does not match the placement and the ranks")
    return stream


def header(data: object) -> Stream:
    """Return the stream of JSON data, without its ranks.

    Raises:
        StreamError: if it is not version 2 or 3, or a name, parameter, placement or frozen stage is invalid.
    """
    if not isinstance(data, dict):
        raise StreamError("", "a stream must be an object")
    version = data.get("version")
    known = type(version) is int and version in (VERSION, STEPPED)
    _need(known, "version", f"this reader supports versions {VERSION} and {STEPPED}, not {json.dumps(version)[:40]}")
    later = version == STEPPED
    listed = enumerate(_list(data.get("placement"), "placement"))
    routes = tuple(_route(x, f"placement[{i}]", -later) for i, x in listed)
    _need(bool(routes), "placement", "there is no route")
    _need(len({len(r.ranks) for r in routes}) == 1, "placement", "every route must place every stage")
    parameters = data.get("parameters")
    if not isinstance(parameters, dict) or not all(map(_whole, parameters.values())):
        raise StreamError("parameters", "whole numbers by name")
    _need(isinstance(data.get("name"), str), "name", "a string")
    stages = len(routes[0].ranks)
    trained = "existing stages, ascending; omitted if all are trained"
    frozen = _numbers(data["frozen"], "frozen", trained, 0, stages) if "frozen" in data else ()
    _need(sorted({*frozen}) == [*frozen], "frozen", trained)
    reads = _reads(data["reads"], stages) if "reads" in data else {}
    slices = data.get("slices", 1)
    cut = "slices" not in data or (_whole(slices) and slices > 1)
    cut = cut and not any(end % slices for route in routes for end in route.microbatches)
    _need(cut, "slices", "the number of microbatches per sequence, on one route; omitted if it is 1")
    said = _later(data) if later else {}
    made = Stream(data["name"], parameters, routes, (), frozen, reads=reads, slices=slices, **said)
    _need(made.version == version, "versions", "use version 3 only for streams that version 2 cannot express")
    return made


def _later(data: Mapping[str, object]) -> dict[str, str]:
    """Return the keys of version 3 that the stream contains."""
    _need(data.get("sync", "any") == "any", "sync", "`any`, in version 3")
    rule = {"versions": _rule(data["versions"])} if "versions" in data else {}
    return {**rule, "sync": "any"} if "sync" in data else rule


def _rule(value: object) -> str:
    if not isinstance(value, str) or _RULE.fullmatch(value) is None:
        raise StreamError("versions", "`stash`, `latest` or `delay 1`, in version 3")
    return value


def _reads(value: object, stages: int) -> dict[int, tuple[int, ...]]:
    """Return the stages that each stage reads; every stage but the last must be read."""
    if not isinstance(value, dict) or not value:
        raise StreamError("reads", "stages by the stage that reads them")
    known = {str(stage): stage for stage in range(stages)} if len(value) <= stages else {}
    found: dict[int, tuple[int, ...]] = {}
    for key, given in value.items():
        _need(key in known, "reads", f"stage {key} does not exist")
        stage, path, nearest = known[key], f"reads.{key}", "earlier stages, the nearest first"
        found[stage] = _numbers(given, path, nearest, -1, stage)
        _need(sorted({*found[stage]}, reverse=True) == [*found[stage]], path, nearest)
        _need(found[stage] != (stage - 1,), path, "omit it if it contains only the previous stage")
    read_by = {source for stage in range(stages) for source in found.get(stage, (stage - 1,))}
    unread = next((stage for stage in range(stages - 1) if stage not in read_by), None)
    _need(unread is None, "reads", f"no stage reads stage {unread}")
    return found


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; raise StreamError for a repeated key, which JSON readers treat differently."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise StreamError("", f"an object has the key {next(key for key in made if keys.count(key) > 1)!r} twice")
    return made


def _need(holds: bool, path: str, message: str) -> None:
    if not holds:
        raise StreamError(path, message)


def _whole(value: object) -> TypeGuard[int]:
    return type(value) is int and abs(value) < _TOO_LARGE


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise StreamError(path, "a list")
    return value


def _numbers(value: object, path: str, wanted: str, low: int = 0, end: int = _TOO_LARGE) -> tuple[int, ...]:
    """Return the integers of a nonempty list, all at least `low` and below `end`."""
    listed = _list(value, path)
    numbers = tuple(x for x in listed if _whole(x) and low <= x < end)
    _need(len(numbers) == len(listed) > 0, path, wanted)
    return numbers


def _route(value: object, path: str, least: int) -> Route:
    if not isinstance(value, dict) or set(value) != {"name", "ranks", "microbatches"}:
        raise StreamError(path, "name, ranks, microbatches")
    _need(isinstance(value["name"], str), f"{path}.name", "a string")
    ranks = _numbers(value["ranks"], f"{path}.ranks", "the rank of every stage", least)
    ends = _numbers(value["microbatches"], f"{path}.microbatches", "first and end")
    _need(len(ends) == 2 and ends[0] <= ends[1], f"{path}.microbatches", "first and end")
    return Route(value["name"], ranks, (ends[0], ends[1]))


def _listed(value: object, path: str, head: Stream) -> Instruction:
    """Return an instruction of a rank's list."""
    made = _instruction(value, path, len(head.placement))
    if made.op == "STEP":
        _need(
            (made.stage >= 0) == bool(head.versions),
            path,
            f"with `versions` (version {STEPPED}), and only then, STEP has a stage",
        )
    return made


def _instruction(value: object, path: str, routes: int) -> Instruction:
    op = value.get("op") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(op, str) or op not in FIELDS:
        raise StreamError(f"{path}.op", f"no instruction is called {op!r}")
    fields = [name for name in FIELDS[op] if name != "route" or routes > 1]
    given = [name for name in fields if (name not in DEFAULTS and op != "STEP") or name in value]
    _need(set(value) == {"op", *given}, path, f"{op} has the fields op, {', '.join(fields)}".rstrip(", "))
    if "parts" in fields:
        return _compound(op, _list(value["parts"], f"{path}.parts"), f"{path}.parts", routes)
    for name in given:
        _need(_whole(value[name]) and value[name] >= 0, f"{path}.{name}", "a nonnegative whole number")
    _need(value.get("route", 0) < routes, f"{path}.route", f"there are {routes} routes")
    _need(value.get("communicator") != 0, f"{path}.communicator", "omit it if it is 0")
    near = value.get("other", -1) == value.get("stage", 0) + NEIGHBOUR.get(op, 0)
    _need("other" not in value or not near, f"{path}.other", "omit it if it is the neighbouring stage")
    return Instruction(**value)


def _compound(op: str, listed: list[object], path: str, routes: int) -> Instruction:
    """Return an OVERLAP or a BATCH."""
    parts = tuple(_instruction(x, f"{path}[{i}]", routes) for i, x in enumerate(listed))
    made = Instruction(op, parts=parts)
    if op == BATCH:
        _need(parts == made.messages != (), path, "sends and receives")
    else:
        good = len(parts) == 2 and (parts[0].op, parts[1].op) in OVERLAPS
        _need(good, path, "an F and then a B, I or W; or an I and then a W")
    return made
