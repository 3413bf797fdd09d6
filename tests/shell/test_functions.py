"""Every command is also a function, with the same options, defaults and answers, and with the same codes for
refusals."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import click
import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.command.options import of
from pipesched.extension import Option
from pipesched.shell.app import commands

VERBS = (
    "verify",
    "optimize",
    "show",
    "why",
    "prove",
    "compare",
    "plan",
    "diff",
    "emit",
    "run",
    "calibrate",
)
OWN = {"verify": {"target"}, "optimize": {"target", "progress"}, "compare": {"schedules"}, "diff": {"a", "b"}}
OWN |= {"calibrate": {"traces"}, "plan": {"executor"}}
OWN["compare"] |= {"executor"}
ELSEWHERE = {"run": {"rank", "factory", "model"}}  # a function of its own: `run_rank`
WRONG = "0F0,0B0\n0F1,1B0\n"


def keywords(command: str) -> dict[str, Option]:
    """Return the options of a command that are not about the terminal."""
    return {option.name: option for option in of(command) if not option.terminal}


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_has_the_options_of_its_command(verb: str) -> None:
    """Names and defaults of the signature are those of the table, plus the files and the sizes."""
    given = inspect.signature(getattr(pipesched, verb)).parameters
    others = OWN.get(verb, {"target"}) | {name for name, x in given.items() if x.kind is x.VAR_KEYWORD}
    known = {name: x.default for name, x in keywords(verb).items() if name not in ELSEWHERE.get(verb, set())}
    assert given.keys() - others == known.keys()
    assert {name: given[name].default for name in known} == known
    assert ("parameters" in given) == any(option.name == "definitions" for option in of(verb))


def test_one_rank_has_the_options_of_its_command() -> None:
    """The rank and its stages are required; every other name and default is that of a row."""
    given = inspect.signature(pipesched.run_rank).parameters
    others = {"target", "rank", "factory", "parameters"}
    assert ELSEWHERE["run"] <= given.keys() and all(given[x].default is inspect.Parameter.empty for x in others)
    rows = keywords("run")
    assert {x: given[x].default for x in given.keys() - others} == {x: rows[x].default for x in given.keys() - others}


def test_a_command_has_the_options_of_the_table() -> None:
    """A command has all the options of the table, in its order, and no others."""
    made = {
        name: [x.name for x in command.params if isinstance(x, click.Option)] for name, command in commands().items()
    }
    assert made == {name: [option.name for option in of(name)] for name in commands()}


def test_an_option_has_one_meaning_everywhere() -> None:
    """Rows of the same name, except for the terminal, are read alike in every command."""
    for name in ("comm", "release", "torch_version", "stages", "max_ops"):
        rows = {(x.read, x.default, x.metavar, x.help) for verb in commands() for x in of(verb) if x.name == name}
        assert len(rows) == 1, name


def printed(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, Any]:
    """Return the status and object of a command line."""
    status = main([*line.split(), "--json"])
    return status, json.loads(capsys.readouterr().out)


def text_of(made: Any) -> Any:
    """Return the result of a function, as JSON reads it back."""
    return json.loads(json.dumps(made.to_json()))


SAME: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("verify 1f1b --p 3 --m 4 --mem-cap 3", "verify", ("1f1b",), {"p": 3, "m": 4, "mem_cap": 3}),
    ("verify zb_v --p 2 --cost F=2,B=3,C=1/2 --release I", "verify", ("zb_v",), {"p": 2, "release": "I", "costs": "*"}),
    ("verify wrong.csv --torch-version 2.13 --fsdp", "verify", ("wrong.csv",), {"torch_version": "2.13", "fsdp": True}),
    ("optimize --p 2 --m 3 --mem-cap 2 --seed 7", "optimize", (), {"p": 2, "m": 3, "mem_cap": 2, "seed": 7}),
    ("optimize gpipe --p 2 --m 3 --objective span", "optimize", ("gpipe",), {"p": 2, "m": 3, "objective": "span"}),
    (
        "optimize --p 2 --m 2 --placement 0,1,1,0 --no-portfolio",
        "optimize",
        (),
        {"p": 2, "m": 2, "placement": [0, 1, 1, 0], "portfolio": False},
    ),
    ("show zb_h1 --p 2 --m 3 --width 80", "show", ("zb_h1",), {"p": 2, "m": 3}),
    (
        "show 1f1b --p 2 --format svg --style megatron --from 1 --to 9/2",
        "show",
        ("1f1b", "svg"),
        {"p": 2, "style": "megatron", "begin": 1, "end": 4.5},
    ),
    ("show wrong.csv --format trace", "show", ("wrong.csv", "trace"), {}),
    ("show 1f1b --p 2 --format dag --to graphml", "show", ("1f1b", "dag"), {"p": 2, "end": "graphml"}),
    (
        "why interleaved --p 2 --v 2 --m 4 --cost F=2,B=3,C=1/2",
        "why",
        ("interleaved",),
        {"p": 2, "v": 2, "m": 4, "costs": "*"},
    ),
    ("why dualpipe --p 4 --m 8", "why", ("dualpipe",), {"p": "4", "m": "8"}),
    (
        "compare gpipe 1f1b interleaved --p 2 --v 2 --m 4,8 --cost-per stage",
        "compare",
        ("gpipe", "1f1b", "interleaved"),
        {"p": 2, "v": 2, "m": [4, 8], "cost_per": "stage"},
    ),
    ("compare --all --p 2 --m 4", "compare", (), {"library": True, "p": 2, "m": 4}),
    ("diff gpipe interleaved --p 2 --v 2 --m 4", "diff", ("gpipe", "interleaved"), {"p": 2, "v": 2, "m": 4}),
    ("diff wrong.csv gpipe --m 2 -D p=2", "diff", ("wrong.csv", "gpipe"), {"m": 2, "p": 2}),
]


@pytest.mark.parametrize(("line", "verb", "targets", "options"), SAME, ids=[row[0] for row in SAME])
def test_a_function_gives_what_its_command_prints(
    line: str, verb: str, targets: Any, options: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The object is the same except for seconds, with the exit status of the command."""
    (folder / "wrong.csv").write_text(WRONG, "utf-8")
    options = {name: "F=2,B=3,C=1/2" if value == "*" else value for name, value in options.items()}
    status, known = printed(capsys, line)
    made = getattr(pipesched, verb)(*targets, **options)
    assert text_of(made) == known
    assert made.exit_status == status
    assert str(made) == made.text() if hasattr(made, "text") else str(made) == known["picture"]


@pytest.mark.usefixtures("one_supervisor")
def test_emit_run_and_calibrate_give_what_their_commands_print(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The functions give the text of a stream; a run, except for measurements; and the costs of its trace, which are
    accepted."""
    assert main(["emit", "zb_h1", "--p", "2", "--m", "3", "--target", "torch-csv"]) == 0
    assert capsys.readouterr().out == pipesched.emit("zb_h1", "torch-csv", p=2, m=3)
    status, known = printed(capsys, "run 1f1b --p 2 --m 2 --steps 2 --pace 1 --trace run.json")
    made = pipesched.run("1f1b", p=2, m=2, steps=2, pace=1, trace=True)
    found = text_of(made)
    assert (status, made.exit_status) == (0, 0) and json.loads(made.trace)["traceEvents"]
    for told in (known, found):
        del told["time"]["measured"], told["losses"], told["undivided_losses"], told["gradients"]
    assert found == known
    fitted = pipesched.calibrate("run.json", digits=2)
    assert text_of(fitted) == printed(capsys, "calibrate run.json --digits 2")[1]
    assert main(["calibrate", "run.json", "--digits", "2", "-o", "costs.toml"]) == 0
    assert Path("costs.toml").read_text("utf-8") == fitted.toml()
    assert pipesched.verify("1f1b", p=2, m=2, costs=fitted.costs) == pipesched.verify(
        "1f1b", p=2, m=2, costs=Path("costs.toml")
    )


REFUSED: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    *((f"{verb} 1f1b --p 0", verb, ("1f1b",), {"p": 0}) for verb in ("show", "why", "emit", "optimize", "run")),
    *((f"{verb} 1f1b", verb, ("1f1b",), {}) for verb in ("show", "why", "compare", "emit", "run")),
    *((f"{verb} none --p 2", verb, ("none",), {"p": 2}) for verb in ("show", "why", "compare", "emit", "run")),
    ("verify 1f1b --p 2 --cost F=x", "verify", ("1f1b",), {"p": 2, "costs": "F=x"}),
    ("why 1f1b --p 2 --cost F=[1,2,3]", "why", ("1f1b",), {"p": 2, "costs": {"F": [1, 2, 3]}}),
    ("why 1f1b --p 2 --mem-cap 80GB", "why", ("1f1b",), {"p": 2, "mem_cap": "80GB"}),
    ("why 1f1b --p 2 --comm telepathy", "why", ("1f1b",), {"p": 2, "comm": "telepathy"}),
    ("emit 1f1b --p 2 --target tape", "emit", ("1f1b", "tape"), {"p": 2}),
    ("emit dualpipe --p 2 --m 4 --target torch-csv", "emit", ("dualpipe", "torch-csv"), {"p": 2, "m": 4}),
    ("show 1f1b --p 2 --format svg --width 90", "show", ("1f1b", "svg"), {"p": 2, "width": 90}),
    ("show 1f1b --p 2 --measured none.json", "show", ("1f1b",), {"p": 2, "measured": "none.json"}),
    ("compare gpipe --p 2 --m 2 --v 3", "compare", ("gpipe",), {"p": 2, "m": 2, "v": 3}),
    ("compare", "compare", (), {}),
    ("compare gpipe --p 2 --m 1..99999999999", "compare", ("gpipe",), {"p": 2, "m": "1..99999999999"}),
    ("diff gpipe 1f1b --p 2 -D x=1", "diff", ("gpipe", "1f1b"), {"p": 2, "x": 1}),
    ("optimize --p 2 --seed 99999999999", "optimize", (), {"p": 2, "seed": 99999999999}),
    ("optimize --p 2 --proof x --all-m", "optimize", (), {"p": 2, "proof": "x", "all_m": True}),
    ("optimize --p 2 --placement ring", "optimize", (), {"p": 2, "placement": "ring"}),
    ("run 1f1b --p 2 --steps 0", "run", ("1f1b",), {"p": 2, "steps": 0}),
    ("run 1f1b --p 2 --fault kill", "run", ("1f1b",), {"p": 2, "faults": "kill"}),
    ("calibrate none.json", "calibrate", ("none.json",), {}),
    ("calibrate none.json --digits 10", "calibrate", ("none.json",), {"digits": 10}),
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("line", "verb", "targets", "options"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_a_command_refuses_its_function_raises(
    line: str, verb: str, targets: Any, options: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The function raises the codes of the command as a PipeschedError, or returns them if the command does."""
    status, known = printed(capsys, line)
    codes = {found["code"] for row in known.get("rows", [known]) for found in row["diagnostics"]}
    try:
        made = getattr(pipesched, verb)(*targets, **options)
        found = {entry["code"] for row in text_of(made)["rows"] for entry in row["diagnostics"]}
        assert made.exit_status == status
    except pipesched.PipeschedError as error:
        found = {str(diagnostic.code) for diagnostic in error.diagnostics}
    assert status in (1, 2) and found == codes != set()


def test_what_load_returns_goes_into_every_function() -> None:
    """A schedule of any origin, of computes alone or with messages, is judged like its file."""
    name, sizes = "interleaved", {"p": 2, "v": 2, "m": 4}
    stream = pipesched.Source("x.json", pipesched.emit(name, **sizes))  # type: ignore[arg-type]
    for made in (written := pipesched.load(name, **sizes), pipesched.load(stream)):
        assert (made.program is None) == (made is written)
        assert pipesched.why(made).analysis.makespan == pipesched.verify(name, **sizes).makespan  # type: ignore[arg-type]
        assert pipesched.diff(made, name, **sizes).moves == ()
        mine, known = pipesched.compare(made, name, **sizes).rows
        assert (mine.makespan, mine.peak, mine.messages) == (known.makespan, known.peak, known.messages)
        assert pipesched.show(made).chart.makespan == pipesched.verify(made).makespan
        assert pipesched.emit(made, "torch-csv") == pipesched.emit(name, "torch-csv", **sizes)  # type: ignore[arg-type]
