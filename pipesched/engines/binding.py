"""Find how long each engine is on a schedule's critical path, from the parts in each slot that wait for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from pipesched.engines.costs import Exposed, exposed, made, of_options
from pipesched.engines.pair import TooLong
from pipesched.engines.parts import OWN, Stage, critical, placed
from pipesched.examine import Examination
from pipesched.model.numbers import exact
from pipesched.model.ops import Op


@dataclass(frozen=True)
class Binding:
    """The exposed communication, and the time that each engine takes on the critical path, in the unit of the parts."""

    exposed: Exposed
    engines: Mapping[str, Fraction]

    def lines(self) -> Iterator[str]:
        """Yield the exposed time, then the time that each engine takes on the critical path."""
        yield self.exposed.lines()[0]
        if len(self.engines) > 1:
            said, most = self.exposed.asked.unit.text, max(self.engines, key=lambda engine: self.engines[engine])
            times = ", ".join(f"{engine} {said(time)}" for engine, time in self.engines.items())
            yield f"parts on the critical path: {times}; {most} is the bottleneck"

    def to_json(self) -> dict[str, object]:
        """Return the figures of `exposed`, and the time that each engine takes on the critical path."""
        return {**self.exposed.to_json(), **exact(path=self.engines)}


def binding(examination: Examination, path: Iterable[int]) -> Binding | None:
    """Return the time of each engine on a schedule's critical path; None without parts. path: the operations on the
    schedule's critical path.
    """
    left, schedule = exposed(examination), examination.loaded.schedule
    if left is None:
        return None
    stages, index = made(of_options(examination.analysis, schedule.placement), schedule)
    known: dict[tuple[str, Stage, Stage], Mapping[str, Fraction]] = {}
    total: dict[str, Fraction] = {OWN: Fraction(0)}
    for head in dict.fromkeys(i - int(schedule.joined[i]) for i in path):
        last = head + int(head + 1 < len(schedule) and schedule.joined[head + 1])
        kinds = "".join(Op(op).name for op in schedule.op[head : last + 1].tolist())
        first, other = (stages[index[int(schedule.stage[i])]] for i in (head, last))
        key = kinds, first, other
        if key not in known:
            known[key] = _loads(*key)
        for engine, time in known[key].items():
            total[engine] = total.get(engine, Fraction(0)) + time
    return Binding(left, total)


def _loads(kinds: str, first: Stage, last: Stage) -> Mapping[str, Fraction]:
    """Return the time of each engine on a critical path through a slot; empty if the slot has too many parts."""
    loads: dict[str, Fraction] = defaultdict(Fraction)
    try:
        runs = critical(placed(kinds, first, last))
    except TooLong:
        return loads
    for run in runs:
        loads[run.part.engine] += run.end - run.begin
    return loads
