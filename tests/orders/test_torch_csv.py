"""The reader of torch's CSV agrees with torch itself, with the csv module, and with the columns from which files are
written."""

from __future__ import annotations

import csv
import io
import re
import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesched import verify
from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.explain.cells import reading
from pipesched.model.ops import Op
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import TorchVersion, parse_version
from pipesched.orders import torch_csv
from pipesched.orders.implied import Bad
from pipesched.orders.torch_csv import cells, notation, read_cell
from pipesched.support.source import Source
from tests.depth import deep

V213, V215 = parse_version("2.13"), parse_version("2.15")

MICROBATCH = ["F", "I", "W", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B"]
WHOLE_STAGE = ["UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"]

numbers = st.integers(0, 30)
plain = st.builds("{}{}{}".format, numbers, st.sampled_from(MICROBATCH), numbers) | st.builds(
    "{}{}".format, numbers, st.sampled_from(WHOLE_STAGE)
)
pair = st.builds("({}F{};{}{}{})OVERLAP_F_B".format, numbers, numbers, numbers, st.sampled_from("BI"), numbers)
cell = plain | pair | st.just("")
dressed = st.builds(
    lambda c, how: how.format(c), cell, st.sampled_from(["{}", " {}", "{}\t", '"{}"', '"{}" ', '" {}"'])
)


def source(text: str, name: str = "file.csv") -> Source:
    return Source(name, text)


def read(text: str, **options: object) -> Schedule | Program:
    return torch_csv.read(source(text), **options)  # type: ignore[arg-type]


def refused(text: str, **options: object) -> tuple[Diagnostic, ...]:
    with pytest.raises(PipeschedError) as caught:
        read(text, **options)
    return caught.value.diagnostics


def read_plain_row(line: str, version: TorchVersion) -> tuple[list[int], ...] | None:
    """Return op, stage, microbatch and second of a row, or None if a cell is refused."""
    words = notation(version).read(line, ",")
    op, second, stage, microbatch = words.columns.tolist()
    return None if len(words.bad) else (op, stage, microbatch, second)


def place(diagnostic: Diagnostic, label: int = 0) -> tuple[int, int]:
    """Return the row and cell of a label, counted by the commas of the text."""
    span = diagnostic.labels[label].span
    assert span is not None
    return span.line, span.source.line(span.line)[: span.column - 1].count(",") + 1


def operations(row: list[str]) -> list[tuple[str, int, int, bool]]:
    """Return a row as (type, stage, microbatch or -1, second), by the grammar on torch's page."""
    found = []
    for text in row:
        inside = re.fullmatch(r"\((.*)\)OVERLAP_F_B", text.strip())
        for i, part in enumerate(inside[1].split(";") if inside else filter(None, [text.strip()])):
            match = re.fullmatch(r"(\d+)([A-Z_]+?)(\d*)", part)
            assert match
            found.append((match[2], int(match[1]), int(match[3] or -1), i > 0))
    return found


@given(st.lists(dressed, min_size=1, max_size=12))
@settings(max_examples=deep(37, usual=19), deadline=None)
def test_row_equals_csv_module(row: list[str]) -> None:
    """The fast reader reads every right row, with the result of Python's csv dialect and the plain grammar."""
    line = ",".join(row)
    columns = read_plain_row(line, V215)
    assert columns is not None
    op, stage, microbatch, second = columns
    expected = operations(next(csv.reader(io.StringIO(line)), []))
    assert list(zip([Op(x).name for x in op], stage, microbatch, second, strict=True)) == expected


PIECES = ["0", "1", "F", "B", "I", "(", ")", ";", ",", '"', " ", "x", "OVERLAP_F_B", "SEND_F", "UNSHARD", "0F1", "1B0"]
PAIR = "(0F1;1B0)OVERLAP_F_B"


@given(st.lists(st.sampled_from([*PIECES, PAIR, f",{PAIR},"]), max_size=7).map("".join))
@settings(max_examples=deep(250, usual=125), deadline=None)
def test_fast_reader_never_guesses(line: str) -> None:
    """On any text the fast reader gives the result of the exact reader, and none if that one refuses a cell."""
    columns = read_plain_row(line, V213)
    exact = [read_cell(text, V213) for _, text in cells(line) if text]
    if columns is None:
        return
    assert not any(isinstance(entries, Bad) for entries in exact)
    expected = [(*entry, i > 0) for entries in exact if not isinstance(entries, Bad) for i, entry in enumerate(entries)]
    assert list(zip(*columns, strict=True)) == expected


@pytest.mark.quick
@pytest.mark.parametrize(
    "line",
    ["0F,0,0B,0", "0F0,0F1,0B0,0B1,9", "0,0F0,0B0", "0F0,1,2,0B0", "0F,0", "0,0", "0F00B0", "0UNSHARD0", "F0", "+0F0"],
)
def test_fast_reader_takes_no_number_alone(line: str) -> None:
    """With any number of numbers in a row, each cell has its own, or the row is not read."""
    assert read_plain_row(line, V213) is None


@given(st.lists(st.lists(dressed, min_size=1, max_size=8), min_size=1, max_size=4))
@settings(max_examples=deep(25, usual=13), deadline=None)
def test_every_operation_finds_its_cell(rows: list[list[str]]) -> None:
    """The source position of an operation is its own text, in quoted and padded cells and in pairs too."""
    text = "".join(",".join(row) + "\n" for row in rows)
    try:
        with mock.patch("pipesched.orders.implied.require_no_gap"):  # gaps in the numbers
            x = read(text, torch_version=V215)
    except PipeschedError:
        return
    names = [x.origin.place(i).span.text for i in range(len(x))]  # type: ignore[union-attr]
    assert names == [
        f"{x.stage[i]}{Op(int(x.op[i])).name}{'' if x.microbatch[i] < 0 else x.microbatch[i]}" for i in range(len(x))
    ]


@given(st.text(alphabet="01FIBWSENDRCV_;() x-.", min_size=1, max_size=12) | plain | pair)
@settings(max_examples=deep(187, usual=94), deadline=None)
def test_cell_against_torch(text: str) -> None:
    """A cell is accepted exactly if torch reads all of it; else the message says how torch 2.13 reads it."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    text = text.strip()
    if not text:
        return
    try:
        action = schedules._Action.from_str(text)
    except RuntimeError:
        action = None
    found = read_cell(text, V213)
    if not isinstance(found, Bad):
        assert str(action) == re.sub(r"0+(?=\d)", "", text)
        parts = action.sub_actions or (action,)
        assert [(op.name, s, i) for op, s, i in found] == [
            (a.computation_type.name if len(a.computation_type.value) > 1 else a.computation_type.value, *rest(a))
            for a in parts
        ]
    elif action is None:
        assert "refuses it when it loads the file" in reading(text, V213)
    elif "reads it as" in reading(text, V213):
        said = re.search(r"reads it as (\S+)", reading(text, V213))
        assert said is not None
        assert said[1] == str(action)
    else:
        assert "refuses" not in reading(text, V213)


def rest(action: object) -> tuple[int, int]:
    microbatch = action.microbatch_index  # type: ignore[attr-defined]
    return action.stage_index, -1 if microbatch is None else microbatch  # type: ignore[attr-defined]


@given(st.data())
@settings(max_examples=deep(12, usual=6), deadline=None)
def test_placement_is_read_off_the_rows(data: st.DataObject) -> None:
    """For every table rank[route, stage] and every route of each microbatch, the file gives that table."""
    ranks, stages, microbatches, routes = (data.draw(st.integers(1, n)) for n in (4, 5, 6, 3))
    rank_of = data.draw(
        st.lists(st.lists(st.integers(0, ranks - 1), min_size=stages, max_size=stages), min_size=1, max_size=routes)
    )
    route_of = data.draw(st.lists(st.integers(0, len(rank_of) - 1), min_size=microbatches, max_size=microbatches))
    rows: list[list[str]] = [[] for _ in range(ranks)]
    for i, route in enumerate(route_of):
        for letter in "FB":
            for stage, rank in enumerate(rank_of[route]):
                rows[rank].append(f"{stage}{letter}{i}")
    if not all(rows):
        return
    x = read("\n".join(map(",".join, rows)))
    assert isinstance(x, Schedule)
    assert x.placement.table.T.tolist() == [rank_of[route] for route in route_of]
    assert x.placement.routes == len({tuple(rank_of[route]) for route in route_of})
    assert x.placement.ranks == ranks


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("0F0,1F0\n0F0\n", [[0, 0]]), ("0B0,1F0\n0F0\n", [[1, 0]]), ("0SEND_F0,1F0\n0B0\n", [[1, 0]])],
)
def test_what_a_stage_runs_first_tells_its_rank(text: str, ranks: list[list[int]]) -> None:
    """If rows contradict each other, the first F decides, then any other compute, then a message."""
    assert read(text).placement.rank_of.tolist() == ranks


def test_partial_routes_merge() -> None:
    """A microbatch with a missing forward still takes the route of the others."""
    x = read("0F0,0F1,0B0\n1F0,1F1,1F2,1B0\n")
    assert x.placement.rank_of.tolist() == [[0, 1]]
    assert x.placement.route_of.tolist() == [0, 0, 0]


def test_two_routes_have_names() -> None:
    """Two ways through the ranks, in opposite directions, are `down` and `up`."""
    x = read("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n")
    assert (x.placement.rank_of.tolist(), x.placement.route_names) == ([[0, 1], [1, 0]], ("down", "up"))


def test_peers() -> None:
    """A message goes to the row of the neighbouring stage: -1 if there is none, its own rank on one rank."""
    x = read("0F0,0SEND_F0,1RECV_B0,0SEND_B0\n1RECV_F0,1F0,1SEND_B0,2F0,1SEND_F0,2SEND_F0\n")
    assert isinstance(x, Program)
    peers = {str(x[i]): x[i].peer for i in range(len(x)) if x[i].peer != -1}
    assert peers == {"0SEND_F0": 1, "1RECV_B0": 1, "1RECV_F0": 0, "1SEND_B0": 0, "1SEND_F0": 1}
    assert x.group.tolist() == [-1] * len(x)
    assert x.communicator.tolist() == [0] * len(x)


def test_content_tells_schedule_from_program() -> None:
    """Computes alone are a Schedule; any other action makes a Program."""
    assert isinstance(read("0F0,0B0\n"), Schedule)
    assert isinstance(read("0F0,0B0,0REDUCE_GRAD\n"), Program)


def test_every_bad_cell_is_reported() -> None:
    """All bad cells of a file are reported together, each with its place, up to a stated limit."""
    found = refused("0F0,0F1x,\n1F0,1f1,1F\n")
    assert [(d.code, place(d)) for d in found] == [(Code.CELL, (1, 2)), (Code.CELL, (2, 2)), (Code.CELL, (2, 3))]
    many = refused("0f0," * 30 + "0F0\n" + "1f0," * 3 + "1F0\n")
    assert len(many) == 20
    assert many[-1].notes == ("the rest of the file was not read",)
    assert len(refused("0f0," * 15 + "0F0\n" + "1f0," * 15 + "1F0\n")) == 20


def test_a_rank_without_actions() -> None:
    """A blank line and a row of empty cells are ranks of torch that do nothing."""
    found = refused("0F0,0B0\n\n,,\n")
    assert [(d.code, d.labels[0].span.line) for d in found if d.labels[0].span] == [
        (Code.EMPTY_CELL, 2),
        (Code.EMPTY_CELL, 3),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n0F0,0B0\n", "line 1 is a blank line"),
        ("0F0,\xa00B0\n", "torch 2.13 reads it as 0B0"),
        ('0F0,"0B0\n', "its quote is not closed in this row"),
    ],
)
def test_the_message_is_true_of_torch(text: str, said: str) -> None:
    """torch skips no line, strips every blank of Unicode, and ends a quoted cell only at the next quote."""
    assert said in str(verify(Source("a.csv", text)))


@pytest.mark.parametrize("ends", ["\r\r", "\r\n", "\n\r"])
def test_rows_may_end_in_carriage_returns(ends: str) -> None:
    """The csv module, by which torch reads, ends a row at U+000D too, whatever ends the others."""
    text = f"0F0,0B0{ends[0]}1F0,1B0{ends[1]}"
    assert len([*csv.reader(io.StringIO(text, newline=""))]) == 2
    assert str(verify(Source("a.csv", text))) == str(verify(Source("a.csv", text.replace("\r", "\n"))))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("0F0,,0SEND_F0\n1RECV_F0,1F0,\n", [(1, 2), (2, 3)]),
        (",0F0,0REDUCE_GRAD\n", [(1, 1)]),
        ("0F0, ,0REDUCE_GRAD\n", [(1, 2)]),
    ],
)
def test_bubbles_of_a_program(text: str, places: list[tuple[int, int]]) -> None:
    """An empty cell among messages is found where it is."""
    found = refused(text)
    assert {d.code for d in found} == {Code.EMPTY_CELL}
    assert [d.labels[0].span.line for d in found if d.labels[0].span] == [line for line, _ in places]
    assert [int(re.findall(r"cell (\d+)", d.message)[0]) for d in found] == [number for _, number in places]
    assert {d.labels[0].span.text for d in found if d.labels[0].span} == {","}


@pytest.mark.parametrize("text", ["", "\n", "  \n\n", "0UNSHARD,0RESHARD\n"])
def test_nothing_to_run(text: str) -> None:
    """A file that runs no stage is reported as such."""
    assert [d.code for d in refused(text)] == [Code.EMPTY]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"given": {"stages": 3}}, {"2", "3"}),
        ({"given": {"m": 4}}, {"2", "4"}),
        ({"placement": [0, 0]}, {"0", "1"}),
        ({"placement": [0, 1, 0]}, {"2", "3"}),
    ],
)
def test_what_was_said_must_agree(options: dict[str, object], numbers: set[str]) -> None:
    """Stages, microbatches and placement of the command line are compared with the file; the
    message has both numbers.
    """
    text = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
    (found,) = refused(text, **options)
    assert found.code is Code.FILE_DISAGREES
    assert numbers <= set(re.findall(r"\d+", found.message))
    assert isinstance(read(text, given={"stages": 2, "m": 2, "p": 2}, placement=[0, 1]), Schedule)


@pytest.mark.parametrize(
    "text", ["9999999F9999999\n", "0F9999999,9999999B0\n", "0F10000001\n", "99999999999999999999F0\n"]
)
def test_huge_numbers_cost_nothing(text: str) -> None:
    """A slip in a number is refused before anything of that size is made."""
    tracemalloc.start()
    found = refused(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [d.code for d in found] == [Code.OUT_OF_RANGE]
    assert peak < 1_000_000


def test_reduction_of_a_stage_that_nobody_runs() -> None:
    """S counts the stages that compute; an action of any other stage is out of range."""
    (found,) = refused("0F0,0B0,0REDUCE_GRAD,7REDUCE_GRAD\n")
    assert (found.code, place(found)) == (Code.OUT_OF_RANGE, (1, 4))


def test_waits_need_their_version() -> None:
    """torch 2.13 reads 0WAIT_SEND_F0 as a W; from 2.15 on it is an action."""
    text = "0F0,0SEND_F0,0WAIT_SEND_F0\n1RECV_F0,1F0\n"
    (found,) = refused(text)
    assert (found.code, place(found)) == (Code.CELL, (1, 3))
    assert "0W without a microbatch and drops 'AIT_SEND_F0'" in found.message
    assert isinstance(read(text, torch_version=V215), Program)


def test_line_ends_and_the_last_line() -> None:
    """CRLF and a missing line end at the end change nothing."""
    lines = ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]
    first, *others = (read(end.join(lines) + last) for end in ("\n", "\r\n") for last in ("", end))
    for other in others:
        assert [c.tolist() for c in (other.op, other.stage, other.microbatch, other.start)] == [
            c.tolist() for c in (first.op, first.stage, first.microbatch, first.start)
        ]


@pytest.mark.nightly
def test_a_large_file() -> None:
    """393,216 cells, 64 rows, in the order of ZB-V at p = 64, m = 1024, take at most 60 MiB."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    stages = [mock.MagicMock(num_stages=128, group_size=64, group_rank=0) for _ in range(2)]
    with mock.patch.object(schedules._PipelineScheduleRuntime, "_prepare_schedule_with_comms"):
        order = schedules.ScheduleZBVZeroBubble(stages, 1024).pipeline_order
    text = "".join(",".join("" if a is None else str(a) for a in order[r]) + "\n" for r in sorted(order))
    x = read(text)
    assert len(x) == 3 * 128 * 1024
    assert x.placement.rank_of.tolist() == [[*range(64), *reversed(range(64))]]
    tracemalloc.start()
    read(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 60 * 2**20
    last = int(x.start[-1]) - 1
    assert x.origin.place(last).span.text == text.rstrip().rsplit(",", 1)[1]  # type: ignore[union-attr]


def test_columns_are_small() -> None:
    """Columns have the types that the model states."""
    x = read("0F0,0B0\n")
    assert [c.dtype for c in (x.op, x.stage, x.microbatch, x.second, x.start)] == [
        np.int8,
        np.int32,
        np.int32,
        np.bool_,
        np.int64,
    ]
