"""Aliases of the schedules of the library: names in papers, frameworks and trainers, and as people type them.

A name is looked up without case, hyphens, underscores and blanks, and without `Schedule` before or behind it, as torch
and others have it (nnScaler: `sched_`, Nanotron: `PipelineEngine`). A file is known by its own name so, and by all
names of the row that has it. Only what is the same order, operation for operation, is in a row; of the others NEAR
says what comes closest.
"""

from __future__ import annotations

import re

from pipesched.library.assets import built_in

ROWS = (
    (
        "naive",
        "naive pipeline",
        "sequential",
        "layer-wise",
        "naive layer-wise",
        "naive model parallel",
        "model parallel",
    ),
    ("gpipe", "fill and drain", "fill-drain", "F-then-B", "AFAB", "AllForwardAllBackward"),
    (
        "1f1b",
        "DAPPLE",
        "PipeDream-flush",
        "1F1B-flush",
        "OneFOneB",
        "OneForwardOneBackward",
        "Std1F1B",
        "Simple1F1B",
        "non-interleaved 1F1B",
        "forward_backward_pipelining_without_interleaving",
        "TrainSchedule",
    ),
    (
        "interleaved",
        "Interleaved1F1B",
        "1F1B-I",
        "I1F1B",
        "1F1B-interleaved",
        "Interleave1F1B",
        "interleave",
        "interleaved pipeline",
        "Megatron interleaved",
        "VPP",
        "virtual pipeline",
        "virtual pipeline parallel",
        "forward_backward_pipelining_with_interleaving",
        "depth first",
        "DFS",
    ),
    ("gpipe_reversed", "reversed GPipe"),
    ("looped_bfs", "breadth first", "breadth-first pipeline", "BFS"),
    ("hanayo", "Hanayo wave", "wave pipeline", "wave"),
    ("eager_1f1b", "eager"),
    ("chimera2", "Chimera two pairs"),
    ("interleaved_n", "interleaved 1F1B groups of n", "flexible interleaved 1F1B"),
    (
        "interleaved_overlap",
        "Kimi K2",
        "interleaved 1F1B overlapped",
        "interleaved 1F1B with overlap",
        "overlap-moe-expert-parallel-comm",
    ),
    ("grouped_interleaved", "grouped interleaved 1F1B", "group interleaved", "GroupInterleaved1F1B"),
    ("interleaved_zb", "InterleavedZeroBubble", "interleaved ZB-H1"),
    ("zb_h1", "ZeroBubbleH1", "ZB-1P"),
    ("zb_h2", "ZeroBubbleH2", "ZB-2P"),
    ("zb_v", "ZBVZeroBubble", "ZeroBubbleV", "ZBV-formatted"),
    ("1f1b_v", "V1F1B"),
    ("v_half", "ZBV-half", "ZBV-greedy-half"),
    ("v_min", "ZBV-min", "ZBV-greedy-min"),
    ("seq1f1b_i", "Seq1F1B interleaved", "interleaved Seq1F1B"),
    ("dualpipev", "DualPipe cut in half"),
    ("pipeoffload", "offload-grouped-interleaved"),
    ("forward_only", "InferenceSchedule", "inference pipeline", "infer pipe", "evaluation", "eval", "prefill"),
    ("frozen_encoder", "frozen"),
    ("packed", "packed 1F1B", "variable sequence lengths"),
    ("unet", "skip connections"),
)
"""The file of a row is that of the library whose name is in it."""

_MOVED = "the block as it repeats, before its authors move operations of both ends"
_SAID = {  # what is said of names which others give to more than this order
    "zb1p": "its order at equal costs; at others the authors search for one: `pipesched optimize --mem-cap P`",
    "zb2p": "its order at equal costs; at others the authors search for one: `pipesched optimize --mem-cap 2P`",
    "zbvformatted": "its order from 2p microbatches on",
    "offloadgroupedinterleaved": "with groups of p microbatches",
    **dict.fromkeys(("v1f1b", "zbvhalf", "zbvmin", "zbvgreedyhalf", "zbvgreedymin"), _MOVED),
}
_OLD = "it trains on old weights; with a flush its order is `1f1b`"
_SEARCH = "`pipesched optimize --mem-cap K` searches for an order under a cap, with a proof"
NEAR = {
    **dict.fromkeys(("async", "asynchronous", "pipemare", "pipedream2bw", "2bw"), _OLD),
    **dict.fromkeys(("auto", "adaptive", "zbauto", "tessel"), _SEARCH),
    **dict.fromkeys(("deepseek", "deepseekv3", "bidirectional"), "both ways: dualpipe, or dualpipev, chimera, bitpipe"),
    **dict.fromkeys(("vee", "vshape"), "down the ranks and up again: zb_v, v_half, v_min, v_zb, 1f1b_v"),
    **dict.fromkeys(("mepipe", "slimpipe"), "it has no file here; with slices there are `seq1f1b` and `seq1f1b_i`"),
    **dict.fromkeys(("sppo", "optpipe", "offload"), "`pipeoffload` has activations in host memory"),
    "zerobubble": "zero bubble is zb_h1, zb_h2 or zb_v",
    "zb": "zero bubble is zb_h1, zb_h2 or zb_v",
    "zbvgreedy": "`pipesched optimize --placement vee --mem-cap K` finds orders under a cap",
    "zerobubbleheuristic": "`pipesched optimize --mem-cap K` finds orders under a cap; made by hand: zb_h1, zb_h2",
    "pipedream": "PipeDream without a flush trains on old weights; with a flush it is `1f1b`",
    "torchgpipe": "torchgpipe computes activations again, in the order of `gpipe_reversed`; `unet` has its skips",
    "dynapipe": "DynaPipe chooses microbatches and their order too; `packed` has their lengths, in the order of 1F1B",
    "cornstarch": "Cornstarch also cuts the model; `frozen_encoder` has its frozen stages, in the order of 1F1B",
    **dict.fromkeys(("recompute", "ripipe"), "`mario` computes activations again, in the bubble"),
    "nanopipe": "NanoPipe has weight gradients wait, as `zb_h1` and `interleaved_zb`",
    "bpipe": "BPipe sends activations to another rank, which no file says; `pipeoffload` sends them to host memory",
    "weipipe": "WeiPipe sends weights in place of activations, which no file says",
    "adapipe": "AdaPipe chooses what is computed again, in the order of `1f1b`; `mario` computes again too",
    "chronospipe": "ChronosPipe computes chunks again; `mario` computes again, on 1F1B",
    "gems": "GEMS has the placement of `chimera`, and one microbatch each way",
    "graphpipe": "GraphPipe has stages that are a graph; `reads` in a file makes one, as in `unet`",
    "vocabularyparallelism": "it has passes of the vocabulary on all ranks, which no file says",
    "1f1bplus": "nnScaler's 1f1b_plus has stages on all ranks, which no file says; the rest of it is `1f1b`",
    "pipelineschedulesingle": "torch's class for one stage a rank: `1f1b`, `gpipe`",
    "pipelineschedulemulti": "torch's class for several stages a rank: `interleaved`, `looped_bfs`, `zb_v` and more",
    "helixpipe": "HelixPipe places by stage and microbatch, which no file says",
    "varuna": "Varuna orders at run time; `greedy` in a file is such a rule, and `mario` recomputes too",
    "chimeradirect": "`chimera` has its placement; the table of nnScaler is for four ranks alone",
    "megatron": "its orders are `1f1b` and `interleaved`; `megatron:interleaved` executes its code",
    "deepspeed": "its order is `1f1b`; `deepspeed:TrainSchedule` executes its code",
    "circular": "circular is the placement of `interleaved` and `looped_bfs`: rank s % p",
    "half": "`v_half` is the V that holds half of 1F1B",
    "min": "`v_min` is the V that holds a third of 1F1B",
}
"""Names of more than one order, or of one that has no file, and where to look."""


def plain(name: str) -> str:
    """The name without what people write differently."""
    return re.sub(r"^sched(ule)?|(schedule|pipelineengine)$", "", re.sub(r"[\W_]", "", name.lower()))


def others(own: str) -> tuple[str, ...]:
    """Other names of a schedule of the library, apart from case and marks."""
    return tuple(name for row in ROWS if _in(own, row) for name in row if plain(name) != plain(own))


def known_as(name: str) -> str | None:
    """The schedule of the library that is meant by a name which is none of its own."""
    asked, files = plain(name), built_in()
    row = next((row for row in ROWS if _in(asked, row)), ())
    return next((own for own in files if plain(own) == asked), None) or next((x for x in files if _in(x, row)), None)


def near(name: str) -> str | None:
    """The remedy for a name of several orders, or of an order without a file."""
    row = next((row for row in ROWS if _in(name, row)), ())
    return next((NEAR[asked] for asked in map(plain, (name, *row)) if asked in NEAR), None)


def _in(name: str, row: tuple[str, ...]) -> bool:
    return plain(name) in map(plain, row)


def taken_for(name: str) -> str | None:
    """The remark on an alias; none where it is the schedule's own name apart from marks."""
    own = known_as(name)
    if own is None or plain(own) == plain(name):
        return None
    more = _SAID.get(plain(name))
    return f"{name} is {own} here" + (f": {more}" if more else "")
