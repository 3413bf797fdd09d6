"""For each quantity in the table of the literature, the command prints the value that the formula gives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main

PAGE = (Path(pipesched.__file__).parent / "planning" / "README.md").read_text("utf-8")
SECTION = PAGE.partition("## Quantities from the literature")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| ([^|`]+) \| [^|]+ \| `(pipesched [^`]+)` \| `([^`]+)` \|$", SECTION, re.M)
UNITS = {"TFLOP": 1e12, "GB": 1e9, "MB": 1e6, "B": 1e9, "days": 1, "": 1}
LAYERS, H, A, V, S, T, BATCH, GPUS = 96, 12288, 96, 51200, 2048, 8, 1536, 1024
P75 = 12 * 36 * 4096**2 * (1 + 13 / (12 * 4096) + (51200 + 2048) / (12 * 36 * 4096))
FORMULAS: dict[str, Callable[[float], float]] = {
    "parameters": lambda step: 12 * LAYERS * H**2 * (1 + 13 / (12 * H) + (V + S) / (12 * LAYERS * H)),
    "FLOPs of F of a layer": lambda step: 24 * S * H**2 * (1 + S / (6 * H)),
    "activations of a layer": lambda step: S * H * (34 + 5 * A * S / H),
    "the same on 8 ranks": lambda step: S * H * (10 + 24 / T + 5 * A * S / (H * T)),
    "all-reduces of F of a layer": lambda step: 2 * 2 * (T - 1) / T * 2 * S * H,
    "a message of the pipeline": lambda step: 2 * S * H,
    "bytes of ZeRO 0": lambda step: 16 * P75,
    "bytes of ZeRO 1": lambda step: (4 + 12 / 64) * P75,
    "bytes of ZeRO 2": lambda step: (2 + 14 / 64) * P75,
    "bytes of ZeRO 3": lambda step: 16 * P75 / 64,
    "largest model in 80 GB by ZeRO 3": lambda step: 80e9 * 64 / 16,
    "TFLOP/s of a GPU": lambda step: (
        72 * BATCH * S * LAYERS * H**2 * (1 + S / (6 * H) + V / (12 * LAYERS * H)) / GPUS / step / 1e12
    ),
    "days": lambda step: 300e9 / (BATCH * S) * step / 86400,
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_command_prints_the_formula(row: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The text of the last column is in the output, and within half of its last digit, of three, of the formula."""
    name, command, shown = row
    assert main([*shlex.split(command)[1:], *(["--executor", "here"] if "--gpus" in command else [])]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"(?<![\d.]){re.escape(shown)}(?![\d])", said)
    step = re.search(r"([\d.]+) s ±", said)
    number, _, unit = shown.partition(" ")
    value = float(number.replace(",", "")) * UNITS[unit]
    assert value == pytest.approx(FORMULAS[name](float(step[1]) if step else 0), rel=5e-3)


def test_the_table_is_whole() -> None:
    """Every quantity has a row."""
    assert [row[0] for row in ROWS] == list(FORMULAS)
