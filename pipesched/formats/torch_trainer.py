"""What to write into a trainer's settings beside a torch CSV.

The file names no placement. torch's runtime takes the stages that each rank built, and trainers build them before they
read the file: torchtitan by the *name* of a schedule class, which the file then replaces.

    stage s on rank s                1F1B
    stage s on rank s % p, v >= 2    PipelineScheduleMulti
    the V: 0 1 .. p-1 p-1 .. 1 0     ZBVZeroBubble
    anything else                    no name of torchtitan's builds it

Source: torchtitan, `pipeline_parallel.py`: `_get_pipeline_metadata`, `_build_pipeline_schedule`.
"""

from __future__ import annotations

from pipesched.model.placement import Placement


def settings(placement: Placement, path: str) -> list[str]:
    """Lines for a person: what goes with the file at `path`."""
    ranks, microbatches = placement.ranks, placement.microbatches
    name = _name(placement)
    if name is None:
        by_stage = ",".join(map(str, placement.rank_of[0].tolist()))
        return [
            f"torchtitan cannot build this placement (ranks by stage: {by_stage}): it knows one stage a rank, the loop "
            "and the V with two stages a rank",
            f"your own script can: give each rank its PipelineStages, n_microbatches={microbatches}, and load the file "
            "with _PipelineScheduleRuntime._load_csv(path)",
        ]
    each = placement.stages // ranks
    lines = [
        "torchtitan, [parallelism]:",
        f"  pipeline_parallel_degree = {ranks}",
        f'  pipeline_parallel_schedule = "{name}"        # for the placement alone; the order is that of the file',
        f'  pipeline_parallel_schedule_csv = "{path}"',
        f"  num_pp_microbatches = {microbatches}",
    ]
    if name == "PipelineScheduleMulti":
        lines.append(
            f"  pipeline_parallel_layers_per_stage = L        # so that the model makes {placement.stages} stages, "
            f"{each} a rank" + ("; may be left out" if each == 2 else "")
        )
    lines.append(
        f'NeMo AutoModel: pp_schedule_csv = "{path}", {each} stage{"s" if each > 1 else ""} a rank, '
        f"{microbatches} microbatches"
    )
    return lines


def comms_settings(placement: Placement, version: tuple[int, int]) -> list[str]:
    """The same for a compute_comms file."""
    return [
        f"this file is for torch {version[0]}.{version[1]}: other versions want other actions",
        f"load it with _PipelineScheduleRuntime(stages, n_microbatches={placement.microbatches}, loss_fn=…)"
        '._load_csv(path, format="compute_comms")',
        "torchtitan and NeMo AutoModel load the computes alone: --target torch-csv",
    ]


def _name(placement: Placement) -> str | None:
    """The schedule class by whose name torchtitan builds this placement, or None."""
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
