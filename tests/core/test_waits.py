"""PS406: every WAIT ends a send or reduction that the same rank began earlier and has not yet waited for."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import pipesched
from pipesched import stream
from pipesched.stream import Instruction, Stream
from pipesched.support.source import Source
from tests.depth import deep

ORDER = """
F0.0 F0.1 send:F0.0>1 send:F0.1>1 wait:F0.0 wait:F0.1 recv:B1.0<1 B0.0 recv:B1.1<1 B0.1 reduce:0 wait:0
recv:F0.0<0 F1.0 B1.0 send:B1.0>0 recv:F0.1<0 F1.1 B1.1 send:B1.1>0 wait:B1.1 wait:B1.0 reduce:1 wait:1
"""
LISTS = [line.split() for line in ORDER.split("\n") if line]


def early(words: list[str]) -> int:
    """Return the number of waits in a list that do not end a send or reduction, by walking it."""
    under_way, found = list[str](), 0
    for word in words:
        kind, _, what = word.partition(":")
        if kind in ("send", "reduce"):
            under_way.append(what.partition(">")[0])
        elif kind == "wait" and what in under_way:
            under_way.remove(what)
        elif kind == "wait":
            found += 1
    return found


def found_in(lists: list[list[str]]) -> int:
    text = "".join(f"rank {rank}: {' '.join(words)}\n" for rank, words in enumerate(lists))
    report = pipesched.verify(Source("x.txt", text), comm="async")
    codes = [str(one.code) for one in report.diagnostics]
    assert report.ok == ("PS406" not in codes)
    return codes.count("PS406")


@pytest.mark.parametrize("seed", range(deep(60)))
def test_waits_are_judged_as_by_going_through_the_list(seed: int) -> None:
    """Waits are moved, repeated or dropped at random; nothing else changes."""
    rng, moved = random.Random(seed), []
    for words in LISTS:
        made = [word for word in words if not word.startswith("wait")]
        for wait in [word for word in words if word.startswith("wait") for _ in range(rng.choice([0, 1, 1, 1, 2]))]:
            made.insert(rng.randrange(len(made) + 1), wait)
        moved.append(made)
    assert found_in(moved) == min(sum(map(early, moved)), 5)  # the number shown of each kind


def test_what_is_right_is_accepted() -> None:
    """Every order is accepted in which waits come after the operations that they end."""
    assert found_in(LISTS) == 0


READERS = """\
schedule readers(p = 4, m = 2)              # each output is read twice, at least
stage s in 0 .. p on rank s
stage 1 on rank 1 reads -1, 0
stage 2 on rank 2 reads 1, 0
stage 3 on rank 3 reads 0, 1, 2
rank r { repeat m { F }  repeat m { B } }
"""


def readers() -> Stream:
    return stream.loads(pipesched.emit(Source("readers.ps", READERS), to="stream"))


def waited(made: Stream, rng: random.Random, often: tuple[int, ...]) -> tuple[Stream, int]:
    """Insert a WAIT for each send, as often as one of these, anywhere after it; surplus ones anywhere. Also the number
    that end nothing, by walking each list.
    """
    lists, found = [], 0
    for rank in made.ranks:
        words = list(rank)
        for x in [x for x in rank if x.op.startswith("SEND")]:
            wait = Instruction(f"WAIT_{x.op}", x.stage, x.microbatch, x.route, other=x.other)
            for time in range(rng.choice(often)):
                words.insert(rng.randint(0 if time else words.index(x) + 1, words.index(STEP)), wait)
        under_way: list[tuple[str, int, int, int]] = []
        for x in words:
            ends = (x.op.removeprefix("WAIT_"), x.stage, x.microbatch, x.other)
            if x.op.startswith("WAIT") and ends not in under_way:
                found += 1
            elif x.op.startswith("WAIT"):
                under_way.remove(ends)
            elif x.op.startswith("SEND"):
                under_way.append(ends)
        lists.append(tuple(words))
    return replace(made, ranks=tuple(lists)), found


STEP = Instruction("STEP")


@pytest.mark.parametrize("seed", range(deep(20)))
def test_a_message_for_one_of_several_readers_is_waited_for(seed: int) -> None:
    """In a stream in which several stages read one, a WAIT names the reader like its SEND, or omits the next stage: it
    is read, judged as by walking it, and written unchanged.
    """
    made, early = waited(readers(), random.Random(seed), (0, 1, 1, 2) if seed % 2 else (1,))
    text = stream.dumps(made)
    assert stream.loads(text) == made
    report = pipesched.verify(Source("waited.json", text), comm="async")
    assert [str(x.code) for x in report.diagnostics] == ["PS406"] * min(early, 5)
    assert early or pipesched.emit(Source("waited.json", text), to="stream") == text


LISTS_OF_READERS = """
F0.0 send:F0.0>1=1 send:F0.0>2=2 wait:F0.0={} F0.1 send:F0.1>2=2 send:F0.1>1=1
recv:F2.1<2=3 F3.1 recv:F0.0<0=1 F1.0 recv:F0.1<0=1 F1.1 recv:F2.0<2=3 F3.0 F4.0 F4.1
recv:F0.0<0=2 recv:F0.1<0=2 F2.0 F2.1 send:F2.1>1=3 send:F2.0>1=3
"""


def forwards(awaited: int) -> Stream:
    """Return the stages 1 and 2 read stage 0, and 4 reads 1 and 3. Rank 1 receives its message after an operation that
    follows the WAIT of rank 0.
    """
    ranks = []
    for line in LISTS_OF_READERS.format(awaited).split("\n")[1:-1]:
        made = []
        for word in line.split():
            kind, _, what = word.rpartition(":")
            name, _, end = what.partition("=")
            of, i = name.removeprefix("F").partition(">")[0].partition("<")[0].split(".")
            peer = int(name[-1]) if kind in ("send", "recv") else -1
            stage, other = (int(end), int(of)) if kind == "recv" else (int(of), int(end or -1))
            near = kind and other == stage + (-1 if kind == "recv" else 1)
            op = {"": "F", "send": "SEND_F", "recv": "RECV_F", "wait": "WAIT_SEND_F"}[kind]
            made.append(Instruction(op, stage, int(i), 0, peer, other=-1 if near else other))
        ranks.append(tuple(made))
    route = stream.Route("", (0, 1, 2, 1, 1), (0, 2))
    return Stream("forwards", {}, (route,), tuple(ranks), reads={2: (0,), 4: (3, 1)})


@pytest.mark.parametrize(("awaited", "codes"), [(2, []), (1, ["PS401"])])
def test_a_wait_holds_up_its_rank_for_its_own_message_alone(awaited: int, codes: list[str]) -> None:
    """The message for the other reader may come later, under a model that does not order the two."""
    made = stream.dumps(forwards(awaited))
    report = pipesched.verify(Source("forwards.json", made), comm="async")
    assert [str(x.code) for x in report.diagnostics] == codes
