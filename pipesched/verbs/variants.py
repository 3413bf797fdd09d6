"""Published orders a small step away from one of the library, so that an order which is one of them has a name.

They are here to be recognized; to be run, verified and drawn a schedule belongs in ``schedules/``.
"""

from __future__ import annotations

REVERSED = """\
schedule gpipe_reversed(p, m)
"GPipe as its figure draws it: backwards last microbatch first. Huang et al., NeurIPS 2019, figure 2, arXiv:1811.06965"
stage s in 0 .. p on rank s
rank r {
  repeat m { F }
  for i in 0 .. m { B(m - 1 - i) }
}
"""

EAGER = """\
schedule eager_1f1b(p, m)
"Eager 1F1B: twice the warm-up, so that messages have time. Zhuang et al., MLSys 2023, arXiv:2211.05322"
stage s in 0 .. p on rank s
rank r {
  let warmup = min(2 * (p - 1 - r), m)
  repeat warmup     { F }
  repeat m - warmup { F  B }
  repeat warmup     { B }
}
"""

BREADTH = """\
schedule breadth_first(p, v, m)
"Breadth-first: chunk by chunk all microbatches, and back in reverse. Lamy-Poirier, MLSys 2023, arXiv:2211.05953"
stage s in 0 .. p * v on rank s % p
rank r {
  for c in 0 .. v { repeat m { F[c] } }
  for c in 0 .. v { for i in 0 .. m { B[v - 1 - c](m - 1 - i) } }
}
"""

VARIANTS = {
    "gpipe, backwards last microbatch first": REVERSED,
    "eager 1f1b": EAGER,
    "interleaved, breadth first": BREADTH,
}
