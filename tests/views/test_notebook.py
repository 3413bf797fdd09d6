"""Schedules are displayed as picture, graph and table, and every cell of the notebook in `schedules/` runs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from fractions import Fraction
from html import escape
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.schedule import Program, Schedule
from pipesched.views import svg
from pipesched.views.chart.chart import chart
from tests.oracles import simulate
from tests.oracles.simulate import rows
from tests.views.test_show import SIZES

NOTEBOOK = Path(__file__).parents[2] / "schedules" / "schedule.ipynb"


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def displayed(code: str, names: dict[str, object]) -> object:
    """Run a cell like a notebook; returns the value of its last line if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


@pytest.mark.usefixtures("one_supervisor")
def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Every code cell runs in order, with the results that the text before it states, including the run."""
    names: dict[str, object] = {}
    shown = [displayed(code, names) for code in cells("code")]
    schedule, report, _, messages, makespan, _, better, *_ = shown
    costs = Costs({"F": Fraction(10), "I": Fraction(12), "W": Fraction(8)})

    assert isinstance(schedule, Schedule) and isinstance(better, Schedule) and isinstance(report, pipesched.Report)
    assert {str(found.code) for found in report.diagnostics} == {"PS501"}
    assert messages == [(f"I1.{i}", f"I0.{i}") for i in range(8)]
    assert makespan == simulate.run(schedule, rows(Costs({"C": Fraction(1, 2)}), 4)).makespan
    printed = capsys.readouterr().out
    assert printed.startswith(
        "gpipe  makespan 33, span 33, peak 8\n"
        "1f1b   makespan 33, span 33, peak 4\n"
        "zb_h1  makespan 27, span 27, peak 4\n"
        "zb_h2  makespan 27, span 24, peak 7\n"
        f"proved optimal: makespan {simulate.run(better, rows(costs, 4)).makespan}\n"
    )
    assert "\n0F0,0F1,0F2,0F3,0I0,0W0," in printed
    assert "ok  optimum  p=4 m=8   4 processes (gloo), 1 step of mlp\n" in printed


def test_the_notebook_holds_no_outputs() -> None:
    """The notebook is source: no stored results that could become outdated, and a format version with cell ids."""
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def test_a_schedule_shows_itself_as_a_figure() -> None:
    """The figure of `pipesched show`, whether it was loaded, read from a stream, or built by hand."""
    schedule = pipesched.load("1f1b", p=2, m=3)
    stream = pipesched.load(pipesched.Source("x.json", pipesched.emit("1f1b", p=2, m=3)))
    order = pipesched.Schedule.from_orders([schedule.order(0), schedule.order(1)], schedule.placement)

    assert isinstance(stream.program, Program)
    for made in (schedule, stream, order):
        drawn = made._repr_svg_()
        assert drawn is not None and len(list(ElementTree.fromstring(drawn).iter())) > 2 * 12
    assert schedule._repr_svg_() == svg.render(chart(schedule))


def test_figures_on_one_page_leave_each_other_alone() -> None:
    """Every rule of a style sheet begins with the figure's own class, and other colours have another class."""
    found = []
    for name, sizes in SIZES:
        root = ElementTree.fromstring(pipesched.load(name, **sizes)._repr_svg_() or "")
        (sheet,) = (e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}style"))
        light, dark = sheet.split("@media(prefers-color-scheme:dark){")
        own = f".{root.attrib['class']} "
        rules = [rule for part in (light, dark.removesuffix("}")) for rule in part.split("}") if rule]
        assert all(rule.startswith(own) and "," not in rule.split("{")[0] for rule in rules)
        found.append((root.attrib["class"], sheet))

    assert len({scope for scope, _ in found}) == len({sheet.replace(scope, "") for scope, sheet in found})


def test_what_is_too_large_is_told_instead_of_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell never raises, and has a line of words; a command ends with PS815, status 2 and no file, unless forced."""
    assert svg.MAX_OPS == 50_000
    monkeypatch.setattr(svg, "MAX_OPS", 31)
    drawn = pipesched.load("1f1b", p=2, m=8)._repr_svg_() or ""
    words = [e.text for e in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert words == ["one_f_one_b: 32 operations are too many for a figure; the limit is 31"]
    large = ["show", "1f1b", "--p", "2", "--m", "8", "-o", "large.svg"]
    assert main(large) == 2
    assert "PS815" in capsys.readouterr().err and not list(folder.iterdir())
    assert main([*large, "--force"]) == 0
    assert (folder / "large.svg").read_text("utf-8").count("<rect") >= 32


def test_a_report_shows_picture_and_words() -> None:
    """The picture at the costs of the verdict, then its text; for an unreadable file only the text."""
    report = pipesched.verify("zb_h1", p=2, m=2, costs="F=2,C=1")
    shown = report._repr_html_()
    assert shown.endswith(f"<pre>{escape(str(report))}</pre>")
    assert f"makespan {report.time.makespan} = " in shown.split("<pre>")[0]  # type: ignore[union-attr]
    unread = pipesched.verify("no_such_schedule", p=2)
    assert unread._repr_html_() == f"<pre>{escape(str(unread))}</pre>"
    wrong = pipesched.verify(pipesched.Source("<x>.txt", "rank 0: F0.0 B0.0\nrank 1: F1.0\n"))
    assert not wrong.ok and "<svg" in wrong._repr_html_() and "<x>" not in wrong._repr_html_()


class Frame(dict[str, list[object]]):
    """Stand-in for a pandas table."""


def test_the_table_has_a_row_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rank, in order, at the requested costs; whole times are integers, others exact fractions."""
    module = ModuleType("pandas")
    module.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", module)
    schedule, costs = pipesched.load("zb_h1", p=2, m=2), Costs({"F": Fraction(3, 2)})
    run = simulate.run(schedule, rows(costs, 2))
    table = schedule.to_pandas(costs)

    spots = [(rank, i) for rank, order in enumerate(run.orders) for i in range(len(order))]
    assert [(rank, step - 1) for rank, step in zip(table["rank"], table["step"], strict=True)] == spots
    assert table["start"] == [run.start[spot] for spot in spots] and table["end"] == [run.end[spot] for spot in spots]
    assert {type(x) for x in table["start"]} == {int, Fraction}
    operations = zip(table["op"], table["stage"], table["microbatch"], strict=True)
    assert [f"{op}{s}.{i}" for op, s, i in operations] == [str(run.orders[r][i]) for r, i in spots]
    assert max(table["held"]) == 2 and table["held"][-1] == 0


def test_without_pandas_there_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """PS820 shows the command that installs it."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PipeschedError, match="PS820") as raised:
        pipesched.load("1f1b", p=2, m=2).to_pandas()
    assert raised.value.diagnostics[0].help == "pip install pandas"


def test_without_networkx_there_is_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """PS820 shows the command that installs it; GraphML needs no package."""
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(PipeschedError, match="PS820") as raised:
        pipesched.load("1f1b", p=2, m=2).to_networkx()
    assert "pip install 'pipesched[views]'" in str(raised.value.diagnostics[0].help)
    assert main(["show", "1f1b", "--p", "2", "--format", "dag", "--to", "graphml"]) == 0


def test_what_never_runs_has_no_time() -> None:
    """In the graph its times are -1, and an order that deadlocks is drawn as far as it runs."""
    schedule = pipesched.load(pipesched.Source("x.txt", "rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n"))
    assert [end for _, end in schedule.to_networkx().nodes(data="end")] == [1, -1, -1, -1, -1, -1, -1, -1]
    assert "stops at 1" in (schedule._repr_svg_() or "")


def test_importing_a_noun_draws_nothing() -> None:
    """`import pipesched` loads no numpy; a schedule without an extension has no picture, and tells so for a graph."""
    code = (
        "import sys, pipesched; assert 'numpy' not in sys.modules\n"
        "from pipesched.model.schedule import Schedule; from tests.makers.placements import linear\n"
        "pipesched.extension.register()\n"
        "s = Schedule.from_orders([[]], linear(1, 0)); assert s._repr_svg_() is None\n"
        "try: s.to_networkx()\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60, text=True)
    assert done.stdout.startswith("PS820")
