"""STEPs inside an order: each takes a batch, all stages agree on the batches, and every version exists when it is read.

PS616   a STEP of a stage that has several copies or no gradient
PS613   a STEP that takes no gradient
PS615   gradients that no STEP takes
PS614   batches that differ between stages: the t-th STEPs take different microbatches
PS611   a microbatch crosses a STEP in a file that does not say which version is read
PS612   an F reads a version that does not exist yet
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.findings import label, labels, limited, notes
from pipesched.diagnostics import AnyCode, Diagnostic, Label
from pipesched.model.columns import Ints, makes
from pipesched.model.numbers import ranges
from pipesched.model.ops import Op, Result
from pipesched.model.schedule import Program
from pipesched.orders.codes import OrdersCode
from pipesched.versions.codes import VersionCode
from pipesched.versions.facts import Versions

_MEANING = "a backward reads its F's version (`stash`), the newest (`latest`), or max(0, t - d) in batch t (`delay d`)"
_RULES = "`versions stash`, `versions latest` or `versions delay 1`"


def check_order(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS611 to PS616; an order without a STEP inside has no such findings."""
    found = subject.analysis.fact(Versions.of)
    if found is None:
        return
    if wrong := [*_nowhere(found)]:
        yield from wrong
        return
    if wrong := [*_empty(found), *_left(found)] or [*_uneven(found)]:
        yield from wrong
        return
    yield from _crossed(found) if not found.rule else _early(found)


def step_label(made: Versions, step: int, text: str) -> Label:
    """Return a label at a STEP."""
    place = made.steps.origin.place(step)
    bindings = f" ({place.bindings})" if place.bindings else ""
    return Label(place.span, f"rank {int(made.steps.rank[step])}{bindings}: {text}")


def _nowhere(made: Versions) -> Iterator[Diagnostic]:
    """Yield findings on STEPs of stages that cannot step inside an order."""
    schedule, steps = made.schedule, made.steps
    for stage in np.unique(steps.stage).tolist():
        copies = schedule.placement.copies(stage)
        if schedule.forward_only:
            why, help = "the order is forward-only: there is no gradient", "remove STEP, or add the backwards"
        elif stage in schedule.placement.frozen:
            why, help = "the stage is frozen: it has no gradient", "remove it; a bare STEP skips frozen stages"
        elif len(copies) > 1:
            why = f"the stage has copies on ranks {', '.join(map(str, copies))}, whose STEPs would have to coincide"
            help = "put STEP at the end of the order, where the gradients of copies are summed"
        else:
            continue
        first = int(np.flatnonzero(steps.stage == stage)[0])
        message = f"stage {stage} has a STEP inside the order, but {why}"
        yield Diagnostic(VersionCode.NO_STEP_HERE, message, (step_label(made, first, "this STEP"),), (), help)
        if schedule.forward_only:
            return


def _empty(made: Versions) -> Iterator[Diagnostic]:
    """Yield findings on STEPs that take no gradient."""
    trained = np.flatnonzero(made.trained)
    unit = trained // made.schedule.microbatches * made.schedule.ranks + made.schedule.rank[made.done[trained]]
    wide = len(made.steps) + 1
    empty = np.flatnonzero(~np.isin(made.unit * wide + made.number, unit * wide + made.batch[trained]))
    for step, more in limited(empty.tolist()):
        stage = int(made.steps.stage[step])
        before = np.flatnonzero((made.unit == made.unit[step]) & (made.number == made.number[step] - 1)).tolist()
        what = f"STEP {int(made.number[step]) + 1} of stage {stage} takes no gradient"
        yield Diagnostic(
            VersionCode.TAKES_NOTHING,
            what,
            (
                step_label(made, step, "no backward of the stage ends between the previous STEP and this one"),
                *(step_label(made, x, "the previous STEP took all gradients up to here") for x in before),
            ),
            notes("an optimizer may still change the weights, since momentum and weight decay need no gradient", more),
            "remove it, or put it after the W or B whose gradients it should take",
        )


def _left(made: Versions) -> Iterator[Diagnostic]:
    """Yield findings on stages with gradients that no STEP takes."""
    schedule = made.schedule
    count = np.bincount(made.steps.stage, minlength=schedule.stages)
    stage = np.arange(len(made.done)) // schedule.microbatches
    left = np.flatnonzero(made.trained & (made.batch == count[stage]))
    for one, more in limited(np.unique(stage[left]).tolist()):
        of = left[stage[left] == one]
        which, first = ranges((of % schedule.microbatches).tolist()), int(made.done[of].min())
        last = np.flatnonzero(made.steps.stage == one)[-1:].tolist()
        yield Diagnostic(
            VersionCode.LEFT_OVER,
            f"no STEP takes the gradients of microbatch{'es'[: 2 * (len(of) > 1)]} {which} of stage {one}",
            (
                label(schedule, first, "the first of these gradients"),
                *(step_label(made, x, "the last STEP of the stage") for x in last),
            ),
            notes("these gradients are lost at the end of the order", more),
            "put a STEP after the last W or B of the stage",
        )


def _uneven(made: Versions) -> Iterator[Diagnostic]:
    """Yield a finding on the first STEP that takes different microbatches on two stages."""
    m = made.schedule.microbatches
    batch = made.batch.reshape(-1, m)
    stages = np.flatnonzero((batch >= 0).any(axis=1))
    differing = [stage for stage in stages.tolist() if (batch[stage] != batch[stages[0]]).any()]
    for stage in differing[:1]:
        one = int(stages[0])
        number = int(np.minimum(batch[one], batch[stage])[batch[one] != batch[stage]].min())
        taken = [ranges(np.flatnonzero(batch[x] == number).tolist()) or "none" for x in (one, stage)]
        steps = [np.flatnonzero((made.steps.stage == x) & (made.number == number))[:1] for x in (one, stage)]
        at = int(np.flatnonzero((batch[one] != batch[stage]) & (np.minimum(batch[one], batch[stage]) == number))[0])
        message = f"STEP {number + 1} takes microbatches {taken[0]} on stage {one}, but {taken[1]} on stage {stage}"
        said = [
            step_label(made, int(x), f"takes {what} of stage {of}")
            for found, what, of in zip(steps, taken, (one, stage), strict=True)
            for x in found.tolist()
        ]
        late = one if batch[one, at] > batch[stage, at] else stage
        yield Diagnostic(
            VersionCode.BATCHES,
            message,
            (*said, label(made.schedule, int(made.done[late * m + at]), f"the backward of {late}.{at} ends here")),
            notes("the stages would step with gradients of different batches", *_more(differing[1:])),
            "put the same backwards before the STEP on every stage; often the cause is a late W",
        )


def _more(stages: list[int]) -> list[str]:
    return [f"other stages whose batches differ: {ranges(stages)}"] if stages else []


def _crossed(made: Versions) -> Iterator[Diagnostic]:
    """Yield a finding on the first microbatch of each stage that crosses a STEP, in a file without `versions`."""
    m = made.schedule.microbatches
    crossing = np.flatnonzero(made.crossings > 0)
    _, first = np.unique(crossing // m, return_index=True)
    for key, more in limited(crossing[first].tolist(), 1):
        forward, backward = int(made.forward[key]), int(made.backward[key])
        step = _step(made, key // m, int(made.made[forward]))
        yield Diagnostic(
            VersionCode.CROSSED,
            f"microbatch {key % m} crosses a STEP of stage {key // m}, but the file does not say which version is read",
            (
                label(made.schedule, forward, f"{made.schedule[forward]} reads version {int(made.made[forward])}"),
                step_label(made, step, f"makes version {int(made.made[forward]) + 1} of stage {key // m}"),
                label(made.schedule, backward, f"{made.schedule[backward]} runs after this STEP"),
            ),
            notes(_MEANING, more),
            f"declare a rule before the ranks: {_RULES}",
        )


def _step(made: Versions, stage: int, number: int) -> int:
    return int(np.flatnonzero((made.steps.stage == stage) & (made.number == number))[0])


def _early(made: Versions) -> Iterator[Diagnostic]:
    """Yield, for each stage, a finding on the first F that reads a version that does not exist yet."""
    if made.rule != "delay":
        return
    m = made.schedule.microbatches
    newest = np.where(made.forward >= 0, made.made[made.forward], 0)
    early = np.flatnonzero(made.read > newest)
    _, first = np.unique(early // m, return_index=True)
    for key, more in limited(early[first].tolist(), 2):
        at, version = int(made.forward[key]), int(made.read[key])
        step, delay = _step(made, key // m, version - 1), made.steps.rule.partition(" ")[2]
        later = int(made.steps.at[step]) - at
        yield Diagnostic(
            VersionCode.NOT_MADE,
            f"{made.schedule[at]} reads version {version} of stage {key // m}: the STEP that makes it comes "
            f"{later} operation{'s'[: later > 1]} later",
            (
                label(made.schedule, at, f"{made.schedule[at]} belongs to batch {int(made.batch[key])}"),
                step_label(made, step, f"makes version {version}"),
            ),
            notes(f"`versions {made.steps.rule}`: batch t reads version max(0, t - {delay})", more),
            "give a larger delay, or more microbatches per batch",
        )


def check_program(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS601, PS602 and PS603 for each batch, in a file with instructions: each STEP of a stage needs exactly one
    REDUCE_GRAD, after the last backward of its batch.
    """
    program = subject.own
    if subject.analysis.schedule.steps is None:
        return
    steps = np.flatnonzero(program.op == Op.STEP)
    for stage in np.unique(program.stage[steps]).tolist():
        own = steps[program.stage[steps] == stage]
        reductions = np.flatnonzero((program.op == Op.REDUCE_GRAD) & (program.stage == stage))
        weights = np.flatnonzero(makes(program.op, Result.WEIGHTS) & (program.stage == stage))
        taken = np.searchsorted(own, reductions)
        last = np.searchsorted(weights, own) - 1
        yield from _reductions(program, own, reductions, taken, weights[last] if len(weights) else own)


def _reductions(program: Program, steps: Ints, reductions: Ints, taken: Ints, last: Ints) -> Iterator[Diagnostic]:
    """Yield the findings on one stage. steps, reductions: the indices of its STEPs and REDUCE_GRADs in the program.
    taken: for each reduction, the number of the next STEP. last: for each STEP, the index of the W or B before it.
    """
    for number, step in enumerate(steps.tolist()):
        own, stage = reductions[taken == number].tolist(), int(program.stage[step])
        here = (step, f"STEP {number + 1} of stage {stage}")
        found: tuple[AnyCode, str, tuple[tuple[int, str], ...], str] | None = None
        if not own:
            help = "put it after the last backward of the batch"
            found = OrdersCode.NO_REDUCTION, "has no REDUCE_GRAD for its batch before it", (here,), help
        elif len(own) > 1:
            found = OrdersCode.REDUCED_TWICE, "follows several REDUCE_GRADs", ((own[1], "again"), here), "keep one"
        elif own[0] < int(last[number]):
            said = (own[0], "reduced here"), (int(last[number]), "the last backward of the batch")
            help = f"move it after {program[int(last[number])]}"
            found = OrdersCode.REDUCED_EARLY, "has its REDUCE_GRAD before its last backward", said, help
        if found is not None:
            code, what, places, help = found
            yield Diagnostic(code, f"STEP {number + 1} of stage {stage} {what}", labels(program, *places), (), help)
            return
    for at in reductions[taken == len(steps)].tolist()[:1]:
        message = f"no STEP follows the REDUCE_GRAD of stage {int(program.stage[at])}"
        place = label(program, at, "the stage has no later STEP")
        yield Diagnostic(OrdersCode.REDUCED_TWICE, message, (place,), (), "remove it")
