"""The front has the least makespan for every peak, over all placements, and agrees with the answers at single caps.

every order of slots, by hand ──> the least makespan at each cap ──> the points that no other beats
`optimize --front`            ──> its points                     ──> the same, and each passes `verify`

python -m tests.optimizer.test_front --cases 200
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.examine import Options
from pipesched.support.source import Source
from pipesched.verbs.verify import verify
from tests.depth import by_hand, deep
from tests.optimizer.test_slots import ask

WAYS = {"linear v=1": [0, 1], "loop v=2": [0, 1, 0, 1], "vee v=2": [0, 1, 1, 0]}


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    status = main(["optimize", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def least(ways: Sequence[list[int]], m: int, cost: dict[str, Any]) -> list[tuple[Fraction, int]]:
    """Return the front by trying all orders under each cap that is a multiple of 1/2, times in halves."""
    made: list[tuple[Fraction, int]] = []
    for cap in (Fraction(n, 2) for n in range(1, 2 * m + 1)):
        tried = [ask([ranks], [0] * m, _scaled(cost, len(ranks)), str(cap), "", "fused") for ranks in ways]
        found = [x for x in tried if x is not None]
        if found and (not made or min(found) < made[-1][1]):
            made.append((cap, min(found)))
    return made


def _scaled(cost: dict[str, Any], stages: int) -> dict[str, Any]:
    return {key: 2 * x if key == "C" or stages == 2 else x for key, x in cost.items()}


def compared(seed: int) -> str:
    """Compare a front with all orders of up to three placements."""
    from pipesched.optimizer.front import front
    from pipesched.optimizer.optimize_request import Request

    rng = random.Random(seed)
    cost = {"F": rng.randint(1, 2), "B": rng.randint(1, 3), "C": rng.choice([0, 1])}
    any_of = rng.random() < 0.6
    m = 2 if any_of else rng.choice([2, 3])
    costs = pipesched.Costs({key: Fraction(x) for key, x in cost.items()})
    asked = Request(None, {"p": 2, "m": m, **({"v": 2} if any_of else {})}, costs=costs, fused=True)
    found = front(Request(**{**vars(asked), "placement": "any" if any_of else "linear"}), ())
    right = least([*WAYS.values()] if any_of else [WAYS["linear v=1"]], m, cost)
    assert [(x.peak, int(2 * x.value)) for x in found.points] == right, (cost, found.text())
    assert found.proved
    for point in found.points:
        report = verify(Source("answer.json", json.dumps(point.answer.to_json())), Options())
        assert report.ok, str(report)
    return "any" if any_of else "linear"


@pytest.mark.parametrize("seed", range(deep(3, usual=1)))
def test_the_front_is_that_of_all_orders(seed: int) -> None:
    """Its points are the least makespans of all orders of all placements, each verified, each proved."""
    compared(seed)


def test_what_it_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the front and every answer; the picture has a series for each placement; -o DIR/ has the order of each
    point, and its claims hold.
    """
    picture, folder = tmp_path / "front.svg", tmp_path / "orders"
    words = ["--p", "2", "--m", "2", "--v", "2", "--placement", "any", "--front", "--plot", str(picture)]
    words += ["-o", f"{folder}/"]
    status, front = told(capsys, *words)
    assert status == 0 and front["ok"] and all(point["proved"] for point in front["front"])
    assert {one["placement"] for one in front["answers"]} == set(WAYS)
    assert all(name in picture.read_text("utf-8") for name in WAYS)
    files = {f"peak-{str(point['peak']).replace('/', '_')}.ps" for point in front["front"]}
    assert {x.name for x in folder.iterdir()} == files
    assert all(pipesched.verify(str(x)).ok for x in folder.iterdir())


@pytest.mark.nightly
def test_the_best_placement_under_one_cap() -> None:
    """With one cap, `any` answers with the shortest of the placements, and names the others."""
    answers = {
        way: pipesched.optimize(p=2, m=3, v=v, placement=way, costs=x, mem_cap=1)
        for way, v, x in (
            ("linear", 1, "F=1,I=1,W=1"),
            ("loop", 2, "F=1/2,I=1/2,W=1/2"),
            ("vee", 2, "F=1/2,I=1/2,W=1/2"),
        )
    }
    best = pipesched.optimize(p=2, m=3, v=2, placement="any", mem_cap=1)
    assert best.value == min(x.value for x in answers.values() if x.value is not None)
    assert best.notes[0].startswith("the best of 3 placements")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--front", "--mem-cap", "3"], "PS225"),
        (["--front", "--all-m"], "PS225"),
        (["--placement", "any", "--partition", "8"], "PS225"),
        (["1f1b", "--placement", "any", "--front"], "PS225"),
        (["--placement", "any", "--cost", "F=[1,1,1,1]"], "PS716"),
        (["--front", "--p", "2", "--m", "4", "--cost", "M=[1/999,1]"], "PS225"),
    ],
)
def test_what_has_no_front(words: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One cap, every m, layers to divide, a schedule's own placement and too fine caps are refused by name."""
    status, found = told(capsys, *words)
    assert status in (1, 2) and found["diagnostics"][0]["code"] == code


if __name__ == "__main__":
    by_hand(cases=(compared, 100))
