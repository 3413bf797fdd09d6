"""As communication grows, each point of the plot equals the makespan with parts that were scaled by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import pipesched
from pipesched import PipeschedError
from pipesched.__main__ import main

FILE = """layers = 2
F = "attn 4, dispatch {0} on comm, mlp 5"
I = "mlp 7, dispatch {0} on comm, attn 8"
W = "mlp 3, attn 3"
"""


def test_points_are_those_of_scaled_parts(tmp_path: Path) -> None:
    """A layer computes 30 and sends twice 6: at a ratio of 0.8 each send takes 12, at 0 nothing."""
    file = tmp_path / "parts.toml"
    file.write_text(FILE.format(6))
    names = ["zb_v", "interleaved_overlap"]
    found = pipesched.compare(*names, p=2, v=2, m=4, parts=file, traffic=True)
    points = {(point.series, point.x): point.y for point in found.growing}
    assert {x for _, x in points} == {Fraction(k, 10) for k in range(13)} and len(points) == 26
    for ratio, sent in ((Fraction(0), 0), (Fraction(4, 10), 6), (Fraction(8, 10), 12), (Fraction(12, 10), 18)):
        file.write_text(FILE.format(sent))
        rows = pipesched.compare(*names, p=2, v=2, m=4, parts=file).rows
        assert {row.name: row.makespan for row in rows} == {name: points[name, ratio] for name in names}
    assert "communication : compute" in found.plot() and "peak activations" not in found.plot()


def test_schedules_without_communication_are_refused() -> None:
    """PS225 is reported without parts, or without parts on another engine."""
    with pytest.raises(PipeschedError, match=r"PS225.*does not have parts both"):
        pipesched.compare("1f1b", p=2, m=4, traffic=True)


def test_lines_without_a_file_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The command shows these makespans only in a plot."""
    assert main(["compare", "zb_v", "--p", "4", "--m", "8", "--parts", "deepseek-v3", "--traffic"]) == 2
    assert "PS225" in capsys.readouterr().err
