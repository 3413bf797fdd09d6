"""Programs that run together, as arrays, produce the same operations as programs that run one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from pipesched.diagnostics import PipeschedError
from pipesched.language import evaluate, rank_programs
from pipesched.language.evaluate import at_size
from pipesched.language.turns import Arrays
from pipesched.language.typecheck import check_text
from pipesched.model.ops import Op
from pipesched.support.source import Source
from tests.depth import deep, some
from tests.makers import ps_forms, ps_programs, ps_slices

LIBRARY = sorted((Path(__file__).parents[2] / "schedules").glob("*.ps"))
ASKS = {"capped", "v_half", "v_min", "v_zb", "interleaved_n"}  # for `pending`, or by a rule
ASKS |= {"pipedream", "pipedream_2bw", "pipemare", "vertical_sync"}  # STEPs are inside
ASKS |= {"v1f1b"}  # a rule moves the lists
ASKS |= {"helix", "recycle", "skippipe"}  # microbatches are placed one by one


class Runs:
    """A text at a size, either way. suited: how many were run as arrays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch, self.suited = monkeypatch, 0

        def run(arrays: Arrays, programs: Any) -> Any:
            made = whole(arrays, programs)
            self.suited += 1
            return made

        whole = Arrays.run
        monkeypatch.setattr(Arrays, "run", run)

    def written(self, text: str, sizes: Mapping[str, Any], few: int, most: int) -> object:
        for module in (evaluate, rank_programs):
            self.patch.setattr(module, "FEW", few)
        try:
            unit = at_size(check_text(Source("x.ps", text)), sizes, max_ops=most)
        except PipeschedError as error:
            return str(error)
        made = unit.schedule
        columns = (made.op, made.stage, made.microbatch, made.second, made.start, unit.schedule.origin.sited()[0])
        return [column.tolist() for column in columns], unit.names.budget.left, unit.costs.to_json()

    def alike(self, text: str, sizes: Mapping[str, Any], most: int = 20_000) -> bool:
        """Assert that both ways give the same operations, steps left and mistakes; return whether arrays were used."""
        before = self.suited
        assert self.written(text, sizes, -1, most) == self.written(text, sizes, 10**9, most), text
        return self.suited > before


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


MOST = "(4 * 999999999999999999 + 611686018427387907)"  # 2^62 - 1, and no literal has so many digits


@pytest.mark.quick
@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_the_library_is_run_as_arrays(path: Path, runs: Runs) -> None:
    text = path.read_text("utf-8")
    known = check_text(Source(path.name, text)).parameters
    given = {name: 2 for name, declared in known.items() if declared.default is None}
    suited = [
        runs.alike(text, given | {name: size for name, size in (("p", p), ("m", m), ("v", v)) if name in known})
        for p, m, v in some(((4, 8, 2), (2, 4, 2), (3, 5, 2), (4, 12, 3), (1, 1, 1), (8, 16, 2)), 1, usual=2)
    ]
    assert any(suited) == (path.stem not in ASKS)


@pytest.mark.parametrize("block", range(3))
def test_random_programs_are_the_same(block: int, runs: Runs) -> None:
    """All forms of the language, mistakes and limits that are too low among them; a third is run as arrays."""
    suited = []
    for seed in range(block * 10_000, block * 10_000 + deep(12, usual=7)):
        text, sizes = ps_forms.program(seed)
        suited.append(runs.alike(text, sizes, random.Random(seed).choice((5, 60, 20_000, 20_000))))
        made = ps_programs.program(seed, recompute=0.3 * (seed % 2), offload=0.2 * (seed % 3 == 0))
        suited.append(runs.alike(made.text(), {"p": made.ranks, "m": made.microbatches}))
        made, slices = ps_slices.sliced(seed)
        suited.append(runs.alike(made.text(f"slices {slices}"), {"p": made.ranks, "m": made.microbatches}))
    assert sum(suited) > len(suited) // 3


@pytest.mark.quick
@pytest.mark.parametrize(
    ("program", "suited"),
    [
        ("repeat m { F  I }  drain W", True),
        ("repeat m { F  I }  drain W  drain W", True),
        ("for k in 0 .. m { F  I  if k % 2 == r % 2 { drain W } }  drain W", True),
        ("repeat m { F  I  W }", True),
        ("repeat m { F  W  I }", False),  # no I before the first W
        ("for k in 0 .. m { F(k)  B(m - 1 - k) }", True),
        ("repeat m - 1 { F }  F(0)  repeat m { B }", False),  # some name theirs
        ("for k in 0 .. m { F(k // 2)  I }  drain W", True),
        ("for k in 0 .. m { F  I(k // 2) }  drain W", False),  # twice
        ("for k in 0 .. m { F[k % 2]  B }", False),  # one chunk
        ("let w = min(p - r, m)  for k in 0 .. w { let twice = 2 * k }", True),  # nothing runs
        ("repeat m + 1 { F }", False),
        ("for k in 0 .. m { F(k + 1) }", False),
        ("for k in 0 .. m { if 4 // (k - 2) > 0 { F } }", False),
        ("for k in 0 .. m { if k * 999999999999999999 * 5 >= 0 { F } }", False),
        (f"for k in 0 .. m {{ if k + {MOST} - {MOST} >= 0 {{ F }} }}", False),
        ("for k in r .. m - r { F }  for k in m .. 0 { F }  repeat 0 - 1 { F }", True),
        ("repeat m % 5 + 5 { F }  for k in 0 .. m % 5 + 5 { B }", True),  # between 5 and 9: 8
        ("for k in 0 .. m { repeat m % 5 - 2 { if k >= 0 { F  I } } }  drain W", True),
        ("let f(k) = if k < p then k else f0  for k in 0 .. m { if f(k) >= 0 { F } else { F  F } }", None),
        ("let f0 = 1  let f(k) = if k < p then k else f0  for k in 0 .. m { if f(k) > 0 { F } }", True),
        ("for k in 0 .. m { if pending > 0 { W }  F  I }", False),
        ("for k in 0 .. m { let x = k  if x > 1 { let y = x - 1  if y > 0 { F } }  let y = 0  if y < k { B } }", None),
    ],
)
def test_one_program(program: str, suited: bool | None, runs: Runs) -> None:
    """Counts, ends, and what remains for the run of one operation after the other. None: it is a mistake."""
    text = f"schedule x(p, m)\nstage s in 0 .. p on rank s\nrank r {{ {program} }}\n"
    found = runs.alike(text, {"p": 3, "m": 8})
    assert suited is None or found == suited


@pytest.mark.quick
@pytest.mark.parametrize(
    ("formula", "expected", "side_by_side"),
    [
        ("3 * s + i % 2", lambda s, i: Fraction(3 * s + i % 2), True),
        ("(s * i + 1) / 4", lambda s, i: Fraction(s * i + 1, 4), True),
        ("(2 * i + 2) / 2", lambda s, i: Fraction(i + 1), True),
        ("f(i) + length[i]", lambda s, i: Fraction(i * i + (3, 1, 2, 5)[i]), True),
        ("if s < i then s else i", lambda s, i: Fraction(min(s, i)), True),
        ("s / 2 + i / 3", lambda s, i: Fraction(s, 2) + Fraction(i, 3), False),
        ("s + 0.5", lambda s, i: s + Fraction(1, 2), False),
        ("s + i - 9", None, True),  # negative
        ("12 // (i - 2)", None, False),
        ("length[s + i]", None, False),
        ("length[2 - i]", None, False),
        (f"s + i + {MOST}", None, False),
    ],
)
def test_costs_by_formula(
    formula: str, expected: Callable[[int, int], Fraction] | None, side_by_side: bool, runs: Runs
) -> None:
    """Formulas of costs give the same numbers and errors side by side as one by one, and as in Python."""
    head = "schedule x(p, m, length[m] = 1)\nlet f(k) = k * k\nstage s in 0 .. p on rank s\n"
    text = f"{head}costs F[s, i] = {formula}\nrank r {{ repeat m {{ F }}  repeat m {{ B }} }}\n"
    sizes = {"p": 3, "m": 4, "length": (3, 1, 2, 5)}
    with patch.object(evaluate, "reduced", wraps=evaluate.reduced) as reduced:
        runs.alike(text, sizes)
    assert reduced.called == side_by_side
    if expected is not None:
        given = at_size(check_text(Source("x.ps", text)), sizes).costs.ticks(3, 4)
        found = [[int(given.durations(*(np.array([x]) for x in (Op.F, s, i)))[0]) for i in range(4)] for s in range(3)]
        assert found == [[expected(s, i) * given.scale for i in range(4)] for s in range(3)]
