"""The relations for a file, enumerated at a size, give the same order as expanding the file, operation for operation.

`python -m tests.prover.test_relations --cases 2700` is the long run on random files.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

import numpy as np
import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.language import ast
from pipesched.language.typecheck import check_text
from pipesched.library.assets import built_in
from pipesched.library.inputs import read
from pipesched.model.schedule import Schedule
from pipesched.prover.guess import Guesses
from pipesched.prover.model import Model
from pipesched.prover.presburger import Space, TooHard, bounded
from pipesched.prover.relations import Relations, Unsettled
from pipesched.prover.sampling import Sample, Stuck, sizes
from pipesched.prover.scope import NotAffine
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers import ps_affine, ps_forms, ps_programs

isl = pytest.importorskip("islpy")

Slots = list[list[tuple[str, int, int, bool]]]
NOT_YET = {"capped", "pipeoffload", "v_half", "v_min", "v_zb"}
NOT_YET |= {"pipedream", "pipedream_2bw", "pipemare", "vertical_sync"}
NOT_YET |= {"helix", "recycle", "skippipe", "v1f1b"}
"""The files that have no known form: `pending`, copies, STEPs, single microbatches, `backfill`."""
ALL_P = {
    "1f1b",
    "1f1b_v",
    "eager_1f1b",
    "forward_only",
    "frozen_encoder",
    "gpipe",
    "gpipe_reversed",
    "looped_bfs",
    "mario",
    "naive",
}
ALL_P |= {"dualpipev", "packed", "seq1f1b", "terapipe", "unet", "zb_h1", "zb_h2", "zb_v"}
DIGITS = {"grouped_interleaved", "interleaved", "interleaved_overlap"}
"""The files that divide by p, so that their numbers are in base p."""


def expanded(schedule: Schedule) -> Slots:
    return [
        [(x.op.name, x.stage, x.microbatch, x.second) for x in schedule.order(rank)] for rank in range(schedule.ranks)
    ]


def asked(file: ast.File, given: dict[str, int], *, digits: bool = False) -> tuple[Model, Relations]:
    model = Model(file, given, digits)
    return model, Relations(model, Sample(model, sizes(model)))


def written_out(model: Model, relations: Relations, size: dict[str, int], ranks: int) -> Slots:
    """Return the keys of all instances at a size, by rank in the order of their places."""
    size = {**size, "g": size["m"] // size["p"], "h": size["m"] % size["p"]} if model.digits else size
    text = " and ".join(f"{name} = {size[name]}" for name in model.parameters) or "true"
    there = isl.Set.read_from_str(model.context, f"[{', '.join(model.parameters)}] -> {{ : {text} }}").params()
    found: list[list[tuple[tuple[int, ...], tuple[str, int, int, bool]]]] = [[] for _ in range(ranks)]
    for statement in model.statements:
        points: list[isl.Point] = []
        relations.keys[statement.name].intersect_params(there).wrap().foreach_point(points.append)
        for point in points:
            dims = len(model.space.dims) + 1 + model.space.width
            at = [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(dims)]
            loops, (stage, *digits) = at[1 : len(model.space.dims)], at[len(model.space.dims) :]
            microbatch = digits[-1] + (digits[0] * size["p"] if len(digits) > 1 else 0)
            step = (statement.letter, stage, microbatch, statement.second)
            found[at[0]].append((statement.position(tuple(loops)), step))
    return [[step for _, step in sorted(rank, key=lambda pair: pair[0])] for rank in found]


SLOW = {"interleaved_n", "interleaved_overlap", "interleaved_zb", "grouped_interleaved", "chimera_n"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.nightly if x in SLOW else ()) for x in sorted(set(built_in()) - NOT_YET)],
)
def test_the_relations_of_the_library_are_its_orders(name: str) -> None:
    """At sizes that no guess was made from too; for every p at once where that has a form."""
    file = check_text(read(name)).file
    p = 4 if name in ("chimera_n", "dualpipe") else 2 if name in ("chimera", "bitpipe", "seq1f1b_i") else 3
    model, relations = asked(file, {} if name in ALL_P | DIGITS else {"p": p}, digits=name in DIGITS)
    for m in (7 * p + (name in ALL_P), 2 * p, 16 * p)[: 1 if deep(1) == 1 else 3]:
        try:
            schedule = pipesched.load(name, p=p, m=m)
        except PipeschedError:
            continue
        assert written_out(model, relations, {"p": p, "m": m}, schedule.ranks) == expanded(schedule)


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_what_has_no_form_is_refused(name: str) -> None:
    """An order that has no form is refused with its place and a reason."""
    file = check_text(read(name)).file
    with pytest.raises(NotAffine) as refused:
        assert Model(file, {"p": 4}).statements
    assert refused.value.span.text and refused.value.reason


@pytest.mark.parametrize("dims", [("r",), ("r", "i0")])
def test_values_at_random_have_no_guess(dims: tuple[str, ...]) -> None:
    """With loops and without: no few cases fit them, and the search ends."""
    rng = random.Random(0)
    rows = np.array([(1, p, m, *(rng.randrange(p) for _ in dims)) for p in range(1, 6) for m in range(1, 9)])
    guesses = Guesses(Space(isl.Context(), ("p", "m"), dims), rows)
    assert guesses.through([rng.randrange(100) for _ in rows]) is None


def random_text(seed: int) -> tuple[str, dict[str, int]]:
    if seed % 2:
        made = ps_programs.program(seed)
        return made.text(), {"p": made.ranks, "m": made.microbatches}
    text, given = ps_forms.program(seed)
    return text, {name: value for name, value in given.items() if isinstance(value, int)}


def test_the_relations_of_random_files_are_their_orders() -> None:
    """A random file at its size, where it has a form."""
    compared = refused = 0
    for seed in range(deep(30, usual=15)):
        text, given = random_text(seed)
        source = Source("random.ps", text)
        try:
            schedule = pipesched.load(source, **given)  # type: ignore[arg-type]
            file = check_text(source).file
        except PipeschedError:
            continue
        if schedule.ranks > 4 or len(schedule) > 200 or given.keys() != {x.name.id for x in file.parameters}:
            continue
        try:
            model, relations = asked(file, given)
            slots = written_out(model, relations, given, schedule.ranks)
        except (NotAffine, Unsettled, Stuck, PipeschedError):
            refused += 1
            continue
        assert slots == expanded(schedule), text
        compared += 1
    assert 3 * compared > refused


STEPS = 3_000_000
SIZES = ((2, 5), (2, 11), (3, 8), (3, 12), (4, 7), (4, 10), (5, 24), (3, 43), (2, 46), (4, 44))


def affine(seed: int, given: dict[str, int]) -> str:
    """Return how a random affine file fares, for every p or for one; raises AssertionError where an order differs."""
    text = ps_affine.program(seed)
    source = Source("random.ps", text)
    try:
        model = Model(check_text(source).file, given)
        with bounded(model.context, STEPS):
            relations = Relations(model, Sample(model, sizes(model)))
            keys = relations.keys
    except (NotAffine, Unsettled, Stuck, TooHard) as error:
        return f"refused: {error}".partition(" at ")[0]
    for p, m in SIZES:
        if given.get("p", p) != p:
            continue
        try:
            schedule = pipesched.load(source, p=p, m=m)
        except PipeschedError as error:
            if {found.code for found in error.diagnostics} == {"PS209"}:
                continue
            raise
        assert written_out(model, relations, {"p": p, "m": m}, schedule.ranks) == expanded(schedule), f"{p} {m} {text}"
    return "empty" if not keys else "every p" if not given else "one p"


def test_the_relations_of_random_loops_are_their_orders() -> None:
    """Placements, lets, loops in each other, choices, parities, drains: at sizes far from those of any guess too."""
    found = Counter(affine(seed, {} if seed % 4 == 0 else {"p": 2 + seed % 3}) for seed in range(deep(7, usual=7)))
    assert found["every p"] and 2 * (found["every p"] + found["one p"]) > found.total(), found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2700)
    parser.add_argument("--first", type=int, default=0)
    cases = parser.parse_args()
    total: Counter[str] = Counter()
    for case in range(cases.first, cases.first + cases.cases):
        total[affine(case, {} if case % 4 == 0 else {"p": 2 + case % 3})] += 1
    for outcome, count in total.most_common():
        print(count, outcome)
