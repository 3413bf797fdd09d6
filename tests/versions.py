"""Tries every verb with the lowest and with the newest version of each dependency that pyproject.toml allows.

    python -m tests.versions lowest         what pip is to install: the lower bound of each; `newest`: without a bound
    python -m tests.versions try            every verb with what is installed here
    python -m tests.versions each FOLDER    all lowest, all newest, each alone: environments in FOLDER, 10 minutes

The first needs no more than Python, since it says what to install.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
EXTRAS = ("interop", "optimizer", "planning", "views")
TOOLS = ("hypothesis", "jsonschema", "lark", "pytest")  # what quick tests need of the extra `test`
VERBS = (
    "--help",
    "verify zb_h1 --p 2..4 --json",
    "verify 1f1b --p 4 --model gpt3-175b --device a100",
    "show zb_h1 --p 4",
    *(f"show zb_h1 --p 4 -o a.{suffix}" for suffix in ("svg", "html", "json", "graphml", "dot", "csv", "png", "pdf")),
    "optimize --p 2 --m 3 --mem-cap 2 -o best.ps",
    "optimize --p 2 --mem-cap 2 --proof proof",
    "optimize --p 3 --m 4 --mem-cap 2 --engine z3 --certify",
    *(f"emit 1f1b --p 2 --target {target}" for target in ("stream", "torch-csv", "torch-comms", "deepspeed")),
    "why zb_h1 --p 4",
    "compare 1f1b zb_h1 --p 4",
    "diff zb_h1 zb_h1 --p 4",
    "plan --model gpt3-175b --gpus 64 --batch 64 --device a100 --only t=8,c=1,b=1 --executor here",
    "explain PS401",
    "list",
    "emit dualpipe --p 4 --target order",
)


def requirements(*extras: str, tools: tuple[str, ...] = ()) -> dict[str, str]:
    """Lower bound of each dependency, of some extras and of some test tools."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    wanted += [line for line in optional["test"] if line.partition(">=")[0] in tools]
    return dict(line.split(">=", 1) for line in wanted)


def outcome(command: str) -> tuple[int, str]:
    """Return the exit status of a command, and a digest of its output."""
    from pipesched.__main__ import main as pipesched

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        told, complaint = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(complaint):
            status = pipesched(command.split())
        if status:
            print(f"{command}: exit {status}\n{complaint.getvalue()[-500:]}", file=sys.stderr)
        written = [told.getvalue().encode(), *(path.read_bytes() for path in sorted(Path().iterdir()))]
        return status, hashlib.sha256(b"\0".join(written)).hexdigest()[:12]


def environments(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (what is special about it, its Python): newest and lowest versions, then each dependency alone at the other
    end.
    """
    bounds = requirements(*EXTRAS)
    lowest = [f"{name}=={bound}" for name, bound in bounds.items()]
    for title, all_, other in (("newest", [*bounds], lowest), ("lowest", lowest, [*bounds])):
        python = str(folder / title / "bin/python")
        subprocess.run([sys.executable, "-m", "venv", folder / title], check=True)
        install(python, *all_)
        yield f"all {title}", python
        for mine, changed in zip(all_, other, strict=True):
            install(python, "--upgrade", changed)
            yield f"all {title} but {changed}", python
            install(python, "--upgrade", mine)


def install(python: str, *what: str) -> None:
    """Install with pip, quietly; wheels only."""
    subprocess.run([python, "-m", "pip", "install", "-q", "--only-binary", ":all:", *what], check=True)


def versions(python: str) -> str:
    """Return the installed versions of the dependencies."""
    listed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, check=True).stdout
    known = {re.sub("[-_.]+", "-", x["name"]).lower(): x["version"] for x in json.loads(listed)}
    return " ".join(f"{name} {known.get(name, '-')}" for name in requirements(*EXTRAS))


def tried(python: str) -> dict[str, tuple[int, str]]:
    """Return the outcomes with another Python."""
    line = [python, "-m", "tests.versions", "try"]
    return dict(json.loads(subprocess.run(line, cwd=TOP, stdout=subprocess.PIPE, check=False, timeout=300).stdout))


def main() -> int:
    """Return the command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("lowest", "newest", "try", "each"))
    parser.add_argument("folder", nargs="?", type=Path, help="for the environments of `each`")
    given = parser.parse_args()
    if given.what == "lowest":
        print(*(f"{name}=={bound}" for name, bound in requirements(*EXTRAS, tools=TOOLS).items()), sep="\n")
    if given.what == "newest":
        print(*requirements(tools=TOOLS), sep="\n")
    if given.what == "try":
        os.environ.update(NO_COLOR="1", COLUMNS="100")
        found = {command: outcome(command) for command in VERBS}
        print(json.dumps(found, indent=0))
        return int(any(status for status, _ in found.values()))
    return all_pass(given.folder) if given.what == "each" else 0


def all_pass(folder: Path) -> int:
    """Return 0 if every verb runs in every environment; outputs are compared with those of the newest versions."""
    first: dict[str, tuple[int, str]] = {}
    wrong = 0
    for title, python in environments(folder):
        found = tried(python)
        first = first or found
        bad = [command for command, (status, _) in found.items() if status]
        differs = [command for command, (_, digest) in found.items() if digest != first[command][1]]
        print(f"{title}: {len(bad)} of {len(found)} wrong; written otherwise than by the newest: {differs}")
        print(f"    {versions(python)}", flush=True)
        wrong += len(bad)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
