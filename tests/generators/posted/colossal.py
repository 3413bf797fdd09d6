"""Colossal-AI's V schedule as published, traced on tokens in its second step, since the first step exchanges shapes."""

from contextlib import nullcontext
from types import SimpleNamespace as Given

from pipesched.interop.frameworks.posting import At, Recorded, traced


def vee(p: int, m: int) -> Recorded:
    def step(at: At) -> None:
        import torch
        from colossalai.pipeline import p2p, stage_manager
        from colossalai.pipeline.schedule import v_schedule
        from colossalai.pipeline.schedule import zero_bubble_pp as code

        stages, group = (at.rank, 2 * p - 1 - at.rank), torch.distributed.distributed_c10d._get_default_group()
        mesh = Given(shape=(p,), size=lambda axis: p, get_group_along_axis=lambda axis: group)
        mesh.coordinate = lambda axis=None: (at.rank,) if axis is None else at.rank
        mesh.ravel = lambda place, shape, mode: place[0] % p
        manager = stage_manager.PipelineStageManager(mesh, 0, enable_interleave=True, use_zbv=True, num_model_chunks=2)
        store = Given(enabled=True, put=lambda w: code.WeightGradStore.put(0, 0, Given(grad=None), lambda *_: w()))
        chunks, manager.stage_indices = [at.module(stage, weights=store) for stage in stages], stages
        back = lambda tensor, grad, retain_graph: torch.autograd.backward(tensor, grad)  # noqa: E731
        optimizer = Given(no_sync=nullcontext, backward_by_grad=back)
        p2p._check_device = lambda group: (None, False)
        code.get_batch_size, code.get_micro_batch = lambda batch: m, lambda *given: at.batch
        nodes = v_schedule.PipelineGraph(p, m, 1, 1, 1, 0, 2, -1, -1).get_v_schedule()
        run, form = code.ZeroBubbleVPipeScheduler(manager, nodes, 2, m), p2p.create_send_metadata({"hidden": at.batch})
        run.tensor_metadata_recv = run.grad_metadata_recv = [form, form]
        run.send_tensor_metadata = run.send_grad_metadata = [False, False]
        model = lambda batch, stage_index, hidden=None: {"hidden": chunks[manager.model_chunk_id](hidden)}  # noqa: E731
        run.forward_backward_step(model, iter([at.batch]), lambda made, batch: made["hidden"], optimizer)

    return traced(step, p, "colossalai.pipeline", "packaging")
