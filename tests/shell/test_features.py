"""A command or target accepts a schedule only if it supports all features of the schedule; otherwise it refuses the
schedule and names the feature.

The picture in `common/features.py` is a claim: each of its cells is tried with a schedule that has that feature alone.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import pipesched
from pipesched.common import features
from pipesched.common.features import FEATURES, Consumer, Feature, Found
from pipesched.diagnostics import Code, PipeschedError
from pipesched.interop.targets import deepspeed_write
from pipesched.interop.torch.torch_order import TORCH_COMMS, TORCH_CSV
from pipesched.model.ops import Op
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.solve.instance import BOUNDED, OPTIMIZER
from pipesched.support.source import Source

CONSUMERS: dict[str, Consumer] = {
    "optimizer": OPTIMIZER,
    "bound": BOUNDED,
    "torch-csv": TORCH_CSV,
    "torch-comms": TORCH_COMMS,
    "DeepSpeed": deepspeed_write.CONSUMER,
}
CHAIN = "schedule one(p = 2, m = 2)\nstage s in 0 .. p on rank s\n"
LOOP = "rank r { repeat m { F  B } }\n"
WITH = {  # a schedule that has the feature and, of the rest of the table, nothing
    "kinds": CHAIN + "rank r { repeat m { F  R  B } }\n",
    "overlap": CHAIN + "rank r { F  overlap(F, B)  B }\n",
    "W overlaps": CHAIN + "rank r { F  F  I  overlap(I, W)  W }\n",
    "copies": "schedule two(p = 2, m = 2)\nroute down: stage s in 0 .. p on rank s for microbatch 0 .. 1\n"
    "route up: stage s in 0 .. p on rank p - 1 - s for microbatch 1 .. 2\n"
    "rank r { F[r] F[1 - r] B[r] B[1 - r] }\n",
    "skips": "schedule skip(p = 3, m = 2)\nstage s in 0 .. 2 on rank s\nstage 2 on rank 2 reads 1, 0\n" + LOOP,
    "slices": CHAIN + "slices 2\nrank r { repeat m { F }  repeat m { B } }\n",
    "frozen": CHAIN + "frozen 0\n" + LOOP,
    "forward-only": CHAIN + "rank r { repeat m { F } }\n",
    "empty ranks": "schedule gap(p = 3, m = 2)\nstage 0 on rank 0\nstage 1 on rank 2\n"
    "rank 0 { repeat m { F  B } }\nrank 1 { }\nrank 2 { repeat m { F  B } }\n",
    "STEP inside": CHAIN + "versions stash\nrank r { repeat m { F  B  STEP } }\n",
    "uneven costs": CHAIN + "costs F[s, i] = 1 + i\n" + LOOP,
}
COMMANDS = {"torch-csv": "torch-csv", "torch-comms": "torch-comms", "DeepSpeed": "deepspeed"}


def picture() -> dict[tuple[str, str], str]:
    """Return the cells of the table in the module's docstring, by feature and consumer."""
    lines = (features.__doc__ or "").splitlines()
    head = next(line for line in lines if "found in a schedule as" in line)
    starts = [head.index(name) for name in CONSUMERS]
    cells = {}
    for row in [*WITH]:
        line = next(line for line in lines if line.strip().startswith(f"{row}  "))
        for name, start, end in zip(CONSUMERS, starts, [*starts[1:], None], strict=True):
            cells[row, name] = line[start:end].strip()
    return cells


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_the_picture_is_the_table(consumer: str) -> None:
    """A cell is ``known`` if the row has the feature, the letters of the kinds, and else ``-``."""
    row, cells = CONSUMERS[consumer], picture()
    assert {cell[0] for cell in cells} == {"kinds", *(feature.name for feature in FEATURES)}
    assert cells["kinds", consumer].split() == [op.name for op in row.kinds]
    assert {f.name for f in row.knows} == {f.name for f in FEATURES if cells[f.name, consumer] == "known"}


def refusals(consumer: str, text: str) -> list[tuple[Code, str]]:
    """Return the refusals of the consumer's command."""
    source = Source("mine.ps", text)
    try:
        if consumer in COMMANDS:
            pipesched.emit(source, to=COMMANDS[consumer])
        else:
            pipesched.optimize(source, time_limit=0)
    except PipeschedError as error:
        return [(d.code, d.message) for d in error.diagnostics]
    return []


@pytest.mark.parametrize("consumer", [*COMMANDS, "optimizer"])
@pytest.mark.parametrize("feature", WITH)
def test_a_command_refuses_what_its_row_does_not_know(feature: str, consumer: str) -> None:
    """The command refuses it by its code, with the consumer's title; a known feature is not refused for that."""
    loaded = pipesched.load(Source("mine.ps", WITH[feature]))
    found = [row.name for row in FEATURES if row.find(loaded, pipesched.Costs()) is not None]
    assert set(found) <= {feature}, "the example has more than its feature"
    known = picture()[feature, consumer]
    said = [
        message
        for code, message in refusals(consumer, WITH[feature])
        if code in (Code.TARGET, OptimizerCode.NOT_OPTIMIZED)
    ]
    title = CONSUMERS[consumer].title
    if known != "known" and not (feature == "kinds" and Op.R in CONSUMERS[consumer].kinds):
        assert any(message.startswith(f"{title} cannot ") for message in said), said
    else:
        own = ("this schedule has its stages on ranks",)  # a placement that only this consumer has no words for
        assert not [m for m in said if m.startswith(title) and not any(x in m for x in own)], said


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_new_feature_is_refused(consumer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that no consumer names is unknown to all, so a schedule with it is refused."""
    new = Feature("novel", lambda schedule, costs: Found("it has a novelty"))
    monkeypatch.setattr(features, "FEATURES", (*FEATURES, new))
    schedule = pipesched.load("1f1b", p=2)
    assert [d.message for d in CONSUMERS[consumer].refusals(schedule)] == [
        f"{CONSUMERS[consumer].title} cannot {CONSUMERS[consumer].verb} one_f_one_b: it has a novelty"
    ]
    knowing = replace(CONSUMERS[consumer], knows=(*CONSUMERS[consumer].knows, new))
    assert knowing.takes(schedule)
