"""A proof for what rests on an engine's word, which `verify` follows.

    clauses of the checker ──> CaDiCaL refutes them ──> trimmed ──> the certificate, or a file beside the answer

First the clauses of the rank that the optimizer names alone, which are some of the same clauses, then all. The proof is
as good as what the checker says of it: it is judged with the certificate.
"""

from __future__ import annotations

import lzma
import time
from base64 import b64encode
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

from pipesched import files
from pipesched.check.optimum_clauses import MOST, Clauses, TooManyError
from pipesched.check.optimum_paths import facts
from pipesched.model.numbers import shown
from pipesched.optimizer.engines.lrat import refutation
from pipesched.optimizer.instance import Instance

SECONDS, ALONE = 60.0, 20.0  # of CPU, in all, and for one rank alone
INLINE = 48_000  # bytes of a packed proof that stands in the certificate


@dataclass(frozen=True)
class Made:
    """entry: `proof` of a certificate, empty where there is none. beside: name and content of a file. note: what was
    done, or why it was not.
    """

    entry: dict[str, object]
    beside: tuple[str, bytes] | None
    note: str


def certified(instance: Instance, value: Fraction, rank: int | None, name: str, path: str | None) -> Made:
    """A proof that no objective is at most `value`; also as PATH.cnf and PATH.lrat, if there is a path.

    Raises:
        OSError: these cannot be written.
    """
    told, now = f"that nothing is at most {shown(value)}", time.process_time()
    if instance.objective == "span" and instance.placement.routes > 1:
        return Made({}, None, "no proof is made of the span of two routes")
    try:
        ticks = int(value * instance.costs.ticks(instance.placement.stages).scale)
        clauses = Clauses(facts(instance), ticks, span=instance.objective == "span")
    except TooManyError:
        return Made({}, None, f"no proof {told}: it is of more than {MOST:,} clauses")
    text = None if rank is None else refutation(_alone(clauses, rank), clauses.count, now + ALONE)
    text = text or refutation(clauses.known, clauses.count, now + SECONDS)
    if text is None:
        return Made({}, None, f"no proof {told} was made in {SECONDS:g} s of CPU")
    if path is not None:
        files.replace(f"{path}.cnf", clauses.dimacs())
        files.replace(f"{path}.lrat", [text])
    packed = lzma.compress(text)
    size = f"{len(text.splitlines()):,} steps, {(len(packed) + 999) // 1000:,} kB"
    files_of = f", in {path}.cnf and {path}.lrat" if path is not None else ""
    if len(packed) <= INLINE:
        return Made({"lrat": b64encode(packed).decode("ascii")}, None, f"a proof {told}: {size}{files_of}")
    mark = sha256(packed).hexdigest()
    file = f"{name}-{mark[:8]}.lrat.xz"
    note = f"a proof {told}: {size}, in {file}, which belongs beside the answer{files_of}"
    return Made({"file": file, "sha256": mark}, (file, packed), note)


def _alone(clauses: Clauses, rank: int) -> dict[int, list[int]]:
    """Those of one rank, and those of all."""
    others = {number for r, numbers in enumerate(clauses.of_rank) if r != rank for number in numbers}
    return {number: literals for number, literals in clauses.known.items() if number not in others}
