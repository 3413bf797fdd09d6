"""The schedules in this folder, traced on tokens."""

from pipesched.interop.frameworks.posting import At, Recorded, traced


def paired(p: int, m: int) -> Recorded:
    def step(at: At) -> None:
        from paired import Paired, Weights

        stages = [at.module(at.rank, weights=Weights), at.module(2 * p - 1 - at.rank)]
        Paired(stages).step(at.batch, m)

    return traced(step, p, "paired")


def vee(p: int, m: int) -> Recorded:
    def step(at: At) -> None:
        from vee import Vee

        Vee([at.module(at.rank), at.module(2 * p - 1 - at.rank)]).step(m)

    return traced(step, p, "vee")


def fork(p: int, m: int) -> Recorded:
    def step(at: At) -> None:
        from fork import forward_backward

        forward_backward(at.module(at.rank), m)

    return traced(step, p, "fork")
