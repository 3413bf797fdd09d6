"""A torchtitan setting is reported as an error if and only if torch's schedule constructors refuse it."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

import pipesched
from tests.depth import some

NAMES = ("1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
SIZES = [(p, m) for p in (2, 4) for m in (1, 2, 3, 4, 6, 8, 9, 12)]


def told(name: str, p: int, m: int, compiled: str, release: str = "0.2.2") -> pipesched.Checked:
    """Return the result for its debug model."""
    text = (
        f'[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nlocal_batch_size = {m}\n[compile]\n{compiled}'
        f'[parallelism]\npipeline_parallel_degree = {p}\npipeline_parallel_schedule = "{name}"\n'
        '[activation_checkpoint]\nmode = "none"\n'
    )
    return pipesched.check(pipesched.Source("a.toml", text), trainer=f"torchtitan=={release}", torch_version="2.13")


def taken(name: str, p: int, m: int, *, compiled: bool) -> bool:
    """Return True if torch builds a schedule for its stages, with a block compiled as in torchtitan 0.2."""
    import torch
    from torch.distributed.pipelining import schedules

    kind = schedules.get_schedule_class(name)
    vee, single = name in ("ZBVZeroBubble", "DualPipeV"), issubclass(kind, schedules.PipelineScheduleSingle)
    count = p if single else 2 * p
    block = torch.nn.Linear(1, 1)
    model = torch.nn.ModuleDict({"0": torch.compile(block, backend="eager") if compiled else block})
    ranks = {s: min(s, count - 1 - s) if vee else s % p for s in range(count)}
    stages = [
        SimpleNamespace(
            stage_index=index,
            num_stages=count,
            group_size=p,
            group_rank=0,
            group=None,
            submod=model,
            is_first=index == 0,
            is_last=index == count - 1,
            has_backward=True,
            stage_index_to_group_rank=ranks,
        )
        for index in range(count)
        if ranks[index] == 0
    ]
    try:
        kind(stages[0] if single else stages, m, loss_fn=torch.nn.functional.mse_loss)
    except (ValueError, RuntimeError):
        return False
    return True


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("name", NAMES)
def test_what_torch_does_not_build_is_an_error_and_nothing_else_is(name: str) -> None:
    """The rule agrees at every size, and with a compiled model, a compiled loss alone, or neither."""
    found = set()
    for p, m in some(SIZES, 2, usual=5):
        for text, compiled in (
            ("", False),
            ("enable = false\n", False),
            ("enable = true\n", True),
            ('enable = true\ncomponents = ["loss"]\n', False),
            ('enable = true\ncomponents = ["model"]\n', True),
        ):
            made, theirs = told(name, p, m, text), taken(name, p, m, compiled=compiled)
            assert made.ok is theirs, (p, m, text, str(made))
            found.add(theirs)
    assert True in found


def test_blocks_that_are_compiled_in_place_are_a_note() -> None:
    """0.3.0 compiles modules in place: torch builds the schedule, but its computation is open."""
    line = (
        "torchrun -m torchtitan.train --module llama3 --config llama3_debugmodel_ce_loss --compile.enable "
        "--training.disable_cuda_graphs --parallelism.pipeline_parallel_degree 2 activation_checkpoint:none "
        "--parallelism.pipeline_parallel_schedule ZBVZeroBubble\n"
    )
    made = pipesched.check(pipesched.Source("a.sh", line), trainer="torchtitan==0.3.0")
    assert any("compiled in place" in note for note in made.notes), str(made)
