"""Reading a file takes no more resources than its size allows, and anything within the budget is read normally."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import re
import tomllib
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import lcm
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.common.budget import Budget
from pipesched.diagnostics import PipeschedError
from pipesched.interop.recorded.pickles import NotPlain, Reader
from pipesched.model.costs import Costs
from pipesched.model.grid import Grid
from pipesched.optimizer.proof.lrat import steps_of, unfollowed
from pipesched.optimizer.values import caps_or_range
from pipesched.planning import toml
from pipesched.planning import values as planning_values
from pipesched.planning.codes import PlanningCode
from pipesched.planning.transformer import devices
from pipesched.planning.transformer import model_file as models
from pipesched.support import budget
from pipesched.support.budget import Spent
from pipesched.support.foreign import json_of, toml_of
from pipesched.support.source import Source
from tests.depth import deep

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner, max_size=4).map(tuple),
    max_leaves=30,
)


@settings(max_examples=deep(75, usual=38), deadline=None)
@given(PLAIN, st.integers(2, 5), st.booleans())
def test_a_pickle_of_plain_data_is_its_value(value: Any, protocol: int, shared: bool) -> None:
    """As Python's own reader reads it, for any protocol, with repeated values."""
    data = pickle.dumps([value, value] if shared else value, protocol)
    assert repr(Reader(data).value()) == repr(pickle.loads(data))


@settings(max_examples=deep(150, usual=75), deadline=None)
@given(PLAIN, st.integers(2, 5), st.randoms(use_true_random=False))
def test_a_damaged_pickle_is_refused_or_plain(value: Any, protocol: int, chance: random.Random) -> None:
    """Bytes changed, dropped or inserted give a value of the plain types, or an error of the reader."""
    data = bytearray(pickle.dumps(value, protocol))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        data[at : at + chance.randint(0, 2)] = bytes(chance.randrange(256) for _ in range(chance.randint(0, 3)))
        data = data or bytearray(b".")
    try:
        made = Reader(bytes(data)).value()
    except (Spent, NotPlain, ValueError):
        return
    assert type(made) in (type(None), bool, int, float, str, list, dict, tuple)


@pytest.mark.parametrize(
    "runs",
    [
        b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02)\x81.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02Px\n.",
        b"\x80\x02]}b.",
    ],
)
def test_a_pickle_that_would_run_something_is_told_so(runs: bytes) -> None:
    with pytest.raises(NotPlain):
        Reader(runs).value()


def test_a_memo_has_no_gaps() -> None:
    """A number of the memo is the next one: no memory is taken for skipped ones."""
    assert Reader(b"\x80\x02]r\x00\x00\x00\x00Kar\x01\x00\x00\x00aj\x01\x00\x00\x00a.").value() == [97, 97]
    with pytest.raises(ValueError, match="memo entry"):
        Reader(b"\x80\x02]r\xff\xff\xff\x07.").value()


def test_containers_are_in_the_budget() -> None:
    """A million of one byte each are refused; those of three bytes, as torch writes them, are not."""
    with pytest.raises(Spent):
        Reader(b"\x80\x02](" + b"}" * 1_000_000 + b"e.").value()
    torch_like = [{"input_sizes": [[1, 512]], "input_dtypes": ["Float"], "frames": []} for _ in range(20_000)]
    assert Reader(pickle.dumps(torch_like, 2)).value() == torch_like


NUMBERS = st.sampled_from([1, 299, 300, 301, 302, 5000]).map(lambda digits: "9" * digits)
QUOTED = st.one_of(NUMBERS, st.text()).map(json.dumps)


@settings(max_examples=deep(100, usual=50), deadline=None)
@given(st.lists(st.one_of(NUMBERS, QUOTED, st.sampled_from(["-1.5e300", "true", '"\\\\"', '"\\""'])), max_size=6))
def test_numbers_of_json_have_so_many_digits(entries: list[str]) -> None:
    """At most 300 digits are read, and the error is at their beginning; digits in quotes are not a number."""
    text = f"[{', '.join(entries)}]"
    long = [i for i, entry in enumerate(entries) if re.fullmatch("9{301,}", entry)]
    if not long:
        assert len(json_of(text)) == len(entries)
        return
    with pytest.raises(Spent, match="digits") as raised:
        json_of(text)
    assert raised.value.at == 1 + sum(len(entry) + 2 for entry in entries[: long[0]])


@settings(max_examples=deep(50, usual=25), deadline=None)
@given(st.lists(st.one_of(NUMBERS, st.sampled_from(["0x", "_", "é", ".", " ", "f" * 300]), st.text()), max_size=6))
def test_numbers_of_toml_have_so_many_digits(parts: list[str]) -> None:
    """301 characters of numbers in a row are refused, and nothing else."""
    text = "".join(parts)
    found = re.search("[0-9a-fA-F_]{301}", text)
    if found is None:
        budget.numbers(text, budget.WRITTEN)
        return
    with pytest.raises(Spent) as raised:
        budget.numbers(text, budget.WRITTEN)
    assert raised.value.at == found.start()


@pytest.mark.parametrize(
    ("text", "spent"),
    [
        (".".join("a" * 101) + " = 1", False),
        (".".join("a" * 102) + " = 1", True),
        ('x = 1\n"a"' + ' . "a"' * 101 + " = 1", True),
        ("x = {" + ".".join("a" * 102) + " = 1}", True),
        ("[" + ".".join("1" * 102) + "]", True),
        ("x = [" + ", ".join(["1.5"] * 500) + "]", False),
        ("".join(f"a{i}.b = 1.5\n" for i in range(500)), False),
    ],
)
def test_dotted_keys_have_so_many_parts(text: str, spent: bool) -> None:
    if spent:
        with pytest.raises(Spent):
            toml_of(text)
    else:
        assert toml_of(text) == tomllib.loads(text)


@pytest.mark.parametrize("depth", [1, 100, 101, 102, 900, 100_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_brackets_are_so_many_in_each_other(pair: str, depth: int) -> None:
    """At most 100 nested brackets are read."""
    opened = "[" if pair == "[]" else '{"a":'
    text = opened * depth + "1" + pair[1] * depth
    if depth <= 101:
        assert json_of(text) == json.loads(text)
    else:
        with pytest.raises(Spent, match="brackets"):
            json_of(text)


def test_a_hint_again_and_again_is_not_followed() -> None:
    """A million hints to one clause read its literals each time; a proof has no more steps than its text allows."""
    clauses = {1: [*range(1, 1000)]}
    hints = "1 " * 10_000
    text = f"2 {' '.join(str(-x) for x in range(2, 1000))} 0 {hints}0\n".replace(" -", " ").encode()
    with pytest.raises(Spent):
        unfollowed(clauses, steps_of(text), Budget(len(text), 2))


def test_a_proof_of_its_own_length_is_followed() -> None:
    """Steps that each name two clauses of two literals are far within it."""
    chain = 2000  # 1, 1 -> 2, 2 -> 3, ..., not the last
    clauses = {
        1: [1],
        **{i + 1: [-a, b] for i, (a, b) in enumerate(pairwise(range(1, chain)), 1)},
        chain + 1: [1 - chain],
    }
    lines = [f"{chain + i} {i} 0 {chain + i - 1 if i > 2 else 1} {i} 0" for i in range(2, chain)]
    lines.append(f"{2 * chain} 0 {2 * chain - 1} {chain + 1} 0")
    text = "\n".join(lines).encode()
    assert unfollowed(clauses, steps_of(text), Budget(len(text), 2)) == ""


FINEST = [[Fraction(1, 10**8 + 40 * stage + 2 * i + 1) for i in range(20)] for stage in range(4)]


@pytest.mark.parametrize("key", ["F", "M", "K"])
def test_costs_of_many_denominators_are_refused(key: str) -> None:
    """PS222 refuses them, for any length of their common denominator; a double holds 308 digits."""
    assert lcm(*(x.denominator for row in FINEST for x in row)) > 10**308
    with pytest.raises(PipeschedError, match="PS222"):
        Costs({key: Grid.of(FINEST)})


def test_sums_of_grids_are_refused_in_time() -> None:
    """Two that fit, whose sum has too large a denominator for ticks in a double."""
    with pytest.raises(PipeschedError, match="PS222"):
        Grid(np.array([[2**61]]), 3**200).each(add, Grid(np.array([[2**61]]), 5**200))


@pytest.mark.parametrize(
    "read",
    [
        lambda: toml.read(Source("a.toml", 'x = """\n[' + " " * 50_000 + 'x\n"""\n'), PlanningCode.MODEL_SYNTAX),
        lambda: caps_or_range("1" + " " * 50_000 + "x"),
        lambda: caps_or_range("9" * 50_000 + "!"),
        lambda: planning_values.byte_cap("9" * 50_000 + "GB"),
        lambda: pipesched.check(Source("a.sh", "PP_" * 6000 + "9\n")),
        lambda: pipesched.check(Source("a.sh", "a \\ \n" + "-" * 19_000 + "\n")),
        lambda: models.read("llama3-70b,tensor=" + "9" * 5000),
        lambda: devices.read("h100,node_size=" + "9" * 5000),
    ],
)
def test_no_text_is_looked_at_again_and_again(read: Callable[[], object]) -> None:
    """Texts on which a pattern that starts at every place, or backtracks, would need hours."""
    with contextlib.suppress(PipeschedError, ValueError):
        read()
