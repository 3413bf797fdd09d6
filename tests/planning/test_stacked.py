"""In the picture of bytes over time, the heights that are read back equal the bytes of the operations."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.planning.footprint import KINDS, footprint
from pipesched.planning.transformer.model_file import read
from pipesched.planning.workload import Workload
from pipesched.schedule_analysis import Analysis

HOW = ["--p", "4", "--m", "16", "--model", "megatron-7.5b", "--mem-cap", "14GB"]


def heights(figure: str) -> list[dict[str, list[tuple[float, float]]]]:
    """Return by panel and kind the upper edge, as (x, pixels above the bottom)."""
    panels = []
    for part in re.split(r"(?=<text[^>]*>rank )", figure)[1:]:
        frame = re.search(r'<rect class="frame" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', part)
        assert frame is not None
        bottom = float(frame[2]) + float(frame[4])
        kinds = {}
        for path, kind in re.findall(r'<path d="M([^"]*) ?z"[^>]*><title>([\w ]+):', part):
            points = [tuple(map(float, point.split(","))) for point in path.split()]
            rising = [points[0]]
            for before, after in pairwise(points):
                if after[0] < before[0]:
                    break
                rising.append(after)
            kinds[kind] = [(x - float(frame[1]), bottom - y) for x, y in rising]
        panels.append(kinds)
    return panels


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_the_heights_of_a_figure_are_bytes(name: str) -> None:
    """At the middle of each operation, the height of all kinds together is right to the pixel."""
    trained = read("megatron-7.5b")
    made = Analysis(pipesched.load(name, p=4, m=16), owned=(Workload(trained),))
    used, times = made.fact(footprint), made.timeline
    assert used is not None
    figure = str(pipesched.show(name, "svg", p=4, m=16, model=trained, mem_cap="14GB"))
    top = max(14 * 10**9, int(used.total.max()))
    for rank, kinds in enumerate(heights(figure)):
        edge = max(kinds.items(), key=lambda item: KINDS.index(item[0]))[1]
        xs, ys = np.array([x for x, _ in edge]), np.array([y for _, y in edge])
        low, high = used.schedule.start[rank : rank + 2].tolist()
        for i in range(low, high):
            middle = (times.start[i] + times.end[i]) / 2 / times.makespan * 800
            drawn = ys[np.searchsorted(xs, middle) - 1]
            assert abs(drawn - 110 * used.total[i] / top) <= 0.2


@pytest.mark.parametrize("more", [["--messages", "-o", "x.svg"], ["-o", "x.json"], ["-o", "x.csv"]])
def test_what_means_nothing_for_bytes_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """PS225 is reported."""
    assert main(["show", "1f1b", *HOW, *more]) == 2
    assert "PS225" in capsys.readouterr().err
