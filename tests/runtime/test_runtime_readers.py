"""With stages that read stages other than the previous one, real gloo processes train like the undivided model, with
the predicted memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from pipesched.analysis.holdings import memory
from pipesched.compile import load, lower
from pipesched.examine import Options
from pipesched.model.release import AT_W
from pipesched.runtime.execute.messages import Message, Tags
from pipesched.stream import Instruction, Stream
from pipesched.support.source import Source
from tests.depth import some
from tests.runtime import skips
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published

FULL, SPLIT = "repeat m { B[1] }  repeat m { B[0] }", "repeat m { I[1] W[1] }  repeat m { I[0] }  repeat m { W[0] }"
AROUND = "rank r { repeat m { F[0] }  repeat m { F[1] }  %s }"
BACK = {"full": "B", "split": "I  W"}

UNET = """\
schedule unet(p, m = 2 * p)
stage s in 0 .. p on rank s
stage s in p .. 2 * p on rank 2 * p - 1 - s reads s - 1, 2 * p - 1 - s
"""
LOOPED = """\
schedule looped(p, m = 2 * p)
stage s in 0 .. p on rank s
stage s in p .. 2 * p on rank s - p reads s - 1, 2 * p - 1 - s
"""
TRANSLATOR = """\
schedule translator(p, m = 4)               # an encoder, and a decoder all of whose stages read its end and the input
stage s in 0 .. p on rank s
stage s in p .. 2 * p on rank s - p reads s - 1, p - 1, -1
"""
TOWERS = """\
schedule towers(p, m = 4)                   # two towers that read the input, and a decoder that reads both
stage s in 0 .. p on rank s
stage 1 on rank 1 reads -1
stage 2 on rank 2 % p reads 0, 1
"""
BOTH = """\
schedule both(p, m = 4)                     # two ways, whose stages read the two before them
route down: stage s in 0 .. p on rank s         reads s - 1, max(s - 2, -1) for microbatch 0 .. 2
route up:   stage s in 0 .. p on rank p - 1 - s reads s - 1, max(s - 2, -1) for microbatch 2 .. m
"""
WAYS = "rank r {{ repeat 2 {{ F[down] }}  repeat 2 {{ F[up] }}  repeat 2 {{ {0} }}  repeat 2 {{ {1} }} }}\n"
ROWS = "rank r {{ let w = min(p - 1 - r, m)  repeat w {{ F }}  repeat m - w {{ F  {0} }}  repeat w {{ {0} }} }}\n"


def reads_of(name: str, p: int) -> list[tuple[int, ...]]:
    """Return the stages that each stage reads, the nearest first, derived independently."""
    down: list[tuple[int, ...]] = [(s - 1,) for s in range(p)]
    if name == "both":
        return [(-1,), *((s - 1, s - 2) for s in range(1, p))]
    if name == "towers":
        return [(-1,), (-1,), (1, 0), *((s - 1,) for s in range(3, p))]
    if name == "translator":
        return down + [tuple(sorted({s - 1, p - 1, -1}, reverse=True)) for s in range(p, 2 * p)]
    return down + [tuple(sorted({s - 1, 2 * p - 1 - s}, reverse=True)) for s in range(p, 2 * p)]


TEXTS = {"unet": UNET, "looped": LOOPED, "translator": TRANSLATOR, "towers": TOWERS, "both": BOTH}
SIZES = [(name, p) for name in ("unet", "looped", "translator") for p in (2, 4)] + [("towers", 4), ("both", 4)]
CASES = [
    (name, p, back, frozen, agreed)
    for name, p in SIZES
    for back in BACK
    for frozen, agreed in (((), False), ((0,), True), ((1, 3), False))
]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def text_of(name: str, back: str, frozen: tuple[int, ...] = ()) -> str:
    order = AROUND % (FULL if back == "full" else SPLIT) + "\n"
    if name == "towers":
        order = ROWS.format(BACK[back])
    elif name == "both":
        order = WAYS.format(*(f"B[{x}]" if back == "full" else f"I[{x}] W[{x}]" for x in ("down", "up")))
    return TEXTS[name] + "".join(f"frozen {stage}\n" for stage in frozen) + order


@pytest.mark.parametrize(("name", "p", "back", "frozen", "agreed"), some(CASES, 5))
def test_gradients_and_live_activations(
    ranks: Ranks, name: str, p: int, back: str, frozen: tuple[int, ...], agreed: bool
) -> None:
    """Gradients, loss, outputs and the gradient of the input are those of the undivided model, with arguments in the
    order of the stream; live activations after every compute are the predicted ones, and none is left.
    """
    schedule = load(Source(f"{name}.ps", text_of(name, back, frozen)), Options({"p": p})).schedule
    predicted = memory(schedule, AT_W)
    asking = not frozen
    found = ranks.run(p, skips.step, published(lower(schedule)), reads_of(name, p), frozen, agreed, asking)
    for rank, result in enumerate(found):
        assert result["error"] <= 1e-12 and result["loss"] <= 1e-12 and result["outputs"] <= 1e-12, (rank, result)
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        assert result["counts"] == [int(predicted.kept[i]) for i in range(low, high)], rank
        assert result["left"] == result["handed"] == 0, rank
    if asking:
        grads = [torch.tensor(x["input"][0], dtype=torch.float64) for x in found if x["input"][0] is not None]
        wanted = torch.tensor(found[0]["input"][1], dtype=torch.float64)
        assert float((torch.stack(grads).sum(0) - wanted).abs().max()) <= 1e-12 * float(wanted.abs().max())


@pytest.mark.parametrize("back", BACK)
@pytest.mark.parametrize("name", ["unet", "looped", "translator"])
@pytest.mark.parametrize("before", ["R", "O L"])
def test_forwards_run_again_and_activations_away(ranks: Ranks, name: str, back: str, before: str) -> None:
    """The inputs that a stage reads are available for its R, and after its O and L; gradients are right, and a
    recomputed forward holds nothing until then.
    """
    text = text_of(name, back)
    for letter in ("B", "I"):
        for chunk in ("0", "1"):
            words = " ".join(f"{x}[{chunk}]" for x in before.split())
            text = text.replace(f"{{ {letter}[{chunk}]", f"{{ {words} {letter}[{chunk}]")
    schedule = load(Source(f"{name}.ps", text), Options({"p": 2})).schedule
    assert {x.op.name for x in schedule.order(0)} >= set(before.split())
    found = ranks.run(2, skips.step, published(lower(schedule)), reads_of(name, 2), (), False, True)
    predicted = memory(schedule, AT_W)
    for rank, result in enumerate(found):
        assert result["error"] <= 1e-12 and result["loss"] <= 1e-12 and result["outputs"] <= 1e-12, (rank, result)
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        assert before != "R" or result["counts"] == [int(predicted.kept[i]) for i in range(low, high)], rank
        assert result["left"] == result["handed"] == 0, rank


@pytest.mark.parametrize("name", ["unet", "towers"])
def test_each_message_is_waited_for(ranks: Ranks, name: str) -> None:
    """With a WAIT for each send, in the order of the sends, before the reductions: the same results."""
    stream = published(lower(load(Source(f"{name}.ps", text_of(name, "full")), Options({"p": 4})).schedule))
    lists = []
    for rank in stream.ranks:
        first = next(i for i, x in enumerate(rank) if x.op == "REDUCE_GRAD")
        sends = [x for x in rank if x.op.startswith("SEND")]
        waits = (Instruction(f"WAIT_{x.op}", x.stage, x.microbatch, x.route, other=x.other) for x in sends)
        lists.append((*rank[:first], *waits, *rank[first:]))
    found = ranks.run(4, skips.step, replace(stream, ranks=tuple(lists)), reads_of(name, 4), (), False)
    assert all(x["error"] <= 1e-12 and x["loss"] <= 1e-12 and x["handed"] == 0 for x in found)


@pytest.mark.parametrize("name", TEXTS)
def test_tags(name: str) -> None:
    """Both ends of a message give it one name, and no two tensors have one tag."""
    stream: Stream = published(lower(load(Source(f"{name}.ps", text_of(name, "full")), Options({"p": 4})).schedule))
    sent, received = (
        [Message.of(x, rank) for rank, rows in enumerate(stream.ranks) for x in rows if x.op.startswith(word)]
        for word in ("SEND", "RECV")
    )
    assert set(sent) == set(received) and len(set(sent)) == len(sent) == len(received)
    tags = Tags.of(stream, width=2)
    numbers = [tags.of_tensor(message, index) for message in sent for index in range(2)]
    assert len(set(numbers)) == len(numbers) and min(numbers) >= 0
