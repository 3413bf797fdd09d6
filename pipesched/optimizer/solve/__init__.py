"""The least bubble under a memory cap, with a proof.

    instance ──> problem ──> bounds     no schedule is better than this
                    │    ──> portfolio  good orders without a solver
                    │    ──> encoding ──> engines    is there a schedule with objective at most C?
                    └──> search: both sides until they meet;  repeat: one schedule for every m ──> certificate

`convert` is between orders, starts and schedules; `reductions` makes smaller and coarser problems. Layers, each knowing
those below it: certificate, repeat, search, engines and portfolio, encoding, bounds, reductions and convert and
instance, problem.
"""
