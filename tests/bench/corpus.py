"""Compare two trees of pipesched on about 1,000 commands: exit statuses, JSON by key, streams, pictures.

    git worktree add /tmp/base COMMIT
    python -m tests.bench.corpus /tmp/base .          half a minute of CPU time for each tree
    python -m tests.bench.corpus /tmp/base . --some 20

Both trees read the schedules of the base, and the CSV files and streams that the base makes of them, some with two
cells swapped or one left out. What differs is counted by command and by key of the JSON, each with its first example.
"""

from __future__ import annotations

import argparse
import collections
import io
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Command: TypeAlias = list[str]
Answer: TypeAlias = tuple[object, str]
"""An exit status, and the standard output."""

SMALL, LARGE, COSTS = ("--p", "4", "--m", "8"), ("--p", "8", "--m", "16"), "F=3,I=2,W=1,C=1"
VERIFY = (
    ("--p", "2", "--m", "4"),
    SMALL,
    LARGE,
    (*SMALL, "--cost", COSTS),
    (*SMALL, "--cost", "F=2,B=3,C=1/2", "--release", "torch"),
    (*SMALL, "--mem-cap", "2"),
    *((*SMALL, "--cost", "F=1,B=2,C=1", "--comm", model) for model in ("buffered(3)", "one-stream", "async")),
    (*SMALL, "--max-ops", "50"),
    ("--p", "3", "--m", "100000000"),
    ("--p", "2..4", "--m", "4,8"),
)
WRONG = (
    "--p=0",
    "--p=two",
    "--cost=X=1",
    "--cost=F=1e",
    "-Dnosuch=1",
    "--release=never",
    "--comm=gloo",
    "--mem-cap=-1",
)
TARGETS = ("stream", "torch-csv", "torch-comms")


def emitted(names: list[str]) -> list[Command]:
    return [["emit", name, *SMALL, "--target", target] for name in names for target in TARGETS]


def commands(folder: Path) -> Iterator[Command]:
    """Yield all commands on the files of a folder."""
    names = sorted(path.name for path in folder.glob("*.ps"))
    for name in names:
        yield from (["verify", name, *options, "--json"] for options in VERIFY)
        yield from (["why", name, *options, "--json"] for options in (SMALL, (*LARGE, "--cost", COSTS)))
        yield from (["show", name, *SMALL], ["fmt", "--check", name])
    yield from emitted(names)
    for one, other in itertools.pairwise(names):
        yield ["diff", one, other, *SMALL, "--json"]
        yield ["compare", one, other, "--p", "2..4", "--m", "8", "--json"]
    yield from (["verify", name, option, "--json"] for option in WRONG for name in ("1f1b.ps", "zb_v.ps", "nosuch.ps"))
    for size in (("--p", p, "--m", m) for p in "234" for m in "24"):
        for cost in ("F=1,I=1,W=1", "F=3,I=2,W=2,C=1"):
            yield from (["optimize", *size, "--cost", cost, *cap, "--json"] for cap in ((), ("--mem-cap", "2")))
    for path in sorted(folder.glob("*.csv")):
        yield from (["verify", path.name, "--comm", model, "--json"] for model in ("strict", "async"))
    yield from (["verify", path.name, "--json"] for path in sorted(folder.glob("*.json")))


def answers(asked: list[Command]) -> Iterator[Answer]:
    """Run commands of the tree that is imported, in this process and folder."""
    from pipesched.__main__ import main

    for command in asked:
        kept, bytes_of = (sys.stdout, sys.stderr), [io.BytesIO(), io.BytesIO()]
        opened = [io.TextIOWrapper(x, "utf-8", write_through=True) for x in bytes_of]
        sys.stdout, sys.stderr = opened
        try:
            status: object = main(command)
        except SystemExit as error:
            status = error.code
        finally:
            sys.stdout, sys.stderr = kept
        yield status, bytes_of[0].getvalue().decode()


def run(tree: Path, folder: Path, asked: list[Command]) -> list[Answer]:
    """Run commands of a tree in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "COLUMNS": "100", "NO_COLOR": "1"}
    command, given = [sys.executable, "-P", __file__, "--answers"], json.dumps(asked)
    done = subprocess.run(
        command, input=given, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment, check=True
    )
    return [(status, text) for status, text in json.loads(done.stdout)]


def prepare(base: Path, folder: Path) -> None:
    """Copy the schedules of a tree, and write what it makes of them."""
    for path in sorted((base / "schedules").glob("*.ps")):
        (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
    asked = emitted(sorted(path.name for path in folder.glob("*.ps")))
    for command, (status, text) in zip(asked, run(base, folder, asked), strict=True):
        name, target = Path(command[1]).stem, command[-1]
        if status != 0:
            continue
        (folder / (f"{name}.json" if target == "stream" else f"{name}.{target}.csv")).write_text(text, "utf-8")
        if target == "torch-csv":
            lines, rng = [line.split(",") for line in text.splitlines()], random.Random(name)
            line = max(lines, key=len)
            i, j = rng.sample(range(len(line)), 2)
            line[i], line[j] = line[j], line[i]
            (folder / f"{name}.swapped.csv").write_text("".join(",".join(x) + "\n" for x in lines), "utf-8")
            line.pop(i)
            (folder / f"{name}.dropped.csv").write_text("".join(",".join(x) + "\n" for x in lines), "utf-8")


def differing(one: object, other: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield the keys at which two JSON values differ, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differing(one.get(key, "absent"), other.get(key, "absent"), f"{path}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for a, b in zip(one, other, strict=True):
            yield from differing(a, b, f"{path}[]")
    elif one != other:
        yield path, one, other


def causes(command: Command, one: Answer, other: Answer) -> Iterator[tuple[str, object, object]]:
    """Yield where two answers differ: the status, a key of the JSON, or the text."""
    if one[0] != other[0]:
        yield "status", one[0], other[0]
    if one[1] == other[1]:
        return
    if command[-1] != "--json":
        yield "text", one[1][:200], other[1][:200]
        return
    yield from differing(json.loads(one[1]), json.loads(other[1]))


def main() -> None:
    if sys.argv[1:] == ["--answers"]:
        print(json.dumps([*answers(json.load(sys.stdin))]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--some", type=int, default=1, help="run every n-th command")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(asked.base, folder)
        listed = [*commands(folder)][:: asked.some]
        both = zip(listed, run(asked.base, folder, listed), run(asked.tree, folder, listed), strict=True)
        count, example = collections.Counter[tuple[str, str]](), dict[tuple[str, str], str]()
        same = 0
        for command, one, other in both:
            found = {path: (a, b) for path, a, b in causes(command, one, other)}
            same += not found
            for path, (a, b) in found.items():
                count[command[0], path] += 1
                example.setdefault((command[0], path), f"{' '.join(command)}\n    {a!r:.200}\n    {b!r:.200}")
    print(f"{len(listed)} commands, {same} with equal answers")
    for key, times in count.most_common():
        print(f"{times:5} {' '.join(key)}\n    {example[key]}")


if __name__ == "__main__":
    main()
