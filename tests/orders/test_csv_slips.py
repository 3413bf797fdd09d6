"""After a mistake is planted in one row of a torch CSV, torch loads the file if its verdict is `ok`, and runs it as
pipesched reads it.

By hand, 10,000 slips:  python -m tests.orders.test_csv_slips --cases 10000
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pipesched
from pipesched.__main__ import main
from pipesched.model.ops import Op
from tests.depth import deep
from tests.oracles import torch_cells
from tests.oracles.torch_cells import RefusedError

FOLDER = Path(__file__).parents[1] / "torch_fixtures"
FILES = [path.read_text("utf-8") for path in sorted(FOLDER.glob("ok_*.csv")) if path.stat().st_size < 500]
ODD = "0123456789FIBW_SENDRCVUHA();,,,\"' \t.-+x/\r\n\0\u00a0\u0664\uff10"
JUNK = (
    "9",
    "0",
    "12",
    "F",
    "0F",
    "F0",
    "B",
    "1.0",
    "-1",
    "nan",
    "None",
    "0F0x",
    "0F0 ",
    " ",
    '""',
    '"',
    "0,0",
    "idle",
    "0G0",
)
DRESSES = (
    " {}",
    "{} ",
    "\t{}",
    '"{}"',
    '" {} "',
    '"{}" ',
    ' "{}"',
    "'{}'",
    "({})",
    "0{}",
    "+{}",
    "{}.0",
    "{};",
    "\u00a0{}",
)

Row = list[str]
Slip = Callable[[Row, random.Random], None]


def character(row: Row, chance: random.Random) -> None:
    """Insert, drop or replace a character, possibly a comma."""
    text = ",".join(row)
    at = chance.randrange(len(text) + 1)
    row[:] = [text[:at] + chance.choice(["", *ODD]) + text[at + chance.randrange(2) :]]


def comma(row: Row, chance: random.Random) -> None:
    """Insert a comma into a cell, or drop one."""
    at = chance.randrange(len(row))
    if chance.randrange(4):
        within = chance.randrange(len(row[at]) + 1)
        row[at : at + 1] = [row[at][:within], row[at][within:]]
    else:
        row[at : at + 2] = ["".join(row[at : at + 2])]


def junk(row: Row, chance: random.Random) -> None:
    """Add a cell, often at an end: an index, a sum, a note."""
    row.insert(chance.choice([0, len(row), chance.randrange(len(row) + 1)]), chance.choice(JUNK))


def dress(row: Row, chance: random.Random) -> None:
    """Add blanks, quotes, brackets or zeros around a cell or around all."""
    dressed = chance.choice(DRESSES)
    some = range(len(row)) if chance.randrange(2) else [chance.randrange(len(row))]
    for at in some:
        row[at] = dressed.format(row[at])


def spelling(row: Row, chance: random.Random) -> None:
    """Write a cell in lower case, in the letters of the papers, or for another stage."""
    at = chance.randrange(len(row))
    row[at] = chance.choice([row[at].lower(), row[at].replace("I", "B"), row[at][1:], row[at][:-1], f"1{row[at]}"])


def swap(row: Row, chance: random.Random) -> None:
    """Swap two cells."""
    one, other = chance.randrange(len(row)), chance.randrange(len(row))
    row[one], row[other] = row[other], row[one]


SLIPS: tuple[Slip, ...] = (character, comma, junk, dress, spelling, swap)


def slipped(chance: random.Random) -> str:
    """Put one or two slips into a row of a torch file, or add the index and header that pandas writes."""
    end = chance.choice(["\n", "\n", "\n", "\r\n"])
    rows = [line.split(",") for line in chance.choice(FILES).splitlines()]
    at = chance.randrange(len(rows))
    for _ in range(chance.choice([1, 1, 2])):
        chance.choice(SLIPS)(rows[at], chance)
    if chance.randrange(8) == 0:
        rows = [[str(number), *row] for number, row in enumerate(rows)]
    if chance.randrange(16) == 0:
        rows.insert(0, ["", *map(str, range(len(rows[0]) - 1))])
    return end.join(map(",".join, rows)) + chance.choice([end, end, "", end + end])


def status(path: Path) -> int:
    """Return the exit status of `verify`."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(["verify", str(path), "--format", "concise", "--torch-version", "2.13"])


def ours(path: Path) -> list[list[str]]:
    """Return the order that we read, as torch prints it."""
    schedule = pipesched.load(path)
    read = schedule.program or schedule
    cells = zip(read.stage.tolist(), read.op.tolist(), read.microbatch.tolist(), strict=True)
    names = [f"{stage}{Op(op).name}{'' if number < 0 else number}" for stage, op, number in cells]
    return [names[begin:end] for begin, end in itertools.pairwise(read.start.tolist())]


def by_torch(text: str) -> bool | None:
    """Return True if torch's own reader refuses a cell; None if torch is not installed."""
    try:
        from torch.distributed.pipelining.schedules import _Action
    except ImportError:
        return None
    try:
        for row in csv.reader(io.StringIO(text, newline="")):
            for cell in row:
                _Action.from_str(cell)
    except (RuntimeError, csv.Error):
        return True
    return False


def run(cases: int, path: Path, seed: int = 1) -> tuple[Counter[str], str, list[str]]:
    """Try many files: counts by outcome, a digest of all outcomes, and the failures."""
    chance, count, digest, wrong = random.Random(seed), Counter[str](), hashlib.sha256(), []
    for _ in range(cases):
        text = slipped(chance)
        path.write_text(text, "utf-8", newline="")
        try:
            theirs = torch_cells.rows(text)
        except RefusedError:
            theirs = None
        if by_torch(text) not in (None, theirs is None):
            wrong.append(f"the oracle is not torch: {text!r}")
        ended = status(path)
        outcome = f"exit {ended}, torch {'refuses' if theirs is None else 'loads'}"
        count[outcome] += 1
        digest.update(f"{outcome}\0{text}\0".encode())
        if ended == 0 and (theirs is None or ours(path) != theirs):
            wrong.append(f"ok, and torch reads {theirs}: {text!r}")
        elif ended not in (0, 1, 2):
            wrong.append(f"exit {ended}: {text!r}")
    return count, digest.hexdigest()[:16], wrong


def test_ok_is_what_torch_runs(tmp_path: Path) -> None:
    """Files with a slip that are `ok` are loaded by torch as the same order; many are ok, and many are not."""
    count, _, wrong = run(deep(75, usual=30), tmp_path / "slip.csv")
    assert wrong == []
    assert min(count["exit 0, torch loads"], count["exit 1, torch refuses"], count["exit 1, torch loads"]) >= deep(
        3, usual=1
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counted, made, told = run(given.cases, Path(folder) / "slip.csv", given.seed)
    print(*(f"{number:6}  {name}" for name, number in sorted(counted.items())), *told, sep="\n")
    print(f"digest {made}; wrong: {len(told)}")
    raise SystemExit(bool(told))
