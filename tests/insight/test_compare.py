"""`pipesched compare` reproduces each table of the literature exactly, with one command.

The closed forms are written out here: (p-1)/m, (p-1)/(v m) for idle / work, and (p-1)/(m+p-1) for idle / makespan.
"""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.compile import read
from pipesched.examine import Options
from pipesched.insight import compare as comparison
from pipesched.insight.compare import share
from pipesched.library.assets import built_in
from pipesched.model.schedule import Schedule
from tests.oracles import simulate
from tests.oracles.simulate import rows as cost_rows


def compared(*arguments: str) -> list[str]:
    return ["compare", *arguments]


def rows(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a comparison, with exact numbers."""
    assert main(["compare", *arguments, "--json"]) == status
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def exact(value: Any) -> Fraction:
    return Fraction(value)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_the_overhead_of_gpipe_and_1f1b(p: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The bubble fraction is (p-1)/m, at any costs (arXiv:2104.04473, section 2.2.1)."""
    for cost in ("F=1", "F=10,B=21"):
        found = rows(capsys, "gpipe", "1f1b", "--p", str(p), "--m", "4,8,16,32,64", "--cost", cost)
        assert len(found) == 10
        for row in found:
            assert exact(row["overhead"]) == Fraction(p - 1, row["parameters"]["m"])


def test_the_overhead_of_interleaving(capsys: pytest.CaptureFixture[str]) -> None:
    """The overhead is (p-1)/(v m) (section 2.2.2 of the same paper), with costs by stage or by model."""
    for per in ("rank", "stage"):
        found = rows(capsys, "interleaved", "--p", "4", "--v", "1..4", "--m", "4,8", "--cost-per", per)
        assert len(found) == 8
        for row in found:
            assert exact(row["overhead"]) == Fraction(3, row["parameters"]["v"] * row["parameters"]["m"])


RATIOS = {
    (4, 4): "3/7",
    (4, 16): "3/19",
    (4, 64): "3/67",
    (16, 16): "15/31",
    (16, 64): "15/79",
    (16, 256): "15/271",
}


@pytest.mark.parametrize("p", [4, 16])
def test_the_bubble_ratio_of_1f1b(p: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The ratio is (p-1)/(m+p-1), as published for m = p, 4p and 16p."""
    found = rows(capsys, "1f1b", "--p", str(p), "--m", f"{p},{4 * p},{16 * p}")
    assert [row["bubble_ratio"] for row in found] == [RATIOS[p, m] for m in (p, 4 * p, 16 * p)]
    for row in found:
        m = row["parameters"]["m"]
        assert exact(row["bubble_ratio"]) == Fraction(p - 1, m + p - 1)


def test_the_bubble_ratio_of_interleaving(capsys: pytest.CaptureFixture[str]) -> None:
    """Interleaved 1F1B at p = 4, m = 8 has the ratio 3/19 with two chunks and 3/35 with four."""
    found = rows(capsys, "interleaved", "--p", "4", "--v", "2,4", "--m", "8")
    assert [row["bubble_ratio"] for row in found] == ["3/19", "3/35"]


def test_the_table_shows_every_bubble_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """The unit comes first; then idle time over the makespan, over the span, and over the work, as in half of the
    papers."""
    assert main(compared("1f1b", "interleaved", "zb_h2", "--p", "4", "--v", "2", "--m", "8")) == 0
    unit, empty, above, heads, *lines = capsys.readouterr().out.splitlines()
    assert unit == "unit of time: costs of 1/p of the model; each of S stages takes p/S of them" and not empty
    assert above.split() == ["bubble", "idle", "/", "work", "parameters"]
    assert "bubble" in heads and "by span" in heads and '"bubble fraction"' in heads and "lower bound" in heads
    assert lines[0].count("3/11 = 27.3 %") == 2 and "3/8 = 37.5 %" in lines[0]
    assert lines[1].count("3/19 = 15.8 %") == 2 and "3/16 = 18.8 %" in lines[1]
    assert re.search(r"27 +24 +1/9 = 11.1 % +0 % +1/8 = 12.5 % ", lines[2])
    assert main(compared("zb_v", "--p", "4", "--m", "8", "--cost-per", "stage")) == 0
    assert capsys.readouterr().out.startswith("unit of time: costs of one stage, whatever its size")


@pytest.mark.parametrize(
    ("costs", "bound"), [("C=0", 25), ("F=1,B=2", 25), ("F=1,I=1,W=1", 25), ("F=1,I=1,W=1,B=1", None)]
)
def test_a_bound_holds_for_full_backwards_that_take_as_long_as_their_parts(
    costs: str, bound: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """DualPipe runs B beside I and W: the optimizer's bound is for split orders, and does not cover a cheaper B."""
    (row,) = rows(capsys, "dualpipe", "--p", "4", "--m", "8", "--cost", costs)
    assert row["lower_bound"] == bound


def test_a_cost_of_full_backwards_lowers_no_bound_where_none_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """ZB-H1 runs I and W only: its bound is that of their costs, whatever a B takes."""
    cheap, usual = (
        rows(capsys, "zb_h1", "--p", "3", "--m", "4", "--cost", f"F=1,I=1,W=1{full}")[0] for full in (",B=1", "")
    )
    assert cheap["lower_bound"] == usual["lower_bound"] is not None


def test_like_is_compared_with_like(capsys: pytest.CaptureFixture[str]) -> None:
    """With costs of 1/p of the model the work of a rank does not depend on the number of stages;
    latency is not scaled.
    """
    found = rows(capsys, "1f1b", "interleaved", "--p", "4", "--v", "2,4", "--m", "8", "--cost", "F=3,I=2,W=4,C=1/2")
    work = {exact(row["makespan"]) - exact(row["idle"]) for row in found}
    assert len(found) == 3 and work == {8 * (3 + 2 + 4)}
    assert [row["costs"]["F"] for row in found] == [3, "3/2", "3/4"]
    assert {row["costs"]["C"] for row in found} == {"1/2"}
    each = rows(capsys, "interleaved", "--p", "4", "--v", "2", "--m", "8", "--cost-per", "stage")
    assert [exact(row["makespan"]) - exact(row["idle"]) for row in each] == [2 * 8 * 3]


def test_the_figures_are_those_of_verify(capsys: pytest.CaptureFixture[str]) -> None:
    """A row equals the report of the same schedule, with one stage per rank."""
    for row in rows(capsys, "zb_h1", "zb_h2", "dualpipe", "--p", "4", "--m", "8", "--cost", "F=10,I=9,W=5,C=2"):
        report = pipesched.verify(row["source"].removesuffix(".ps"), p=4, m=8, costs="F=10,I=9,W=5,C=2")
        assert report.time is not None and report.memory is not None
        assert (exact(row["makespan"]), exact(row["span"])) == (report.time.makespan, report.time.span)
        assert exact(row["idle"]) == max(report.time.idle) and exact(row["peak"]) == max(report.memory.peak)
        assert row["messages"] == report.messages


@pytest.mark.parametrize(
    ("name", "p", "v", "held"),
    [("1f1b", 4, None, Fraction(1, 4)), ("interleaved", 4, 2, Fraction(2, 8)), ("dualpipe", 8, None, Fraction(2, 8))],
)
def test_two_routes_double_the_parameters(name: str, p: int, v: int | None, held: Fraction) -> None:
    """A rank holds 1/p of the model for any number of stages; with a copy for each of two routes twice as much."""
    schedule = pipesched.load(name, p=p, m=16, **({} if v is None else {"v": v}))
    assert share(schedule.placement) == held


COSTS = ["F=1", "F=10,I=13,W=7,C=2", "F=3,I=5,W=1,C=1/3"]


@pytest.mark.parametrize(
    ("cost", "m"),
    [(COSTS[0], "8"), *(pytest.param(x, m, marks=pytest.mark.nightly) for x in COSTS for m in ("8", "13"))],
)
def test_no_schedule_is_below_its_bound(cost: str, m: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No library schedule is below its bound; 1F1B meets it: p-1 stages before the last rank, its work, and p-1 after
    it."""
    for row in rows(capsys, "--all", "--p", "4", "--m", m, "--cost", cost):
        if row["lower_bound"] is not None:
            assert exact(row["makespan"]) >= exact(row["lower_bound"]) > 0
        if row["name"] == "1f1b" and cost == "F=1":
            assert row["makespan"] == row["lower_bound"] == 3 * row["parameters"]["m"] + 3 * (1 + 2)


def test_no_bound_is_said_where_none_is_known(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs that take less than their parts, an order without backwards, and one with a missing operation."""
    (folder / "forward.csv").write_text("0F0,0F1\n1F0,1F1\n")
    (folder / "lacks.csv").write_text("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n")
    cheap = rows(capsys, "dualpipe", "--p", "4", "--m", "8", "--cost", "FB=2")
    assert cheap[0]["lower_bound"] is None and cheap[0]["makespan"] is not None
    found = rows(capsys, "forward.csv", "lacks.csv", status=1)
    assert [row["lower_bound"] for row in found] == [None, None]
    assert found[0]["makespan"] == 3 and found[1]["diagnostics"][0]["code"] == "PS301"


def test_a_random_order_is_not_below_the_bound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Orders of ZB-H1's operations at random places of a rank, as simulated, are not below the bound."""
    rng = random.Random(5)
    schedule = pipesched.load("zb_h1", p=3, m=4)
    bound = exact(rows(capsys, "zb_h1", "--p", "3", "--m", "4")[0]["lower_bound"])
    finished = 0
    for _ in range(60):
        orders = [schedule.order(rank) for rank in range(3)]
        for order in orders:
            for _ in range(3):
                i = rng.randrange(len(order) - 1)
                order[i], order[i + 1] = order[i + 1], order[i]
        other = Schedule.from_orders(orders, schedule.placement)
        run = simulate.run(other, cost_rows(pipesched.model.costs.Costs(), 3))
        if not any(step is not None for step in run.stuck):
            finished += 1
            assert run.makespan >= bound
    assert finished > 5


def test_a_refused_size_is_a_row_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """ZB-H2 does not support m < 2p - 1: its row says so, the others are complete, and the status is 0."""
    found = rows(capsys, "zb_h1", "zb_h2", "--p", "4", "--m", "4,8")
    assert [row["makespan"] is None for row in found] == [False, False, True, False]
    assert [d["code"] for d in found[2]["diagnostics"]] == ["PS209"]
    assert main(compared("zb_h1", "zb_h2", "--p", "4", "--m", "4,8")) == 0
    shown = capsys.readouterr().out
    assert shown.count("refused") == 1 and "zb_h2 p=4 m=4: PS209: zb_h2 requires" in shown
    assert main(compared("zb_h2", "--p", "4", "--m", "4")) == 1


def test_a_wrong_file_is_a_row_and_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in one file does not affect the other rows; a missing file ends the command."""
    (folder / "bad.ps").write_text("schedule s(p, m)\nrank r { G }\n")
    found = rows(capsys, "bad.ps", "1f1b", "--p", "2", "--m", "2", status=1)
    assert found[0]["makespan"] is None and found[1]["makespan"] == 9
    assert main(compared("nothing.ps", "1f1b", "--p", "2")) == 2
    assert main(compared("--p", "2")) == 2
    capsys.readouterr()


def test_a_parameter_goes_to_those_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    """--v applies to interleaving; 1F1B runs once; a parameter that no file has is a mistake."""
    found = rows(capsys, "1f1b", "interleaved", "--p", "4", "--v", "1,2", "--m", "8")
    assert [(row["name"], row["parameters"].get("v")) for row in found] == [
        ("1f1b", None),
        ("interleaved", 1),
        ("interleaved", 2),
    ]
    assert main(compared("1f1b", "gpipe", "--p", "4", "--v", "2")) == 2
    assert "PS208" in capsys.readouterr().err


def test_a_cap_counts_for_the_bound_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """GPipe is over a cap of 4, which is reported; the bound under a cap is never below the one without."""
    free = rows(capsys, "gpipe", "zb_h1", "--p", "4", "--m", "8")
    tight = rows(capsys, "gpipe", "zb_h1", "--p", "4", "--m", "8", "--mem-cap", "4", status=1)
    assert {d["code"] for d in tight[0]["diagnostics"]} == {"PS501"} and not tight[1]["diagnostics"]
    for a, b in zip(free, tight, strict=True):
        assert exact(b["lower_bound"]) >= exact(a["lower_bound"])


def test_costs_of_a_file_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with its own costs is measured at these costs, and the table says so."""
    text = pipesched.compile.read("1f1b").text.replace("rank r {", "costs F = 2\nrank r {", 1)
    (folder / "mine.ps").write_text(text)
    assert main(compared("mine.ps", "1f1b", "--p", "2", "--m", "2")) == 0
    assert "mine: with the costs in its file" in capsys.readouterr().out
    assert main(compared("mine.ps", "1f1b", "--p", "2", "--m", "2", "--cost", "F=1")) == 0
    assert "costs in its file" not in capsys.readouterr().out


def test_the_whole_library_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    """--all lists every built-in schedule once; at any width only a long list is cut."""
    found = rows(capsys, "--all", "1f1b", "--p", "4", "--m", "8")
    assert sorted(row["name"] for row in found) == built_in()
    assert all(row["makespan"] is not None for row in found)
    assert main(compared("--all", "--p", "4", "--m", "8")) == 0
    table = capsys.readouterr().out.replace("1,1,1,1,1,…,1", "")
    assert all(name in table for name in built_in()) and "…" not in table and "..." not in table


def test_a_table_wider_than_the_terminal_is_two() -> None:
    """On 80 columns no line breaks: each half names schedule and sizes, and both have the content of the wide table."""
    made = comparison.compare([read("gpipe"), read("zb_h1")], [{"p": 8, "m": m} for m in (16, 32)], Options())
    wide, (unit, *halves) = made.text().splitlines(), made.text(80).split("\n\n")
    assert wide[0] == unit and len(unit) <= 80
    assert max(map(len, wide)) > 80 >= max(len(line) for half in halves for line in half.splitlines())
    left, right = ([line.split() for line in half.splitlines()[-4:]] for half in halves)
    for row, one, two in zip(wide[-4:], left, right, strict=True):
        assert one[:3] == two[:3] and one + two[3:] == row.split()
    assert made.text(max(map(len, wide))).splitlines() == wide


def test_the_table_is_the_same_every_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table is equal byte for byte, on stdout, in a file, and as a picture."""
    arguments = ["gpipe", "zb_h1", "--p", "4", "--m", "8,16", "--plot", "a.svg"]
    shown, drawn = set(), set()
    for _ in range(2):
        assert main(compared(*arguments)) == 0
        shown.add(capsys.readouterr().out)
        drawn.add((folder / "a.svg").read_text())
    assert len(shown) == len(drawn) == 1
    assert main(compared(*arguments, "-o", "table.txt")) == 0
    assert (folder / "table.txt").read_text() in shown and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "command", ["why zb_h1 --p 4 --cost F=[1,1,1,2],C=1", "compare 1f1b zb_h2 --p 4 --m 4", "diff zb_h1 zb_h2 --p 3"]
)
def test_every_key_of_the_json_is_documented(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """emit/README.md has a row for the command, and the row names every key of its objects."""
    main([*command.split(), "--json"])
    value = json.loads(capsys.readouterr().out)
    readme = Path(__file__).parents[2] / "emit" / "README.md"
    row = next(line for line in readme.read_text().splitlines() if line.startswith(f"| `{command.split()[0]}` |"))
    for key in _keys(value):
        assert f"`{key}`" in row, key


def _keys(value: object) -> set[str]:
    """Return all keys, except the keys of sizes, costs and findings, and KEY_decimal, which are documented
    elsewhere."""
    if isinstance(value, list):
        return set().union(*map(_keys, value))
    if not isinstance(value, dict):
        return set()
    own = {key: x for key, x in value.items() if not key.endswith("_decimal")}
    inner = (_keys(x) for key, x in own.items() if key not in ("parameters", "costs", "assumed_costs", "diagnostics"))
    return set(own).union(*inner)


@pytest.mark.parametrize(
    ("line", "program", "said"),
    [
        ("frozen 0", "repeat m { F } repeat m { B }", "frozen stages: 0 (their weights are not trained)"),
        ("", "repeat m { F }", "forward-only: it does not train"),
        ("", "if r < p { repeat m { F } repeat m { B } }", None),
    ],
)
def test_a_schedule_that_does_less_is_not_compared_in_silence(line: str, program: str, said: str | None) -> None:
    """Frozen stages and missing backwards are noted below the table and in the JSON: the makespan
    covers less work.
    """
    text = f"schedule less(p, m)\nstage s in 0 .. p on rank s\n{line}\nrank r {{ {program} }}\n"
    made = pipesched.compare(pipesched.Source("less.ps", text), "1f1b", p=2, m=4)
    assert ([f"less: {said}"] if said else []) == [x for x in made.text().split("\n") if x.startswith("less: ")]
    assert [row["work_remarks"] for row in made.to_json()["rows"]] == [[said] if said else [], []]


def test_messages_share_the_links_of_a_rank_where_that_is_asked_for() -> None:
    """`--comm one-stream` adds a column with the makespan of `verify`; it is longer only if messages meet."""
    for cost, shared in (("F=1,I=1,W=1,C=0", False), ("F=1,I=1,W=1,C=2", True)):
        made = pipesched.compare("1f1b", "interleaved", p=4, m=8, costs=cost, comm="one-stream", cost_per="stage")
        for row in made.rows:
            told = pipesched.verify(row.name, p=4, m=8, costs=cost, comm="one-stream").communication.makespan
            assert row.queued == told is not None
        assert any(row.queued > row.makespan for row in made.rows) == shared  # type: ignore[operator]
        assert "makespan under" in made.text() and "one-stream" in made.text()
    assert pipesched.compare("1f1b", p=4, m=8).rows[0].queued is None
