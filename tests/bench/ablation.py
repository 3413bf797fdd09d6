"""Measure what each member of the optimizer contributes, by running every instance without that member, within the same
number of steps.

    python -m tests.bench.ablation FILE                        every instance, whole and without each member
    python -m tests.bench.ablation FILE --steps 20000000 --members walks glucose --instances vee

FILE (JSON) keeps the results, so that a run continues where the last one stopped. Steps, not seconds, end a search, so
the table is the same on every machine. A member that an instance never uses is not left out of it: nothing would
change. The table counts, by member, the instances whose answer is worse or better without it (makespan or span, bound,
verdict), and compares the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from pipesched.optimizer.solve.meter import Meter

STEPS = 4_000_000
FOREVER = 100_000.0  # seconds
LEFT_OUT = "PIPESCHED_LEFT_OUT"  # names the member that an engine's process leaves out

Call = Callable[..., object]

PORTFOLIO, LISTS = "pipesched.optimizer.solve.portfolio", "pipesched.optimizer.solve.portfolio.list_scheduling"
PUSH = "pipesched.optimizer.solve.portfolio.justify:Justifier.push"
SEARCH, DECIDE = "pipesched.optimizer.solve.search.search", "pipesched.optimizer.solve.engines.decide"
ASKING = "pipesched.optimizer.solve.search.questions"
QUESTIONS, ASK = "pipesched.optimizer.solve.search.bound_schedule:BoundSchedule", f"{ASKING}:Lanes.ask"
BOUND, PERIODIC = "pipesched.optimizer.solve.bounds.lower_bound", "pipesched.optimizer.solve.repeat.periodic"


def always(arguments: tuple[object, ...], found: object) -> bool:
    """Wrap a function so that a call counts as use."""
    return True


@dataclass(frozen=True)
class Member:
    """A part that can be left out. where: `module:name` of each function that `without(function)` replaces. seen: the
    call that shows use, if it is a different call; used: True for arguments and a result that show use. worker:
    replaced in the engines' processes.
    """

    name: str
    where: tuple[str, ...]
    without: Callable[[Call], object]
    seen: str = ""
    used: Callable[[tuple[object, ...], object], bool] = always
    worker: bool = False


def nothing(whole: Call) -> Call:
    """Yield no candidate."""
    return lambda *given, **named: iter(())


def none(whole: Call) -> Call:
    """Do nothing."""
    return lambda *given, **named: None


def first(whole: Call) -> Call:
    """Return the first argument as it is."""
    return lambda it, *given, **named: it


def kept(keep: Callable[[object], bool], whole: Call) -> Call:
    """Keep some of a list or iterator."""
    return lambda *given: [one for one in whole(*given) if keep(one)]


def rows() -> Iterator[Member]:
    """Yield all members."""
    for name in ("zero_bubble", "building_blocks", "patterns", "listings", "walks"):
        yield Member(name, (f"{PORTFOLIO}:{name}",), nothing)
    mixed = lambda whole: kept(lambda one: one[0] != "V building block", whole)  # noqa: E731
    yield Member("mixed blocks", (f"{PORTFOLIO}:building_blocks",), mixed)
    yield Member("keys but oldest", (f"{LISTS}:policies",), lambda whole: kept(lambda one: "old" in one[0], whole))
    yield Member("pushed together", (PUSH,), lambda whole: lambda self, found, *more: found)
    yield Member("ranks begin later", (f"{PORTFOLIO}:late", f"{ASKING}:late"), _not_late, used=lambda a, f: f[1] > 0)
    yield Member("neighbourhoods", (f"{PORTFOLIO}:neighbourhoods",), none)
    yield Member("library", (f"{SEARCH}:_offer_all",), none)
    yield Member("formula", ("pipesched.optimizer.optimize:_formula",), lambda whole: lambda *given: 0)
    yield Member("coarse grid", (f"{SEARCH}:_offer_rounded",), none)
    yield Member("ranks before", (f"{SEARCH}:_ask_ranks",), none)
    yield Member("find", (f"{QUESTIONS}.find",), none)
    together, alone = (lambda one: one[0].ranks is not None), (lambda one: one[0].ranks is None)
    yield Member("refute all ranks", (f"{QUESTIONS}._refutations",), lambda whole: kept(together, whole))
    yield Member("refute one rank", (f"{QUESTIONS}._refutations",), lambda whole: kept(alone, whole))
    yield Member("lattice", (f"{DECIDE}:tighten",), first, seen=ASK, worker=True)
    yield Member("merged W", (f"{DECIDE}:merge",), _unmerged, seen=ASK, worker=True)
    for kind in ("ends", "one-machine"):
        drop = lambda whole, kind=kind: kept(lambda one: one.kind != kind, whole)  # noqa: E731
        yield Member(f"bound: {kind}", (f"{BOUND}:_in_frame",), drop)
    yield Member("bound: other frames", (f"{BOUND}:_in_frame",), _own_frame)
    for name in ("_from_known", "_at_the_bound", "_above", "_less"):
        yield Member(f"every m: {name.strip('_')}", (f"{PERIODIC}:{name}",), nothing)


def _not_late(whole: Call) -> Call:
    return lambda problem, orders, *start: (orders, 0)


def _unmerged(whole: Call) -> object:
    return import_module(DECIDE).unmerged


def _own_frame(whole: Call) -> Call:
    return lambda problem, rank, own, frame: whole(problem, rank, own, frame) if rank == frame else []


MEMBERS = {one.name: one for one in rows()}


def ticks(rng: random.Random, count: int, width: float) -> str:
    """Return the costs by stage, uniform round 20 ticks."""
    return "[" + ",".join(str(round(20 * rng.uniform(1 - width, 1 + width))) for _ in range(count)) + "]"


def uneven(seed: int, stages: int, width: float = 0.3, message: int = 1) -> str:
    """Return the costs that differ from stage to stage."""
    rng = random.Random(seed)
    return ",".join(f"{key}={ticks(rng, stages, width)}" for key in "FIW") + f",C={message}"


def instances() -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the names and questions, drawn by kind of placement, size, cap, costs and objective."""

    def one(kind: str, p: int, m: int, cap: str, costs: str = "", **more: object) -> tuple[str, dict[str, object]]:
        said = " ".join(f"{value}" for value in more.values())
        name = f"{kind} p{p} m{m} cap {cap} {costs[:16]} {said}".strip()
        given: dict[str, object] = {"p": p, "m": m, "mem_cap": cap, **more}
        given |= {"costs": costs} if costs else {}
        given |= {} if kind == "linear" else {"target": kind} if kind == "chimera" else {"placement": kind}
        return name, given

    for p, m, cap in ((2, 8, "2"), (4, 8, "2"), (4, 16, "3"), (4, 12, "7"), (6, 12, "4"), (8, 16, "3"), (8, 16, "15")):
        yield one("linear", p, m, cap)
    for p, m, cap in ((4, 8, "3"), (6, 12, "5"), (8, 16, "6"), (8, 16, "8")):
        yield one("linear", p, m, cap, "F=10,I=12,W=8,C=1")
    for p, m, cap in ((4, 8, "4"), (4, 8, "3"), (6, 12, "6"), (8, 16, "5")):
        yield one("linear", p, m, cap, "F=1,I=1,W=1,C=1")
    for seed, p, m, cap in ((1, 4, 8, "3"), (2, 4, 16, "4"), (3, 6, 12, "4"), (4, 8, 16, "8"), (5, 8, 16, "5")):
        yield one("linear", p, m, cap, uneven(seed, p))
        yield one("linear", p, m, cap, uneven(seed, p, 0.1), objective="span")
    for p, m, cap in ((4, 8, "4"), (4, 12, "6"), (6, 12, "6"), (8, 16, "12")):
        yield one("linear", p, m, cap, "F=14407,I=14380,W=9676,C=1610", objective="span")
    for p, m, cap in ((3, 6, "2"), (4, 8, "2"), (4, 12, "2.5"), (4, 12, "4"), (6, 12, "4"), (8, 16, "5"), (8, 16, "8")):
        yield one("vee", p, m, cap)
    for p, m, cap, costs in (
        (4, 8, "2", "F=3,I=4,W=2"),
        (4, 16, "2.5", "F=18,I=18,W=9"),
        (4, 12, "4", "F=2,I=3,W=1,C=1"),
        (6, 12, "4", "F=1,I=2,W=1"),
        (8, 16, "5", "F=2,I=3,W=1,C=1"),
    ):
        yield one("vee", p, m, cap, costs)
        yield one("vee", p, m, cap, costs, objective="span")
    for seed, p, m, cap in ((11, 4, 8, "4"), (12, 4, 8, "2.5"), (13, 6, 12, "5")):
        yield one("vee", p, m, cap, uneven(seed, 2 * p))
    for p, m, cap in ((4, 8, "3"), (4, 12, "2"), (6, 12, "6")):
        yield one("vee", p, m, cap, "F=2,I=3,W=1,C=1", backward="fused")
    for p, m, cap, costs in ((4, 8, "5", ""), (4, 8, "3", ""), (4, 8, "4", "F=2,I=3,W=1"), (6, 12, "5", "")):
        yield one("loop", p, m, cap, costs, v=2)
    for p, m, cap, costs in ((4, 8, "3", ""), (4, 12, "4", "F=2,I=3,W=1,C=1"), (8, 16, "5", "")):
        yield one("linear", p, m, cap, costs, backward="fused")
    for p, m, caps, costs in (
        (4, 8, [4, 3, 2, 2], ""),
        (4, 12, [2, 3, 4, 4], "F=3,I=4,W=2,C=1"),
        (8, 16, [8, 8, 6, 6, 5, 4, 3, 3], "F=1,I=2,W=1"),
    ):
        yield one("linear", p, m, caps, costs)
        yield one("vee", p, m, caps, costs)
    for p, m, cap, costs in ((4, 8, "3", ""), (4, 8, "4", "F=2,I=3,W=1,C=1"), (6, 12, "5", "")):
        yield one("chimera", p, m, cap, costs)
    for release in ("I", "split:1/2", "torch"):
        yield one("linear", 4, 12, "3", "F=2,I=3,W=1,C=1", release=release)
        yield one("vee", 4, 8, "3", "F=1,I=2,W=1", release=release)
    yield one("linear", 8, 24, "8", "F=18522,I=18086,W=9337,C=601", objective="span")
    yield one("linear", 16, 64, "12")
    yield one("linear", 16, 32, "6", "F=2,I=3,W=1,C=1")
    yield one("vee", 16, 48, "12")
    for p, m, cap in ((8, 64, "4"), (8, 128, "4"), (16, 64, "5"), (8, 64, "5")):
        yield one("linear", p, m, cap)
    yield one("vee", 8, 24, "6", "F=14407,I=14380,W=9676,C=1610", objective="span")
    measured = "F=14407,I=14380,W=9676,C=1610"
    for kind, p, m, cap in (("linear", 4, 8, "3"), ("vee", 3, 6, "2"), ("vee", 4, 8, "2.5"), ("vee", 4, 8, "4")):
        yield one(kind, p, m, cap, measured)
    yield one("loop", 4, 8, "3", measured, v=2)
    yield one("chimera", 4, 8, "3", measured)
    yield one("vee", 3, 6, "3", "F=[1013,997,1211,873,951,1107],I=[1113,1097,911,973,851,1007],W=701,C=57")
    for p, cap, costs in ((3, "2", ""), (4, "4", ""), (4, "3", "F=1,I=2,W=1"), (6, "4", "")):
        yield one("linear", p, 3 * p, cap, costs, all_m=True)
    for p, cap in ((3, "3"), (3, "2"), (4, "4")):
        yield one("vee", p, 3 * p, cap, all_m=True)


def target(path: str) -> tuple[object, str]:
    """Return the owner of `module:a.b`, and the last name."""
    module, names = path.split(":")
    owner: object = import_module(module)
    *outer, last = names.split(".")
    for name in outer:
        owner = getattr(owner, name)
    return owner, last


def without(member: Member, stack: ExitStack) -> None:
    """Leave a member out until the stack is closed."""
    for path in member.where:
        owner, name = target(path)
        stack.enter_context(patch.object(owner, name, member.without(getattr(owner, name))))


def watched(member: Member, used: set[str], stack: ExitStack) -> None:
    """Note where a member is used."""

    def spied(whole: Call) -> Call:
        def call(*given: object, **named: object) -> object:
            found = whole(*given, **named)
            if isinstance(found, Iterator):
                return noted(found)
            if member.used(given, found):
                used.add(member.name)
            return found

        def noted(found: Iterator[object]) -> Iterator[object]:
            for one in found:
                used.add(member.name)
                yield one

        return call

    for path in (member.seen,) if member.seen else member.where:
        owner, name = target(path)
        stack.enter_context(patch.object(owner, name, spied(getattr(owner, name))))


@contextmanager
def counted(steps: int) -> Iterator[Callable[[], int]]:
    """End searches after a number of steps; yields the steps of all of them."""
    optimizer, meters = import_module("pipesched.optimizer.optimize"), list[Meter]()
    whole = optimizer.search

    def stepped(
        problem: object, limits: object, known: object, progress: object, meter: Meter, **named: object
    ) -> object:
        meters.append(Meter(steps))
        return whole(problem, limits, known, progress, meters[-1], **named)

    with patch.object(optimizer, "search", stepped):
        yield lambda: sum(min(meter.spent, steps) for meter in meters)


def cpu() -> float:
    """Return the CPU seconds of this process and of its ended processes."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def answered(given: dict[str, object], steps: int, left_out: Member | None) -> dict[str, object]:
    """Return the answer of a question, and the members that it used."""
    import pipesched

    used: set[str] = set()
    with counted(steps) as spent, ExitStack() as stack:
        if left_out is None:
            for member in MEMBERS.values():
                watched(member, used, stack)
        elif left_out.worker:
            stack.enter_context(patch.dict(os.environ, {LEFT_OUT: left_out.name}))
            stack.enter_context(patch("pipesched.optimizer.solve.engines.worker_pool._WORKER", "tests.bench.ablation"))
        else:
            without(left_out, stack)
        before = cpu()
        found = pipesched.optimize(**given, time_limit=FOREVER)
        judged = found.judged
        return {
            "value": None if judged is None else float(judged.value),
            "bound": None if judged is None else float(judged.lower),
            "verdict": "nothing" if judged is None else judged.status,
            "by": found.found_by,
            "steps": spent(),
            "cpu": round(cpu() - before, 2),
            "used": sorted(used),
        }


def worse(one: dict[str, object], whole: dict[str, object]) -> int:
    """Compare an answer with that of the whole optimizer: -1 better, 0 equal, 1 worse."""
    mine, other = (
        (x["value"] is None, x["value"] or 0, x["verdict"] not in PROVED, -float(x["bound"] or 0)) for x in (one, whole)
    )
    return (mine > other) - (mine < other)


def lost(kept: dict[str, dict[str, dict[str, object]]], member: str) -> int:
    """Return the number of answers that are worse without a member."""
    return sum(worse(of[member], of[""]) > 0 for of in kept.values() if member in of)


PROVED = ("optimal", "proved optimal")


def table(kept: dict[str, dict[str, dict[str, object]]]) -> Iterator[str]:
    """Print for each member its instances, the answers that are worse and better without it, and the steps."""
    yield f"{'without':38} used tried  worse better  steps x  CPU x  where"
    for name in MEMBERS:
        pairs = [(key, of[name], of[""]) for key, of in kept.items() if name in of]
        if not pairs:
            continue
        sign = {key: worse(one, whole) for key, one, whole in pairs}
        ratio = [
            sum(float(one[column]) for _, one, _ in pairs) / max(1, sum(float(x[column]) for _, _, x in pairs))
            for column in ("steps", "cpu")
        ]
        used = sum(name in of[""]["used"] for of in kept.values())
        where = "; ".join(f"{'-' if sign[key] > 0 else '+'} {key}" for key in sign if sign[key])
        bad, good = sum(x > 0 for x in sign.values()), sum(x < 0 for x in sign.values())
        yield f"{name:38} {used:4} {len(pairs):5}  {bad:5} {good:6}  {ratio[0]:7.2f}  {ratio[1]:5.2f}  {where[:150]}"


def main() -> None:
    """Run the table, or as a process of engines that leaves a member out."""
    if (name := os.environ.get(LEFT_OUT)) is not None:
        from pipesched.optimizer.solve.engines import worker_pool

        with ExitStack() as stack:
            without(MEMBERS[name], stack)
            worker_pool.main()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--members", nargs="*", default=list(MEMBERS))
    parser.add_argument("--instances", default="", help="only those whose name contains this")
    parser.add_argument("--enough", type=int, default=1_000_000, help="worse answers that show what a member is for")
    parser.add_argument("--table", action="store_true", help="of what is in the file, nothing is run")
    asked = parser.parse_args()
    kept = json.loads(asked.file.read_text("utf-8")) if asked.file.exists() else {}
    questions = {name: given for name, given in instances() if asked.instances in name}

    def run(name: str, member: str) -> None:
        kept[name][member] = found = answered(questions[name], asked.steps, MEMBERS.get(member))
        print(f"{member or 'whole':30} {name:60} {json.dumps({**found, 'used': None})}", flush=True)
        asked.file.write_text(json.dumps(kept, indent=1), "utf-8")

    cost = {name: float(of[""]["cpu"]) for name, of in kept.items() if "" in of}
    for name in [] if asked.table else sorted(questions, key=lambda name: cost.get(name, FOREVER)):
        if not kept.setdefault(name, {}):
            run(name, "")
        for member in asked.members:
            due = member in kept[name][""]["used"] and member not in kept[name]
            if due and lost(kept, member) < asked.enough:
                run(name, member)
    print("\n".join(table({name: of for name, of in kept.items() if name in questions})))


if __name__ == "__main__":
    main()
