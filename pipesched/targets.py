"""TARGETS: everything that is written for a runtime, a row each.

    name         ending  holds                                                  for
    stream       .json   every instruction, as emit/README.md has it            the runtime of pipesched, and yours
    torch-csv    .csv    the computes                                           torchtitan, NeMo AutoModel
    torch-comms  .csv    torch's sends, receives, sharding and reductions too   a runtime of torch of one version

A row's functions import what they need when they are called: the command line lists the rows and loads nothing. To add
a target is to add its writer in `formats/` and its row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pipesched.diagnostics import PipeschedError
from pipesched.safe import safe

if TYPE_CHECKING:
    from pipesched.model.program import Program
    from pipesched.model.schedule import Schedule
    from pipesched.model.torch_versions import TorchVersion

    Order: TypeAlias = Schedule | Program

Writer: TypeAlias = "Callable[[Order, Mapping[str, int]], Iterator[str]]"


@dataclass(frozen=True)
class Target:
    """What is written.

    title: for the help text. ending: of its files. messages: whether sends and receives are in it. torch: whether it is
    for torch, of a version. require: raises PS814 for what it cannot say. pieces: the text, a rank at a time. by_rank:
    each rank's own file. settings: what its reader must know, from the order, the path and the version of torch.
    """

    name: str
    title: str
    ending: str
    messages: bool
    torch: bool
    require: Callable[[Schedule, Program | None], None]
    pieces: Writer
    by_rank: Writer
    settings: Callable[[Order, str, TorchVersion], list[str]]


def _require_stream(schedule: Schedule, program: Program | None) -> None:
    from pipesched.formats import stream_write

    stream_write.routes_of(schedule.placement)
    if program is not None:
        stream_write.require_words(program)


def _require_torch(schedule: Schedule, program: Program | None) -> None:
    from pipesched.check.torch_order import check_torch_target

    if found := [*check_torch_target(schedule, program)]:
        raise PipeschedError(found)


def _stream(order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
    from pipesched.formats import stream_write
    from pipesched.model.program import Program

    assert isinstance(order, Program)
    return (safe(piece, "json") for piece in stream_write.pieces(order, parameters))


def _stream_by_rank(order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
    from pipesched.formats import stream_write
    from pipesched.model.program import Program

    assert isinstance(order, Program)
    return (safe(piece, "json") for piece in stream_write.by_rank(order, parameters))


def _torch(order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
    from pipesched.formats import torch_csv

    return torch_csv.pieces(order)


def _no_settings(order: Order, path: str, version: TorchVersion) -> list[str]:
    return []


def _trainer_settings(order: Order, path: str, version: TorchVersion) -> list[str]:
    from pipesched.formats import torch_trainer

    return torch_trainer.settings(order, path)


def _comms_settings(order: Order, path: str, version: TorchVersion) -> list[str]:
    from pipesched.formats import torch_trainer

    return torch_trainer.comms_settings(order.placement, version)


ROWS = (
    Target(
        "stream",
        "every instruction, as JSON: emit/README.md",
        ".json",
        messages=True,
        torch=False,
        require=_require_stream,
        pieces=_stream,
        by_rank=_stream_by_rank,
        settings=_no_settings,
    ),
    Target(
        "torch-csv",
        "the computes, as torchtitan and NeMo AutoModel load them; their settings go to stderr",
        ".csv",
        messages=False,
        torch=True,
        require=_require_torch,
        pieces=_torch,
        by_rank=_torch,
        settings=_trainer_settings,
    ),
    Target(
        "torch-comms",
        "torch's sends, receives, sharding and reductions too, for --torch-version",
        ".csv",
        messages=True,
        torch=True,
        require=_require_torch,
        pieces=_torch,
        by_rank=_torch,
        settings=_comms_settings,
    ),
)

TARGETS: Mapping[str, Target] = {row.name: row for row in ROWS}
