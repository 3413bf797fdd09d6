"""CaDiCaL's refutation of clauses, in LRAT: every step names the clauses that it follows from.

    learnt   every clause that CaDiCaL derives, with its hints               hundreds of thousands
    kept     clauses that the empty clause needs, backward over hints        hundreds to tens of thousands

CaDiCaL numbers given and derived clauses in one sequence; in the result, the given clauses have the caller's numbers.
None of this needs to be trusted, since a checker follows the result.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.optimizer.solve.engines.sat_engines import taken
from pipesched.optimizer.solve.meter import Meter

MOST_BYTES = 400_000_000  # most bytes of a proof before trimming
_CONFLICTS = 2_000  # conflicts between two checks of the meter
_LOADED, _WRITTEN = 2, 1.4  # steps to load a clause; factor by which writing a proof prolongs a step
_DELETED = re.compile(rb"(?m)^\d+ d .*\n")


def require() -> None:
    """Check with a small proof that the installed python-sat can write LRAT, which relies on undocumented functions.

    Raises:
        PipeschedError: PS820: python-sat cannot write LRAT.
    """
    try:
        made = refutation({1: [1, 2], 2: [-1, 2], 3: [-2]}, 3, Meter())
    except (ImportError, AttributeError, TypeError, ValueError, LookupError, NotImplementedError):
        made = None
    if not made:
        message = "the installed python-sat cannot write LRAT proofs: wrong release, or built without CaDiCaL"
        raise fail(Code.NEEDS, message, help="pip install 'python-sat==1.9.dev17', or omit --certify and --proof")


def refutation(clauses: Mapping[int, list[int]], count: int, meter: Meter) -> bytes | None:
    """Return an LRAT proof that refutes numbered clauses, with steps numbered from count + 1.

    The proof is empty if there is a model; None if MOST_BYTES or the meter's limit is reached. meter: counts steps.
    """
    empty = next((number for number, literals in clauses.items() if not literals), None)
    if empty is not None:
        return b"%d 0 %d 0\n" % (count + 1, empty)
    text = _learnt(clauses, meter)
    return text and _kept(text, np.fromiter(clauses, dtype=np.int64), count)


def _learnt(clauses: Mapping[int, list[int]], meter: Meter) -> bytes | None:
    import pysolvers
    from pysat.solvers import Cadical195

    solver = Cadical195()
    with tempfile.TemporaryFile() as file:
        try:
            solver.configure({"lrat": 1, "binary": 0})
            pysolvers.cadical195_tracepr(solver.cadical, file)
            for literals in clauses.values():
                solver.add_clause(literals)
            refuted, before = None, 0
            meter.spend(_LOADED * len(clauses))
            while refuted is None and not meter.late and file.seek(0, 2) < MOST_BYTES:
                solver.conf_budget(_CONFLICTS)
                refuted, steps = solver.solve_limited(), taken(solver)
                meter.spend(int(_WRITTEN * (steps - before)))
                before = steps
        finally:
            cadical, solver.cadical = solver.cadical, None
            pysolvers.cadical195_del(cadical, file)  # this flushes the rest of the proof
        if refuted or refuted is None or file.seek(0, 2) > MOST_BYTES:
            return b"" if refuted else None
        file.seek(0)
        return file.read()


def _kept(text: bytes, numbers: Ints, count: int) -> bytes:
    flat = np.fromstring(_DELETED.sub(b"", text), dtype=np.int64, sep=" ")
    zeros = np.flatnonzero(flat == 0)
    middle, end = zeros[::2], zeros[1::2]
    begin = np.concatenate([[0], end[:-1] + 1])
    own = flat[begin]
    given = np.setdiff1d(np.arange(1, len(numbers) + len(own) + 1), own)[: len(numbers)]
    name = np.zeros(max(int(own.max()), int(given[-1])) + 1, dtype=np.int64)
    name[given] = numbers
    line = np.full(len(name), -1)
    line[own] = np.arange(len(own))
    last = int(np.flatnonzero(middle == begin + 1)[0])
    needed = np.zeros(len(own), dtype=np.bool_)
    needed[last] = True
    for step in range(last, -1, -1):
        if needed[step]:
            hints = line[flat[middle[step] + 1 : end[step]]]
            needed[hints[hints >= 0]] = True
    kept = np.flatnonzero(needed)
    name[own[kept]] = count + 1 + np.arange(len(kept))
    made = []
    for step in kept.tolist():
        literals = flat[begin[step] + 1 : middle[step] + 1].tolist()
        hints = name[flat[middle[step] + 1 : end[step]]].tolist()
        made.append(" ".join(map(str, [name[own[step]], *literals, *hints, 0])))
    return ("\n".join(made) + "\n").encode("ascii")
