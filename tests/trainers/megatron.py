"""Compares Megatron-LM's own parser with `pipesched check`, on Megatron-LM's configurations and on edits of their
pipeline options.

    python -m tests.trainers.megatron CHECKOUT [--edits 300] [--seed 1]    CHECKOUT: of Megatron-LM at a release

If its parser refuses one, `check` must report an error; what it takes, `check` must not, and p, v and m are the same.
An accepted one that builds another number of layers than asked for is silently wrong, and `check` must report it.
Nothing is expected of refusals for reasons outside the pipeline (REASONS does not match the message).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pipesched
from tests.trainers.megatron_edits import Run, edits, runs

WORLDS = (8, 16, 32, 64)
REASONS = re.compile(
    "pipeline|virtual|overlap|recompute|layers|microbatch|micro.batch|batch size|batch_size|world|layout|mtp|wgrad"
    "|segment|pattern|chunk|stage|unrecognized arguments|non-interleaved",
    re.IGNORECASE,
)


class Parser:
    """A process that has the checkout imported."""

    def __init__(self, checkout: Path) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.trainers.megatron_parser", str(checkout)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.known = set(self._read()["options"])

    def __enter__(self) -> Parser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=60)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError("the parser of Megatron-LM could not be imported")

    def __call__(self, run: Run) -> dict[str, Any]:
        """Return the answer for a run."""
        assert self.process.stdin is not None
        case = {"options": run.words, "environment": dict(run.environment), "world": run.world}
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        return self._read()


@dataclass(frozen=True)
class Compared:
    """A run, Megatron-LM's answer, and the difference of `check`. kind: of the comparison."""

    run: Run
    theirs: dict[str, Any]
    kind: str
    said: str = ""

    @property
    def wrong(self) -> bool:
        """Return True if they differ."""
        return self.kind in ("passes", "false alarm", "sizes")


def compare(run: Run, theirs: dict[str, Any], release: str) -> Compared:
    """Compare both on one run."""
    source = pipesched.Source("model_config.yaml", run.text)
    ours = pipesched.check(source, trainer=f"megatron=={release}", processes=run.world)
    said = "; ".join(f"{x.code} {x.message} [{x.notes[0] if x.notes else ''}]" for x in ours.diagnostics)
    if not theirs["taken"]:
        why = f"{theirs['message']} ({theirs.get('where', theirs['step'])})"
        if not ours.ok:
            return Compared(run, theirs, "both refuse", said)
        return Compared(
            run, theirs, "passes" if REASONS.search(theirs["message"]) else "refused for other reasons", why
        )
    if not ours.ok:
        silent = theirs["built"] not in (None, theirs["layers"])
        return Compared(run, theirs, "taken and silently wrong" if silent else "false alarm", said)
    if theirs["built"] not in (None, theirs["layers"]):
        return Compared(run, theirs, "passes", f"built are {theirs['built']} of {theirs['layers']} layers")
    plan = ours.plan
    made = (1, 1, theirs["m"]) if plan.off else (plan.ranks, plan.chunks, plan.microbatches)
    own = (theirs["p"], theirs["v"], theirs["m"])
    return Compared(run, theirs, "both take" if made == own else "sizes", f"{made} for {own}")


def release_of(checkout: Path) -> str:
    """Return ``0.19``, by its own file."""
    text = (checkout / "megatron" / "core" / "package_info.py").read_text("utf-8")
    major, minor = (re.search(rf"^{name} = (\d+)", text, re.MULTILINE) for name in ("MAJOR", "MINOR"))
    assert major and minor
    return f"{major[1]}.{minor[1]}"


def bases(parser: Parser, checkout: Path) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Yield its configurations, each on the least number of processes that it accepts."""
    for run in runs(checkout):
        answers = ((replace(run, world=world), parser(replace(run, world=world))) for world in WORLDS)
        found = next((pair for pair in answers if pair[1]["taken"] or "world" not in pair[1]["message"]), None)
        if found is not None and found[1]["taken"]:
            yield found


def main() -> None:
    """Print the differences, and counts by kind; the status is 1 if there is one."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("checkout", type=Path)
    options.add_argument("--edits", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--release", help="of the rules, where it is not that of the checkout")
    asked = options.parse_args()
    release = asked.release or release_of(asked.checkout)
    with Parser(asked.checkout) as parser:
        taken = [*bases(parser, asked.checkout)]
        own = [compare(run, theirs, release) for run, theirs in taken]
        report("configurations of its own", own)
        edited = []
        for run in edits([run for run, _ in taken], asked.seed, parser.known):
            edited.append(compare(run, parser(run), release))
            if len(edited) == asked.edits:
                break
        report("edits", edited)
    sys.exit(any(found.wrong for found in own + edited))


def report(title: str, found: list[Compared]) -> None:
    """Counts by kind, and the differences."""
    for one in found:
        if one.wrong or one.kind == "taken and silently wrong":
            print(f"{one.kind}: {one.run.name}: {one.run.changed}\n    {one.said[:600]}")
    counts = Counter(one.kind for one in found)
    print(f"{len(found)} {title}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
