"""Verify, draw and emit an order that is made in Python."""

from collections.abc import Mapping, Sequence

import pipesched


class Action:
    """An action of a trainer that prints like torch's."""

    def __init__(self, stage: int, letter: str, microbatch: int) -> None:
        self.text = f"{stage}{letter}{microbatch}"

    def __str__(self) -> str:
        return self.text


class Planner:
    """A trainer's own schedule, with the attribute of torch's."""

    def __init__(self) -> None:
        self.pipeline_order: dict[int, list[Action | None]] = {0: [Action(0, "F", 0), None, Action(0, "B", 0)]}


rows: list[str] = ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]
cells: list[list[str | None]] = [["0F0", None, "0B0"], [None, "1F0", "1B0"]]
words: tuple[str, ...] = ("F0.0 B0.0", "F1.0 B1.0")
actions: dict[int, list[Action | None]] = {0: [Action(0, "F", 0), Action(0, "B", 0)]}
reports: list[pipesched.Report] = [pipesched.verify(order) for order in (rows, cells, words)]
reports += [
    pipesched.verify(actions),
    pipesched.verify(Planner()),
    pipesched.verify(pipesched.Source("x.csv", "0F0,0B0")),
]

loaded: pipesched.Schedule = pipesched.load(rows)
first: str = " ".join(str(op) for op in loaded.order(rank=0))
sizes: tuple[int, int, int] = (loaded.ranks, loaded.stages, loaded.microbatches)
stream: str = pipesched.emit(loaded, "stream")
picture: str | None = loaded._repr_svg_()


def by_rank(order: Mapping[int, Sequence[Action | None]]) -> bool:
    """Return True if it is right."""
    return pipesched.verify(order).ok
