"""The words of the order notation (``emit/v2/README.md``), one row each, and the writer of orders.

A message is named by its producer, so its two ends have the same name; a gradient has the letter B, whether B or I made
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.formats import numbered
from pipesched.formats.targets import Head, Writer
from pipesched.model.numbers import ranges
from pipesched.model.ops import COMPUTES, Compute, Instruction, Op
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import TorchVersion

WORDS: Mapping[Op, str] = {
    **{op: f"{op.name}{{stage}}.{{microbatch}}" for op in COMPUTES},
    Op.SEND_F: "send:F{made}.{microbatch}>{peer}{communicator}",
    Op.RECV_F: "recv:F{made}.{microbatch}<{peer}{communicator}",
    Op.SEND_B: "send:B{made}.{microbatch}>{peer}{communicator}",
    Op.RECV_B: "recv:B{made}.{microbatch}<{peer}{communicator}",
    Op.WAIT_SEND_F: "wait:F{stage}.{microbatch}",
    Op.WAIT_SEND_B: "wait:B{stage}.{microbatch}",
    Op.REDUCE_GRAD: "reduce:{stage}",
    Op.WAIT_REDUCE_GRAD: "wait:{stage}",
    Op.SYNC: "sync:{stage}={peer}",
    Op.STEP: "step",
    Op.UNSHARD: "unshard:{stage}",
    Op.RESHARD: "reshard:{stage}",
    Op.SEND_SHAPE_F: "sendshape:F{made}.{microbatch}>{peer}{communicator}",
    Op.RECV_SHAPE_F: "recvshape:F{made}.{microbatch}<{peer}{communicator}",
    Op.SEND_SHAPE_B: "sendshape:B{made}.{microbatch}>{peer}{communicator}",
    Op.RECV_SHAPE_B: "recvshape:B{made}.{microbatch}<{peer}{communicator}",
}
"""The words by kind. made: the stage that made the message. communicator: ``@1``, or nothing for 0."""


def write(order: Schedule | Program) -> str:
    """Return the text of a compute order, or of a program with every instruction, one line per rank."""
    return "".join(lines(order))


def lines(order: Schedule | Program) -> Iterator[str]:
    """Yield the order line by line. Each word begins with its separator from the previous word."""
    for rank, (begin, end) in enumerate(pairwise(order.start.tolist())):
        here = slice(begin, end)
        columns = [order.op[here], order.second[here], order.stage[here]]
        opens = closes = np.zeros(end - begin, dtype=np.bool_)
        if isinstance(order, Program):
            opens, closes = numbered.brackets(order.group[here])
            columns += [order.peer[here], order.communicator[here], *([opens, closes] if opens.any() else [])]
        first, kind = numbered.distinct(*columns)
        texts = [(" (" * int(opens[i])) + _word(order[begin + i]) + " )" * int(closes[i]) for i in first]
        yield f"rank {rank}:{numbered.write(texts, kind, order.microbatch[here])}\n"


def _word(x: Compute | Instruction) -> str:
    """Return the word with the separator before it (a space, or + in a pair), and ``%d`` for the microbatch."""
    fields: dict[str, object] = {"stage": x.stage, "microbatch": "%d"}
    if isinstance(x, Instruction):
        fields |= {"made": x.source, "peer": x.peer, "communicator": f"@{x.communicator}" if x.communicator else ""}
    return " +"[x.second] + WORDS[x.op].format(**fields)


@dataclass(frozen=True)
class Words(Writer):
    """The order notation, one line per rank. messages: whether it includes the messages."""

    messages: bool

    def require(self, schedule: Schedule, program: Program | None) -> None:
        """Raise PipeschedError (PS814) if the stages do not form a chain: no word can name their messages."""
        if self.messages and not schedule.placement.chain:
            message = f"the order notation cannot name the messages, since {schedule.placement.skip}"
            raise fail(Code.TARGET, message, help="omit the messages: `--target order` writes only compute operations")

    def pieces(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        return lines(order)

    def settings(self, order: Schedule | Program, path: str, version: TorchVersion) -> list[str]:
        """Return a remark on frozen stages, inputs of stages and slices, which an order cannot express; [] if none."""
        placement = order.placement
        frozen = f"frozen: {ranges(placement.frozen)}" if placement.frozen else ""
        cut = f"every {placement.slices} microbatches form one sequence" if placement.slices > 1 else ""
        unsaid = [x for x in (frozen, "" if placement.chain else placement.skip, cut) if x]
        help = "give `--frozen` when you read it" if unsaid == [frozen] else "`--target ps` keeps everything"
        return [f"an order cannot express: {'; '.join(unsaid)} ({help})"] if unsaid else []


ORDER, PROGRAM = Words(messages=False), Words(messages=True)
