"""A row for each trainer for which `plan` writes configurations: rules on a choice, and the writer of its files.

    megatron      0.13 to 0.19      plan.sh
    torchtitan    0.2.0 to 0.2.2    plan.toml, plan.csv
    deepspeed     0.19.8            plan.json, plan.py

The rules, which need only arithmetic, refuse choices first; `check` itself then judges the files of each timed choice,
so that every shown row passes `check`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pipesched.diagnostics import fail
from pipesched.interop import check
from pipesched.interop.launch import deepspeed, megatron, torchtitan
from pipesched.interop.launch.rules import NOT_WRITTEN, Rule, Setup, first_broken
from pipesched.interop.trainers.trainers import named
from pipesched.model.schedule import Schedule
from pipesched.planning.codes import PlanningCode
from pipesched.planning.launch import Launch
from pipesched.planning.layouts.space import Choice, Space
from pipesched.planning.transformer.config import Training


@dataclass(frozen=True)
class Row:
    """A trainer that can be launched. releases: the releases for which files are written. always: sets the fields of a
    `Training` that are the same in every run of this trainer.

    files: returns the text of each file by its name. options: returns the options with which `check` judges the first
    file. left_out: settings that the user has to add.
    """

    typed: str
    releases: tuple[str, ...]
    always: Callable[[Training], Training]
    rules: tuple[Rule, ...]
    files: Callable[[Setup], Mapping[str, str]]
    options: Callable[[Setup], str]
    left_out: str


ROWS = (
    Row(
        "megatron",
        releases=tuple(f"0.{minor}" for minor in range(13, 20)),
        always=lambda training: replace(training, keep_outputs=False),
        rules=(*NOT_WRITTEN, *megatron.RULES),
        files=megatron.files,
        options=lambda x: "",
        left_out="data, tokenizer, learning rate and iterations; for several nodes also torchrun's rendezvous",
    ),
    Row(
        "torchtitan",
        releases=("0.2.0", "0.2.1", "0.2.2"),
        always=lambda training: replace(
            training, keep_outputs=True, sequence_parallel=True, kernels=training.kernels or "eager"
        ),
        rules=(*NOT_WRITTEN, *torchtitan.RULES),
        files=torchtitan.files,
        options=lambda x: f" --processes {x.space.gpus}",
        left_out="data, tokenizer, learning rate and steps",
    ),
    Row(
        "deepspeed",
        releases=("0.19.8",),
        always=lambda training: replace(training, keep_outputs=True),
        rules=(*NOT_WRITTEN, *deepspeed.RULES),
        files=deepspeed.files,
        options=lambda x: f" --p {x.choice.p} --processes {x.space.gpus}",
        left_out="the model as a list of layers, data, and the optimizer",
    ),
)


@dataclass(frozen=True)
class Launched:
    """A trainer in one release: a `planning.launch.Launcher`."""

    row: Row
    release: str

    @property
    def named(self) -> str:
        return f"{self.row.typed} {self.release}"

    def training(self, training: Training) -> Training:
        return self.row.always(training)

    def refuses(self, space: Space, choice: Choice) -> str:
        reason = first_broken(self.row.rules, Setup(space, choice, self.release))
        return f"{self.named}: {reason}" if reason else ""

    def launch(self, space: Space, choice: Choice, order: Schedule | None = None) -> Launch:
        x = Setup(space, choice, self.release, order)
        options = f"--trainer {self.row.typed}=={self.release}{self.row.options(x)}"
        return Launch(self.row.files(x), options, self.row.left_out)

    def judged(self, launch: Launch) -> str:
        words = launch.options.split()
        given = dict(zip(words[::2], words[1::2], strict=True))
        counts = {name: int(given[f"--{name}"]) for name in ("p", "processes") if f"--{name}" in given}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in launch.files.items():
                Path(folder, name).write_text(text, "utf-8")
            asked = check.Asked(given["--trainer"], p=counts.get("p"), processes=counts.get("processes"))
            found = check.check_file(str(Path(folder, launch.main)), asked)
        return next((one.message for one in found.diagnostics), "")


def launcher(text: str) -> Launched:
    """Parse a trainer and release such as ``megatron==0.16``; without a release, take the newest one.

    Raises:
        PipeschedError: PS225 if the trainer is unknown; PS250 if no configurations are written for the release.
    """
    name, _, asked = text.partition("==")
    typed = named(name)[0].typed
    row = next(row for row in ROWS if row.typed == typed)
    asked = asked.strip().removeprefix("core_").removeprefix("v")
    fitting = [one for one in row.releases if _within(asked, one) or _within(one, asked)]
    if not asked or fitting:
        return Launched(row, (fitting or row.releases)[-1])
    known = ", ".join(row.releases)
    message = f"configurations for {typed} {asked[:20]} are not supported"
    raise fail(PlanningCode.TRAINER, message, help=f"supported releases: {typed} {known}")


def _within(one: str, other: str) -> bool:
    """Return True if a release equals another one or belongs to it, as 0.2.2 belongs to 0.2."""
    return one == other or (bool(other) and one.startswith(f"{other}."))
