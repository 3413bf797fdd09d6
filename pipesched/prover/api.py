"""`pipesched.prove`: proves properties for every p, every m and every cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesched.common import keywords, sources
from pipesched.common.keywords import Parameter, Target

if TYPE_CHECKING:
    from pipesched.prover.prove_report import Theorems


def prove(target: Target, **parameters: Parameter) -> Theorems:
    """Prove the properties and claims of a .ps file for every p, every m and all costs. Given parameters are fixed.

    Raises:
        PipeschedError: the target is not a .ps file, or is wrong at every size; PS225; PS820: islpy is not installed.
    """
    _, sizes = keywords.read("prove", locals())
    from pipesched.prover import prove as verb

    return verb.prove(*sources.named(target, sizes))
