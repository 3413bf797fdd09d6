"""The picture of a slot: its parts run once, one at a time on each engine, and the drawn path has no gap."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched import PipeschedError
from pipesched.support.source import Source

FILE = """schedule joined(p = 1, m = 3)
stage s in 0 .. p on rank s
parts F = 2 of (attn 4, dispatch 6 on comm, mlp 5)
parts I = 2 of (mlp 7, dispatch 6 on comm, attn 8)
parts W = 2 of (mlp 3, attn 2)
rank r { F  overlap(F, I)  overlap(F, W)  I  overlap(I, W)  W }
"""
JOINED = Source("joined.ps", FILE)


@pytest.mark.parametrize(
    ("target", "slot", "letters"),
    [
        (JOINED, "I0.0", "FI"),
        (JOINED, "W0.0", "FW"),
        (JOINED, "I0.2", "IW"),
        (JOINED, "W0.2", "W"),
        ("dualpipe", "F0.3", "FIW"),
    ],
)
def test_parts_run_as_engines_do(target: Source | str, slot: str, letters: str) -> None:
    """All parts of the slot's letters; none overlaps another on its engine; the last ends with the slot."""
    sizes = {} if isinstance(target, Source) else {"p": 4, "m": 8, "parts": "deepseek-v3"}
    value = pipesched.show(target, slot=slot, **sizes).to_json()  # type: ignore[arg-type]
    made = value["slot"]
    assert isinstance(made, dict)
    parts, time = made["parts"], Fraction(made["time"])
    runs = [(x["engine"], Fraction(x["begin"]), Fraction(x["end"])) for x in parts]
    assert {x["letter"] for x in parts} == set(letters) and max(end for _, _, end in runs) == time
    for at, (engine, begin, end) in enumerate(runs):
        assert all(end <= b or e <= begin for on, b, e in runs[:at] if on == engine)
    path = sorted((Fraction(x["begin"]), Fraction(x["end"])) for x in parts if x["critical"])
    assert path[0][0] == 0 and path[-1][1] == time
    assert all(one[1] == other[0] for one, other in pairwise(path))
    assert sum(end - begin for begin, end in path) == time


def test_the_figure_names_its_parts() -> None:
    """One rectangle a part with its name as a tooltip, a lane for each engine, the same bytes each time."""
    drawn = str(pipesched.show(JOINED, "svg", slot="I0.0"))
    titles = [x.text for x in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")]
    names = ("F.attn", "F.dispatch", "F.mlp", "I.mlp", "I.dispatch", "I.attn")
    assert sorted(map(str, titles)) == sorted(f"{name} {layer}" for name in names for layer in (0, 1))
    assert drawn == str(pipesched.show(JOINED, "svg", slot="I0.0")) and ">comm<" in drawn


@pytest.mark.parametrize(
    ("target", "slot", "said"),
    [
        (JOINED, "F0.9", "no slot contains the operation 'F0.9'"),
        (JOINED, "F", "no slot contains the operation 'F'"),
        (Source("bare.ps", FILE.replace("parts", "# parts")), "F0.0", "no parts are given"),
    ],
)
def test_what_is_not_there_is_refused(target: Source, slot: str, said: str) -> None:
    """An unknown operation, and a schedule without parts."""
    with pytest.raises(PipeschedError, match=said) as caught:
        pipesched.show(target, slot=slot)
    assert [str(x.code) for x in caught.value.diagnostics] == ["PS225"]
