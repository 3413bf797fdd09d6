"""The least bubble under a memory cap, with a proof.

    instance ──> problem ──> bounds     no schedule is better than this
                    │    ──> portfolio  good orders without a solver
                    │    ──> encoding ──> engines    is there a schedule with objective at most C?
                    └──> search: both sides until they meet;  repeat: one schedule for every m ──> answer

`convert` goes between orders and schedules, `question` is what an engine is asked, `sizes` what a user may leave out.
"""
