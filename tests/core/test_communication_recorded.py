"""Among Megatron-LM's own orders, none that runs is reported as a hang, swapped messages are found, and a hang that
occurs only with too few queues is reported with its communication model.

`tests/orders/megatron` was recorded by executing the schedules of megatron-core 0.16.1 on tokens, a recorder in the
place of torch.distributed: ( … ) is one batch_isend_irecv, @1 the second process group that it makes for two ranks.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

import pipesched
from pipesched.model.schedule import Program
from pipesched.support.source import Source
from tests.makers.programs import of_instructions
from tests.oracles.explorer import walk
from tests.oracles.explorer_machines import machine
from tests.oracles.explorer_script import Script
from tests.oracles.symbolic import right

pytestmark = pytest.mark.quick

ORDERS = Path(__file__).parents[1] / "orders" / "megatron"
POSTED = ("one-stream", "pair-stream", "async")
BATCHED = ("p2_v2_m2_batched", "p4_v2_m4_batched")
FLUSHED = {"p2_v2_m2_flush": True, "p3_v2_m3_flush": True, "p4_v2_m4_flush": False, "p5_v2_m5_flush": True}
FLUSHED |= {"p6_v2_m6_flush": False}


def codes(source: Path | Program | Source, model: str) -> set[str]:
    return {str(d.code) for d in pipesched.verify(source, comm=model).diagnostics if d.severity == "error"}


def program(name: str) -> Program:
    made = pipesched.load(ORDERS / f"{name}.order").program
    assert made is not None
    return made


def ends(given: Program, model: str) -> bool:
    """Return True if random runs of the explorer's machine finish; either all runs finish, or no run."""
    script = Script(given)
    stops = {walk(machine(script, model), random.Random(seed)) for seed in range(3)}
    assert len(stops) == 1
    return stops == {(-1,) * given.ranks}


@pytest.mark.parametrize("name", BATCHED)
def test_batches_do_not_tie_their_partners(name: str) -> None:
    """With m = p, two chunks and an even number of ranks the schedule is safe under every model, as on real
    processes."""
    report = pipesched.verify(ORDERS / f"{name}.order")
    assert report.ok and report.communication is not None
    assert report.communication.fails == () and report.communication.capacity == 0
    assert ends(program(name), "strict") and right(program(name))


def test_unbatched_overlap_is_safe() -> None:
    """Unbatched overlap is safe in the order by parity, without a flush."""
    assert codes(ORDERS / "p4_v2_m4_overlap.order", "strict") == set()
    assert ends(program("p4_v2_m4_overlap"), "strict") and right(program("p4_v2_m4_overlap"))


@pytest.mark.parametrize(("name", "safe"), FLUSHED.items())
def test_the_flush_of_the_warm_up_needs_more_than_one_queue_for_even_p(name: str, safe: bool) -> None:
    """If all posts of a rank share one queue, for even p > 2 all ranks wait in a cycle, for odd p they do not; two
    ranks have one process group per direction, hence two queues. One queue for each pair is enough.
    """
    assert codes(ORDERS / f"{name}.order", "one-stream") == (set() if safe else {"PS401"})
    assert codes(ORDERS / f"{name}.order", "pair-stream") == codes(ORDERS / f"{name}.order", "async") == set()
    assert {model: ends(program(name), model) for model in POSTED} == dict.fromkeys(POSTED, True) | {"one-stream": safe}
    if not safe:
        (found,) = pipesched.verify(ORDERS / f"{name}.order", comm="one-stream").diagnostics
        assert {int(x.message.split(",")[0].split()[1]) for x in found.labels} == set(range(program(name).ranks))
        apart = "use one communicator per direction between two ranks"
        assert found.help == f"{apart}: then the program completes under one-stream"


def test_two_chunks_in_one_batch_are_swapped_for_two_ranks() -> None:
    """p = 2, m > p: a gradient and an activation in one direction match each other's receive; separate communicators
    correct this, in Megatron's posting order.
    """
    text = (ORDERS / "p2_v2_m4_batched.order").read_text("utf-8")
    assert codes(Source("swapped.order", text), "strict") == {"PS403"}
    assert not right(program("p2_v2_m4_batched"))
    apart = Source("apart.order", re.sub(r"((?:send|recv):B\S+)", r"\1@1", text))
    assert all(codes(apart, model) == set() for model in ("strict", *POSTED))
    cured = pipesched.load(apart).program
    assert cured is not None and right(cured)


CROSSED = Path(__file__).parents[1] / "torch_fixtures" / "c15_both_send_first.csv"


@pytest.mark.parametrize("model", ["one-stream", "pair-stream"])
def test_the_remedy_names_communicators_where_they_cure(model: str) -> None:
    """Ranks that send first, in queues: with the suggested change every run finishes; under strict
    it is not suggested.
    """
    (found,) = pipesched.verify(CROSSED, comm=model).diagnostics
    assert "or put activations on one communicator and gradients on another" in (found.help or "")
    given = pipesched.load(CROSSED).program
    assert given is not None and not ends(given, model)
    lists = [
        [replace(x, communicator=int(x.op.name.endswith("_B"))) for x in given.instructions(rank)]
        for rank in range(given.ranks)
    ]
    assert ends(of_instructions(lists, given.placement), model)
    (found,) = pipesched.verify(CROSSED).diagnostics
    assert "communicator" not in (found.help or "")
