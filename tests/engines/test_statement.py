"""Random programs with pairs, and with `parts` in the schedule file, take as long as in a simulation of every tick."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest

import pipesched
from pipesched.lift.printer import format_source
from pipesched.support.source import Source
from tests.depth import deep
from tests.oracles.engines_by_ticks import Part, Slot, swept, took

NAMES, ENGINES = ("attn", "dispatch", "mlp", "combine"), ("compute", "comm", "copy")
MAY_PAIR = {("F", "B"), ("F", "I"), ("F", "W"), ("I", "W")}


@dataclass
class Program:
    """A random order that ends: by rank its slots; by letter and stage the layers and the parts of one."""

    ranks: int
    microbatches: int
    lists: list[list[Slot]]
    parts: dict[tuple[str, int], tuple[int, list[Part]]]
    message: Fraction

    @property
    def stages(self) -> int:
        return len({stage for _, stage in self.parts})

    def text(self) -> str:
        """Return the file: parts by stage as conditions on the stage, orders by microbatch."""
        lines = [f"schedule made(p = {self.ranks}, m = {self.microbatches})"]
        lines += [f"stage s in 0 .. {self.stages} on rank s % p", *self._parts(), f"costs C = {self.message}"]
        for rank, slots in enumerate(self.lists):
            said = [[f"{x}[{s // self.ranks}]({i})" for x, s, i in slot] for slot in slots]
            words = [x[0] if len(x) == 1 else f"overlap({x[0]}, {x[1]})" for x in said]
            lines.append(f"rank {rank} {{ {' '.join(words)} }}")
        return "\n".join(lines) + "\n"

    def _parts(self) -> Iterator[str]:
        for letter in "FIW":
            rows = [self.parts[letter, s] for s in range(self.stages)]

            def chosen(values: Sequence[object]) -> str:
                first, *rest = values
                return (
                    f"if s == 0 then {first} else {chosen(rest)}".replace("s == 0", f"s == {self.stages - len(values)}")
                    if rest
                    else f"{first}"
                )

            each = [
                f"{name} ({chosen([row[1][at][1] for row in rows])})" + ("" if engine == "compute" else f" on {engine}")
                for at, (name, _, engine) in enumerate(rows[0][1])
            ]
            yield f"parts {letter}[s] = {chosen([row[0] for row in rows])} of ({', '.join(each)})"


def drawn(rng: random.Random) -> Program:
    """Draw a program: operations in an order in which all that they need comes before, some joined with the next."""
    ranks, chunks, m = rng.randint(1, 3), rng.randint(1, 2), rng.randint(1, 4)
    stages, split = ranks * chunks, rng.random() < 0.7
    left = {(x, s, i) for x in ("FIW" if split else "FB") for s in range(stages) for i in range(m)}
    done: set[tuple[str, int, int]] = set()
    lists: list[list[Slot]] = [[] for _ in range(ranks)]

    def free(x: tuple[str, int, int]) -> bool:
        letter, s, i = x
        if letter == "F":
            return not s or ("F", s - 1, i) in done
        if letter == "W":
            return ("I", s, i) in done
        gradient = {("I", s + 1, i), ("B", s + 1, i)}
        return ("F", s, i) in done and (s == stages - 1 or bool(gradient & done))

    while left:
        ready = sorted(x for x in left if free(x))
        first = rng.choice(ready)
        rank = first[1] % ranks
        beside = [x for x in ready if x[1] % ranks == rank and (first[0], x[0]) in MAY_PAIR]
        slot = [first, rng.choice(beside)] if beside and rng.random() < 0.6 else [first]
        lists[rank].append(slot)
        left -= set(slot)
        done |= set(slot)
    engines = ENGINES[: rng.randint(1, 3)]
    names = {letter: rng.sample(NAMES, rng.randint(1, 4)) for letter in "FI"}
    names["W"] = rng.sample(names["I"], rng.randint(1, len(names["I"])))
    on = {letter: [rng.choice(engines) for _ in names[letter]] for letter in "FIW"}
    for letter in "FIW":  # an engine beside the rank's own has parts of two letters
        other = {engine for x in "FIW" if x != letter for engine in on[x]}
        on[letter] = [engine if engine in other else "compute" for engine in on[letter]]
    for letter in "FIW":
        other = {engine for x in "FIW" if x != letter for engine in on[x]}
        on[letter] = [engine if engine in other else "compute" for engine in on[letter]]
    by_stage, layers = rng.random() < 0.5, rng.randint(1, 2)
    parts = {}
    for s in range(stages):
        depth = rng.randint(1, 2) if by_stage else layers
        for letter in "FIW":
            same = None if by_stage or not s else parts[letter, 0][1]
            made = [(n, Fraction(rng.randint(0, 4)), e) for n, e in zip(names[letter], on[letter], strict=True)]
            parts[letter, s] = depth, same or made
    return Program(ranks, m, lists, parts, Fraction(rng.randint(0, 2)))


def test_random_programs_take_the_time_of_a_simulation() -> None:
    """Makespan, exposed time and cost of every pair of random programs with parts by stage."""
    rng = random.Random(2028)
    for _ in range(deep(25)):
        program = drawn(rng)
        report = pipesched.verify(Source("made.ps", program.text()))
        assert report.ok, (program.text(), report)
        value = json.loads(json.dumps(report.to_json()))
        times: dict[tuple[str, ...], Fraction] = {}

        def time(slot: Slot, program: Program = program, times: dict[tuple[str, ...], Fraction] = times) -> Fraction:
            key = tuple(f"{letter}{s}" for letter, s, _ in slot)
            if key not in times:
                times[key] = took(slot, lambda letter, s: program.parts[letter, s])
            return times[key]

        ends = swept(program.lists, program.stages, time, lambda _, c=program.message: c)
        assert Fraction(value["time"]["makespan"]) == max(map(max, ends)), program.text()
        own = {
            (letter, s): layers * sum((t for _, t, engine in each if engine == "compute"), Fraction(0))
            for (letter, s), (layers, each) in program.parts.items()
        }
        exposed = [
            sum(
                (max(Fraction(0), time(slot) - sum(own[c, s] for x, s, _ in slot for c in x.replace("B", "IW"))))
                for slot in slots
            )
            for slots in program.lists
        ]
        assert [Fraction(x) for x in value["exposed"]["exposed"]] == exposed, program.text()


FILE = """schedule joined(p = 2, m = 4)
stage s in 0 .. p on rank s
parts F = 2 of (attn 4, dispatch 6 on comm)
parts I = 2 of (dispatch 6 on comm, attn 8)
rank r { let w = min(p - r, m)  repeat w { F }  repeat m - w { overlap(F, B) }  repeat w { B } }
"""


def verified(text: str, **options: str) -> tuple[dict[str, object], list[str]]:
    """Return the costs in the report on a text, and the codes of its findings."""
    value = pipesched.verify(Source("made.ps", text), **options).to_json()
    time, found = value["time"], value["diagnostics"]
    assert isinstance(time, dict) and isinstance(found, list)
    return time["costs"], [x["code"] for x in found]


def test_costs_of_pairs_win_key_by_key() -> None:
    """`costs FB` of the file replaces the derived cost, `--cost` both, and `--parts` all `parts`."""
    derived, _ = verified(FILE)
    assert derived["F"] == 20 and 20 < Fraction(str(derived["FB"])) < 48
    own, _ = verified(FILE.replace("rank r", "costs FB = 33, C = 1\nrank r"))
    assert own["FB"] == 33 and own["F"] == 20 and own["C"] == 1
    asked, _ = verified(FILE.replace("rank r", "costs FB = 33\nrank r"), costs="FB=34,F=7")
    assert asked["FB"] == 34 and asked["F"] == 7 and asked["I"] == 28
    shipped, _ = verified(FILE, parts="deepseek-v3")
    bare = FILE.replace("parts F", "# ").replace("parts I", "# ")
    assert shipped == verified(bare, parts="deepseek-v3")[0] != derived


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("rank r", "costs B = 3\nrank r", "PS222"),
        ("parts I = 2 of (dispatch 6 on comm, attn 8)", "", "PS262"),
        ("parts I", "parts B = 1 of (attn 1)\nparts I", "PS262"),
        ("parts I", "parts F = 1 of (attn 1)\nparts I", "PS262"),
        ("parts I", "parts W = 2 of (mlp 1)\nparts I", "PS262"),
        ("parts I", "parts W = 3 of (attn 1)\nparts I", "PS262"),
        ("attn 4,", "attn 4, attn 4,", "PS262"),
        ("attn 4,", "attn 4 on gpu,", "PS262"),
        ("attn 4", "attn 1 - 2", "PS262"),
        ("F = 2 of", "F = 0 of", "PS263"),
        ("F = 2 of", "F = 1 / 2 of", "PS263"),
        ("F = 2 of", "F = 1025 of", "PS263"),
        ("attn 4,", ", ".join(f"a{n} 1" for n in range(64)) + ",", "PS262"),
        ("attn 4", "attn 1 / 0", "PS206"),
        ("overlap(F, B)", "overlap(F, R)", "PS218"),
        ("2 of (attn", "2 (attn", "PS101"),
    ],
)
def test_bad_input_is_told_its_place(old: str, new: str, code: str) -> None:
    """A finding with a place in the file for each mistake, and the status of a wrong file."""
    assert old in FILE
    with pytest.raises(pipesched.PipeschedError) as caught:
        pipesched.load(Source("made.ps", FILE.replace(old, new, 1)))
    assert {str(x.code) for x in caught.value.diagnostics} == {code}
    assert all(x.labels for x in caught.value.diagnostics)


def test_the_optimizer_refuses_parts() -> None:
    """The optimizer's bounds count sums and not the fullest engine, so its proofs would be invalid: PS702, at the
    parts."""
    text = FILE.replace("overlap(F, B)", "F B")
    for asked in ({}, {"overlap": True}):
        with pytest.raises(pipesched.PipeschedError) as caught:
            pipesched.optimize(Source("made.ps", text), time_limit=1, **asked)  # type: ignore[arg-type]
        assert [(str(x.code), bool(x.labels)) for x in caught.value.diagnostics] == [("PS702", True)]


def test_a_printed_order_has_the_parts_of_its_file() -> None:
    """`emit --target ps` writes what every stage takes, and the printed file takes the same times."""
    rng = random.Random(11)
    for _ in range(deep(4)):
        program = drawn(rng)
        printed = str(pipesched.emit(Source("made.ps", program.text()), to="ps"))
        ours, again = (pipesched.verify(Source("made.ps", text)).to_json() for text in (program.text(), printed))
        assert ours["time"]["makespan"] == again["time"]["makespan"]  # type: ignore[index]
        assert ours["exposed"] == again["exposed"] and format_source(Source("made.ps", printed)) == printed


def test_words_of_parts_stay_names() -> None:
    """A file of today may call something `parts` or `of`."""
    text = "schedule named(p = 2, m = 2, parts = m)\nlet of(k) = k + parts\nstage s in 0 .. p on rank s\n"
    text += "rank r { repeat of(0) { F }  repeat parts { B } }\nclaim peak(0) == of(0)\n"
    source = Source("made.ps", text)
    assert pipesched.verify(source).ok and "of(0)" in format_source(source)
