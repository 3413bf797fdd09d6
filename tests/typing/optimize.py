"""A researcher's request for a better schedule."""

from fractions import Fraction

import pipesched


def told(name: str) -> str:
    """Return the verdict, and the improvement."""
    best: pipesched.Optimum = pipesched.optimize(name, p=4, m=8, mem_cap="11/2", time_limit=5, objective="span")
    if best.makespan is None:
        return best.reason
    gap: Fraction | None = best.gap
    report: pipesched.Report = best.report
    proved = report.ok and report.makespan == best.makespan and best.status == "proved optimal"
    return f"{best.makespan} {gap} {proved} {best.source}"


def asked() -> list[pipesched.Optimum]:
    """Return the placements and costs in every form."""
    costs = pipesched.Costs.parse("F=1,B=2")
    return [
        pipesched.optimize(p=2, m=4, placement="vee", costs=costs),
        pipesched.optimize(m=4, placement=[0, 1, 1, 0], costs={"F": 1, "I": Fraction(1, 2), "W": "3/2"}),
        pipesched.optimize(pipesched.load("zb_h1", p=2, m=4), mem_cap=[2, 2], backward="split", all_m=False),
    ]
