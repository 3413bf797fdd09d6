"""An answer as JSON, the published form: ``emit/v1/optimum.schema.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesched import render
from pipesched.model.numbers import doubled, exact

if TYPE_CHECKING:
    from pipesched.optimizer.answer.optimum import Optimum


COUNTS = frozenset(("microbatches", "placement", "rank", "ranks", "route", "stage", "step"))
"""Entries of a certificate that are whole numbers always."""


def to_json(answer: Optimum) -> dict[str, object]:
    """The published form; times and peaks are whole numbers or strings such as ``11/2``."""
    return {
        "ok": answer.exit_status == 0,
        "status": answer.status,
        "proved": answer.proved,
        "verdict": answer.verdict,
        "for": answer.terms,
        "parameters": dict(answer.sizes),
        "placement": answer.instance.placement.rank_of.tolist(),
        "objective": answer.objective,
        **exact(makespan=answer.makespan, span=answer.span, bubble=answer.bubble, span_bubble=answer.span_bubble),
        **exact(work=answer.work, lower_bound=answer.lower_bound, gap=answer.gap),
        "proved_by": answer.proved_by or None,
        "told_by": answer.told_by or None,
        "found_by": answer.found_by or None,
        "reason": answer.reason or None,
        "every": _every(answer),
        **exact(mem_cap=answer.instance.caps, peak=answer.peak),
        "release": answer.instance.release.name,
        **exact(costs=answer.instance.costs.to_json()),
        "assumed_costs": answer.assumed,
        "given": None if answer.given is None else answer.given.name,
        "known": [
            {
                "name": k.name,
                **exact(makespan=k.makespan, span=k.span, bubble=k.bubble, span_bubble=k.span_bubble, peak=k.peak),
                "fits": k.fits and k.orders is not None,
            }
            for k in answer.known
        ],
        "notes": list(answer.notes),
        "diagnostics": [render.as_json(diagnostic) for diagnostic in answer.diagnostics],
        "seed": answer.seed,
        "source": answer.source or None,
        "certificate": doubled(answer.certificate, COUNTS) if answer.certificate else None,
    }


def _every(answer: Optimum) -> dict[str, object] | None:
    if answer.every is None or answer.growth is None:
        return None
    base, more = answer.growth
    first, step = answer.every
    return {"microbatches": first, "step": step, **exact(value=base, growth=more)}
