"""FRAMEWORKS: one row per source of schedules that are not in a file: ``FRAMEWORK:NAME``, with options by ``-D``.

    torch:Interleaved1F1B       a schedule class of the installed torch
    megatron:interleaved        Megatron-core's own pipeline code, on tokens
    deepspeed:TrainSchedule     a schedule class of DeepSpeed's pipeline engine, or of your own
    python:module:function      your own function, from the current folder or a package

A row's recorder is a module that runs in a process of its own (`recording`), with the framework and without the rest
of pipesched. A new framework needs its recorder and a row here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import ClassVar

from pipesched.support.source import Source


@dataclass(frozen=True)
class Framework:
    """A framework that gives schedules.

    title: text that says what is executed. package: the package that must be installed, or empty. recorder: our module
    that runs it. tried: versions that it was tried with, as the beginnings of their numbers. names: names that may
    follow the colon. options: options of ``-D`` besides p, v and m, each with its meaning. open: the recorder takes
    more options than these.
    """

    name: str
    title: str
    package: str
    recorder: str
    tried: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    open: bool = False


@dataclass(frozen=True, repr=False)
class Call(Source):
    """Source that names a schedule of a framework; its text is that name."""

    origin: ClassVar[str] = "framework"

    @property
    def framework(self) -> Framework:
        """The framework that the text names."""
        return FRAMEWORKS[self.text.partition(":")[0]]


def call(target: str) -> Call | None:
    """Make the call that a target names, None if it names no framework."""
    name, colon, _ = target.partition(":")
    return Call(target, target) if colon and name in FRAMEWORKS else None


def entries() -> list[dict[str, object]]:
    """Rows of all frameworks for the JSON of `list`."""
    rows = FRAMEWORKS.values()
    return [{"name": x.name, "title": x.title, "schedules": x.names, "tried": x.tried} for x in rows]


def lines() -> Iterator[str]:
    """Lines of text: all frameworks with their schedules."""
    for row in FRAMEWORKS.values():
        yield f"{row.name}:NAME  {row.title}"
        yield f"    {', '.join(row.names)}"


def names() -> list[str]:
    """Known schedule names of all frameworks, each after its framework and a colon."""
    return [f"{row.name}:{name}" for row in FRAMEWORKS.values() for name in row.names]


def meant(target: str) -> str | None:
    """Help for a target that names an unknown framework; None if it names no framework."""
    name, colon, rest = target.partition(":")
    if not (colon and rest and name.isidentifier()) or len(name) == 1:  # a Windows drive
        return None
    near = get_close_matches(name.lower(), FRAMEWORKS, 1, 0.8)
    return f"did you mean `{near[0]}:{rest}`?" if near else f"frameworks are {', '.join(FRAMEWORKS)}"


_ROWS = (
    Framework(
        "torch",
        "a schedule class of torch.distributed.pipelining: the program that it runs",
        "torch",
        "torch_schedule",
        ("2.10", "2.11", "2.12", "2.13", "2.14", "2.15"),
        names=(
            "GPipe",
            "1F1B",
            "LoopedBFS",
            "Interleaved1F1B",
            "InterleavedZeroBubble",
            "ZBVZeroBubble",
            "DualPipeV",
        ),
        options={
            "lowered": "false: its computes alone, without messages",
            "defer_pp_recv": "true: receives are posted late (2.13 on)",
            "max_active_stages": "stages gathered at once under FSDP (2.15)",
            "unshard_lookahead": "full or auto (2.15)",
            "defer_reduce_grad_wait": "true: reductions are waited for late (2.15)",
            "max_outstanding_sends": "sends under way at once (2.15)",
        },
        open=True,
    ),
    Framework(
        "deepspeed",
        "a PipeSchedule of DeepSpeed, and its buffers",
        "deepspeed",
        "deepspeed",
        ("0.9", "0.12", "0.14", "0.16", "0.18", "0.19"),
        names=("TrainSchedule", "InferenceSchedule", "DualPipeVSchedule", "module:Class", "path/to/file.py:Class"),
        options={"forward_only": "true: evaluation (DualPipeVSchedule)"},
        open=True,
    ),
    Framework(
        "python",
        "a function that gives rows of cells or words, a dict from rank to actions, or yields them",
        "",
        "python_function",
        names=("module:function", "path/to/file.py:function"),
        open=True,
    ),
    Framework(
        "megatron",
        "the pipeline code of an installed megatron-core, on tokens",
        "megatron-core",
        "megatron",
        tried=("0.9.0", "0.10.0", "0.11.0", "0.12.1", "0.13.1", "0.14.0", "0.15.0", "0.16.1"),
        names=("1f1b", "interleaved"),
        options={
            "batch_p2p_comm": "false: messages are posted one by one, not in batches",
            "overlap_p2p_comm": "true: they are waited for where they are used (interleaved)",
            "overlap_p2p_comm_warmup_flush": "true: before and after the steady state too",
            "microbatch_group_size_per_vp_stage": "microbatches that a chunk runs in one go [p]",
            "variable_seq_lengths": "true: shapes are sent before their messages",
            "forward_only": "true: evaluation",
        },
        open=True,
    ),
)
FRAMEWORKS: Mapping[str, Framework] = {row.name: row for row in _ROWS}
