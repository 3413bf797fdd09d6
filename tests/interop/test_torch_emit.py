"""torch loads the emitted files, lowers them as pipesched does, and would train with them like the undivided model.

The oracle is torch 2.13 if it is installed; for its rules up to 2.15, our own checks and a runtime on symbols
(``torch_runtime.py``) that knows nothing of pipesched.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings

import pipesched
from pipesched import compile as compiler
from pipesched.compile import Options
from pipesched.interop.torch import torch_actions
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import parse_version
from pipesched.orders import torch_csv
from pipesched.support.source import Source
from pipesched.verbs import emit as emissions
from tests.depth import deep
from tests.makers import strategies
from tests.oracles.torch_runtime import Runtime

CALM = settings(derandomize=True, deadline=None, max_examples=deep(10, usual=5))
ORDERS = Path(__file__).parents[1] / "orders"
SIZES = [
    ("gpipe", {"p": 3, "m": 4}),
    ("1f1b", {"p": 4, "m": 6}),
    ("interleaved", {"p": 2, "v": 4, "m": 4}),
    ("interleaved", {"p": 4, "v": 3, "m": 8}),
    ("zb_h1", {"p": 4, "m": 5}),
    ("zb_h2", {"p": 3, "m": 7}),
    ("zb_v", {"p": 3, "m": 4}),
    ("dualpipev", {"p": 2, "m": 5}),
    ("zbv_handcrafted_p4_m8", {}),
    ("dualpipev_p4_m8", {}),
]
CASES = pytest.mark.parametrize(("name", "sizes"), SIZES, ids=lambda x: x if isinstance(x, str) else "")
VERSIONS = [(2, minor) for minor in range(10, 16)]


def source(name: str) -> Source:
    file = ORDERS / f"{name}.txt"
    return Source(file.name, file.read_text("utf-8")) if file.exists() else compiler.read(name)


def emitted(name: str, sizes: dict[str, int], target: str, version: tuple[int, int] = (2, 13)) -> str:
    emission = emissions.emit(source(name), Options(sizes, torch_version=parse_version(f"2.{version[1]}")), target)
    assert emission.report.ok, str(emission.report)
    return "".join(emission.pieces())


def owners(text: str) -> list[int]:
    """Return the rank of every stage, by the row that computes it."""
    rows = text.splitlines()
    held = {int(stage): rank for rank, row in enumerate(rows) for stage in re.findall(r"(\d+)F\d", row)}
    return [held[stage] for stage in range(len(held))]


def microbatches(text: str) -> int:
    return 1 + max(int(x) for x in re.findall(r"F(\d+)", text))


def engine(text: str) -> object:
    """Return torch's runtime with stand-ins for the stages."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    nn = pytest.importorskip("torch.nn")
    owner = owners(text)
    held = [
        SimpleNamespace(
            stage_index=stage,
            num_stages=len(owner),
            group_size=len(text.splitlines()),
            group_rank=0,
            group=None,
            submod=nn.Identity(),
            is_first=stage == 0,
            is_last=stage == len(owner) - 1,
            has_backward=True,
            stage_index_to_group_rank=dict(enumerate(owner)),
        )
        for stage in range(len(owner))
        if owner[stage] == 0
    ]
    return schedules._PipelineScheduleRuntime(held, microbatches(text), loss_fn=lambda x, y: x)


def loaded(text: str, kind: str, folder: Path) -> dict[int, list[str]]:
    """Return the order that torch runs after loading the file."""
    path = folder / "order.csv"
    path.write_text(text)
    made = engine(text)
    made._load_csv(str(path), format=kind)  # type: ignore[attr-defined]
    order: dict[int, list[object]] = made.pipeline_order_with_comms  # type: ignore[attr-defined]
    return {rank: [str(action) for action in actions] for rank, actions in order.items()}


# Loaded by torch


@CASES
def test_torch_loads_the_computes(name: str, sizes: dict[str, int], tmp_path: Path) -> None:
    """compute_only: torch accepts the file, and lowers it to the computes of each row."""
    text = emitted(name, sizes, "torch-csv")
    made = loaded(text, "compute_only", tmp_path)

    for rank, row in enumerate(text.splitlines()):
        assert [cell for cell in made[rank] if re.fullmatch(r"\d+[FIWB]\d+|\(.*", cell)] == row.split(",")


@CASES
def test_torch_loads_the_program(name: str, sizes: dict[str, int], tmp_path: Path) -> None:
    """compute_comms: torch runs the file, cell by cell."""
    text = emitted(name, sizes, "torch-comms")
    made = loaded(text, "compute_comms", tmp_path)

    assert made == {rank: row.split(",") for rank, row in enumerate(text.splitlines())}


@CASES
def test_our_program_is_torchs_lowering(name: str, sizes: dict[str, int], tmp_path: Path) -> None:
    """Computes, UNSHARD, RESHARD and REDUCE_GRAD are in torch's order; the same messages are at our places.

    Stages that are freed at one place have no order of their own in torch 2.13, which keeps them in a set.
    """
    made = loaded(emitted(name, sizes, "torch-csv"), "compute_only", tmp_path)
    ours = [row.split(",") for row in emitted(name, sizes, "torch-comms").splitlines()]

    for rank, row in enumerate(ours):
        assert local(row) == local(made[rank])
        assert Counter(filter(message, row)) == Counter(filter(message, made[rank]))


def message(cell: str) -> bool:
    return "SEND" in cell or "RECV" in cell


def local(row: list[str]) -> list[list[str]]:
    """Return the cells that are not messages; adjacent RESHARDs sorted."""
    cells = [cell for cell in row if not message(cell)]
    return [sorted(group) for _, group in groupby(cells, lambda cell: cell if "RESHARD" not in cell else "RESHARD")]


# Right for every version


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v[0]}.{v[1]}")
@CASES
def test_the_program_holds_for_its_version(name: str, sizes: dict[str, int], version: tuple[int, int]) -> None:
    """Our verdict on the written file has no finding, with sharded stages and waits too."""
    text = emitted(name, sizes, "torch-comms", version)
    report = pipesched.verify(Source("a.csv", text), torch_version=f"2.{version[1]}", fsdp=True)

    assert (report.ok, report.diagnostics) == (True, ())
    assert ("WAIT_" in text) == (version >= (2, 15))


@CASES
def test_the_program_trains_what_the_undivided_model_does(name: str, sizes: dict[str, int]) -> None:
    """Executed symbolically, with sharded stages, the program makes every gradient and reduces it once."""
    text = emitted(name, sizes, "torch-comms")

    assert Runtime(text, owners(text), microbatches(text), fsdp=True).wrong() is None


@CASES
def test_2_15_waits_once_for_every_send_and_reduction(name: str, sizes: dict[str, int]) -> None:
    """Each send and reduction has one later wait; a rank has at most one reduction under way; a rank waits for the send
    of an activation after its backward."""
    before = emitted(name, sizes, "torch-comms", (2, 14)).splitlines()
    for row, plain in zip(emitted(name, sizes, "torch-comms", (2, 15)).splitlines(), before, strict=True):
        cells = row.split(",")
        assert [cell for cell in cells if "WAIT" not in cell] == plain.split(",")
        waits = [cell for cell in cells if "WAIT" in cell]
        assert len(set(waits)) == len(waits)
        assert {x.replace("WAIT_", "") for x in waits} == {x for x in cells if re.search(r"\dSEND|\dREDUCE", x)}
        assert all(cells.index(x.replace("WAIT_", "")) < cells.index(x) for x in waits)
        under_way = [cell for cell in cells if "REDUCE" in cell]
        assert all("WAIT" in b and "WAIT" not in a for a, b in zip(under_way[::2], under_way[1::2], strict=True))
        for wait in waits:
            send = re.fullmatch(r"(\d+)WAIT_SEND_F(\d+)", wait)
            if send:
                done = re.compile(rf"(.*\D)?{send[1]}[IB]{send[2]}(\D.*)?")
                assert cells.index(wait) > next(i for i, cell in enumerate(cells) if done.fullmatch(cell))


@pytest.mark.parametrize(("version", "other"), [((2, 13), (2, 15)), ((2, 15), (2, 13)), ((2, 15), (2, 15))])
def test_a_program_moves_between_versions(version: tuple[int, int], other: tuple[int, int]) -> None:
    """A file for one torch becomes the file for another: only waits are added or removed."""
    text = emitted("interleaved", {"p": 2, "v": 2, "m": 4}, "torch-comms", version)
    emission = emissions.emit(
        Source("a.csv", text), Options(torch_version=parse_version(f"2.{other[1]}")), "torch-comms"
    )

    assert "".join(emission.pieces()) == emitted("interleaved", {"p": 2, "v": 2, "m": 4}, "torch-comms", other)


# Random orders


@CALM
@given(strategies.schedules())
def test_what_is_written_is_read(schedule: Schedule) -> None:
    """The computes of any schedule without idle ranks: columns, pairs and all."""
    if not np.all(np.diff(schedule.start)):
        return
    made = torch_csv.read(Source("a.csv", "".join(torch_csv.pieces(schedule))))

    assert isinstance(made, Schedule)
    for name in ("op", "stage", "microbatch", "second", "start"):
        assert np.array_equal(getattr(made, name), getattr(schedule, name)), name


def test_random_programs_are_right_or_refused() -> None:
    """Every order either becomes a program with which torch trains like the undivided model, or has its code."""
    codes: Counter[str] = Counter()
    for seed in range(deep(250, usual=120)):
        schedule = strategies.random_schedule(seed)
        text = "".join(f"rank {r}: {' '.join(words(schedule, r))}\n" for r in range(schedule.ranks))
        emission = emissions.emit(Source("a.txt", text), Options(), "torch-comms")
        if emission.order is None:
            codes.update({str(found.code) for found in emission.report.diagnostics if found.severity == "error"})
            continue
        made = "".join(emission.pieces())
        codes["right"] += 1
        assert Runtime(made, owners(made), microbatches(made), fsdp=True).wrong() is None, text
    assert set(codes) == {"right", "PS804", "PS814"} and codes["right"] > deep(30), codes


def words(schedule: Schedule, rank: int) -> list[str]:
    made: list[str] = []
    for x in schedule.order(rank):
        if x.second:
            made[-1] += f"+{x}"
        else:
            made.append(str(x))
    return made


@CALM
@given(strategies.schedules(pairs=0.5))
def test_resident_stages_are_the_next_ones(schedule: Schedule) -> None:
    """From every slot on, the resident stages are in the order of their next use, until three are found and their slot
    is done."""
    program = compiler.lower(schedule)
    for rank in range(program.ranks):
        slots = [stages for _, stages in torch_actions._slots(program, rank)]
        for at, window in enumerate(torch_actions._resident(slots)):
            found: list[int] = []
            for stages in slots[at:]:
                found += [stage for stage in dict.fromkeys(stages) if stage not in found]
                if len(found) >= 3:
                    break
            assert list(window) == found


def test_an_overlap_of_four_stages_keeps_four() -> None:
    """A slot whose first part is the third stage brings its second part with it."""
    assert torch_actions._resident([(0,), (2,), (4, 6), (0,)]) == [(0, 2, 4, 6), (2, 4, 6), (4, 6, 0), (0,)]


# Refused


@pytest.mark.parametrize("target", ["torch-csv", "torch-comms"])
@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("rank 0: F0.0 F1.1 B1.1 B0.0\nrank 1: F0.1 F1.0 B1.0 B0.1\n", "stage 0 is on ranks 0 and 1"),
        ("rank 0: F0.0 F0.1\nrank 1: F1.0 F1.1\n", "no backward"),
        ("rank 0: F0.0 B0.0\nrank 1:\n", "no stage is on rank 1"),
    ],
)
def test_what_torch_cannot_run_is_refused(target: str, order: str, words: str) -> None:
    """PS814 with the reason and the target that works: the stream, which is then emitted."""
    (found,) = emissions.emit(Source("a.txt", order), Options(), target).report.diagnostics

    assert str(found.code) == "PS814" and words in found.message
    assert found.help is not None and "--target stream" in found.help
    assert emissions.emit(Source("a.txt", order), Options(), "stream").order is not None


def test_fused_batches_go_to_torch_as_computes_only() -> None:
    """The order's own messages cannot be written in torch's cells; torch makes its own from the computes."""
    first = "rank 0: F0.0 ( send:F0.0>1 ) recv:B1.0<1 B0.0 reduce:0\n"
    order = first + "rank 1: ( recv:F0.0<0 ) F1.0 B1.0 send:B1.0>0 reduce:1\n"
    refused = emissions.emit(Source("a.txt", order), Options(), "torch-comms")

    assert [str(x.code) for x in refused.report.diagnostics] == ["PS814"]
    assert "".join(emissions.emit(Source("a.txt", order), Options(), "torch-csv").pieces()) == "0F0,0B0\n1F0,1B0\n"


@pytest.mark.parametrize("target", ["stream", "torch-csv", "torch-comms"])
def test_a_program_is_judged_with_its_own_messages(target: str) -> None:
    """A wrong receive is reported even if only the computes of the program are emitted."""
    first = "rank 0: F0.0 send:F0.0>1 F0.1 send:F0.1>1 recv:B1.0<1 B0.0 recv:B1.1<1 B0.1 reduce:0\n"
    second = "rank 1: recv:F0.1<0 recv:F0.0<0 F1.0 B1.0 send:B1.0>0 F1.1 B1.1 send:B1.1>0 reduce:1\n"
    emission = emissions.emit(Source("a.txt", first + second), Options(), target)

    assert emission.order is None and {str(x.code) for x in emission.report.diagnostics} == {"PS403"}


def test_a_last_stage_out_of_order_is_not_emitted_for_torch() -> None:
    """torch would pair losses with other microbatches (PS804); our own runtime does not."""
    order = "rank 0: F0.0 F0.1 B0.1 B0.0\nrank 1: F1.1 F1.0 B1.1 B1.0\n"

    for target, codes in (("torch-csv", ["PS804"]), ("torch-comms", ["PS804"]), ("stream", [])):
        emission = emissions.emit(Source("a.txt", order), Options(), target)
        assert [str(x.code) for x in emission.report.diagnostics] == codes
