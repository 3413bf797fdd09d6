"""The library's manifest names, for each placement, every schedule whose order can be an answer of `optimize`.

After a schedule came, went or changed its placement: ``python -m tests.optimizer.test_library`` writes the manifest
anew.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

from pipesched.common.library import sized
from pipesched.language.parser import parse
from pipesched.library.assets import built_in
from pipesched.library.inputs import library
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.optimizer.baselines import MANIFEST, relevant
from pipesched.optimizer.solve.instance import BOUNDED
from pipesched.schedule_analysis import Analysis
from tests.depth import deep, in_usual_run

HEAD = "name | parameters of its sizes | placements: python -m tests.optimizer.test_library\n"
EVERY = [
    {"p": p, "v": v, "m": m} for p, v, times in product((2, 3, 4, 6), (1, 2, 3, 4), (1, 2, 3)) for m in {times * p, 7}
]
FEW = [x for x in EVERY if x["v"] == 1 or (x["v"], x["m"]) == (2, 2 * x["p"])]
SIZES = EVERY if deep(1) > 1 or __name__ == "__main__" else FEW


def name_of(placement: Placement) -> str:
    """Return linear, loop, vee, irregular or N-route, from the ranks by stage."""
    if placement.routes > 1:
        return f"{placement.routes}-route"
    ranks, turn = placement.rank_of[0].tolist(), list(range(placement.ranks))
    chunks = len(ranks) // len(turn)
    folded = [r for chunk in range(chunks) for r in (turn if chunk % 2 == 0 else turn[::-1])]
    return {
        True: "irregular",
        ranks == folded: "vee",
        ranks == turn * chunks: "loop",
        ranks == turn: "linear",
    }[True]


@cache
def schedules(name: str) -> list[Schedule]:
    """Return the orders of a schedule of the library at all sizes that it takes, if they are of F, I, W and B."""
    few = [x for x in SIZES if x["p"] in (2, 4)]
    found = [sized(library(name), size) for size in (few if in_usual_run() and name != "recycle" else SIZES)]
    return [one for one in found if one is not None and BOUNDED.takes(one)]


def line(name: str, found: list[Schedule]) -> str:
    """Return the line of a schedule in the manifest."""
    own = " ".join(x.name.id for x in parse(library(name)).parameters)
    return f"{name} | {own} | {' '.join(sorted({name_of(one.placement) for one in found})) or 'none'}\n"


def written() -> str:
    """Return the manifest: schedules with few parameters first, and of these the ones with the least bubble."""
    found = {name: schedules(name) for name in built_in()}

    def turn(name: str) -> tuple[int, Fraction, str]:
        idle = [Analysis(one).idle for one in found[name] if one.ranks == 4 and one.microbatches == 8]
        return len(parse(library(name)).parameters), min((x.bubble for x in idle if x), default=Fraction(1)), name

    return HEAD + "".join(line(name, found[name]) for name in sorted(found, key=turn))


def test_the_manifest_is_what_the_files_say() -> None:
    """Every schedule of the library has its line, with the parameters of its head and every placement that it has at
    14 sizes, with ``--full`` 28, with ``--depth 2`` all.
    """
    lines = dict.fromkeys(MANIFEST.read_text("utf-8").splitlines(keepends=True)[1:])

    assert lines.keys() == {line(name, schedules(name)) for name in built_in()}


def test_no_schedule_of_a_placement_is_passed_over() -> None:
    """At any size, each schedule of the library with only F, I, W and B is in the list of its placement."""
    for name in built_in():
        for one in schedules(name):
            assert name in relevant(one.placement), (name, one)


if __name__ == "__main__":
    MANIFEST.write_text(written(), "utf-8")
