"""Inputs of every kind in which one string at a time is replaced by a hostile string.

Each kind has a valid example; its texts are found mechanically: the values and keys of a tree of JSON, TOML, YAML or a
pickle, the strings, names and comments of a .ps file, the cells of a CSV, the words of an order, of a shell script and
of a command line. `inputs` gives the example with one of them changed, and the commands that read it.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pipesched
from tests.makers import measured_runs, recorded_runs
from tests.readers.typed import typed

LINES = "a\n::add-mask::b\n  ::add-mask::b\nok  other.py  p=4\r::add-mask::c ##[add-mask]d ##vso[task]e"
HOSTILE = LINES + "\x1b[31m\x1b]0;x\x07\u202e\u2066\x85\x9b31m"
FIRST = "::add-mask::b ##[add-mask]d"
TEXTS = (HOSTILE, FIRST)

AS_IT_IS = "as it is"

Change = Callable[[str], str]


@dataclass(frozen=True)
class Input:
    """An input with one changed text. files: by name, in a folder of its own.

    commands: with {0} for the folder, and {1} for `file`.
    """

    name: str
    files: dict[str, bytes]
    commands: Sequence[str]
    file: str = ""

    def lines(self, folder: Path) -> Iterator[list[str]]:
        """Yield the command lines, word by word."""
        for command in self.commands:
            yield [word.replace("{0}", str(folder)).replace("{1}", self.file) for word in command.split()]


def changes(text: str) -> list[Change]:
    """Return the changes of a text: replace it, or append a tail."""
    return [lambda _: text, lambda old: old + text]


def paths(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to the texts of a tree; the path of a key ends in None."""
    if isinstance(tree, str):
        yield at
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if isinstance(key, str):
                yield (*at, key, None)
            yield from paths(value, (*at, key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from paths(value, (*at, index))


def changed(tree: Any, path: tuple[Any, ...], change: Change) -> Any:
    """Return a copy of the tree with the text at the end of the path replaced."""
    if not path:
        return change(tree)
    head, *rest = path
    if rest == [None]:
        return {change(key) if key == head else key: value for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(changed(x, tuple(rest), change) if i == head else x for i, x in enumerate(tree))
    made = dict(tree) if isinstance(tree, dict) else list(tree)
    made[head] = changed(tree[head], tuple(rest), change)
    return made


def kinds_of(tree: Any) -> list[tuple[Any, ...]]:
    """Return one path for all items of a list that have the same keys: the texts of its first item represent them."""
    first: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for path in paths(tree):
        first.setdefault(tuple("#" if isinstance(x, int) and x > 1 else x for x in path), path)
    return list(first.values())


def of_tree(
    name: str, tree: Any, write: Callable[[Any], bytes], commands: Sequence[str], others: dict[str, bytes] | None = None
) -> Iterator[Input]:
    """Yield the tree with each of its texts changed in turn."""
    yield Input(f"{name} {AS_IT_IS}", {**(others or {}), name: write(tree)}, commands)
    for path in kinds_of(tree):
        for text in TEXTS:
            for change in changes(text):
                said = "/".join(map(str, path))
                yield Input(f"{name} {said}", {**(others or {}), name: write(changed(tree, path, change))}, commands)


def of_text(
    name: str, text: str, words: str, commands: Sequence[str], quoted: Change = lambda x: x, most: int = 40
) -> Iterator[Input]:
    """Yield the text with each of its words changed in turn; of similar words only the first."""
    yield Input(f"{name} {AS_IT_IS}", {name: text.encode()}, commands)
    first = {found[0]: found for found in reversed(list(re.finditer(words, text, re.S)))}
    for found in sorted(first.values(), key=lambda found: found.start())[:most]:
        for new in (LINES, *TEXTS):
            for change in changes(new):
                made = text[: found.start()] + quoted(change(found[0])) + text[found.end() :]
                yield Input(f"{name} {found[0]!r}", {name: made.encode()}, commands)


def as_json(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def as_toml(tree: Any) -> bytes:
    """Return the tables of tables of values; a string of JSON is one of TOML."""

    def key(name: str) -> str:
        return json.dumps(name).replace("\x7f", "\\u007f")

    def value(x: Any) -> str:
        if isinstance(x, dict):
            return "{" + ", ".join(f"{key(k)} = {value(v)}" for k, v in x.items()) + "}"
        return json.dumps(x).replace("\x7f", "\\u007f")

    return "".join(f"{key(name)} = {value(x)}\n" for name, x in tree.items()).encode()


def schedule_verbs(file: str, *options: str) -> list[str]:
    """Return the verbs that read a schedule."""
    sizes = " ".join(options)
    verbs = [f"{verb} {{0}}/{file} {sizes}" for verb in ("verify", "why", "emit", "fmt --diff", "list")]
    verbs += [f"verify {{0}}/{file} {sizes} --format {x}" for x in ("concise", "github", "json")]
    verbs += [f"show {{0}}/{file} {sizes} --format {x}" for x in ("text", "svg", "html", "trace", "dag", "csv")]
    verbs += [f"verify {{0}}/{file} {sizes} --color always", f"show {{0}}/{file} {sizes} --json"]
    verbs += [f"{verb} {{0}}/{file} 1f1b --p 2 --m 2" for verb in ("compare", "diff", "diff --all", "compare --json")]
    verbs += [f"emit {{0}}/{file} {sizes} --target {x}" for x in ("torch-csv", "torch-comms", "deepspeed")]
    verbs += [f"emit {{0}}/{file} {sizes} --target {x}" for x in ("order", "ps", "program --json")]
    verbs += [f"check {{0}}/{file}", f"why {{0}}/{file} {sizes} --json", f"emit {{0}}/{file} {sizes} --json"]
    return verbs


PS = """schedule mine(p, m = 2, list = 1)
"a title of it"
# a comment
require m >= 1, "m is one or more"
let warm = min(p - 1, m)
stage s in 0 .. p on rank s
costs F = 2
rank r {
  repeat warm { F }  # warm up
  repeat m - warm { F B }
  repeat warm { B }
}
claim peak(0) == 2
claim idle >= 0 when m >= p
"""
TORCH = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
ORDER = "# order\nrank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 B1.0 F1.1 B1.1\n"
MODEL = {
    "model": {"name": "mine", "layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "sequence": 32, "norm": "rms"},
    "training": {"batch": 4, "recompute": "full"},
}
DEVICE = {
    "device": {
        "name": "mine",
        "flops": "1 TFLOP/s",
        "memory": "10GB",
        "node": "10 GB/s",
        "network": "1 GB/s",
        "host": "1 GB/s",
    }
}
COSTS = {"F": "3/2", "B": [2, "3"], "C": 1}
GENERATOR = """\
__version__ = "1.0"
def order(p=2, m=2, kind="plain"):
    print("said")
    if kind != "plain":
        raise ValueError(kind)
    for rank in range(2):
        yield "%dF0,%dB0" % (rank, rank)
    note = "note"
"""
SCRIPT = """\
#!/bin/bash
# a job
SIZE=4
NAME="a name"
torchrun --nproc_per_node 4 pretrain_gpt.py --pipeline-model-parallel-size $SIZE --num-layers 8 \\
    --micro-batch-size 1 --global-batch-size 8 --data-path 'some where' --world-size 4
"""


def of_stream(name: str, sizes: str) -> Iterator[Input]:
    """Yield a stream, and one with other names and a matching fingerprint."""
    stream = json.loads(typed("emit", name, *sizes.split()).out)
    yield from of_tree("stream.json", stream, as_json, schedule_verbs("stream.json"))
    for new in TEXTS:
        made = pipesched.stream.loads(json.dumps(stream))
        routes = tuple(pipesched.stream.Route(x.name + new, x.ranks, x.microbatches) for x in made.placement)
        named = pipesched.stream.Stream(new, {**made.parameters, new: 1}, routes, made.ranks)
        data = {"named.json": pipesched.stream.dumps(named).encode()}
        yield Input(f"a stream of {name} with other names", data, schedule_verbs("named.json"))


def streams() -> Iterator[Input]:
    """Yield the streams with one route."""
    yield from of_stream("1f1b", "--p 2 --m 2")


def routes() -> Iterator[Input]:
    """Yield the streams with two routes."""
    yield from of_stream("dualpipe", "--p 2 --m 4")


def answers() -> Iterator[Input]:
    """Yield the answers of `optimize --json`."""
    answer = json.loads(typed("optimize", "--p=2", "--m=2", "--json").out)
    read = [f"{x} {{0}}/answer.json" for x in ("verify", "verify --json", "verify --format github", "show", "why")]
    yield from of_tree("answer.json", answer, as_json, read)


def programs() -> Iterator[Input]:
    """Yield the files in the language."""
    read = [*schedule_verbs("mine.ps", "--p 2"), "fmt --check {0}/mine.ps"]
    yield from of_text("mine.ps", PS, r'"[^"]*"|[A-Za-z_]\w*|#[^\n]*|[0-9]+', read)


def orders() -> Iterator[Input]:
    """Yield the torch CSV and orders."""
    yield from of_text("mine.csv", TORCH, r"[^,\n]+", schedule_verbs("mine.csv"), lambda x: f'"{x}"', 5)
    yield from of_text("mine.csv", TORCH, r"[^,\n]+", schedule_verbs("mine.csv"), most=3)
    yield from of_text("order.txt", ORDER, r"[^ \n]+", schedule_verbs("order.txt"), most=6)
    yield from of_text("order.txt", ORDER, r"# order", schedule_verbs("order.txt"))


def numbers() -> Iterator[Input]:
    """Yield the costs, models, devices."""
    formats = ("", "--json", "--format github")
    cost = [f"verify 1f1b --p 2 --m 2 --costs {{0}}/costs.toml {x}" for x in formats]
    cost += [f"{verb} 1f1b --p 2 --m 2 --costs {{0}}/costs.toml" for verb in ("why", "show", "compare")]
    yield from of_tree("costs.toml", COSTS, as_json, cost)
    yield from of_tree("costs.toml", COSTS, as_toml, cost)
    model = [f"verify 1f1b --p 2 --m 2 --model {{0}}/model.toml {x}" for x in (*formats, "--device h100")]
    model += [f"{verb} 1f1b --p 2 --m 2 --model {{0}}/model.toml --device h100" for verb in ("show", "compare")]
    plan = "plan --model {0}/model.toml --gpus 2 --device h100 --batch 4 --executor here"
    model += [plan, f"{plan} --json"]
    yield from of_tree("model.toml", MODEL, as_toml, model)
    device = [f"verify 1f1b --p 2 --m 2 --model {{0}}/model.toml --device {{0}}/device.toml {x}" for x in formats]
    yield from of_tree("device.toml", DEVICE, as_toml, device, {"model.toml": as_toml(MODEL)})


def settings() -> Iterator[Input]:
    """Yield the configurations of trainers."""
    titan = {
        "model": {"name": "llama3", "flavor": "debugmodel"},
        "training": {"local_batch_size": 8},
        "parallelism": {"pipeline_parallel_degree": 4, "pipeline_parallel_schedule": "Interleaved1F1B"},
        "activation_checkpoint": {"mode": "none"},
        "comm": {"list": ["a", "b"]},
    }
    speed = {
        "train_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "Adam"},
        "pipeline": {"stages": "auto"},
    }
    core = {"model": {"pipeline_model_parallel_size": 4, "batch_p2p_comm": True, "precision": "bf16"}}
    formats = ("--trainer megatron==0.19.0", "", "--json", "--format github", "--format concise", "--color always")
    for name, tree, write in (
        ("config.toml", titan, as_toml),
        ("config.json", speed, as_json),
        ("core.yaml", core, as_json),
    ):
        read = [f"check {{0}}/{name} {x}" for x in formats[name != "core.yaml" :]]
        yield from of_tree(name, tree, write, read)
    words = r"'[^']*'|\"[^\"]*\"|[^\s'\"]+"
    for quote in "'\"":
        yield from of_text(
            "job.sh", SCRIPT, words, [f"check {{0}}/job.sh {x}" for x in formats], lambda x, q=quote: q + x + q
        )
    yield from of_text("job.sh", SCRIPT, words, [f"check {{0}}/job.sh {x}" for x in formats])


def commands() -> Iterator[Input]:
    """Yield a command line that is checked, word by word."""
    words = "torchrun --nproc_per_node 4 pretrain_gpt.py --pipeline-model-parallel-size 4 --num-layers 8 a.b=c x:y"
    each = [*words.split(), "--micro-batch-size", "1", "--bf16"]
    for new in (LINES, *TEXTS):
        for at, word in enumerate(each):
            for other in ("{1}", word + "{1}", f"--{{1}}={word}", f"{word}={{1}}"):
                said = " ".join([*each[:at], other, *each[at + 1 :]])
                read = [f"check {x} -- {said}" for x in ("--trainer megatron==0.19.0", "", "--json", "--format github")]
                yield Input(f"a command with {other}", {}, read, new)


def runs() -> Iterator[Input]:
    """Yield the recorded and measured runs."""
    events = measured_runs.played(pipesched.load("1f1b", p=2, m=2), "F=10,B=20", torch=False)
    trace = {"traceEvents": [event for row in events for event in row], "distributedInfo": {"backend": "nccl"}}
    read = [f"calibrate {{0}}/run.json {x}" for x in ("", "--json", "-o -")]
    read += ["show 1f1b --p 2 --m 2 --measured {0}/run.json"]
    yield from of_tree("run.json", trace, as_json, read)
    plan = pipesched.load(
        pipesched.Source("plan.txt", typed("emit", "1f1b", "--target=program", "--p=2", "--m=2").out.decode())
    )
    assert plan.program is not None
    lists = [plan.program.instructions(rank) for rank in range(2)]
    played = recorded_runs.play(lists)
    held = [f"verify 1f1b --p 2 --m 2 --recorded {{0}} {x}" for x in ("", "--json", "--format github")]
    for write, data in (
        (recorded_runs.dumps, "pickle"),
        (recorded_runs.traces, "trace"),
        (recorded_runs.orders, "order"),
    ):
        files = _written(write, played)
        name = sorted(files)[0]
        others = {other: text for other, text in files.items() if other != name}
        if data == "order":
            for one in of_text(name, files[name].decode(), r"[^ \n]+", held, most=4):
                yield Input(one.name, {**others, **one.files}, held)
        else:
            tree = pickle.loads(files[name]) if data == "pickle" else json.loads(files[name])
            yield from of_tree(name, tree, pickle.dumps if data == "pickle" else as_json, held, others)
            if data == "pickle":
                yield from of_tree(name, tree, as_json, held, others)


def _written(write: Callable[..., None], played: Any) -> dict[str, bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(played, Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def generators() -> Iterator[Input]:
    """Yield the files that run in a process of their own: half a second each."""
    for new in TEXTS:
        for found in re.finditer(r'"[^"]+"|kind(?=\))', GENERATOR):
            made = GENERATOR[: found.start()] + repr(new) + GENERATOR[found.end() :]
            read = [
                f"verify python:{{0}}/mine.py:order --p 2 {x}" for x in ("", "--json", "--format github", "-D kind=x")
            ]
            yield Input(f"mine.py {found[0]}", {"mine.py": made.encode()}, read)


def names() -> Iterator[Input]:
    """Yield the files with such names."""
    for new in TEXTS:
        name = new.replace("\x00", "")
        for text, ending in ((PS, ".ps"), (TORCH, ".csv"), (ORDER, ".txt"), ("{}", ".json"), ("[a]\nb = 1\n", ".toml")):
            file = name + ending
            commands = schedule_verbs("{1}", "--p 2")
            commands += ["check {0}/{1}", "check {0}/{1} --format github", "verify 1f1b --p 2 --model {0}/{1}"]
            commands += ["verify 1f1b --p 2 --costs {0}/{1}", "calibrate {0}/{1}", "verify 1f1b --p 2 --recorded {0}"]
            yield Input(f"a file {file!r}", {file: text.encode()}, commands, file)


BASES = {
    "verify": "1f1b --p=2 --m=2",
    "optimize": "--p=2 --m=2",
    "show": "1f1b --p=2 --m=2",
    "why": "1f1b --p=2 --m=2",
    "prove": "none.ps",
    "compare": "1f1b gpipe --p=2 --m=2",
    "plan": "--model=llama3-70b --gpus=0",
    "diff": "1f1b gpipe --p=2 --m=2",
    "emit": "1f1b --p=2 --m=2",
    "run": "none.ps",
    "calibrate": "none.json",
    "check": "none.toml",
    "fmt": "none.ps",
    "list": "",
    "play": "",
    "explain": "",
}
"""A command line of each command, which is quick; of another one, that of ``show``."""


def arguments() -> Iterator[Input]:
    """Yield each option of each command, known or not, and each word."""
    from pipesched.shell import app

    others = set(app.verbs()) - BASES.keys() - {"lsp"}  # which serves until its client leaves
    bases = BASES | dict.fromkeys(others, BASES["show"])
    assert BASES.keys() <= set(app.verbs())
    values = ("{1}", "@{1}", "x={1}", "{1}=1", "{0}/{1}", "1,{1}", "1{1}", "python:{1}:f", "torch:{1}", "python:{1}")
    for new in TEXTS:
        yield Input("commands", {}, ["{1}", "--{1}", "-{1}", "--format {1}", "--color={1} verify"], new)
        for name, base in bases.items():
            flags = [flag for param in app.commands()[name].params for flag in param.opts if flag.startswith("-")]
            lines = [f"{name} {base} {flag}{'=' * flag.startswith('--')}{value}" for flag in flags for value in values]
            lines += [f"{name} {value}" for value in values] + [f"{name} {base} {value}" for value in values]
            lines += [f"{name} {base} --{{1}}", f"{name} {base} --{{1}}=1", f"{name} {base} --format=github {{1}}"]
            yield Input(f"arguments of {name}", {}, lines, new)
