"""Checks that no rank needs more bytes than its cap, and that the model's batch fits the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from pipesched.check.checks import Subject
from pipesched.check.findings import notes
from pipesched.check.memory import furthest, listed, places
from pipesched.diagnostics import Diagnostic, Label
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.codes import PlanningCode
from pipesched.planning.footprint import STATES, Footprint, footprint
from pipesched.planning.workload import Workload, byte_caps


def check_bytes(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS502 for the ranks that exceed their caps in bytes by the most."""
    used, caps = subject.analysis.fact(footprint), byte_caps(subject.analysis)
    if used is not None and caps is not None:
        yield from _over_caps(used, caps)


def _over_caps(footprint: Footprint, caps: Sequence[Fraction]) -> Iterator[Diagnostic]:
    peaks = [sum(peak.values()) for peak in footprint.peaks]
    for rank, more in furthest(peaks, caps):
        peak, top, cap = footprint.peaks[rank], footprint.peak_at[rank], caps[rank]
        labels, live = tuple[Label, ...](), list[tuple[int, int]]()
        if top >= 0:
            first, live = footprint.first_over(rank, cap), footprint.live.live(top)
            held = gigabytes(sum(footprint.at(rank, first).values()))
            labels = places(footprint.schedule, first, top, held, gigabytes(peaks[rank]))
        over = gigabytes(peaks[rank] - cap)
        yield Diagnostic(
            PlanningCode.OVER_BYTES,
            f"rank {rank} needs {gigabytes(peaks[rank])}, {over} more than its cap of {gigabytes(cap)}",
            labels,
            notes(
                "at the peak: " + ", ".join(f"{kind} {gigabytes(size)}" for kind, size in peak.items() if size),
                f"live activations (stage.microbatch): {listed(live)}" if live else "",
                more,
            ),
            _cheaper(footprint, cap, peak),
        )


def _cheaper(footprint: Footprint, cap: Fraction, peak: Mapping[str, int]) -> str:
    """Return advice that lowers the peak, chosen by the largest kind of bytes."""
    _, x = footprint.trained
    if sum(peak[kind] for kind in STATES) > cap:
        zero = "" if x.zero == 3 else ", a higher ZeRO stage"
        return f"parameters, gradients and optimizer state exceed the cap: use more ranks, tensor parallelism{zero}"
    steps = [
        *(["recompute"] if x.recompute != "full" else []),
        *(["sequence_parallel = true"] if x.tensor > 1 and not x.sequence_parallel else []),
    ]
    return f"use {', '.join([*steps, 'more context or tensor'])} parallelism, or an order with a lower peak"


def check_batch(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS909 if the model's batch implies a different number of microbatches from the schedule's."""
    schedule, trained = subject.analysis.schedule, subject.analysis.of(Workload).model
    if trained is None or (expected := trained[1].microbatches) is None:
        return
    slices = schedule.slices
    if schedule.microbatches == (expected := expected * slices):
        return
    a, x = trained
    message = f"the schedule has {schedule.microbatches} microbatches, but the model's batch implies {expected}"
    said = f"{x.batch} sequences / ({x.data} copies x {x.microbatch} per microbatch)"
    said += f" x {slices} slices" if slices > 1 else ""
    help = f"give --m {expected}, or change batch, data or microbatch"
    yield Diagnostic(PlanningCode.OTHER_BATCH, message, (Label(a.places.get("training.batch"), said),), (), help)
