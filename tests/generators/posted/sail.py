"""The runtime in the zero-bubble authors' fork of Megatron-LM as published, with its ZB-1P, traced on tokens."""

from contextlib import nullcontext
from types import SimpleNamespace as Given

from pipesched.interop.frameworks.posting import At, Recorded, traced


def zb1p(p: int, m: int) -> Recorded:
    def step(at: At) -> None:
        from megatron.core import zbpp_utils as zbpp
        from megatron.core.pipeline_parallel.zerobubble import runtime as code
        from pretrain_gpt import DataLoaderStore

        off = ("profile", "cpu_offload", "overlap_grad_reduce", "transformer_impl", "pre_communication_optimization")
        args = Given(**dict.fromkeys(off), num_seq_splits=1, profile_memory_iter=-1, gradient_accumulation_fusion=1)
        args.zero_bubble_pipeline_timers_end_iter, args.pipeline_model_parallel_size = -1, p
        known = {"rank": at.rank, "prev_rank": (at.rank - 1) % p, "next_rank": (at.rank + 1) % p, "group": None}
        calls = {f"get_pipeline_model_parallel_{name}": lambda one=one: one for name, one in known.items()}
        now = Given(**calls, set_seq_split_idx=id, get_virtual_pipeline_model_parallel_world_size=int)
        now.is_pipeline_first_stage, now.is_pipeline_last_stage = lambda **_: at.rank < 1, lambda **_: at.rank == p - 1
        for module in (zbpp, code):
            vars(module).update(calls, parallel_state=now, get_args=lambda: args)
        weight, DataLoaderStore.cache = Given(storage=lambda: Given(data_ptr=int)), [0]
        store = Given(enabled=True, put=lambda work: zbpp.WeightGradStore.put(weight, lambda async_op: (), work))
        model, back = [at.module(at.rank, weights=store)], code.torch.autograd.backward
        code.forward_step = lambda func, data, chunk, count, inputs, *_, **__: ([chunk(*inputs)], 0)
        code.backward_step = lambda inputs, made, grad, *_: back(made, grad) or [x and x.grad for x in inputs]
        graph = code.zb.GraphConfig([2] * p, [-1] * p, [-1] * p, [2 * p] * p, *[[6.0] * p] * 3, n_stages=p, n_micro=m)
        nodes = code.run_schedule_passes(graph, code.zb.create_schedule(graph), validate=False)[at.rank]
        made = Given(batch_p2p_comm=1, pipeline_dtype=0, deallocate_pipeline_outputs=0, finalize_model_grads_func=None)
        run = code.TrainingIterationConfig(0, nodes, 0, [0], model, 0, made, m, 0, 0, nullcontext, 1, [1], [1])
        code.TrainingIteration(run, 1, Given(assert_empty=list)).run()

    return traced(step, p, "megatron.core.pipeline_parallel.zerobubble", "megatron.core.zbpp_utils")
