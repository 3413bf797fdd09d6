"""Runs independent checkers of refutations, if they are installed.

cake_lpr      github.com/tanyongkiam/cake_lpr, `make`; it is verified, down to its machine code
lrat-check    github.com/marijnheule/drat-trim, `make`
drat-trim     the same; it reads DRAT, so a proof without its hints
dratify       `pip install dratify`; DRAT too, in Python
"""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

SAID = {"cake_lpr": "s VERIFIED UNSAT", "lrat-check": "c VERIFIED", "drat-trim": "s VERIFIED"}


def installed() -> list[str]:
    """Return the names of the installed programs."""
    found = [name for name in SAID if shutil.which(name)]
    return [*found, "dratify"] if find_spec("dratify") else found


def accepts(name: str, cnf: Path, lrat: Path) -> bool:
    """Return True if a checker accepts a refutation."""
    if name == "dratify":
        from dratify import check_proof, parse_dimacs  # type: ignore[import-not-found, unused-ignore]

        return bool(check_proof(parse_dimacs(cnf.read_text()), drat(lrat.read_text())).ok)
    if name == "drat-trim":
        without = cnf.with_suffix(".drat")
        without.write_text(drat(lrat.read_text()))
        lrat = without
    done = subprocess.run([name, str(cnf), str(lrat)], capture_output=True, text=True, timeout=600)
    return SAID[name] in done.stdout


def drat(lrat: str) -> str:
    """Return the clauses of a proof, without their numbers and hints."""
    steps = [line.split()[1:] for line in lrat.splitlines()]
    return "".join(" ".join(step[: step.index("0") + 1]) + "\n" for step in steps)
