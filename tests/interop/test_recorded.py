"""When a recorded run is compared with its plan, each injected deviation is found at its place, and nothing else is
reported.

The oracle is the player (``makers/recorded_runs.py``), which knows what it changed and which rank waits for which, and
uses no code of the product; torch's own analyser reads its dumps too.
"""

from __future__ import annotations

import json
import pickle
import random
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import pipesched
from pipesched.model.schedule import Program
from pipesched.report.report import Report
from tests.makers.recorded_runs import Post, Run, dumps, orders, play, traces
from tests.readers.typed import typed

PLANS: list[tuple[str, dict[str, int]]] = [
    ("1f1b", {"p": 4, "m": 6}),
    ("zb_h1", {"p": 3, "m": 5}),
    ("interleaved", {"p": 2, "v": 2, "m": 4}),
    ("zb_v", {"p": 4, "m": 8}),
    ("dualpipe", {"p": 4, "m": 8}),
]
Writer = Callable[..., None]
WRITERS: list[Writer] = [orders, traces, dumps]


@cache
def program(name: str, **sizes: int) -> Program:
    """Return the plan with the messages that the product gives it."""
    arguments = [word for key, value in sizes.items() for word in (f"--{key}", str(value))]
    text = typed("emit", name, "--target=program", *arguments).out.decode("utf-8")
    made = pipesched.load(pipesched.Source("plan.txt", text)).program
    assert made is not None
    return made


def lists(name: str, **sizes: int) -> list[list[Any]]:
    made = program(name, **sizes)
    return [made.instructions(rank) for rank in range(made.ranks)]


def codes(report: Report) -> list[str]:
    return [str(found.code) for found in report.diagnostics]


@pytest.mark.parametrize(("name", "sizes"), PLANS, ids=[name for name, _ in PLANS])
@pytest.mark.parametrize("write", WRITERS)
def test_what_keeps_to_its_plan_holds(name: str, sizes: dict[str, int], write: Writer, tmp_path: Path) -> None:
    """Two steps of every schedule, with every recorder, have no finding, and the player's counts."""
    run = play(lists(name, **sizes), steps=2)
    write(run, tmp_path)
    report = pipesched.verify(name, recorded=tmp_path, **sizes)

    assert not run.waits and report.ok, report
    (told,) = report.recorded
    assert (told.ranks, told.steps, told.messages) == (len(run.posts), 2, sum(p.send for x in run.posts for p in x))
    assert told.named == (write is not dumps)


@pytest.mark.parametrize(("as_json", "batched"), [(False, True), (True, False), (True, True)])
def test_dumps_in_all_their_forms(as_json: bool, batched: bool, tmp_path: Path) -> None:
    """Dumps are read in all forms: pickled or JSON, single or batched, of ranks with other numbers in the job, with
    collectives and shapes between.
    """
    run = play(lists("1f1b", p=4, m=6))
    dumps(run, tmp_path, as_json=as_json, batched=batched, job=[1, 4, 7, 10])
    report = pipesched.verify(program("1f1b", p=4, m=6), recorded=tmp_path)

    assert report.ok, report
    assert report.recorded[0].notes == ("6 messages of integers (shapes and objects) are ignored",)


def sides(posts: list[list[Post]]) -> dict[tuple[int, int, int, bool], list[Post]]:
    found: dict[tuple[int, int, int, bool], list[Post]] = defaultdict(list)
    for rank, row in enumerate(posts):
        for post in row:
            ends = (rank, post.what.peer) if post.send else (post.what.peer, rank)
            found[post.what.communicator, *ends, post.send].append(post)
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("write", [orders, traces])
def test_a_swapped_message_is_told_where_it_was_posted(seed: int, write: Writer, tmp_path: Path) -> None:
    """Two swapped sends of a channel: rank, both names, the place on the channel, and the step."""
    chance = random.Random(seed)
    name, sizes = chance.choice(PLANS[:3])
    made = lists(name, **sizes)
    rank = chance.randrange(len(made))
    peers = {x.peer for x in made[rank] if x.op.name.startswith("SEND")}
    peer = chance.choice(sorted(peers))
    at = [i for i, x in enumerate(made[rank]) if x.op.name.startswith("SEND") and x.peer == peer]
    first = chance.randrange(len(at) - 1)
    i, j = at[first], at[first + 1]
    made[rank][i], made[rank][j] = made[rank][j], made[rank][i]
    run = play(made)
    write(run, tmp_path)
    report = pipesched.verify(name, recorded=tmp_path, **sizes)
    sent = [post.name for post in run.posts[rank] if post.send and post.what.peer == peer]

    assert codes(report) == ["PS894"], report
    expected = f"rank {rank} sent {sent[first]} where rank {peer} expected {sent[first + 1]}"
    assert report.diagnostics[0].message == expected
    assert f"message {first + 1} from rank {rank} to rank {peer} in step 1" in report.diagnostics[0].notes[0]


def test_both_ends_may_leave_the_plan_together(tmp_path: Path) -> None:
    """A run whose two ends agree trains right, but deviates from the plan."""
    made = lists("1f1b", p=2, m=3)
    for rank in (0, 1):
        at = [i for i, x in enumerate(made[rank]) if x.op.name.endswith("_F")]
        made[rank][at[0]], made[rank][at[1]] = made[rank][at[1]], made[rank][at[0]]
    orders(play(made), tmp_path)
    report = pipesched.verify("1f1b", p=2, m=3, recorded=tmp_path)

    assert [d.message for d in report.diagnostics] == [
        "rank 0 sent F0.1 and rank 1 took it for F0.1; the plan has F0.0"
    ]


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("write", WRITERS)
def test_a_rank_that_stops_is_told_with_those_that_wait_for_it(seed: int, write: Writer, tmp_path: Path) -> None:
    """A rank that stops is named first, with the step of its stop; then the ranks that wait for it, by the oracle's
    graph of waits.
    """
    chance = random.Random(seed)
    name, sizes = chance.choice(PLANS[:3])
    made = lists(name, **sizes)
    rank = chance.randrange(len(made))
    messages = [i for i, x in enumerate(made[rank]) if x.op.name[:5] in ("SEND_", "RECV_")]
    done = len(made[rank]) + chance.choice(messages)
    run = play(made, steps=3, stopped={rank: done}, eager=write is traces)
    write(run, tmp_path)
    report = pipesched.verify(name, recorded=tmp_path, **sizes)
    graph = nx.DiGraph((one, other) for one, others in run.waits.items() for other in others)
    waiting = sorted(set(nx.ancestors(graph, rank)) if rank in graph else set())

    assert codes(report) == ["PS895"], report
    message = report.diagnostics[0].message
    assert message.startswith(f"the run stops in step 2: rank {rank} posted no further message")
    named = message.partition(", and rank")[2]
    assert [int(word) for word in named.replace(",", " ").split() if word.isdecimal()] == waiting


DEAD = (
    "rank 0: F0.0 send:F0.0>1 F0.1 send:F0.1>1 recv:B1.0<1 B0.0 recv:B1.1<1 B0.1 reduce:0 step\n"
    "rank 1: recv:F0.0<0 F1.0 B1.0 send:B1.0>0 recv:F0.1<0 F1.1 B1.1 send:B1.1>0 reduce:1 step\n"
)


@pytest.mark.parametrize("write", [orders, dumps])
def test_a_cycle_of_waits_is_told(write: Writer, tmp_path: Path) -> None:
    """An order whose ranks wait for each other, played to its end: the ranks of the oracle's cycle, each at its stop;
    the plan is refused too.
    """
    plan = pipesched.load(pipesched.Source("dead.txt", DEAD)).program
    assert plan is not None
    run = play([plan.instructions(rank) for rank in range(2)])
    write(run, tmp_path)
    report = pipesched.verify(plan, recorded=tmp_path)
    cycle = nx.find_cycle(nx.DiGraph((one, other) for one, others in run.waits.items() for other in others))

    assert {rank for rank, _ in cycle} == {0, 1} and codes(report) == ["PS401", "PS895"]
    assert report.diagnostics[1].message == "the run stops in step 1: ranks 0 and 1 wait for each other"
    first, second = (label.message for label in report.diagnostics[1].labels)
    assert "rank 0, step 4: waits in the send of F0.1 to rank 1" in first
    assert "rank 1, step 4: waits in the send of B1.0 to rank 0" in second


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("batched", [False, True])
def test_overwritten_dumps_still_tell_who_waits(seed: int, batched: bool, tmp_path: Path) -> None:
    """With only the last entries of each rank, messages cannot be counted, and the rank for which all wait is named."""
    chance = random.Random(seed)
    name, sizes = PLANS[0]
    made = lists(name, **sizes)
    rank = chance.randrange(len(made))
    messages = [i for i, x in enumerate(made[rank]) if x.op.name[:5] in ("SEND_", "RECV_")]
    run = play(made, steps=3, stopped={rank: 2 * len(made[rank]) + chance.choice(messages)})
    dumps(run, tmp_path, batched=batched)
    for path in tmp_path.iterdir():
        value = pickle.loads(path.read_bytes())
        path.write_bytes(pickle.dumps({**value, "entries": value["entries"][-chance.randint(8, 12) :]}, protocol=2))
    report = pipesched.verify(name, recorded=tmp_path, **sizes)
    graph = nx.DiGraph((one, other) for one, others in run.waits.items() for other in others)
    waiting = sorted(nx.ancestors(graph, rank)) if rank in graph else []

    assert codes(report) == ["PS891", "PS895"], report
    ranks = f"rank{'s' * (len(waiting) > 1)} {', '.join(map(str, waiting))} wait{'s' * (len(waiting) == 1)} for it"
    assert report.diagnostics[1].message == f"the run stops: rank {rank} has no message in transit, and {ranks}"


def test_our_recorder_is_read(tmp_path: Path) -> None:
    """Two steps of `Recorder.dumps` give one file per rank, with instructions that are not messages."""
    from pipesched import stream
    from pipesched.runtime.execute.trace_events import dumps as written

    made = stream.loads(pipesched.emit("zb_v", p=2, m=4))
    for rank, instructions in enumerate(made.ranks):
        steps = [[[i, float(50 * k + i), 50 * k + i + 0.5, 0.0] for i in range(len(instructions))] for k in range(2)]
        (tmp_path / f"rank{rank}.json").write_text(written(made, {rank: steps}, base=7))
    report = pipesched.verify("zb_v", p=2, m=4, recorded=tmp_path)

    assert report.ok and report.recorded[0].steps == 2, report
    assert report.recorded[0].messages == 2 * report.messages


def test_without_names_sizes_and_order_tell(tmp_path: Path) -> None:
    """A dump of another schedule with as many messages: a different order is an error against a file that names its
    messages, a note against the lowering; a different size is an error.
    """
    dumps(play(lists("gpipe", p=3, m=4)), tmp_path)
    against = pipesched.verify(program("1f1b", p=3, m=4), recorded=tmp_path)
    computes = pipesched.verify("1f1b", p=3, m=4, recorded=tmp_path)

    assert set(codes(against)) == {"PS894"} and "in a different order from its list" in against.diagnostics[0].message
    assert computes.ok and "in a different order from pipesched" in computes.recorded[0].notes[-1]

    plan = program("interleaved", p=2, v=2, m=4)
    made = [plan.instructions(rank) for rank in range(2)]
    channel = [i for i, x in enumerate(made[0]) if x.op.name.startswith("SEND")]
    kinds = [made[0][i].op.name for i in channel]
    swap = next(i for i in range(len(kinds) - 1) if kinds[i] != kinds[i + 1])
    i, j = channel[swap], channel[swap + 1]
    made[0][i], made[0][j] = made[0][j], made[0][i]
    other = tmp_path / "other"
    other.mkdir()
    dumps(play(made), other, sizes={"F": [2, 8], "B": [3, 8]})
    report = pipesched.verify(plan, recorded=other)

    assert codes(report) == ["PS896"], report
    assert report.diagnostics[0].message in (
        "rank 0 sent BFloat16 [3, 8], and rank 1 allocated BFloat16 [2, 8]",
        "rank 0 sent BFloat16 [2, 8], and rank 1 allocated BFloat16 [3, 8]",
    )


@pytest.mark.parametrize("write", WRITERS)
def test_a_rank_without_a_record_is_named(write: Writer, tmp_path: Path) -> None:
    """A finished run reports only the deviation; a run that stopped there also reports the ranks that wait for it."""
    run = play(lists("1f1b", p=4, m=6))
    write(run, tmp_path)
    (file,) = (path for path in tmp_path.iterdir() if path.stem[-1] == "2")
    file.unlink()
    report = pipesched.verify("1f1b", p=4, m=6, recorded=tmp_path)

    assert codes(report) == ["PS893"] and "no record of rank 2" in report.diagnostics[0].message


def test_other_channels_are_told(tmp_path: Path) -> None:
    """A message on a channel that the plan does not have, by its name and its rank."""
    plan = "rank 0: send:F0.0>1 send:F0.1>1 recv:B1.0<1 recv:B1.1<1 send:F0.0>2\n"
    (tmp_path / "a").write_text(plan + "rank 1: recv:F0.0<0 recv:F0.1<0 send:B1.0>0 send:B1.1>0\nrank 2: recv:F0.0<0\n")
    report = pipesched.verify("1f1b", p=3, m=2, recorded=tmp_path)

    assert "rank 0 sent F0.0 to rank 2: its plan has no such message" in [d.message for d in report.diagnostics]


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("touched"),)


def broken(folder: Path, what: str) -> None:
    run = play(lists("1f1b", p=2, m=2))
    dumps(run, folder)
    file = folder / "nccl_trace_rank_1"
    value = pickle.loads(file.read_bytes())
    match what:
        case "cut":
            file.write_bytes(file.read_bytes()[:-300])
        case "cut JSON":
            file.write_text(json.dumps(value)[:-300])
        case "code":
            file.write_bytes(pickle.dumps({**value, "more": Bomb()}))
        case "no names":
            file.write_bytes(pickle.dumps({**value, "entries": [{"state": "started"}]}, protocol=2))
        case "no number":
            value["entries"][2]["record_id"] = float("inf")
            file.write_bytes(pickle.dumps(value, protocol=2))
        case "a list":
            file.write_bytes(pickle.dumps([1, 2], protocol=2))
        case "overwritten":
            file.write_bytes(pickle.dumps({**value, "entries": value["entries"][3:]}, protocol=2))
        case "no rank":
            file.rename(folder / "trace")
        case "two of one":
            (folder / "again_1").write_bytes(file.read_bytes())
        case "gloo":
            for path in folder.iterdir():
                made = [{**e, "profiling_name": "gloo:all_reduce"} for e in pickle.loads(path.read_bytes())["entries"]]
                path.write_bytes(pickle.dumps({**value, "entries": made}, protocol=2))
        case "empty":
            [path.unlink() for path in folder.iterdir()]
        case "notes":
            (folder / "notes.md").write_text("# what I saw\n")
        case "mixed":
            (folder / "rank0.txt").write_text("rank 0: send:F0.0>1\n")
        case "computes":
            [path.unlink() for path in folder.iterdir()]
            (folder / "a").write_text("rank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n")
        case "words":
            [path.unlink() for path in folder.iterdir()]
            (folder / "a").write_text("rank 0: send:F0.0>1 whatever\nrank 1: recv:F0.0<0\n")


BROKEN = [
    ("cut", "PS891", 1, "nccl_trace_rank_1 is cut off or damaged"),
    ("cut JSON", "PS891", 1, "nccl_trace_rank_1 is cut off or damaged"),
    ("code", "PS891", 1, "is a pickle that would run "),
    ("no names", "PS891", 1, "of version 2.10 is not a dump of torch's flight recorder: it has no 'profiling_name'"),
    ("no number", "PS891", 1, "is not a dump of torch's flight recorder: the record_id of an entry is missing"),
    ("a list", "PS891", 1, "nccl_trace_rank_1 is not a dump"),
    ("overwritten", "PS891", 1, "the dump of rank 1 begins with entry 3"),
    ("no rank", "PS891", 1, "trace does not end in a rank"),
    ("two of one", "PS891", 1, "a second dump of rank 1"),
    ("gloo", "PS890", 2, "the dumps contain no sends or receives"),
    ("empty", "PS890", 2, "has no files"),
    ("notes", "PS890", 2, "notes.md"),
    ("mixed", "PS890", 2, "records of several kinds: dump, order"),
    ("computes", "PS890", 2, "have no messages"),
    ("words", "PS891", 1, "cannot be read"),
]


@pytest.mark.parametrize(("what", "code", "status", "said"), BROKEN, ids=[row[0] for row in BROKEN])
def test_what_is_no_record_is_refused(
    what: str, code: str, status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each damaged record is refused with its code, its status and the file; no pickle is executed."""
    folder = tmp_path / "run"
    folder.mkdir()
    broken(folder, what)
    monkeypatch.chdir(tmp_path)
    done = typed("verify", "1f1b", "--p", "2", "--m", "2", "--recorded", str(folder), "--json")
    found = json.loads(done.out)["diagnostics"]

    assert done.status == status and [one["code"] for one in found] == [code], found
    assert said in found[0]["message"]
    assert not (tmp_path / "touched").exists()


def test_other_sizes_are_refused(tmp_path: Path) -> None:
    """A run of other ranks ends with status 2; one of fewer microbatches counts as an unfinished or another step."""
    for folder, write in (("a", orders), ("b", traces), ("c", dumps)):
        (tmp_path / folder).mkdir()
        write(play(lists("1f1b", p=2, m=4)), tmp_path / folder)
        assert codes(pipesched.verify("1f1b", p=4, m=4, recorded=tmp_path / folder)) == ["PS892"]
    assert "PS890" in codes(pipesched.verify("1f1b", p=2, m=2, recorded=tmp_path / "none"))
    assert "PS895" in codes(pipesched.verify("1f1b", p=2, m=8, recorded=tmp_path / "a"))


def test_torch_reads_what_the_player_wrote(tmp_path: Path) -> None:
    """The analyser of the installed torch reads every message of the dumps."""
    pytest.importorskip("torch")
    from torch.distributed.flight_recorder.components.types import Op

    run = play(lists("1f1b", p=3, m=4))
    dumps(run, tmp_path, batched=True, chatter=False)
    for rank, posts in enumerate(run.posts):
        entries = pickle.loads((tmp_path / f"nccl_trace_rank_{rank}").read_bytes())["entries"]
        read = [
            Op({**entry}, {"1": {0, 1, 2}}, "1") for entry in entries if entry["profiling_name"] != "nccl:coalesced"
        ]
        ends = [(op.type, op.src, op.dst) for op in read]

        wanted = [("send", rank, p.what.peer) if p.send else ("recv", p.what.peer, rank) for p in posts]
        assert ends == wanted


def test_a_dump_of_torch_itself_is_read(tmp_path: Path) -> None:
    """A dump of torch 2.13 is plain data: for a process that sent nothing it has no message."""
    pytest.importorskip("torch")
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    for number, data in enumerate((_dump_fr_trace(), _dump_fr_trace_json())):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "rank_0").write_bytes(data if isinstance(data, bytes) else data.encode())
        assert codes(pipesched.verify("1f1b", p=2, m=2, recorded=folder)) == ["PS890"]


STOPPED = Path(__file__).parents[1] / "recorded" / "stopped"


def stopped() -> Run:
    """Return the run of the guide: rank 1 stops after ten instructions."""
    return play(lists("1f1b", p=3, m=4), stopped={1: 10})


def test_the_run_of_the_guide_is_the_players(tmp_path: Path) -> None:
    """The player wrote the files of the page; ``python -m tests.interop.test_recorded`` writes them."""
    dumps(stopped(), tmp_path, as_json=True)

    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {p.name: p.read_bytes() for p in STOPPED.iterdir()}


if __name__ == "__main__":
    STOPPED.mkdir(parents=True, exist_ok=True)
    dumps(stopped(), STOPPED, as_json=True)


def _swapped(folder: Path) -> None:
    one, other = (folder / f"nccl_trace_rank_{rank}" for rank in (1, 2))
    mine, theirs = one.read_bytes(), other.read_bytes()
    one.write_bytes(theirs)
    other.write_bytes(mine)


def _copied(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / f"other_{name}").write_bytes((folder / name).read_bytes())

    return change


def _ranked(rank: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "rank1.json"
        file.write_text(file.read_text().replace('"rank": 1', f'"rank": {rank}', 1))

    return change


def _with(before: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for file in folder.iterdir():
            file.write_bytes(before + file.read_bytes())

    return change


def _reversed(folder: Path) -> None:
    for file in folder.iterdir():
        value = pickle.loads(file.read_bytes())
        file.write_bytes(pickle.dumps(value | {"entries": value["entries"][::-1]}))


@pytest.mark.parametrize(
    ("write", "change", "said"),
    [
        (
            dumps,
            _swapped,
            "PS891 nccl_trace_rank_1 is not the dump of rank 1: it has nccl:recv 2<-1 in process group 1",
        ),
        (dumps, _reversed, ""),
        (partial(dumps, as_json=True), _with(b" \n"), ""),
        (partial(dumps, as_json=True), _with(b"\xef\xbb\xbf"), ""),
        (orders, _with(b"\xef\xbb\xbf"), ""),
        (orders, _copied("rank2.txt"), "PS891 rank 2 has several orders, in one file or in several"),
        (traces, _copied("rank2.json"), "PS891 rank 2 has several traces, in one file or in several"),
        (traces, _ranked("-1"), "PS891 rank1.json is cut off or not a trace: ValueError: -1 is not a rank"),
        (
            traces,
            _ranked("Infinity"),
            "PS891 rank1.json is cut off or not a trace: OverflowError: cannot convert float infinity to integer",
        ),
        (traces, lambda folder: (folder / "rank3.json").unlink(), "PS893 no record of rank 3"),
    ],
)
def test_files_that_are_mixed_up(write: Writer, change: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    """Other formats are read; files of other ranks, two of one rank, and an absent last one are named."""
    write(play(lists("1f1b", p=4, m=6), eager=write is traces), tmp_path)
    change(tmp_path)
    report = pipesched.verify("1f1b", p=4, m=6, recorded=tmp_path)
    assert "; ".join(f"{found.code} {found.message}" for found in report.diagnostics) == said
