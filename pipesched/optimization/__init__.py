"""`pipesched optimize`, above the compiler: aim at a problem, search, and check what was found like any file."""

from pipesched.optimization.aim import Request, place
from pipesched.optimization.run import frontier_plot, optimize
from pipesched.optimize.answer.optimum import Optimum
from pipesched.optimize.search.state import MOST_SEED, Limits, State

__all__ = ["MOST_SEED", "Limits", "Optimum", "Request", "State", "frontier_plot", "optimize", "place"]
