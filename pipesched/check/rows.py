"""All checks, one row each: the property, the codes for violations, the function, and the facts that the check needs.

A new check needs a file, a row and a code in this module, and a page for the code. Findings do not stop other checks,
except those that need a sound order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesched.diagnostics import AnyCode
from pipesched.extension import Check, Lazy, Needs

if TYPE_CHECKING:
    from pipesched.check.checks import Subject


class CheckCode(AnyCode):
    """The codes of the findings that checks report."""

    MISSING = "PS301"
    TWICE = "PS302"
    WRONG_RANK = "PS303"
    ORDER = "PS305"
    OVERLAP_DEPENDENT = "PS307"
    FROZEN = "PS310"
    BOTH_WAYS = "PS311"
    UNMATCHED = "PS402"
    SWAPPED = "PS403"
    PEER = "PS404"
    SENT_TWICE = "PS405"
    OVER_CAP = "PS501"
    IDLE_RANK = "PS902"


ORDER_CHECKS: tuple[Check[Subject], ...] = (
    Check(
        "every F, and every B or I + W, runs exactly once, on its rank, with a valid stage and microbatch",
        ("PS301", "PS302", "PS303", "PS304", "PS310", "PS311"),
        Lazy("check.complete:check_complete"),
    ),
    Check(
        "each operation follows its inputs on its rank; overlapped operations are independent; the order has no cycle",
        ("PS305", "PS306", "PS307"),
        Lazy("check.dataflow:check_dataflow"),
    ),
    Check("every rank has work", ("PS902",), Lazy("check.complete:check_placement")),
)
"""The checks of the compute order. Extensions can add hints that explain the findings."""

PROGRAM_CHECKS: tuple[Check[Subject], ...] = (
    Check(
        "peers exist; each message is sent and received once; both ends of a channel have the same order",
        ("PS402", "PS403", "PS404", "PS405"),
        Lazy("check.channels:check_channels"),
        Needs.MESSAGES,
        place=10,
    ),
    Check(
        "no rank waits forever under the communication model",
        ("PS401",),
        Lazy("check.deadlock:check_deadlock"),
        Needs.PROGRAM | Needs.ENDS,
        place=30,
    ),
    Check(
        "no rank holds more activations than its cap",
        ("PS501",),
        Lazy("check.memory:check_memory"),
        Needs.CAPS,
        place=40,
    ),
)
"""The checks of messages and memory. `orders.rows` contains the checks of instructions that a file lists."""
