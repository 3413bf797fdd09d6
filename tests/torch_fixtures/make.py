"""Makes the files in this folder: orders from torch's own classes, lowered by torch's own passes, and one mistake in
each.

    python tests/torch_fixtures/make.py          writes them again (needs torch 2.13)

Nothing of pipesched is used here. Cells and rows count from 1, as in ``expect.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from torch.distributed.pipelining import schedules as torch_schedules

HERE = Path(__file__).parent

ONE_F_ONE_B = "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
SPLIT = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n"
GPIPE = "0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0,1B1\n"
VEE = "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n"
EARLY = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1,0REDUCE_GRAD\n"
    "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD\n"
)
FIRST_TWO_SWAPPED = [*(f"F{i}" for i in (1, 0, 2, 3, 4, 5, 6, 7)), *(f"B{i}" for i in range(8))]
TWO_WAY = "0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n"
WAITS = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0F2,0SEND_F2,0RECV_B1,0B1,0WAIT_SEND_F1,0RECV_B2,0B2,"
    "0WAIT_SEND_F2,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1RECV_F2,1B1,1SEND_B1,1F2,1B2,1SEND_B2,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,"
    "1WAIT_SEND_B0,1WAIT_SEND_B1,1WAIT_SEND_B2\n"
)
"""``ONE_F_ONE_B`` as torch 2.15 lowers it."""


def rows_text(rows: Mapping[int, Sequence[object]]) -> str:
    return "".join(",".join("" if x is None else str(x) for x in rows[r]) + "\n" for r in sorted(rows))


def lowered(text: str, owner: list[int], microbatches: int, *, fsdp: bool = False, defer: bool = False) -> str:
    """Lower a compute order by torch's own passes; `owner` is the rank of each stage."""
    order: dict[int, Any] = {}
    for rank, line in enumerate(text.split()):
        row = [torch_schedules._Action.from_str(cell) for cell in line.split(",")]
        actions: list[Any] = torch_schedules._add_unshard_reshard(row) if fsdp else [a for a in row if a is not None]
        order[rank] = torch_schedules._add_reduce_grad(actions, microbatches)
    sent = torch_schedules._add_send_recv(order, owner.__getitem__, len(owner))
    return rows_text(torch_schedules._defer_recv_ops(sent, owner.__getitem__) if defer else sent)


def torch_class(name: str, ranks: int, stages: int, microbatches: int, **options: bool) -> tuple[str, str]:
    """Return the orders of a schedule class of torch: compute_only, compute_comms. `stages` is by rank."""
    made = [mock.MagicMock(num_stages=ranks * stages, group_size=ranks, group_rank=0) for _ in range(stages)]
    schedule = getattr(torch_schedules, name)(made, microbatches, **options)
    return rows_text(schedule.pipeline_order), rows_text(schedule.pipeline_order_with_comms)


def edit(text: str, row: int, cell: int, *new: str, drop: int = 0) -> str:
    """Insert `new` cells before the given one, and drop `drop` cells from there."""
    lines = text.splitlines()
    cells = lines[row - 1].split(",")
    cells[cell - 1 : cell - 1 + drop] = new
    lines[row - 1] = ",".join(cells)
    return "\n".join(lines) + "\n"


def swap(text: str, row: int, one: int, other: int) -> str:
    cells = text.splitlines()[row - 1].split(",")
    first, second = cells[one - 1], cells[other - 1]
    return edit(edit(text, row, one, second, drop=1), row, other, first, drop=1)


def good() -> dict[str, str]:
    """Return the files without a mistake."""
    files = {
        "ok_1f1b": ONE_F_ONE_B,
        "ok_1f1b_comms": lowered(ONE_F_ONE_B, [0, 1], 3),
        "ok_1f1b_fsdp": lowered(ONE_F_ONE_B, [0, 1], 3, fsdp=True),
        "ok_1f1b_waits": WAITS,
        "ok_gpipe_bubbles": GPIPE,
        "ok_split": SPLIT,
        "ok_early_receives": EARLY,
        "ok_vee_comms": lowered(VEE, [0, 1, 1, 0], 2),
        "ok_quoted": '"0F0", 0F1 ,"0B0"  ,0B1\r\n\t1F0,1B0,"1F1",1B1\r\n',
        "ok_no_last_newline": ONE_F_ONE_B.rstrip("\n"),
    }
    for name, made in {
        "interleaved": torch_class("ScheduleInterleaved1F1B", 2, 2, 4),
        "looped_bfs": torch_class("ScheduleLoopedBFS", 2, 2, 2),
        "zero_bubble": torch_class("ScheduleInterleavedZeroBubble", 2, 1, 4),
        "interleaved_zero_bubble": torch_class("ScheduleInterleavedZeroBubble", 2, 2, 4),
        "zbv": torch_class("ScheduleZBVZeroBubble", 2, 2, 4),
        "dualpipev": torch_class("ScheduleDualPipeV", 2, 2, 4),
    }.items():
        files[f"ok_{name}"], files[f"ok_{name}_comms"] = made
    return files


def messages() -> dict[str, str]:
    """Return the slips in sends, receives and their consequences."""
    comms = lowered(ONE_F_ONE_B, [0, 1], 3)
    vee = lowered(VEE, [0, 1, 1, 0], 2)
    return {
        "c02_receives_swapped": swap(EARLY, 2, 1, 2),
        "c03_sends_swapped": swap(swap(EARLY, 1, 2, 3), 1, 3, 4),
        "c04_gradient_receives_swapped": swap(EARLY, 1, 5, 6),
        "c05_no_send": edit(comms, 1, 2, drop=1),
        "c06_no_receive": edit(comms, 2, 3, drop=1),
        "c07_sent_twice": edit(comms, 1, 3, "0SEND_F0"),
        "c08_gradient_sent_twice": edit(comms, 2, 6, "1SEND_B0"),
        "c09_received_twice": edit(comms, 2, 2, "1RECV_F0"),
        "c13_send_before_compute": swap(comms, 1, 1, 2),
        "c14_receive_after_compute": swap(comms, 2, 1, 2),
        "c15_both_send_first": edit(comms, 2, 7, "1B1", "1SEND_B1", "1RECV_F2", drop=3),
        "c18_no_message": edit(edit(comms, 1, 4, drop=1), 2, 3, drop=1),
        "c19_backward_order": swap(swap(EARLY, 2, 5, 7), 2, 6, 8),
        "c_send_from_last_stage": edit(comms, 2, 3, "1SEND_F0"),
        "c_receive_on_first_stage": edit(comms, 1, 1, "0RECV_F0"),
        "c_send_of_another_rank": edit(comms, 2, 3, "0SEND_F0"),
        "v02_send_to_self": edit(vee, 2, 3, "1SEND_F0"),
        "v04_stages_of_one_rank": swap(vee, 2, 2, 4),
        "d_deferred_zbv": torch_class("ScheduleZBVZeroBubble", 2, 2, 4, defer_pp_recv=True)[1],
        "d_deferred_interleaved": torch_class("ScheduleInterleaved1F1B", 2, 2, 4, defer_pp_recv=True)[1],
    }


def actions() -> dict[str, str]:
    """Return the slips in reductions, sharding and waits."""
    comms = lowered(ONE_F_ONE_B, [0, 1], 3)
    fsdp = lowered(ONE_F_ONE_B, [0, 1], 3, fsdp=True)
    return {
        "c10_no_reduction": edit(comms, 1, 13, drop=1),
        "c10_no_reduction_at_all": edit(edit(comms, 1, 13, drop=1), 2, 13, drop=1),
        "c11_reduced_twice": edit(comms, 1, 14, "0REDUCE_GRAD"),
        "c12_reduced_early": swap(comms, 1, 12, 13),
        "c_reduced_elsewhere": edit(comms, 1, 14, "1REDUCE_GRAD"),
        "f_no_unshard": edit(fsdp, 1, 1, drop=1),
        "f_nothing_sharded": comms,
        "f_unshard_twice": edit(fsdp, 1, 5, "0UNSHARD"),
        "f_reshard_early": edit(fsdp, 2, 8, "1RESHARD"),
        "f_no_reshard": edit(fsdp, 2, 15, drop=1),
        "f_reshard_twice": edit(fsdp, 2, 16, "1RESHARD"),
        "f_unshard_unused": edit(fsdp, 1, 16, "0UNSHARD"),
        "w_no_waits": comms,
        "w_one_wait_missing": edit(WAITS, 1, 12, drop=1),
        "w_wait_before_send": swap(WAITS, 2, 5, 15),
        "w_wait_twice": edit(WAITS, 2, 16, "1WAIT_SEND_B0"),
        "w_send_for_wait": edit(WAITS, 1, 7, "0SEND_F0", drop=1),
        "w_reduction_not_waited": edit(WAITS, 1, 17, drop=1),
        "w_reduction_of_another_stage": edit(WAITS, 1, 17, "1WAIT_REDUCE_GRAD", drop=1),
        "w_two_reductions": two_reductions(),
        "w_waits_before_2_15": WAITS,
    }


def two_reductions() -> str:
    """Return the waits of 2.15 at the end of each row, with two reductions of one rank under way at once."""
    rows = [line.split(",") for line in lowered(VEE, [0, 1, 1, 0], 2).split()]
    for row in rows:
        row += [cell.replace("SEND", "WAIT_SEND") for cell in row if "SEND" in cell]
        row += [cell.replace("REDUCE", "WAIT_REDUCE") for cell in row if "REDUCE" in cell]
    return "".join(",".join(row) + "\n" for row in rows)


def orders() -> dict[str, str]:
    """Return the slips in the order of computes."""
    all_first = "".join(
        ",".join(f"{stage}{letter}{i}" for letter in "FB" for i in range(8)) + "\n" for stage in range(2)
    )
    return {
        "a04_ranks_wait": "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
        "a05_first_forward_twice": edit(ONE_F_ONE_B, 1, 2, "0F0"),
        "a06_last_forward_twice": edit(ONE_F_ONE_B, 2, 2, "1F0"),
        "a07_backward_twice": edit(ONE_F_ONE_B, 1, 4, "0B0"),
        "a09_microbatch_beyond": ONE_F_ONE_B.replace("F2", "F5").replace("B2", "B5"),
        "a10_last_stage_order": "0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n",
        "a10_first_two_swapped": "".join(",".join(f"{s}{x}" for x in FIRST_TWO_SWAPPED) + "\n" for s in (0, 1)),
        "a12_last_stage_order": "0F0,0F1,0F2,0B0,0B2,0B1\n1F0,1B0,1F2,1B2,1F1,1B1\n",
        "a12_last_stage_order_comms": lowered("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", [0, 1], 2),
        "a13_rows_swapped": "".join(reversed(ONE_F_ONE_B.splitlines(keepends=True))),
        "a19_weight_backward_twice": edit(SPLIT, 1, 5, "0W0"),
        "a23_all_forwards_first": all_first,
        "a25_stages_wait": "2F0,0F0,2B0,0B0\n1F0,3F0,3B0,1B0\n",
        "a27_split_hides_missing": edit(ONE_F_ONE_B, 1, 6, "0I0", "0W0", drop=1),
        "a_one_twice_one_never": ONE_F_ONE_B.replace("0F2", "0F0").replace("0B2", "0B0"),
        "a_stage_without_forward": edit(ONE_F_ONE_B, 1, 2, drop=1),
        "a_stage_far_out": edit(ONE_F_ONE_B, 1, 7, "7F0"),
        "a_weights_before_input": swap(SPLIT, 1, 3, 4),
        "a_backward_before_forward": swap(ONE_F_ONE_B, 2, 1, 2),
        "a_split_and_full": edit(SPLIT, 1, 5, "0B0"),
        "a_no_weights": edit(SPLIT, 1, 4, drop=1),
        "a_on_two_rows": edit(ONE_F_ONE_B, 2, 2, "0F0"),
        "v08_dependent_overlap": "0F0,0F1,(3F0;3B0)OVERLAP_F_B,3F1,3B1,0B0,0B1\n" + VEE.splitlines()[1] + "\n",
        "v09_vee_on_a_loop": VEE,
        "t_two_ranks": TWO_WAY,
    }


def cells() -> dict[str, str]:
    """Return the cells that are not actions, most of which torch misreads."""
    comms = lowered(ONE_F_ONE_B, [0, 1], 3)
    slips = {
        "trailing": "0F2x",
        "fraction": "0F2.5",
        "two_actions": "0F2 0B1",
        "semicolon": "0F2;0B1",
        "word": "0Forward2",
        "minus": "0F-2",
        "two_letters": "0BW2",
        "lower_case": "0f2",
        "no_microbatch": "0F",
        "no_stage": "F2",
        "nested": "((0F2;0B1))OVERLAP_F_B",
        "overlap_of_one": "(0F2)OVERLAP_F_B",
        "overlap_backward_first": "(0B0;0F2)OVERLAP_F_B",
        "overlap_trailing": "(0F2;0B0)OVERLAP_F_B2",
        "huge_stage": "99999999999F0",
        "huge_microbatch": "0F99999999999",
        "wide_digit": "0F\uff12",
    }
    return {
        **{f"x_{name}": edit(ONE_F_ONE_B, 1, 4, cell, drop=1) for name, cell in slips.items()},
        "x_wait_before_2_15": edit(comms, 1, 3, "0WAIT_SEND_F0"),
        "x_unshard_microbatch": edit(comms, 1, 1, "0UNSHARD0"),
        "x_byte_order_mark": "\ufeff" + ONE_F_ONE_B,
        "x_blank_line": ONE_F_ONE_B.replace("\n", "\n\n", 1),
        "x_blank_end": ONE_F_ONE_B + "\n",
        "x_only_bubbles": ONE_F_ONE_B + ",,,\n",
        "x_empty_cell_comms": edit(comms, 2, 3, ""),
        "x_sparse": edit(ONE_F_ONE_B, 1, 4, "9999999F9999999", drop=1),
        "x_unquoted_end": edit(ONE_F_ONE_B, 1, 4, '"0F2', drop=1),
    }


def all_files() -> dict[str, str]:
    """Return all files by name without ``.csv``."""
    return good() | messages() | actions() | orders() | cells()


if __name__ == "__main__":
    for name, text in all_files().items():
        (HERE / f"{name}.csv").write_text(text, encoding="utf-8", newline="")
