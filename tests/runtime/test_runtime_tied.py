"""Real gloo processes train declared shared weights like the one tensor of the undivided model, and refuse to train
undeclared ones separately.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pipesched
from pipesched.compile import lower
from pipesched.stream import Stream
from pipesched.support.source import Source
from tests.depth import some
from tests.runtime import tied
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published, stream_of

ENDS = [[(0, "words"), (-1, "words")]]
CROSSED = [[(0, "words"), (-1, "words")], [(-1, "more"), (0, "more")]]
MANY = [[(0, "words"), (-1, "more"), (1, "words"), (1, "more")], [(0, "more"), (-1, "words")]]
VEE = """\
schedule vee(p, m)
stage s in 0 .. 2 * p on rank if s < p then s else 2 * p - 1 - s
rank r { for k in 0 .. m { F[0] F[1] B[1] B[0] } }
"""


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def stream(name: str, p: int, m: int) -> Stream:
    if name == "vee":
        return published(lower(pipesched.load(Source("vee.ps", VEE), p=p, m=m)))
    return stream_of(name, p=p, m=m, **({"v": 2} if name == "interleaved" else {}))


def counted(groups: list[list[tuple[int, str]]], stages: int) -> list[list[tuple[int, str]]]:
    return [[(stage % stages, name) for stage, name in group] for group in groups]


GROUPS = {"ends": ENDS, "crossed": CROSSED, "many": MANY}
ORDERS = [("1f1b", 3, 4), ("zb_h1", 4, 5), ("dualpipe", 4, 8), ("interleaved", 2, 4), ("vee", 2, 3)]
CASES = [(*order, groups, blocking) for groups in GROUPS for order in ORDERS for blocking in (True, False)]


@pytest.mark.parametrize(("name", "p", "m", "groups", "blocking"), some(CASES, 3))
def test_tied_weights_are_trained_as_one(ranks: Ranks, name: str, p: int, m: int, groups: str, blocking: bool) -> None:
    """Every weight and every loss of three steps is that of the undivided model, also if sends block, and the tensors
    of a group are bitwise equal on all ranks.
    """
    order = stream(name, p, m)
    named = counted(GROUPS[groups], order.stages)
    found = ranks.run(p, tied.train, order, named, named, False, blocking)
    assert max(max(x["weights"], x["losses"]) for x in found) <= 1e-12
    for group in named:
        tables = [x["tables"][weight] for x in found for weight in group if weight in x["tables"]]
        assert len(tables) >= len(group) and all(table == tables[0] for table in tables)


@pytest.mark.parametrize("told", [None, ENDS])
@pytest.mark.parametrize(("name", "p", "m"), [("vee", 2, 3), ("interleaved", 1, 2), ("dualpipe", 4, 8)])
def test_one_tensor_on_a_rank_is_counted_once(
    ranks: Ranks, name: str, p: int, m: int, told: list[list[tuple[int, str]]] | None
) -> None:
    """Stages that share a tensor on their rank need not be named, but may be."""
    order = stream(name, p, m)
    named = counted(ENDS, order.stages)
    given = None if told is None else counted(told, order.stages)
    found = ranks.run(p, tied.train, order, named, given, True, False)
    assert max(max(x["weights"], x["losses"]) for x in found) <= 1e-12


def test_of_a_tensor_and_another_rank(ranks: Ranks) -> None:
    """Three stages have one weight, two of them on one rank: as one tensor, it already has the gradients of both."""
    order = stream("vee", 2, 3)
    named = [[(0, "words"), (3, "words"), (1, "more")]]
    found = ranks.run(2, tied.train, order, named, named, True, False)
    assert max(max(x["weights"], x["losses"]) for x in found) <= 1e-12


def test_what_nothing_is_said_of_is_refused(ranks: Ranks) -> None:
    """An embedding whose first row is padding, and the head, are refused by name, on every rank, with the remedy."""
    order, pair = stream("1f1b", 3, 4), [[(0, "embed_tokens.weight"), (2, "lm_head.weight")]]
    for code, text, _ in ranks.run(3, tied.said, order, "language", None):
        assert code == "PS831" and f"`Runtime(tied={pair})`" in text and "rank 2" in text
        assert "'embed_tokens.weight' of stage 0 and 'lm_head.weight' of stage 2 begin with the same values" in text
    for told in ([], pair):
        assert [code for code, *_ in ranks.run(3, tied.said, order, "language", told)] == ["", "", ""]


def test_two_tensors_on_one_rank_are_refused_too(ranks: Ranks) -> None:
    """With all groups that must be named; if one is named, the others cause a warning."""
    order = stream("vee", 2, 3)
    groups = [[(0, "words"), (3, "words")], [(0, "more"), (1, "more")]]
    for code, text, _ in ranks.run(2, tied.said, order, "vee", None):
        assert code == "PS831" and f"`Runtime(tied={groups})`" in text
    (_, _, told), (_, _, other) = ranks.run(2, tied.said, order, "vee", groups[:1])
    assert len(told) == 1 and told[0].startswith("LooksTied: 'more' of stage 0 and 'more' of stage 1") and other == []
    alone = stream("interleaved", 1, 2)
    (found,) = ranks.run(1, tied.said, alone, "vee", None)
    assert found[0] == "PS831"


def test_what_is_equal_by_chance_is_not_refused(ranks: Ranks) -> None:
    """Whole blocks that begin alike are copies, with a warning; weights made by a rule are equal in every model."""
    order = stream("1f1b", 3, 4)
    (_, text, told), *others = ranks.run(3, tied.said, order, "clones", None)
    assert text == "" and len(told) == 1 and "of stage 0 and" in told[0] and [x[2] for x in others] == [[], []]
    assert ranks.run(3, tied.said, order, "clones", []) == [("", "", [])] * 3
    assert ranks.run(3, tied.said, order, "by rule", None) == [("", "", [])] * 3


EMBED, HEAD = (0, "embed_tokens.weight"), (2, "lm_head.weight")


@pytest.mark.parametrize(
    ("model", "told", "code", "message"),
    [
        ("language", [[EMBED, (2, "head.weight")]], "PS831", "stage 2 has no weight 'head.weight'"),
        ("language", [[EMBED, (7, "lm_head.weight")]], "PS831", "stage 7 has no weight 'lm_head.weight'"),
        ("language", [[EMBED, (2, "up.weight")]], "PS831", "float32[40, 70] and float32[70, 6]"),
        ("language", [[EMBED, HEAD], [HEAD, EMBED]], "PS831", "stage 2 is named twice in `tied`"),
        ("language", [[EMBED, HEAD, HEAD]], "PS831", "'lm_head.weight' of stage 2 is named twice in `tied`"),
        ("other ties", [[EMBED, HEAD]], "PS831", "rank 1 ties different weights than rank 0"),
        ("other values", [[EMBED, HEAD]], "PS824", "begin with different values"),
    ],
)
def test_what_is_said_wrong_is_refused(
    ranks: Ranks, model: str, told: list[list[tuple[int, str]]], code: str, message: str
) -> None:
    """Every rank refuses it alike, before the first step."""
    found = ranks.run(3, tied.said, stream("1f1b", 3, 4), model, told)
    assert len({x[:2] for x in found}) == 1
    assert found[0][0] == code and message in found[0][1]
