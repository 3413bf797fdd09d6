"""The makespan of a schedule as communication grows: at each ratio of communication to compute, the times of parts on
engines other than the rank's own are scaled to this ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from pipesched.compile import Loaded, Options, examine
from pipesched.diagnostics import Code, fail
from pipesched.engines.costs import of_options
from pipesched.engines.parts import OWN, Chain, Parts, Piece, Stage
from pipesched.planning.workload import Workload

RATIOS = tuple(Fraction(tenths, 10) for tenths in range(13))
"""Ratios of communication to compute, from 0 to more than in DeepSeek-V3's technical report (about 1)."""


@dataclass(frozen=True)
class Traffic:
    """The option that plots makespans against communication in a comparison."""

    traffic: bool = False


def makespans(loaded: Loaded, options: Options) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield each of `RATIOS` with the makespan of a schedule, in the unit of its costs; empty for an order that
    deadlocks.

    Raises:
        PipeschedError: PS225 without parts on both the rank's own engine and another engine; otherwise as for `costs`.
    """
    asked = options.beside(loaded)
    parts = of_options(asked, loaded.schedule.placement)
    every = [part for chain in _chains(parts) for part in chain.each * chain.layers]
    own = sum((part.time for part in every if part.engine == OWN), Fraction(0))
    others = sum((part.time for part in every), Fraction(0)) - own
    if not own or not others:
        message = f"{loaded.source} does not have parts both on the rank's own engine and on another engine"
        raise fail(Code.USAGE, message, help="give --parts, or `parts` in the file, with `on comm`")
    for ratio in RATIOS:
        made = examine(loaded, asked.owning(scaled(parts, ratio * own / others)).owning(Workload())).analysis
        if made.finished:
            yield ratio, made.time(made.timeline.makespan)


def scaled(parts: Parts, factor: Fraction) -> Parts:
    """Return the parts with the times on other engines multiplied by a factor."""

    def part(one: Piece) -> Piece:
        return one if one.engine == OWN else replace(one, time=one.time * factor)

    def chain(one: Chain) -> Chain:
        return replace(one, each=tuple(map(part, one.each)))

    letters = {letter: tuple(map(part, each)) for letter, each in parts.letters.items()}
    kept = {stage: Stage(chain(stage.F), chain(stage.I), chain(stage.W)) for stage in parts.stages}
    return replace(parts, letters=letters, stages=tuple(kept[stage] for stage in parts.stages))


def _chains(parts: Parts) -> list[Chain]:
    """Return the chains of all stages, or those of one layer."""
    if parts.stages:
        return [chain for stage in parts.stages for chain in (stage.F, stage.I, stage.W)]
    return [Chain(1, each) for each in parts.letters.values()]
