"""The user's options for decisions in addition to the order."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pipesched.command import values
from pipesched.command.options import Given
from pipesched.command.values import Not
from pipesched.diagnostics import Code, fail

MODEL = "model"


@dataclass(frozen=True)
class Asked:
    """The requested decisions. partition: the number of layers to divide, 0 for all layers of the model, or None.

    embedding, head: the work of the embedding and of the head, as multiples of a layer's work.
    """

    partition: int | None = None
    embedding: Fraction | None = None
    head: Fraction | None = None


def layers(value: object) -> int:
    """Return the number of layers that an option names; 0 stands for all layers of the model."""
    if value == MODEL:
        return 0
    found = values.whole(value)
    if found < 1:
        raise Not(value, "a positive number of layers, or `model`")
    return found


def asked(given: Given) -> Asked | None:
    """Return the decisions that the options request; None if only the order is to be decided.

    Raises:
        PipeschedError: PS225: the options contradict each other.
    """
    partition = given.get("partition")
    for name in ("embedding", "head"):
        if given.get(name) is not None and partition is None:
            raise fail(Code.USAGE, f"--{name} requires --partition", help="give the number of layers as --partition N")
    if partition is None:
        return None
    for name, why in (
        ("all_m", "a partition needs a single m"),
        ("proof", "the proof for a partition is in the answer: write the answer with -o answer.json"),
    ):
        if given.get(name):
            raise fail(Code.USAGE, f"--partition contradicts --{name.replace('_', '-')}: {why}")
    if given.get("model") is not None and not partition and (given.get("embedding") or given.get("head")):
        raise fail(Code.USAGE, "--head and --embedding are given, but the model determines them", help="leave them out")
    return Asked(partition, given.get("embedding"), given.get("head"))


def stages(value: object) -> str:
    """Return ``any``, ``stages``, or a list of the stages whose F run again, as text."""
    if value in ("any", "stages"):
        return str(value)
    what = "`any`, `stages`, or a list of stages such as 0,1"
    return ",".join(map(str, sorted(set(values.wholes(value, what, range(10**9))))))


def overlap(given: Given) -> bool:
    """Return True if overlap pairs are to be decided; raise PS225 if another option contradicts this."""
    return _in_slots(given, "overlap", ("partition", "all_m", "proof", "confirm", "backward"))


def recompute(given: Given) -> str | None:
    """Return --recompute as text (see `stages`), or None; raise PS225 if another option contradicts it."""
    asked = _in_slots(given, "recompute", ("partition", "all_m", "proof", "confirm"))
    return str(given["recompute"]) if asked else None


def jitter(given: Given) -> Fraction | None:
    """Return --jitter as a share of each time, or None if not given; raise PS225 if another option contradicts it."""
    if given.get("objective") == "span" and given.get("jitter"):
        raise fail(Code.USAGE, "--jitter requires --objective makespan", help="leave out --jitter or --objective")
    asked = _in_slots(given, "jitter", ("partition", "overlap", "recompute", "all_m"))
    return Fraction(given["jitter"]) if asked else None


def lost(given: Given) -> tuple[int, int] | None:
    """Return the lost rank and the number of pipelines; None if no rank is lost.

    Raises:
        PipeschedError: PS225: the options contradict each other.
    """
    rank, pipelines = given.get("lost"), given.get("pipelines")
    if rank is None and pipelines is not None:
        raise fail(Code.USAGE, "--pipelines requires --lost", help="name the lost rank, such as --lost 1")
    if rank is None:
        return None
    others = {name: given.get(name) for name in ("partition", "overlap", "recompute", "all_m", "front")}
    others["placement any"] = given.get("placement") == "any"
    others["objective span"] = given.get("objective") == "span"
    for option in [name.replace("_", "-") for name, value in others.items() if value]:
        raise fail(Code.USAGE, f"--lost contradicts --{option}", help=f"leave out --lost or --{option}")
    if pipelines is not None and pipelines < 1:
        raise fail(
            Code.USAGE, f"{pipelines} pipelines", help="give the number of pipelines that train the model, at least 1"
        )
    return rank, pipelines or 1


def _in_slots(given: Given, own: str, others: tuple[str, ...]) -> bool:
    if not given.get(own):
        return False
    for name in others:
        if given.get(name):
            option = name.replace("_", "-")
            raise fail(Code.USAGE, f"--{own} contradicts --{option}", help=f"leave out --{own} or --{option}")
    return True
