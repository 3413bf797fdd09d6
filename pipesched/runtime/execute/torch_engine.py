"""Runs an order with torch's own pipeline engine, after checking the program that torch makes of it.

    compute CSV ──_load_csv──> torch's lowering ──> pipeline_order_with_comms ──as CSV──> verify(text)
                                                                                           │ raises: no step runs

torch lowers the compute operations itself, adds sends and receives, and does not check the result. The lowered order is
therefore read back and verified before the first step: with ``defer_pp_recv=True``, torch 2.13 delivers activations of
ZB-V and DualPipeV into the wrong buffers without an error.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.distributed.pipelining.stage import _PipelineStageBase

from pipesched.stream import Stream

COMPUTES = ("F", "I", "W", "B", "OVERLAP")


def torch_runtime(
    order: str | PathLike[str] | Stream,
    stages: Sequence[_PipelineStageBase],
    n_microbatches: int,
    loss_fn: Callable[..., Tensor] | None = None,
    *,
    verify: Callable[[str], object] | None = None,
    **options: object,
) -> _PipelineScheduleRuntime:
    """Load an order into torch's runtime, whose ``step()`` works as in torch's other schedules.

    order: the path of a torch CSV, with or without messages, or a stream, of which only the compute operations are
    used. stages: the stages of this rank. verify: called with the program that torch will run, as the text of a CSV
    with messages; it raises if the program is wrong (`pipesched.torch_runtime` passes pipesched's own verification).
    options: the options of torch's class, such as ``scale_grads=False``.

    Raises:
        ValueError: if torch cannot run the stream: a stage has two copies, or reads a stage other than the previous
            one.
        Exception: any exception that `verify` or torch raises.
    """
    made: Callable[..., _PipelineScheduleRuntime] = _PipelineScheduleRuntime
    runtime = made(list(stages), n_microbatches, loss_fn=loss_fn, **options)
    with _file(order) as path:
        text = path.read_text("utf-8")
        messages = any(word in text for word in ("SEND", "RECV", "SHARD", "REDUCE"))
        runtime._load_csv(str(path), format="compute_comms" if messages else "compute_only")
    if verify is not None:
        verify(lowered(runtime))
    return runtime


def lowered(runtime: _PipelineScheduleRuntime) -> str:
    """Return the order that torch's runtime executes, as the text of a CSV with messages, one row per rank."""
    orders: Mapping[int, Sequence[object]] = runtime.pipeline_order_with_comms
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([map(str, orders[rank]) for rank in sorted(orders)])
    return written.getvalue()


def computes(stream: Stream) -> str:
    """Return the compute operations of a stream as the text of a torch CSV.

    Raises:
        ValueError: if the stream has two copies of a stage, or if a stage reads a stage other than the previous one:
        torch's engine supports neither.
    """
    if stream.reads:
        raise ValueError(
            f"{stream.name}: stage {min(stream.reads)} reads a stage other than the previous one, but the stages of "
            "torch's engine are a chain; run it with pipesched.runtime"
        )
    if len(stream.placement) > 1:
        raise ValueError(
            f"{stream.name}: torch's engine has one rank for each stage, but this stream has {len(stream.placement)} "
            "routes; run it with pipesched.runtime"
        )
    rows = (
        ",".join(str(x).replace("OVERLAP", "OVERLAP_F_B") for x in rank if x.op in COMPUTES) for rank in stream.ranks
    )
    return "".join(f"{row}\n" for row in rows)


@contextmanager
def _file(order: str | PathLike[str] | Stream) -> Iterator[Path]:
    """Yield the path of a CSV, which torch requires."""
    if not isinstance(order, Stream):
        yield Path(order)
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_text(computes(order), "utf-8")
        yield path
