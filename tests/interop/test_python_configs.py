"""A configuration in Python is read as Python would run it, or its values are reported as unknown.

The oracle is the interpreter: random files of functions that make configurations, copy and change each other's, run
with classes of plain attributes instead of the trainer's.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pipesched.diagnostics import PipeschedError
from pipesched.interop.trainers.python_configs import PythonConfig, read
from pipesched.interop.trainers.settings import Unset
from pipesched.support.source import Source

HEAD = "from trainer import Trainer, ParallelismConfig, TrainingConfig, elsewhere, spread\nWIDTH = 4\n"


class Section(SimpleNamespace):
    """Any part of a configuration."""


class Whole(SimpleNamespace):
    """A configuration."""

    Config: type


Whole.Config = Whole


def _elsewhere(config: Whole) -> Whole:
    config.parallelism.pipeline_parallel_degree = 77
    return config


def run(text: str) -> dict[str, Whole]:
    """Return the results of the functions of a file."""
    names: dict[str, object] = {
        "Trainer": Whole,
        "ParallelismConfig": Section,
        "TrainingConfig": Section,
        "elsewhere": _elsewhere,
        "spread": lambda: {"parallelism": Section(pipeline_parallel_degree=55)},
        "__name__": "configurations",
    }
    exec(text.replace(HEAD.splitlines()[0], ""), names)  # the makers' own text, below
    made: dict[str, Whole] = {}
    for name, value in names.items():
        if callable(value) and name.startswith("config_"):
            function: Callable[[], object] = value
            result = function()
            assert isinstance(result, Whole)
            made[name] = result
    return made


def number(draw: random.Random) -> str:
    """Return a literal, or a sum or product."""
    plain = str(draw.randint(1, 9))
    return draw.choice(
        [plain, f"{plain} * {draw.randint(1, 5)}", f"WIDTH + {plain}", f"({plain} + 1) * 2", f"-{plain}"]
    )


KEYS = ("pipeline_parallel_degree", "num_pp_microbatches", "tensor_parallel_degree")


def sections(draw: random.Random) -> str:
    """Return the arguments of a configuration."""
    names = draw.sample(KEYS, draw.randint(1, 3))
    inner = ", ".join(f"{name}={number(draw)}" for name in names)
    return f"training=TrainingConfig(steps={number(draw)}), parallelism=ParallelismConfig({inner})"


def change(draw: random.Random, n: int, spoilt: bool) -> list[str]:
    """Return the lines that change ``config``."""
    key = draw.choice(KEYS)
    lines = [
        [f"    config.parallelism.{key} = {number(draw)}"],
        [f"    config.parallelism = ParallelismConfig({key}={number(draw)})"],
        [f"    size = {number(draw)}", f"    config.parallelism.{key} = size * 2"],
        ["    own = ParallelismConfig(num_pp_microbatches=3)", "    config.parallelism = own"],
        ["    assert config.training is not None"],
        ["    config.training.note = str(config.training.steps)"],
        [f"    widen_{n}(config)"],
    ]
    if spoilt:
        lines = [
            [f"    if WIDTH > 3:\n        config.parallelism.{key} = {number(draw)}"],
            [f"    for size in range(2):\n        config.parallelism.{key} = size"],
            ["    config = elsewhere(config)"],
            ["    elsewhere(config)"],
            [f"    config.parallelism.{key} = len('abc')"],
            ["    config.note = elsewhere(config).training.steps"],
        ]
    return draw.choice(lines)


def file(draw: random.Random) -> str:
    """Return some functions, each made from scratch or from an earlier one."""
    parts = [HEAD]
    for n in range(draw.randint(1, 5)):
        parts.append(f"def widen_{n}(given, size=3):\n    given.parallelism.{draw.choice(KEYS)} = size * 4\n")
        lines = [f"def config_{n}() -> Trainer.Config:"]
        if n and draw.random() < 0.6:
            lines.append(f"    config = config_{draw.randrange(n)}()")
        elif draw.random() < 0.1:
            lines.append("    config = Trainer.Config(training=TrainingConfig(steps=1), **spread())")
        else:
            lines.append(f"    config = Trainer.Config({sections(draw)})")
        for _ in range(draw.randint(0, 3)):
            lines += change(draw, n, draw.random() < 0.25)
        parts.append("\n".join([*lines, "    return config"]) + "\n")
    return "\n".join(parts)


def differences(config: PythonConfig, true: Whole) -> list[str]:
    """Return the settings that are reported wrongly, or exist but are not reported."""
    if config.open:
        return []
    found = []
    for key in KEYS:
        told = config.given.get(f"parallelism.{key}")
        real = getattr(true.parallelism, key, None)
        if told is None and real is not None and "parallelism.*" not in config.given:
            found.append(f"{config.name}: {key} is {real}, and was not seen")
        if told is not None and not isinstance(told.value, Unset) and told.value != real:
            found.append(f"{config.name}: {key} is {real}, told {told.value}")
    return found


def compare(seed: int) -> tuple[int, int]:
    """Return the number of reported settings, and of files that are partly open; raises if one is wrong."""
    text = file(random.Random(seed))
    made, configs = run(text), read(Source("configurations.py", text))
    assert [config.name for config in configs] == list(made), text
    for config in configs:
        assert differences(config, made[config.name]) == [], text
    told = sum(not isinstance(x.value, Unset) for config in configs if not config.open for x in config.given.values())
    return told, sum(config.open is not None for config in configs)


def test_what_is_told_of_a_file_is_what_python_makes_of_it() -> None:
    """Reported settings of random files equal the interpreter's, and most files are reported."""
    made = [compare(seed) for seed in range(300)]
    assert sum(told for told, _ in made) > 1500
    assert 0 < sum(unknown for _, unknown in made) < 300


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return Trainer.Config(parallelism=ParallelismConfig(pipeline_parallel_degree=2 * 4))", 8),
        ("return Own(parallelism=ParallelismConfig(pipeline_parallel_degree=8), training=None)", 8),
        ("return other(size=8)", 8),
        ("return other()", 2),
        ("return replace(other(), parallelism=ParallelismConfig(pipeline_parallel_degree=8))", 8),
        ("return another_file()", None),
        ("return to_something(other(), 4)", None),
        ("return Trainer.Config(**everything())", None),
        ("return Trainer.Config(parallelism=ParallelismConfig(pipeline_parallel_degree=degree()))", None),
        (
            "config = other()\n    n = 8\n    config.parallelism.pipeline_parallel_degree = n\n    return config",
            8,
        ),
        ("config = other()\n    try_it(config)\n    return config", None),
    ],
)
def test_forms_of_configurations(body: str, told: int | None) -> None:
    """The ways in which a registry makes a configuration; hidden values are open."""
    own = "def other(size=2) -> Trainer.Config:\n"
    own += "    return Trainer.Config(parallelism=ParallelismConfig(pipeline_parallel_degree=size))\n"
    text = f"{own}def mine() -> Trainer.Config:\n    {body}\n"
    config = read(Source("configurations.py", text))[-1]
    value = None if config.open else config.given["parallelism.pipeline_parallel_degree"].value
    assert (None if isinstance(value, Unset) else value) == told


def test_functions_that_call_each_other_end() -> None:
    """A file whose functions call each other is open, and is read to its end."""
    text = "def a() -> Trainer.Config:\n    return b()\ndef b() -> Trainer.Config:\n    return a()\n"
    assert [config.open is not None for config in read(Source("configurations.py", text))] == [True, True]


def test_a_file_whose_functions_double_is_read_in_time() -> None:
    """Functions that call the previous one twice, forty deep, are open at the latest when the budget is spent."""
    parts = ["def c0() -> Trainer.Config:\n    return Trainer.Config(training=TrainingConfig(steps=1))\n"]
    parts += [
        f"def c{n}() -> Trainer.Config:\n    config = c{n - 1}()\n    config = c{n - 1}()\n    return config\n"
        for n in range(1, 40)
    ]
    configs = read(Source("configurations.py", "".join(parts)))
    assert configs[0].open is None and configs[-1].open is not None


@pytest.mark.parametrize("text", ["def a(:\n", "a = '\\ud800'.x y\n", "\x00", "(" * 300, "x = " + "1+" * 9000 + "1"])
def test_what_is_no_python_is_refused_at_its_place(text: str) -> None:
    """A file that Python refuses has a diagnostic."""
    with pytest.raises(PipeschedError, match="PS870"):
        read(Source("configurations.py", text))


if __name__ == "__main__":
    print([compare(seed) for seed in range(int(sys.argv[-1]))][-1])
