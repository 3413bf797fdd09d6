"""Options of `optimize`."""

from __future__ import annotations

from dataclasses import replace

from pipesched.command import values
from pipesched.command.options import COST, COSTS, RELEASE, SIZES, VERBOSE, results
from pipesched.command.values import seconds, text, whole
from pipesched.common.values import deviation
from pipesched.extension import Option, flag
from pipesched.optimizer.decisions.asked import layers, stages
from pipesched.optimizer.values import caps_or_range, placement
from pipesched.planning.rows import CAP

_P, _V, _M, _D = SIZES

OPTIMIZE = (
    replace(_P, help="Ranks [default: 4].", metavar="N", read=whole),
    replace(_V, help="Number of stages per rank [default: 1].", metavar="N", read=whole),
    replace(_M, help="Microbatches [default: 2p].", metavar="N", read=whole),
    replace(_D, help="Another parameter."),
    Option("placement", placement, "Ranks of the stages.", "linear|loop|vee|any|0,1,..|FILE"),
    replace(CAP, metavar="K|K0,K1,..|A..B[:STEP]", typed=caps_or_range),
    replace(COST, help="Costs of F, I, W, B, FB, C, M [default: 1, B 2, C 0; F and B given: I = W = B / 2]."),
    COSTS,
    RELEASE,
    Option("partition", layers, "Also decide the layers of each stage, of this total.", "LAYERS|model"),
    Option("embedding", values.exact, "With --partition: work of the embedding on the first stage, in layers.", "X"),
    Option("head", values.exact, "With --partition: work of the head on the last stage, in layers.", "X"),
    Option("overlap", flag, "Decide which F and B run as a pair, at the cost FB.", default=False),
    Option("recompute", stages, "Also decide R: for any F, all F of any stages, or these stages.", "any|stages|0,1,.."),
    Option(
        "front",
        flag,
        "Find the Pareto front of memory and time.",
        default=False,
        terminal=True,
    ),
    Option("lost", whole, "Order the remaining ranks if this rank is lost.", "RANK"),
    Option("pipelines", whole, "With --lost: number of pipelines that train the model.", "N"),
    Option("jitter", deviation, "Among equally short orders, prefer a low p95 if times vary by this.", "X%"),
    Option("objective", choices=("makespan", "span"), default="makespan"),
    Option("backward", None, "Split backwards into I and W, or not [default: split].", choices=("split", "fused")),
    Option("all_m", flag, "Find one schedule for every number of microbatches.", default=False),
    Option("time_limit", seconds, None, "SECONDS", 60),
    Option("engine", choices=("auto", "z3", "sat"), default="auto"),
    Option("seed", whole, "Seed of random choices.", "N", 0),
    Option("portfolio", flag, "Start without known schedules and heuristics.", None, True, ("--no-portfolio",)),
    Option("certify", flag, "Spend up to another minute on proving an engine's refutation.", default=False),
    Option("confirm", flag, "Also decide with Z3, even if that takes long.", default=False),
    Option("proof", text, "Write the proof to PATH.cnf and PATH.lrat, for other checkers.", "PATH"),
    Option("require_proof", flag, "Exit with 3 unless it is proved optimal.", terminal=True),
    Option("plot", text, "Plot the bubble over a range of caps.", "OUT.svg", terminal=True),
    VERBOSE,
    *results("optimum.schema.json"),
)
