"""Run torch 2.13's own generator, loader and simulator without processes: replacements provide the few attributes that
their constructors read."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

from torch import nn
from torch.distributed.pipelining import schedules


def stages(ranks: int, count: int) -> list[SimpleNamespace]:
    """Return Stand-ins for the stages of rank 0, with the attributes that the constructors read."""
    return [
        SimpleNamespace(
            stage_index=index,
            num_stages=count,
            group_size=ranks,
            group_rank=0,
            group=None,
            submod=nn.Identity(),
            is_first=index == 0,
            is_last=index == count - 1,
            has_backward=True,
            stage_index_to_group_rank={s: s % ranks for s in range(count)},
        )
        for index in range(0, count, ranks)
    ]


def runtime(ranks: int, count: int, microbatches: int) -> schedules._PipelineScheduleRuntime:
    return schedules._PipelineScheduleRuntime(stages(ranks, count), microbatches, loss_fn=lambda x, y: x)


def zb_v(ranks: int, microbatches: int, path: str) -> None:
    """Write the order of torch's ScheduleZBVZeroBubble as a compute_only CSV."""
    made = schedules.ScheduleZBVZeroBubble(stages(ranks, 2 * ranks), microbatches, loss_fn=lambda x, y: x)
    rows = (made.pipeline_order[rank] for rank in range(ranks))
    with open(path, "w") as file:
        for row in rows:
            file.write(",".join(str(action) for action in row if action is not None) + "\n")


def load_and_simulate(path: str) -> None:
    """Print torch's CPU seconds for loading the file and for simulating the lowered order, as JSON."""
    with open(path) as file:
        rows = [line.strip().split(",") for line in file]
    actions = [schedules._Action.from_str(cell) for row in rows for cell in row]
    count = 1 + max(a.stage_index for a in actions)
    microbatches = 1 + max(a.microbatch_index for a in actions)
    engine = runtime(len(rows), count, microbatches)
    begin = time.process_time()
    engine._load_csv(path)
    loaded = time.process_time()
    known = {"UNSHARD", "RESHARD", "REDUCE_GRAD"}
    order = {
        rank: [a for a in row if a is not None and a.computation_type.name not in known]
        for rank, row in engine.pipeline_order_with_comms.items()
    }
    mapping = engine.stage_index_to_group_rank
    middle = time.process_time()
    schedules._simulate_comms_compute(order, lambda s: mapping[s], count)
    end = time.process_time()
    print(json.dumps({"load": loaded - begin, "simulate": end - middle}))
