"""One word of an order (`formats.order_text`): the whole word must be an operation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pipesched.formats.rows import LARGEST, number
from pipesched.model.ops import Instruction, Op

HELP = "words are F0.1, F3.1+B2.0, send:F0.1>1, recv:F0.1<0, wait:F0.1, reduce:2, sync:2=5, step, unshard:2, reshard:2"


@dataclass(frozen=True, slots=True)
class Bad:
    """Why a word is refused. `beyond` tells a number that is too large from a text that is no word."""

    reason: str
    help: str = HELP
    beyond: bool = False


Fields = tuple[str, ...]
Maker = Callable[[Fields], Instruction]

_MESSAGE = {
    ("send", "F"): (Op.SEND_F, 0),
    ("send", "B"): (Op.SEND_B, 0),
    ("recv", "F"): (Op.RECV_F, 1),
    ("recv", "B"): (Op.RECV_B, -1),
}
"""The operation, and how far its own stage is from the producer's, after which the word is named."""


def _message(fields: Fields) -> Instruction:
    verb, letter, stage, microbatch, peer, communicator = fields
    op, step = _MESSAGE[verb, letter]
    own = number(stage) + step
    return Instruction(op, own, number(microbatch), number(peer), communicator=number(communicator or ""))


def _wait(fields: Fields) -> Instruction:
    letter, stage, microbatch = fields
    return Instruction(Op.WAIT_SEND_F if letter == "F" else Op.WAIT_SEND_B, number(stage), number(microbatch))


_STAGE_WORDS = {
    "reduce": Op.REDUCE_GRAD,
    "wait": Op.WAIT_REDUCE_GRAD,
    "unshard": Op.UNSHARD,
    "reshard": Op.RESHARD,
}

_NUMBER = "([0-9]+)"

_WORDS: tuple[tuple[re.Pattern[str], Maker], ...] = tuple(
    (re.compile(pattern), maker)
    for pattern, maker in (
        (rf"([FIWB]){_NUMBER}\.{_NUMBER}", lambda f: Instruction(Op[f[0]], number(f[1]), number(f[2]))),
        (rf"(send):([FB]){_NUMBER}\.{_NUMBER}>{_NUMBER}(?:@{_NUMBER})?", _message),
        (rf"(recv):([FB]){_NUMBER}\.{_NUMBER}<{_NUMBER}(?:@{_NUMBER})?", _message),
        (rf"wait:([FB]){_NUMBER}\.{_NUMBER}", _wait),
        (rf"(reduce|wait|unshard|reshard):{_NUMBER}", lambda f: Instruction(_STAGE_WORDS[f[0]], number(f[1]))),
        (rf"sync:{_NUMBER}={_NUMBER}", lambda f: Instruction(Op.SYNC, number(f[0]), peer=number(f[1]))),
        (r"(step)", lambda _: Instruction(Op.STEP)),
    )
)

_OF_VERB: dict[str, tuple[tuple[re.Pattern[str], Maker], ...]] = {
    verb: tuple(row for row in _WORDS if verb in row[0].pattern)
    for verb in ("send", "recv", "wait", "reduce", "unshard", "reshard", "sync", "step")
}
_COMPUTE = _WORDS[:1]
_WIDE = re.compile(f"[0-9]{{{len(str(LARGEST))},}}")
_GRADIENT_OF_I = re.compile(r"(send|recv|wait):I")


def read_word(text: str, group: int) -> tuple[Instruction, ...] | Bad:
    """The instruction of a word, or the two of an overlap pair, in the batch `group` (-1: none)."""
    first, plus, rest = text.partition("+")
    if not plus and group < 0:
        alone = _one(first)
        return (alone,) if isinstance(alone, Instruction) else _no_operation(text, alone)
    instructions = []
    for part, second in ((first, False), (rest, True)) if plus else ((first, False),):
        found = _one(part)
        if isinstance(found, Bad):
            return _no_operation(text, found)
        instructions.append((found, second))
    if plus and not _pair(instructions[0][0], instructions[1][0]):
        return Bad(f"{_short(text)!r} is no overlap pair", "a pair is an F, then a B or an I, as in F3.1+B2.0")
    return tuple(
        Instruction(x.op, x.stage, x.microbatch, x.peer, group, x.communicator, second) for x, second in instructions
    )


def _no_operation(text: str, why: Bad) -> Bad:
    return Bad(f"{_short(text)!r} is no operation: {why.reason}", why.help, why.beyond)


def _pair(first: Instruction, second: Instruction) -> bool:
    return first.op is Op.F and second.op in (Op.B, Op.I)


def _one(text: str) -> Instruction | Bad:
    for pattern, maker in _OF_VERB.get(text.partition(":")[0], _COMPUTE):
        match = pattern.fullmatch(text)
        if match is not None:
            beyond = next((x for x in _WIDE.findall(text) if number(x) > LARGEST), None)
            if beyond is not None:
                return Bad(f"{_short(beyond)} is beyond the limit of {LARGEST:,}", beyond=True)
            return _checked(maker(match.groups()))
    if _GRADIENT_OF_I.match(text):
        return Bad("a gradient bears the letter B, whether B or I made it", "write send:B3.0>1")
    return Bad("it is not in the notation of orders")


def _checked(instruction: Instruction) -> Instruction | Bad:
    """A gradient of stage 0 has no receiver."""
    if instruction.stage < 0 and instruction.op is Op.RECV_B:
        return Bad("stage 0 makes no gradient that anybody could receive")
    return instruction


def _short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
