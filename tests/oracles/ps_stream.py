"""Checks a stream by its contract (emit/README.md) against the slots of a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

from tests.oracles.ps_interpreter import GRADIENT, Model, Slot

Message = tuple[str, int, int, int]  # F or G, from which stage, to which stage, of which microbatch


def message(x: dict[str, Any]) -> Message:
    letter, stage = x["op"][-1], x["stage"]
    near = 1 if (x["op"][:4] == "SEND") == (letter == "F") else -1
    other = x.get("other", stage + near)
    ends = (stage, other) if x["op"][:4] == "SEND" else (other, stage)
    return ("F" if letter == "F" else "G", *ends, x["microbatch"])


def require(stream: dict[str, Any], model: Model, slots: Sequence[Sequence[Slot]], wanted: Collection[Message]) -> None:
    """Require that its computes are the slots, its messages the needed ones, once each; that it finishes if sends wait
    for receives; that inputs exist before use; and that gradients are reduced when complete.
    """
    assert len(stream["ranks"]) == len(slots)
    assert stream["fingerprint"] == fingerprint(stream)
    for x in (part for list_ in stream["ranks"] for one in list_ for part in one.get("parts", [one])):
        assert [*x] == fields(x, len(model.homes)), x
    for rank, list_ in enumerate(stream["ranks"]):
        made: list[Slot] = []
        for x in list_:
            parts = x.get("parts", [x])
            if parts[0]["op"] in ("F", "I", "W", "B", "R", "O", "L"):
                made.append(tuple((part["op"], part["stage"], part["microbatch"]) for part in parts))
                assert all(part.get("route", 0) == model.route(part["microbatch"]) for part in parts)
        assert made == slots[rank]
        reduced(list_, model, rank, slots)
    delivered = run(stream["ranks"], model)
    assert len(delivered) == len(wanted) and {*delivered} == {*wanted}


def fields(x: dict[str, Any], routes: int) -> list[str]:
    """Return the fields of an instruction, in order; the neighbour is implied."""
    if x["op"] in ("STEP", "REDUCE_GRAD", "SYNC"):
        return {"STEP": ["op"], "REDUCE_GRAD": ["op", "stage"], "SYNC": ["op", "stage", "peer"]}[x["op"]]
    found = ["op", "stage", "microbatch", *(["route"] if routes > 1 else [])]
    if "_" in x["op"]:
        kind, source, target, _ = message(x)
        found += ["peer", *(["other"] if abs(source - target) > 1 or (source < target) != (kind == "F") else [])]
    return found


def fingerprint(stream: dict[str, Any]) -> str:
    """By the contract: SHA-256 of the placement, of the properties of the model, and of the instructions by rank."""

    def text(value: object) -> str:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    model = [text(stream[key]) for key in ("frozen", "reads", "slices") if key in stream]
    lists = ["\n".join(map(text, list_)) for list_ in stream["ranks"]]
    return sha256("\n".join([text(stream["placement"]), *model, *lists]).encode()).hexdigest()


def run(ranks: Sequence[Sequence[dict[str, Any]]], model: Model) -> list[Message]:
    """Return the messages of a run in which every send waits until its receive is reached."""
    at, delivered = [0] * len(ranks), list[Message]()
    there: list[set[tuple[str, int, int]]] = [set() for _ in ranks]
    got: list[set[Message]] = [set() for _ in ranks]
    sums = {(rank, s): {rank} for rank in range(len(ranks)) for _, s in model.chunks(rank)}
    moved = True
    while moved:
        moved = False
        for rank, list_ in enumerate(ranks):
            while at[rank] < len(list_) and alone(list_[at[rank]], rank, model, there, got):
                at[rank] += 1
                moved = True
            if at[rank] == len(list_):
                continue
            x = list_[at[rank]]
            peer = x["peer"]
            y = ranks[peer][at[peer]] if at[peer] < len(ranks[peer]) else {}
            if x["op"].startswith("SEND") and y.get("op", "").startswith("RECV") and y["peer"] == rank:
                one = message(x)
                assert one == message(y) and (one[0], one[1], one[3]) in there[rank]
                delivered.append(one)
                got[peer].add(one)
            elif x["op"] == y.get("op") == "SYNC" and y["peer"] == rank and x["stage"] == y["stage"]:
                mine, theirs = sums[rank, x["stage"]], sums[peer, x["stage"]]
                assert not mine & theirs
                sums[rank, x["stage"]] = sums[peer, x["stage"]] = mine | theirs
            else:
                continue
            at[rank] += 1
            at[peer] += 1
            moved = True
    assert all(at[rank] == len(list_) for rank, list_ in enumerate(ranks))
    trained = {x["stage"] for list_ in ranks for x in list_ if x["op"] == "REDUCE_GRAD"}
    assert all(sums[rank, s] == {row[s] for row in model.homes} for rank, s in sums if s in trained)
    return delivered


def alone(
    x: dict[str, Any],
    rank: int,
    model: Model,
    there: Sequence[set[tuple[str, int, int]]],
    got: Sequence[set[Message]],
) -> bool:
    """Return True if an instruction needs no other rank; a compute takes its inputs, and leaves its outputs."""
    if "peer" in x:
        return False
    parts = x.get("parts", [x])
    for part in parts:
        letter, s, i = part["op"], part.get("stage", -1), part.get("microbatch", -1)
        if letter == "F":
            near, of = [t for t in model.reads[s] if t >= 0], "F"
        elif letter in GRADIENT:
            near, of = model.readers(s), "G"
            assert ("F", s, i) in there[rank]
        else:
            continue
        for t in near:
            assert (of, t, i) in there[rank] if model.home(t, i) == rank else (of, t, s, i) in got[rank]
    there[rank].update(
        ("F" if part["op"] == "F" else "G", part["stage"], part["microbatch"])
        for part in parts
        if part["op"] in ("F", *GRADIENT)
    )
    return True


def reduced(list_: Sequence[dict[str, Any]], model: Model, rank: int, slots: Sequence[Sequence[Slot]]) -> None:
    """REDUCE_GRAD once for each trained stage that runs here, after its last W or B; then each SYNC, and STEP."""
    last: dict[int, int] = {}
    reductions: dict[int, int] = {}
    for at, x in enumerate(list_):
        for part in x.get("parts", [x]):
            if part["op"] in ("W", "B"):
                last[part["stage"]] = at
        if x["op"] == "REDUCE_GRAD":
            assert x["stage"] not in reductions
            reductions[x["stage"]] = at
        elif x["op"] == "SYNC":
            assert x["stage"] in reductions or x["stage"] not in last
    backward = any(step[0] in "IWB" for other in slots for slot in other for step in slot)
    assert {*reductions} == {*last} - model.frozen and all(reductions[s] > last.get(s, -1) for s in reductions)
    assert [x["op"] for x in list_].count("STEP") == backward and (not backward or list_[-1]["op"] == "STEP")
