"""Determines the settings with which a trainer loads a torch CSV. The CSV has no placement. torch's runtime uses the
stages that each rank built, and trainers build them before they read the CSV: torchtitan by the *name* of a schedule
class, whose order the CSV then replaces.

    stage s on rank s                1F1B
    stage s on rank s % p, v >= 2    PipelineScheduleMulti
    the V: 0 1 .. p-1 p-1 .. 1 0     ZBVZeroBubble
    any other placement              torchtitan has no schedule name that builds it

torchtitan makes `training.local_batch_size` / `parallelism.pipeline_parallel_microbatch_size` microbatches. 0.2.2 reads
a TOML file, 0.3.0 only command-line options.

Source: torchtitan 0.2.2 and 0.3.0, `pipeline_parallel.py`: `_get_pipeline_metadata`, `_build_pipeline_schedule`. The
statements about I and W were measured with torchtitan's debug model on gloo.
"""

from __future__ import annotations

import json
import shlex

from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import TorchVersion

_SPLIT = (
    "with I and W, as in this file, torchtitan 0.3.0 on torch 2.15 silently leaves the last norm without a gradient "
    "under its default chunked loss, and raises an error under its default selective checkpointing; torchtitan 0.2.2 "
    "on torch 2.13 does neither"
)


def settings(order: Schedule | Program, path: str) -> list[str]:
    """Return lines that tell the user the settings with which trainers load the file at `path`."""
    placement = order.placement
    ranks, microbatches = placement.ranks, placement.microbatches
    name = _name(placement)
    if name is None:
        by_stage = ",".join(map(str, placement.rank_of[0].tolist()))
        return [
            f"torchtitan cannot build this placement (ranks by stage: {by_stage}): it supports one stage per rank, "
            "the loop, and the V with two stages per rank",
            f"your own script can build it: give each rank its PipelineStages, set n_microbatches={microbatches}, and "
            "load the file with _PipelineScheduleRuntime._load_csv(path)",
        ]
    each = placement.stages // ranks
    return [
        *_torchtitan(placement, name, path),
        f"NeMo AutoModel: pp_schedule_csv = {json.dumps(path)}, {each} stage{'s' if each > 1 else ''} per rank, "
        f"{microbatches} microbatches",
        *([_SPLIT] if order.split else []),
    ]


def _torchtitan(placement: Placement, name: str, path: str) -> list[str]:
    """Return the options of torchtitan 0.2.2 (TOML) and of 0.3.0 (command line)."""
    each, m = placement.stages // placement.ranks, placement.microbatches
    degree, schedule, csv, batch = (
        "pipeline_parallel_degree",
        "pipeline_parallel_schedule",
        "pipeline_parallel_schedule_csv",
        "local_batch_size",
    )
    lines = [
        "torchtitan 0.2.2, in its TOML file:",
        "  [parallelism]",
        f"  {degree} = {placement.ranks}",
        f"  {schedule} = {json.dumps(name)}        # sets only the placement; the order is in the CSV",
        f"  {csv} = {json.dumps(path)}",
        "  [training]",
        f"  {batch} = {m}        # {m} x parallelism.pipeline_parallel_microbatch_size, 1 unless set",
        f"torchtitan 0.3.0, on its command line: --parallelism.{degree} {placement.ranks} "
        f"--parallelism.{schedule} {name} --parallelism.{csv} {shlex.quote(path)} --training.{batch} {m}",
    ]
    if name == "PipelineScheduleMulti":
        lines.append(
            f"for both releases, set parallelism.pipeline_parallel_layers_per_stage so that the model has "
            f"{placement.stages} stages, {each} per rank" + ("; this may be omitted" if each == 2 else "")
        )
    return lines


def comms_settings(placement: Placement, version: TorchVersion) -> list[str]:
    """Return lines that tell the user how to load a compute_comms file."""
    return [
        f"this file works only with torch {version}: other versions need other actions",
        f"load it with _PipelineScheduleRuntime(stages, n_microbatches={placement.microbatches}, loss_fn=…)"
        '._load_csv(path, format="compute_comms")',
        "torchtitan and NeMo AutoModel load only compute operations: use --target torch-csv for them",
    ]


def _name(placement: Placement) -> str | None:
    """Return the name of the schedule class with which torchtitan builds this placement, or None."""
    ranks, stages = placement.ranks, placement.stages
    home = placement.rank_of[0].tolist()
    if placement.routes != 1:
        return None
    if home == list(range(ranks)):
        return "1F1B"
    if home == [stage % ranks for stage in range(stages)] and stages % ranks == 0:
        return "PipelineScheduleMulti"
    if home == [*range(ranks), *reversed(range(ranks))]:
        return "ZBVZeroBubble"
    return None
