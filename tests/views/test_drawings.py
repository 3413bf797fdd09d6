"""Every kind of picture equals its golden file, byte for byte; other tests read such pictures back.

`pytest --update-golden` rewrites them: look at each before the commit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readers.typed import typed

GOLDEN = Path(__file__).parents[1] / "golden" / "drawn"
FILES = {  # two ranks that wait for each other, a missing backward, costs in milliseconds, forwards alone
    "stuck.txt": "rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n",
    "short.csv": "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n",
    "ms.toml": 'unit = "ms"\nF = 10\nB = 21.5\n',
    "infer.txt": "rank 0: F0.0 F0.1 F0.2\nrank 1: F1.0 F1.1 F1.2\n",
}
BYTES = "--model megatron-1.7b --mem-cap 18GB"
DRAWN = {  # by the name of its file
    "1f1b.txt": "show 1f1b --p 4 --m 8 --width 100",
    "mixed.txt": "show dualpipe --p 8 --m 20 --width 60",
    "mixed_chunks.txt": "show interleaved --p 2 --v 2 --m 16 --width 60 --color always",
    "part.txt": "show zb_h1 --p 4 --m 8 --width 100 --from 7 --to 19",
    "stages.txt": "show interleaved --p 2 --v 4 --m 4 --width 200",
    "narrow.txt": "show zb_v --p 4 --m 8 --width 70",
    "numbers.txt": "show zb_v --p 4 --m 8 --width 115",
    "letters.txt": "show 1f1b --p 4 --m 12 --width 160 --cost F=2,B=7 --color always",
    "ascii.txt": "show zb_h1 --p 3 --m 4 --width 80 --ascii",
    "colour.txt": "show dualpipe --p 4 --m 8 --width 140 --color always",
    "costs.txt": "show 1f1b --p 3 --m 4 --width 90 --cost F=2,B=7,C=1/2",
    "far.txt": "show 1f1b --p 3 --m 4 --width 60 --cost F=300000000000,B=700000000000 --from 4 --to 999999999999999",
    "ms.txt": "show 1f1b --p 2 --m 2 --width 90 --costs ms.toml",
    "copies.txt": "show pipeoffload --p 2 --v 2 --m 4 --width 100",
    "stuck.txt": "show stuck.txt --width 80",
    "stuck_colour.txt": "show stuck.txt --width 80 --color always",
    "short.txt": "show short.csv --width 80",
    "forwards.txt": "show infer.txt --width 80",
    "bytes.txt": f"show 1f1b --p 2 --m 4 --width 60 {BYTES}",
    "bytes_ascii.txt": f"show zb_h1 --p 2 --m 4 --width 70 --ascii --from 3 --to 9 {BYTES}",
    "bytes_narrow.txt": f"show zb_h1 --p 2 --m 24 --width 30 {BYTES}",
    "zb_h1.svg": "show zb_h1 --p 4 --m 8 --messages --memory --format svg",
    "overlap.svg": "show dualpipe --p 2 --m 4 --memory --format svg",
    "part.svg": "show 1f1b --p 3 --m 4 --cost C=3/2 --messages --memory --from 4 --to 11 --format svg",
    "edge.svg": "show 1f1b --p 3 --m 2 --cost C=3/2 --messages --to 5 --format svg",
    "stages.svg": "show interleaved --p 2 --v 3 --m 2 --format svg",
    "zero_bubble.svg": "show zb_h1 --p 2 --m 3 --style zero-bubble --format svg",
    "megatron.svg": "show interleaved --p 2 --v 2 --m 2 --style megatron --format svg",
    "ms.svg": "show 1f1b --p 2 --m 2 --costs ms.toml --format svg",
    "copies.svg": "show pipeoffload --p 2 --v 2 --m 2 --format svg",
    "stuck.svg": "show stuck.txt --format svg",
    "bytes.svg": f"show 1f1b --p 2 --m 4 --format svg {BYTES}",
    "few.svg": "compare gpipe 1f1b zb_h1 --p 4 --m 8,16 --plot -",
    "tie.svg": "compare gpipe 1f1b --p 4 --m 9 --plot -",
    "many.svg": "compare gpipe 1f1b eager_1f1b zb_h1 zb_h2 zb_v v_half v_min 1f1b_v --p 4 --m 8 --plot -",
    "zb_h1.dot": "show zb_h1 --p 2 --m 2 --cost C=1/2 --format dag",
    "stuck.dot": "show stuck.txt --format dag",
    "dualpipe.graphml": "show dualpipe --p 2 --m 4 --cost F=1/2,C=1 --format dag --to graphml",
    "stuck.graphml": "show stuck.txt --format dag --to graphml",
    "zb_v.csv": "show zb_v --p 2 --m 3 --cost F=1/3 --format csv",
    "stuck.csv": "show stuck.txt --format csv",
    "dualpipe.json": "show dualpipe --p 2 --m 4 --cost C=1/2 --format trace",
    "copies.json": "show pipeoffload --p 2 --v 2 --m 2 --format trace",
    "stuck.json": "show stuck.txt --format trace",
    "dualpipe.html": "show dualpipe --p 2 --m 4 --cost C=1/2 --format html",
    "stuck.html": "show stuck.txt --format html",
    "bytes.html": f"show 1f1b --p 2 --m 4 --format html {BYTES}",
}
SCRIPT = re.compile(r"<script>\n\(\(\) => \{.*?</script>", re.S)


def drawn(line: str) -> str:
    """Return the drawing of a command line; for a page the data of its scripts, which are tried in a browser."""
    words = line.split()
    if words[-1] == "-":
        words[-1] = "plot.svg"
        assert typed(*words).status == 0
        return Path("plot.svg").read_text("utf-8")
    return SCRIPT.sub("<script/>", typed(*words).out.decode("utf-8"))


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_stays(name: str, folder: Path, update_golden: bool) -> None:
    """A picture is equal to the byte, regardless of the process's history."""
    for file, text in FILES.items():
        (folder / file).write_text(text, "utf-8")
    made = drawn(DRAWN[name])
    if update_golden:
        (GOLDEN / name).write_text(made, "utf-8")
    assert made and made == (GOLDEN / name).read_text("utf-8")


def test_every_golden_file_is_drawn() -> None:
    """Every file is used; and none makes a network request, or runs a foreign script."""
    assert {file.name for file in GOLDEN.iterdir()} == set(DRAWN)
    outside = r"\w://|url\((?!#)|@import|fetch\(|<(link|img|iframe|object|embed)\b(?! rel=.icon. href=.data:,)"
    for file in GOLDEN.iterdir():
        text = re.sub(r"http://(www\.w3\.org|graphml\.graphdrawing\.org)/[\w/.\-]+", "", file.read_text("utf-8"))
        assert file.suffix == ".json" or not re.search(outside, text), file.name
        assert "<script" not in text or file.suffix == ".html"


def test_another_process_draws_the_same() -> None:
    """Whatever the seed of hashes is, which is another one here."""
    line = [sys.executable, "-m", "pipesched", *DRAWN["zb_h1.svg"].split()]
    made = subprocess.run(line, env={"PYTHONHASHSEED": "1"}, capture_output=True, check=True, timeout=60).stdout
    assert made == (GOLDEN / "zb_h1.svg").read_bytes()
