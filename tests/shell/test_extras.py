"""A plain installation can verify, show, optimize and emit; each optional extra belongs to the extension that it is
named after.

A verb without its extra says in one line what to install.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PACKAGE = TOP / "pipesched"
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ("editor", "interop", "optimizer", "planning", "prover", "runtime", "views")
MODULES = {"python-sat": {"pysat", "pysolvers"}, "pyyaml": {"yaml"}, "z3-solver": {"z3"}}
MODULES["pygls"] = {"pygls", "lsprotocol"}
MODULES["cairosvg"] = {"cairosvg", "cairocffi"}

# Imported where they are: in a notebook, in the process of a framework.
ELSEWHERE = {
    ("views/spreadsheet.py", "pandas"),
    ("interop/frameworks/deepspeed.py", "deepspeed"),
    ("interop/frameworks/torch_schedule.py", "torch"),
}

COMMANDS = (  # all that a verb does without an extra
    "verify 1f1b --p 4",
    "verify zb_h1 --p 2 --json",
    "verify 1f1b --p 4 --model gpt3-175b --device a100",
    "show zb_h1 --p 2",
    *(f"show zb_h1 --p 2 -o a.{suffix}" for suffix in ("svg", "html", "csv", "graphml")),
    "optimize --p 2 --m 3 --mem-cap 2 -o best.ps",
    "optimize --p 2 --m 3 --mem-cap 2 --engine z3 --certify",
    *(f"emit 1f1b --p 2 --target {target}" for target in ("stream", "torch-csv", "torch-comms", "order", "ps")),
    "why 1f1b --p 2",
    "compare 1f1b zb_h1 --p 2",
    "diff 1f1b 1f1b --p 2",
    "plan --model gpt3-175b --gpus 64 --batch 64 --device a100 --only t=8,c=1,b=1 --executor here",
    "explain PS401",
    "fmt best.ps",
    "list",
)
NEEDS = {  # an extra, and what needs it
    "run 1f1b --p 2 --m 4": "runtime",
    "run 1f1b --p 2 --m 4 --engine torch": "runtime",
    "run 1f1b --p 2 --m 4 --rank 0 --stages stages.py:stage": "runtime",
    "plan --model gpt3-175b --gpus 64 --device a100 --executor dask:tcp://localhost:1": "planning",
    "show 1f1b --p 2 -o a.pdf": "views",
    "show 1f1b --p 2 -o a.png": "views",
    "check a.yaml": "interop",
    "prove 1f1b": "prover",
    "lsp": "editor",
}
PROBE = """
import contextlib, io, json, sys
absent, commands = json.load(sys.stdin)
sys.modules.update(dict.fromkeys(absent))
from pipesched.__main__ import main
answers = {}
for command in commands:
    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        status = main(command.split())
    answers[command] = status, out.getvalue(), told.getvalue()
json.dump(answers, sys.stdout)
"""


def modules(requirements: list[str]) -> set[str]:
    """Return the modules that come with some requirements."""
    names = [re.split(r"[=<>!;]", line)[0] for line in requirements]
    return set().union(*(MODULES.get(name, {name}) for name in names))


def mentioned(path: Path) -> set[str]:
    """Return the packages that lines of a file name as an import does: all that it imports, at the least."""
    found = re.findall(r"(?m)^\s*(?:from\s+(\w+)|import\s+(.+))", path.read_text("utf-8"))
    return {name for of, names in found for name in ([of] if of else re.findall(r"(?:^|,)\s*(\w+)", names))}


def imported(path: Path) -> Iterator[str]:
    """Yield the packages that a file imports anywhere, except for types alone."""
    tree = ast.parse(path.read_bytes())
    typed = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    spared = {inner for node in typed for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in spared:
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level and node not in spared:
            yield node.module.partition(".")[0]


def answers(commands: Iterable[str], folder: Path) -> dict[str, tuple[int, str, str]]:
    """Return the exit status, stdout and stderr of command lines in one process that cannot import extras."""
    lines = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    asked = json.dumps([sorted(modules(lines) - modules(PROJECT["dependencies"])), [*commands]])
    run = [sys.executable, "-c", PROBE]
    done = subprocess.run(run, cwd=folder, input=asked, capture_output=True, text=True, timeout=300, check=True)
    made: dict[str, tuple[int, str, str]] = json.loads(done.stdout)
    return made


def test_an_extra_is_what_one_extension_needs() -> None:
    """The core imports click and numpy; an extension also the standard dependencies, and its extra."""
    optional = PROJECT["optional-dependencies"]
    always = modules(PROJECT["dependencies"])
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        owner = name.partition("/")[0]
        known = always | modules(optional[owner]) if owner in EXTRAS else {"click", "numpy"}
        known |= sys.stdlib_module_names | {"pipesched"}
        strange = set() if mentioned(path) <= known else set(imported(path)) - known  # parsing takes longer
        assert {(name, module) for module in strange} <= ELSEWHERE
    assert all((PACKAGE / extra / "rows.py").is_file() and optional[extra] for extra in EXTRAS)


@pytest.mark.nightly
def test_no_extra_is_needed(tmp_path: Path) -> None:
    """With `pip install .` every verb works, except for the rows of `NEEDS`."""
    for command, (status, _, told) in answers(COMMANDS, tmp_path).items():
        assert status == 0, f"{command}\n{told}"


def test_a_verb_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    """The command reports one finding with the remedy and status 2, and writes nothing."""
    (tmp_path / "a.yaml").write_text("pipeline_model_parallel_size: 4\nnum_layers: 8\n", "utf-8")
    (tmp_path / "stages.py").write_text("def stage(index, stages):\n    raise NotImplementedError\n", "utf-8")
    for command, (status, out, told) in answers(NEEDS, tmp_path).items():
        first, *rest = told.splitlines()
        assert (status, out, first[:9]) == (2, "", "error[PS2" if "dask" in command else "error[PS8"), command
        assert next(filter(None, rest)).startswith(f"  = help: pip install 'pipesched[{NEEDS[command]}]'")
        assert told.count("error[") == 1 and "Traceback" not in told
    assert {path.name for path in tmp_path.iterdir()} == {"a.yaml", "stages.py"}
