"""Proofs of bounds that rest on an engine's refutation, in steps that `verify` can follow; and second opinions by Z3.

    clauses of the checker ─┬─> CaDiCaL refutes them ──> trimmed ──> the certificate
                            └─> Z3: found at the objective, refuted a tick below

The clauses about the rank that the optimizer names are tried first, then all clauses. The proof is not trusted: the
checker judges it together with the certificate.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesched.optimizer.proof.problem import floored, problem
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.support import files

if TYPE_CHECKING:
    from pipesched.optimizer.proof.clauses import Clauses

SECONDS, ALONE = 60, 1 / 3  # most seconds for a proof that the user requests; part of the time for one rank's clauses
CLAUSE = 8  # steps to write a clause, and to find it again when the proof is checked
FEW, STEPS, FEW_STEPS = 20_000, 60_000_000, 500_000  # for Z3: clauses without --confirm; steps with it, and without


@dataclass(frozen=True)
class Made:
    """A proof. entry: the entry `proof` of a certificate, or {}. note: the size of the proof, or why there is none."""

    entry: dict[str, object]
    note: str


def certified(
    instance: Instance, value: Fraction, rank: int | None, path: str | None, meter: Meter, grid: Fraction | None = None
) -> Made:
    """Prove that no schedule has an objective of at most `value`; also write PATH.cnf and PATH.lrat if a path is given.

    meter: counts steps up to the limit. grid: if given, costs are first rounded down to its multiples.

    Raises:
        OSError: the files cannot be written.
    """
    from pipesched.optimizer.proof.clauses import MOST, Clauses, TooManyError

    claim, most = f"that no schedule takes {_below(instance, value)}", int(min(MOST, meter.left / CLAUSE))
    try:
        scale, asked = instance.costs.ticks(instance.placement.stages).scale, problem(instance)
        ticks = int(value * scale)
        if grid is not None:
            asked, ticks = floored(asked, int(grid * scale)), ticks // int(grid * scale)
        clauses = Clauses(asked, ticks, most=most, narrow=True)
    except TooManyError:
        meter.spend(CLAUSE * most)
        return Made({}, f"no proof {claim}: it needs more than {most:,} clauses")
    from pipesched.optimizer.solve.engines.lrat import refutation

    meter.spend(CLAUSE * clauses.count + clauses.narrowed)
    text = None
    if rank is not None:
        with meter.part(ALONE) as part:
            text = refutation(_alone(clauses, rank), clauses.count, part)
    text = text or refutation(clauses.known, clauses.count, meter)
    if text == b"":
        return Made({}, f"no proof {claim}: the clauses do not exclude such a schedule")
    if text is None:
        return Made({}, f"no proof {claim} was found in {meter.limit / SECOND:.3g} s")
    if path is not None:
        write(path, clauses, text)
    import lzma

    packed = lzma.compress(text)
    size = f"{len(text.splitlines()):,} steps, {(len(packed) + 999) // 1000:,} kB"
    files_of = f", in {path}.cnf and {path}.lrat" if path is not None else ""
    return Made({"lrat": b64encode(packed).decode("ascii")}, f"a proof {claim}: {size}{files_of}")


def write(path: str, clauses: Clauses, refutation: bytes) -> None:
    """Write PATH.cnf and PATH.lrat, for other checkers. Raises OSError if the files cannot be written."""
    files.replace(f"{path}.cnf", (line.encode("ascii") for line in clauses.dimacs()))
    files.replace(f"{path}.lrat", [refutation])


def _alone(clauses: Clauses, rank: int) -> dict[int, list[int]]:
    """Return the clauses without those that concern only a single other rank."""
    others = {number for r, numbers in enumerate(clauses.of_rank) if r != rank for number in numbers}
    return {number: literals for number, literals in clauses.known.items() if number not in others}


def confirmed(instance: Instance, value: Fraction, below: Fraction, *, asked: bool) -> str:
    """Ask Z3 whether the checker's clauses allow the objective `value` and exclude `below`; return a note on the
    answer.

    asked: True if the user requested the check; otherwise the note is empty unless Z3 answers within a few steps.

    Raises:
        RuntimeError: Z3 disagrees.
    """
    from pipesched.optimizer.proof.clauses import MOST, TooManyError
    from pipesched.optimizer.solve.engines.sat_engines import UnknownError

    steps = STEPS if asked else FEW_STEPS
    try:
        found, refuted = (_said(instance, at, MOST if asked else FEW, steps) for at in (value, below))
    except (TooManyError, UnknownError, KeyboardInterrupt, MemoryError):
        return f"Z3 reached no verdict within {steps:,} steps and {MOST:,} clauses" if asked else ""
    if not found or refuted:
        raise RuntimeError(f"Z3 does not agree that {value} can be reached and {below} cannot")
    return f"Z3 agrees: {instance.costs.unit.text(value)} can be reached, {_below(instance, below)} cannot"


def _below(instance: Instance, value: Fraction) -> str:
    """Return text for "an objective of at most `value`"."""
    return instance.costs.unit.below(value, value + instance.problem().time(1))


def _said(instance: Instance, value: Fraction, most: int, steps: int) -> bool:
    """Return True if Z3 finds the clauses for objectives of at most `value` satisfiable."""
    from pipesched.optimizer.proof.clauses import Clauses
    from pipesched.optimizer.solve.engines.sat_engines import Effort, by_z3

    ticks = int(value * instance.costs.ticks(instance.placement.stages).scale)
    clauses = Clauses(problem(instance), ticks, most=most)
    return all(clauses.known.values()) and by_z3(clauses, Effort(steps)).true is not None
