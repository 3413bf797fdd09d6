"""On two gloo ranks torchtitan's real trainer trains with our CSVs exactly as with its own schedules.

    python -m tests.trainers.torchtitan             in a Python that has the extra `torchtitan`; `.ci/run --trainers`
    python -m tests.trainers.torchtitan --record    the same, and its figures to tests/data/torchtitan.json

What runs is what the page says (emit/torchtitan.md): its scripts, its settings, its commands, and for every CSV the
settings that `pipesched emit` prints with it. Loss and gradient norm of a schedule of ours are those of a schedule of
torchtitan in every digit that is printed; ZB-H1 trains what 1F1B trains. A CSV that `verify` refuses trains to another
loss, and nothing is said.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.trainers.processes import finished

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "emit" / "torchtitan.md"
RECORDED = TOP / "tests" / "data" / "torchtitan.json"
BLOCK = re.compile(r"^```(\w+)\n(?:# (\S+)\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"step: +(\d+) +loss: +(\S+) +grad_norm: +(\S+)")
COMPLAINT = re.compile(r" - ((?:WARNING|ERROR|CRITICAL) - .*)")
SETTINGS = re.compile(r"on its command line: (.+)")
SWAPPED = TOP / "tests" / "torch_fixtures" / "a10_first_two_swapped.csv"
LIMIT = 180.0
"""The seconds for a run; it takes 15 to 40."""

OURS = {"1f1b": "1F1B", "zb_h1": "1F1B", "interleaved": "Interleaved1F1B", "zb_v": "ZBVZeroBubble"}
"""A schedule of ours, and the one of torchtitan that trains the same."""

Figures = list[str]
"""Loss and gradient norm by step, as they are printed."""


def scripts() -> dict[str, str]:
    """Return the files that the page asks its reader to write."""
    return {name: text for _, name, text in BLOCK.findall(PAGE.read_text("utf-8")) if name}


def commands() -> str:
    """Return the commands of a step of the page."""
    return next(text for kind, _, text in BLOCK.findall(PAGE.read_text("utf-8")) if kind == "sh" and "torchrun" in text)


def trained(folder: Path, options: str) -> tuple[Figures, set[str]]:
    """Return the figures of a run with options instead of the page's, and the trainer's errors."""
    line = re.sub(r"(?<=debug\.toml ).*", options, commands())
    said = finished(["bash", "-e", "-c", line], folder, LIMIT, HF_HOME=str(folder / "hf"))
    steps: dict[int, tuple[set[str], set[str]]] = {}
    for step, loss, norm in STEP.findall(said):
        losses, norms = steps.setdefault(int(step), (set(), set()))
        losses.add(loss)
        norms.add(norm)
    assert [*steps] == [1, 2, 3, 4], said
    assert all(len(losses - {"-1.00000"}) == len(norms) == 1 for losses, norms in steps.values()), steps
    return [" / ".join([*(losses - {"-1.00000"}), *norms]) for losses, norms in steps.values()], set(
        COMPLAINT.findall(said)
    )


def main() -> int:
    wrong, runs, csv = [], {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script, text in scripts().items():
            (folder / script).write_text(text, "utf-8")

        def run(name: str, options: str) -> set[str]:
            runs[name], complaints = trained(folder, options)
            print(f"{name:<26}", *runs[name], sep="  ", flush=True)
            return complaints

        said = {
            own: run(own, f"--parallelism.pipeline_parallel_schedule {own}") for own in dict.fromkeys(OURS.values())
        }
        for ours, own in OURS.items():
            file = f"{ours}.csv"
            emitted = f"emit {ours} --p 2 --m 8 --target torch-csv -o {file}".split()
            settings = SETTINGS.search(finished([sys.executable, "-m", "pipesched", *emitted], folder, LIMIT))
            assert settings
            csv[file] = (folder / file).read_text("utf-8")
            run(file, settings[1])
            if runs[file] != runs[own]:
                wrong.append(f"{file} does not train what {own} trains")
        complaints = run(SWAPPED.name, f"--parallelism.pipeline_parallel_schedule_csv {SWAPPED}")
        if runs[SWAPPED.name] == runs["1F1B"]:
            wrong.append(f"{SWAPPED.name} trains what it should")
        if more := complaints - said["1F1B"]:
            wrong.append(f"of {SWAPPED.name} torchtitan says {more}")
    made = {**{name: version(name) for name in ("torchtitan", "torch")}, "runs": runs, "csv": csv}
    if "--record" in sys.argv:
        RECORDED.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    elif json.loads(RECORDED.read_text("utf-8"))["runs"] != runs:
        print("other figures than those of the page, which another processor had")
    print(
        *wrong or [f"{len(OURS)} of {len(OURS)} train, digit for digit, what torchtitan's own schedule trains"],
        sep="\n",
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
