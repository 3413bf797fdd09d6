"""The times of operations that consist of parts, and their exposed time, equal those in a slow simulation of every
part."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from tests.depth import deep
from tests.oracles.engines_by_ticks import Part, Slot, swept, took

Letters: TypeAlias = Mapping[str, Sequence[Part]]


def simulated(schedule: Schedule, letters: Letters, layers: int) -> tuple[Fraction, list[Fraction]]:
    """Return the makespan, and by rank the time of slots beyond its own parts."""
    lists: list[list[list[tuple[str, int, int]]]] = [[] for _ in range(schedule.ranks)]
    columns = (schedule.op, schedule.stage, schedule.microbatch, schedule.joined, schedule.rank)
    for op, s, i, joined, rank in zip(*(column.tolist() for column in columns), strict=True):
        if not joined:
            lists[rank].append([])
        lists[rank][-1].append((Op(op).name, s, i))
    times = {}

    def time(slot: Slot) -> Fraction:
        kinds = "".join(letter for letter, _, _ in slot)
        if kinds not in times:
            times[kinds] = took(slot, lambda letter, _: (layers, letters[letter]))
        return times[kinds]

    ends = swept(lists, schedule.stages, time)
    own = {c: layers * sum((x for _, x, engine in letters[c] if engine == "compute"), Fraction(0)) for c in "FIW"}
    exposed = [
        sum((time(slot) - sum(own[c] for a, _, _ in slot for c in a.replace("B", "IW")) for slot in slots), Fraction(0))
        for slots in lists
    ]
    return max(map(max, ends)), exposed


def written(letters: Letters, layers: int) -> str:
    """Return a file of parts."""

    def of(part: Part) -> str:
        name, time, engine = part
        return f"{name} {time}" + (f" on {engine}" if engine != "compute" else "")

    return f"layers = {layers}\n" + "".join(
        f'{letter} = "{", ".join(map(of, parts))}"\n' for letter, parts in letters.items()
    )


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    status = main([*arguments, "--json"])
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert status == 0, value["diagnostics"]
    return value


CASES = [
    ("1f1b", {}, 1),
    ("zb_h1", {}, 1),
    ("zb_v", {}, 2),
    ("interleaved", {"v": 2}, 2),
    ("interleaved_overlap", {"v": 2}, 2),
    ("dualpipe", {}, 1),
    ("dualpipev", {}, 2),
]


def test_equals_a_simulation_by_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Makespan and exposed time of orders with random parts, whose names, engines and numbers differ."""
    rng = random.Random(810)
    for _ in range(deep(12)):
        name, sizes, cut = rng.choice(CASES)
        names = rng.sample(["attn", "dispatch", "mlp", "combine", "norm"], rng.randint(2, 5))
        engines = ["compute", "comm", "copy"][: rng.randint(1, 3)]

        def part(name: str, engines: Sequence[str] = engines) -> Part:
            return name, Fraction(rng.randint(0, 40), rng.choice([1, 2, 10])), rng.choice(engines)

        letters = {"F": [part(x) for x in names], "I": [part(x) for x in names[::-1]]}
        letters["W"] = [part(x, ["compute"]) for x in names if rng.random() < 0.6] or [part(names[0], ["compute"])]
        alone = {e for _, _, e in letters["F"]} ^ {e for _, _, e in letters["I"]}
        letters = {k: [(n, t, "compute" if e in alone else e) for n, t, e in row] for k, row in letters.items()}
        layers = cut * rng.randint(1, 3)
        file = tmp_path / "parts.toml"
        file.write_text(written(letters, layers))
        schedule = pipesched.load(name, p=4, m=8, **sizes)  # type: ignore[arg-type]
        size = [f"--{key}={value}" for key, value in {"p": 4, "m": 8, **sizes}.items()]
        value = told(["verify", name, *size, "--parts", str(file)], capsys)
        makespan, exposed = simulated(schedule, letters, layers // cut)
        assert Fraction(value["time"]["makespan"]) == makespan, (name, letters)
        assert [Fraction(x) for x in value["exposed"]["exposed"]] == exposed


def test_the_recorded_pair(capsys: pytest.CaptureFixture[str]) -> None:
    """The steady pair of DualPipe in DeepSeek's trace, four layers, took 129.0 ms: the derived time is within 2 %."""
    value = told(["verify", "dualpipe", "--p=4", "--m=8", "--parts=deepseek-v3"], capsys)
    pair = Fraction(value["time"]["costs"]["FB"])
    assert abs(pair / Fraction(129) - 1) < Fraction(2, 100)


def test_a_measured_pair_takes_the_place_of_the_derived(capsys: pytest.CaptureFixture[str]) -> None:
    """`--cost FB=` replaces the derived cost; other times still follow from the parts."""
    value = told(["verify", "dualpipe", "--p=4", "--m=8", "--parts=deepseek-v3", "--cost=FB=129"], capsys)
    assert value["time"]["costs"]["FB"] == 129 and Fraction(value["time"]["costs"]["F"]) == Fraction("97.32")


OWN_FILE = Path(pipesched.__file__).parent / "engines" / "deepseek-v3.toml"
SIZE = ["--p=4", "--m=8"]


@pytest.mark.parametrize("verb", ["verify", "compare", "why"])
def test_a_costs_file_may_hold_parts(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--costs` with a file of parts does what `--parts` does; `--cost` wins over both."""
    for more in ([], ["--cost=FB=129,W=30"]):
        both = [
            told([verb, "dualpipe", *SIZE, f"--{option}={OWN_FILE}", *more], capsys) for option in ("costs", "parts")
        ]
        assert both[0] == both[1]
        assert ("FB as given" in json.dumps(both[0])) == bool(more)


def test_a_costs_file_with_parts_in_python(tmp_path: Path) -> None:
    """A path is read like the option; a file of costs that has no parts stays one."""
    made = [pipesched.verify("dualpipe", p=4, m=8, **{key: OWN_FILE}) for key in ("costs", "parts")]  # type: ignore[arg-type]
    assert made[0].to_json() == made[1].to_json()
    file = tmp_path / "costs.toml"
    file.write_text('F = 1.5\nB = "3"\n')
    both = [pipesched.verify("dualpipe", p=4, m=8, costs=costs) for costs in (file, "F=1.5,B=3")]
    assert both[0].to_json() == both[1].to_json() and "exposed" not in both[0].to_json()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (["--parts=deepseek-v3"], "both --parts and --costs give parts"),
        (["--model=megatron-1.7b", "--device=h100"], "and --device both determine the costs"),
    ],
)
def test_parts_of_a_costs_file_come_once(other: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused beside `--parts`, and beside a device; the message names the file."""
    main(["verify", "dualpipe", *SIZE, f"--costs={OWN_FILE}", *other])
    shown = "".join(capsys.readouterr())
    assert "PS225" in shown and said in shown and OWN_FILE.name in shown


def test_costs_beside_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of costs beside `--parts` replaces derived times, as `--cost` does."""
    file = tmp_path / "costs.toml"
    file.write_text("FB = 129\n")
    both = [
        told(["verify", "dualpipe", *SIZE, f"--parts={OWN_FILE}", x], capsys)
        for x in (f"--costs={file}", "--cost=FB=129")
    ]
    assert both[0] == both[1]


def test_the_ranking_turns_with_communication(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ZB-V is the fastest of these where all-to-all is free, and the slowest with all-to-all as it was recorded."""
    text = OWN_FILE.read_text()
    free = tmp_path / "free.toml"
    for word in ("6.69", "8.68", "5.77", "7.49"):
        text = text.replace(f"{word} on comm", "0 on comm")
    free.write_text(text)
    names = ["interleaved", "interleaved_overlap", "zb_v", "dualpipe"]

    def fastest(file: str) -> list[str]:
        rows = told(["compare", *names, "--p=8", "--v=2", "--m=32", "--parts", file], capsys)["rows"]
        return [row["name"] for row in sorted(rows, key=lambda row: Fraction(row["makespan"]))]

    assert fastest(str(free))[0] == "zb_v" and fastest("deepseek-v3")[-1] == "zb_v"


def test_parts_and_a_device_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Both give the costs."""
    both = ["--parts=deepseek-v3", "--model=megatron-1.7b", "--device=h100"]
    assert main(["verify", "1f1b", "--p=2", "--m=4", *both]) == 2
    assert "parts of deepseek-v3 and --device both determine the costs" in capsys.readouterr().err


def test_a_misspelt_name_is_told_the_names_that_ship(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a file nor a built-in name: the message lists the built-in names."""
    assert main(["verify", "1f1b", "--p=2", "--m=4", "--parts=deepseek-v4"]) == 2
    said = capsys.readouterr().err
    assert "no such file: deepseek-v4" in said and "deepseek-v3" in said


def test_exposed_time_is_said_to_count_as_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Text and JSON say so beside the figure: makespan - idle is the work of a rank, exposed time included."""
    arguments = ["dualpipe", "--p=4", "--m=8", "--parts=deepseek-v3"]
    value = told(["verify", *arguments], capsys)
    time, rank = value["time"], 0
    busy = Fraction(time["makespan"]) - Fraction(time["idle"][rank])
    assert busy == Fraction(time["work"][rank]) > Fraction(value["exposed"]["exposed"][rank]) > 0
    assert "count exposed time as work" in value["exposed"]["counted"]
    for verb in ("verify", "compare"):
        assert main([verb, *arguments]) == 0
        assert value["exposed"]["counted"] in capsys.readouterr().out


def test_one_comparison_equals_simulations(capsys: pytest.CaptureFixture[str]) -> None:
    """Makespan and exposed time of each row at p = 8, m = 32, with the layer that was recorded: 32 layers in all."""
    layer = {
        "F": [("attn", "4.36", ""), ("dispatch", "6.69", "comm"), ("mlp", "4.60", ""), ("combine", "8.68", "comm")],
        "I": [("combine", "5.77", "comm"), ("mlp", "5.31", ""), ("dispatch", "7.49", "comm"), ("attn", "9.34", "")],
        "W": [("mlp", "6.38", ""), ("attn", "2.39", "")],
    }
    letters = {x: [(n, Fraction(t), engine or "compute") for n, t, engine in row] for x, row in layer.items()}
    layers = {"interleaved": 2, "interleaved_overlap": 2, "zb_v": 2, "dualpipev": 2, "dualpipe": 4}
    rows = told(["compare", *layers, "--p=8", "--v=2", "--m=32", "--parts=deepseek-v3"], capsys)["rows"]
    assert [row["name"] for row in rows] == list(layers)
    for row, count in zip(rows, layers.values(), strict=True):
        sizes = {"v": 2} if row["name"].startswith("interleaved") else {}
        made = pipesched.load(row["name"], p=8, m=32, **sizes)  # type: ignore[arg-type]
        makespan, exposed = simulated(made, letters, count)
        assert Fraction(row["makespan"]) == makespan
        assert [Fraction(x) for x in row["exposed"]["exposed"]] == exposed
