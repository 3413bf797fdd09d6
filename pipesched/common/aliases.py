"""The aliases of library schedules: names in papers, frameworks and trainers, and common spellings.

Names are compared without case, hyphens, underscores and spaces, and without `Schedule` at either end, as torch and
others write it (nnScaler: `sched_`, Nanotron: `PipelineEngine`). A file is found by its own name, compared in this way,
and by all names in its row. A row lists only names of the same order, operation for operation.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pipesched.library.assets import built_in

_NAMES = """
naive: naive pipeline, sequential, layer-wise, naive layer-wise, naive model parallel, model parallel
gpipe: fill and drain, fill-drain, F-then-B, AFAB, AllForwardAllBackward
1f1b: DAPPLE, PipeDream-flush, 1F1B-flush, OneFOneB, OneForwardOneBackward, Std1F1B, Simple1F1B, non-interleaved 1F1B,
  forward_backward_pipelining_without_interleaving, TrainSchedule
interleaved: Interleaved1F1B, 1F1B-I, I1F1B, 1F1B-interleaved, Interleave1F1B, interleave, interleaved pipeline,
  Megatron interleaved, VPP, virtual pipeline, virtual pipeline parallel,
  forward_backward_pipelining_with_interleaving, depth first, DFS
gpipe_reversed: reversed GPipe
looped_bfs: breadth first, breadth-first pipeline, BFS
hanayo: Hanayo wave, wave pipeline, wave
eager_1f1b: eager
chimera_n: Chimera n pairs, chimera2, Chimera two pairs
helix: HelixPipe
pipedream_2bw: 2BW, double-buffered weight updates
vertical_sync: PipeDream with vertical sync, PipeDream vertical sync
interleaved_n: interleaved 1F1B groups of n, flexible interleaved 1F1B
interleaved_overlap: Kimi K2, interleaved 1F1B overlapped, interleaved 1F1B with overlap,
  overlap-moe-expert-parallel-comm
grouped_interleaved: grouped interleaved 1F1B, group interleaved, GroupInterleaved1F1B
interleaved_zb: InterleavedZeroBubble, interleaved ZB-H1
zb_h1: ZeroBubbleH1, ZB-1P
zb_h2: ZeroBubbleH2, ZB-2P
zb_v: ZBVZeroBubble, ZeroBubbleV, ZBV-formatted
v1f1b: 1F1B-V moved
v_half: ZBV-half, ZBV-greedy-half
v_min: ZBV-min, ZBV-greedy-min
seq1f1b_i: Seq1F1B interleaved, interleaved Seq1F1B
dualpipev: DualPipe cut in half
pipeoffload: offload-grouped-interleaved
forward_only: InferenceSchedule, inference pipeline, infer pipe, evaluation, eval, prefill
frozen_encoder: frozen
packed: packed 1F1B, variable sequence lengths
unet: skip connections
"""
ROWS = tuple(
    (name, *re.split(r",\s+", others)) for name, others in re.findall(r"^(\w+): (.+(?:\n  .+)*)", _NAMES, re.MULTILINE)
)
"""The rows of aliases; one name in each row is the name of its file in the library."""

_MOVED = "only the repeated block; the authors then move operations at both ends"
_SAID = {  # remarks on names that are also used for different orders
    "zb1p": (
        "the ZB-1P order at equal costs; at other costs the authors search for one: `pipesched optimize --mem-cap P`"
    ),
    "zb2p": (
        "the ZB-2P order at equal costs; at other costs the authors search for one: `pipesched optimize --mem-cap 2P`"
    ),
    **dict.fromkeys(("chimera2", "chimeratwopairs"), "with n = 2, its default"),
    "zbvformatted": "the order of ZBV-formatted, for at least 2p microbatches",
    "offloadgroupedinterleaved": "with groups of p microbatches",
    **dict.fromkeys(("zbvhalf", "zbvmin", "zbvgreedyhalf", "zbvgreedymin"), _MOVED),
}


def plain(name: str) -> str:
    """Return the name in normal form, without the parts that people spell differently."""
    return re.sub(r"^sched(ule)?|(schedule|pipelineengine)$", "", re.sub(r"[\W_]", "", name.lower()))


def others(own: str) -> tuple[str, ...]:
    """Return the other names of a library schedule that differ by more than case and punctuation."""
    return tuple(name for row in ROWS if is_in(own, row) for name in row if plain(name) != plain(own))


@lru_cache(maxsize=1024)
def known_as(name: str) -> str | None:
    """Return the library schedule that has this name or alias, or None."""
    asked, files = plain(name), built_in()
    row = next((row for row in ROWS if is_in(asked, row)), ())
    return next((own for own in files if plain(own) == asked), None) or next((x for x in files if is_in(x, row)), None)


def is_in(name: str, row: tuple[str, ...]) -> bool:
    """Return True if a row contains the name; case and punctuation are ignored."""
    return plain(name) in map(plain, row)


def taken_for(name: str) -> str | None:
    """Return the remark on an alias, or None for an unknown name and for the schedule's own name in any spelling."""
    own = known_as(name)
    if own is None or plain(own) == plain(name):
        return None
    more = _SAID.get(plain(name))
    return f"{name} is {own} here" + (f": {more}" if more else "")
