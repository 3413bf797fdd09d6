"""The search for the least bubble under a memory cap, and for its proof.

    instance ──> problem ──> bounds     lower bounds on the objective
                    │    ──> portfolio  good orders, without an engine
                    │    ──> encoding ──> engines    is there a schedule with objective at most C?
                    └──> search: from above and below until they meet;  repeat: one schedule for every m ──> certificate

`convert` converts between orders, starts and schedules; `reductions` derives smaller and coarser problems; `candidates`
keeps the best orders; `meter` counts the work of all of these modules in steps. Layers, each of which imports only
later ones: certificate, repeat, search, engines and portfolio, candidates and encoding and seam, bounds, reductions and
convert and instance, problem, meter.
"""
