"""Every published hang is found, and programs that run in practice are not reported as hangs."""

from __future__ import annotations

import random

import pytest

from pipesched.analysis import termination
from pipesched.analysis.communication import parse_model
from pipesched.analysis.events import Events
from tests.depth import deep
from tests.makers.communication_cases import CASES
from tests.makers.communication_notation import Case
from tests.oracles.explorer import MODELS, walk
from tests.oracles.explorer_machines import machine
from tests.oracles.explorer_script import Script

pytestmark = pytest.mark.quick

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
def test_the_static_verdict_is_the_published_one(case: Case) -> None:
    """Under each model the program holds or fails as its source reports, with the same least capacity."""
    program = case.program()
    assert {m: termination.holds(program, parse_model(m)) for m in MODELS} == {m: case.holds(m) for m in MODELS}
    assert termination.least_capacity(program) == case.capacity


@each_case
def test_a_rank_stops_where_the_case_says(case: Case) -> None:
    """The blocked instructions equal the expected ones, with -1 for ranks that finish."""
    program = case.program()
    assert {m: Events(program, parse_model(m)).stops for m in case.stuck} == case.stuck


@each_case
def test_a_run_of_the_explorer_ends_as_published(case: Case) -> None:
    """The oracle reproduces the same cases, by random runs, as the larger ones are too large to explore."""
    script = Script(case.program())
    for model in MODELS:
        ends = {walk(machine(script, model), random.Random(seed)) for seed in range(deep(2))}
        assert len(ends) == 1
        assert (ends == {(-1,) * len(case.ranks)}) == case.holds(model), model
        assert ends == {case.stuck.get(model, *ends)}


@each_case
def test_labels_are_swapped_where_the_case_says(case: Case) -> None:
    """Messages that meet on a channel have one kind and microbatch, except in cases of wrong values.

    If some have no partner at all, later ones on the channel may meet anything: nothing is claimed.
    """
    script = Script(case.program())
    if len(script.partner) < len(script.spot):
        assert not case.swapped
        return
    sent = [(script.instruction(end), script.instruction(other)) for end, other in script.partner.items()]
    different = [(a, b) for a, b in sent if (a.op.name[-1], a.microbatch) != (b.op.name[-1], b.microbatch)]
    assert bool(different) == case.swapped


def test_the_cases_agree_with_themselves() -> None:
    """Capacity 0 is strict, no capacity suffices for none, and k is between them; names are unique."""
    for case in CASES:
        assert (case.capacity == 0) == case.holds("strict")
        assert (case.capacity is None) != case.holds("buffered(inf)")
        for k in (1, 2):
            assert case.holds(f"buffered({k})") == (case.capacity is not None and case.capacity <= k)
    assert len({case.name for case in CASES}) == len(CASES)
