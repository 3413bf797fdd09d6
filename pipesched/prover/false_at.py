"""The smallest size at which a claim is false at some costs: the sizes that its proof leaves."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm

from pipesched.diagnostics import PipeschedError
from pipesched.language import ast
from pipesched.language.claims import COSTS
from pipesched.model.costs import Costs
from pipesched.prover.claims import Proof
from pipesched.prover.forms import UNIT
from pipesched.prover.question import Question
from pipesched.prover.relations import Unsettled
from pipesched.prover.scope import NotAffine


def smallest_false(file: ast.File, given: Mapping[str, int], number: int, costs: Costs) -> dict[str, int] | None:
    """Return the size with the smallest p + m at which a claim is false; None if the prover cannot decide.

    given: the fixed parameters. number: the claim's number in the file.
    """
    values = {key: costs.scalar(key) for key in COSTS.values()}
    scale = lcm(*(x.denominator for x in values.values() if x is not None))
    whole = {key: int(x * scale) for key, x in values.items() if x is not None}
    whole |= {UNIT: scale}
    if len(whole) <= len(values):
        return None
    claim = [item for item in file.items if isinstance(item, ast.Claim)][number]
    try:
        found = [*Proof(Question(file, given), claim).false(whole)]
    except (Unsettled, NotAffine, PipeschedError):
        return None
    return min(found, key=lambda size: (sum(size.values()), *size.values()), default=None)
