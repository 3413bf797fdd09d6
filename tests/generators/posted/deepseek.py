"""DeepSeek's DualPipeV as published, traced on tokens."""

from pipesched.interop.frameworks.posting import At, Recorded, traced


def dualpipev(p: int, m: int) -> Recorded:
    def step(at: At) -> None:
        from dualpipe import DualPipeV, WeightGradStore, set_p2p_tensor_dtype, set_p2p_tensor_shapes

        set_p2p_tensor_shapes([(1,)])
        set_p2p_tensor_dtype(0)
        stages = [at.module(stage, weights=WeightGradStore) for stage in (at.rank, 2 * p - 1 - at.rank)]
        DualPipeV((*stages,)).step(at.batch, num_chunks=m, criterion=at.loss, labels=[at.batch])

    return traced(step, p, "dualpipe")
