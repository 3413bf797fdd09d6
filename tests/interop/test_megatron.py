"""For each release of Megatron-core, the recorded program is the program that the pipeline code runs.

The oracles are the library's published orders, real processes, and facts that were recorded once. Executing it needs a
release: the installed one, or those in the folders of PIPESCHED_MEGATRON, separated by ``:``. Verdicts on recorded
programs need none. All configurations, by hand, some ten minutes:

    python -m tests.runtime.megatron_processes FOLDER/megatron/core
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.interop.frameworks import megatron, megatron_rank
from pipesched.interop.frameworks.fakes import Fake, Undecided
from pipesched.optimizer.sameness import same_order
from pipesched.support.source import Source
from tests.readers.typed import typed
from tests.runtime.megatron_processes import EXCHANGES

HERE = Path(__file__).parents[1]
DATA = HERE / "data" / "megatron"
FACTS: Mapping[str, str] = json.loads((DATA / "programs.json").read_text("utf-8"))
"""A digest of the programs of each release that was tried: `python -m tests.interop.test_megatron`
prints that of others."""


def _sites() -> list[Path]:
    if asked := os.environ.get("PIPESCHED_MEGATRON"):
        return [Path(entry).absolute() for entry in asked.split(":")]
    found = find_spec("megatron")
    places = [] if found is None else [Path(entry).parent for entry in found.submodule_search_locations or ()]
    return [place for place in places if (place / "megatron/core/pipeline_parallel/schedules.py").is_file()][:1]


SITES = _sites()
SITE = SITES[-1] if SITES else Path()
executed = pytest.mark.skipif(not SITES, reason="megatron-core is not installed")
each = pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)


@cache
def core(site: Path) -> megatron.Core:
    return megatron.load(site / "megatron" / "core")


def rows(site: Path, p: int, v: int, m: int, **options: object) -> list[str]:
    """Return the words of every rank."""
    found, name = [], "interleaved" if v > 1 else "1f1b"
    for here in range(p):
        rank = megatron_rank.Rank(str(core(site).folder), p, here)
        megatron.run(core(site), name, (p, v, m), options, rank)
        found.append(f"rank {here}: {' '.join(word for word, _ in megatron_rank.words(rank))}")
    return found


def source(lines: list[str]) -> Source:
    return Source("megatron.txt", "\n".join(lines) + "\n")


def verified(target: Source | str, comm: str, **given: Any) -> dict[str, list[str]]:
    """Return the messages of the findings, by code."""
    found: dict[str, list[str]] = {}
    for diagnostic in pipesched.verify(target, comm=comm, **given).diagnostics:
        found.setdefault(str(diagnostic.code), []).append(diagnostic.message)
    return found


def digest(site: Path) -> str:
    """Return the digest of the programs of a small grid, without options that a release lacks."""
    made = hashlib.sha256()
    for p, v, m in ((2, 1, 2), (3, 1, 6), (2, 2, 4), (3, 2, 3), (3, 3, 9), (4, 2, 8)):
        for options in EXCHANGES.values():
            if options.keys() <= core(site).options().keys() and not (v == 1 and "overlap_p2p_comm" in options):
                made.update("\n".join(rows(site, p, v, m, **options, variable_seq_lengths=p == 3)).encode())
    return made.hexdigest()[:16]


# Facts of a release


@each
def test_programs_are_those_that_were_recorded(site: Path) -> None:
    """A release whose programs change must be recorded again."""
    assert FACTS.get(core(site).version) == digest(site)


@each
@pytest.mark.parametrize("sizes", [(2, 1, 4), (3, 1, 2), (4, 1, 8), (2, 2, 4), (4, 2, 8), (3, 3, 9)])
def test_the_order_is_the_published_one(site: Path, sizes: tuple[int, int, int]) -> None:
    """1F1B and interleaved 1F1B of the library equal the orders of the papers, operation for operation."""
    p, v, m = sizes
    made = pipesched.load(source(rows(site, p, v, m)))
    assert same_order(
        made, pipesched.load("1f1b", p=p, m=m) if v == 1 else pipesched.load("interleaved", p=p, v=v, m=m)
    )


@each
@pytest.mark.parametrize(
    "p", [2, 3, 4, 6, pytest.param(8, marks=pytest.mark.nightly), pytest.param(16, marks=pytest.mark.nightly)]
)
def test_groups_are_the_published_ones(site: Path, p: int) -> None:
    """The groups of interleaved_n in the library have more than p microbatches, the last one whole or of p
    microbatches."""
    if "microbatch_group_size_per_vp_stage" not in core(site).options():
        pytest.skip("this release has groups of p alone")
    for v, m, n in ((2, 2 * p + 1, p + 1), (2, 2 * p + 2, p + 1), (3, p + 2, p + 2)):
        made = pipesched.load(source(rows(site, p, v, m, microbatch_group_size_per_vp_stage=n)))
        assert same_order(made, pipesched.load("interleaved_n", p=p, v=v, m=m, n=n))


@each
def test_batches_between_two_ranks(site: Path) -> None:
    """At p = 2, v > 1, m > p, activation and gradient are swapped, in both directions; not for m = p, nor for p = 3."""
    found = verified(source(rows(site, 2, 2, 4)), "strict")
    assert {code: len(messages) for code, messages in found.items()} == {"PS403": 2}
    assert not verified(source(rows(site, 2, 2, 2)), "strict")
    assert not verified(source(rows(site, 3, 2, 6)), "strict")


@each
def test_the_cure_of_it(site: Path) -> None:
    """Posted in the order send_next, recv_prev, send_prev, recv_next, nothing is swapped, at any size."""
    schedules = core(site).schedules
    older = getattr(schedules, "p2p_communication", None)
    names = vars(older) if older else schedules.P2PCommunicator._communicate.__globals__
    kept = names["_batched_p2p_ops"]
    exec(_reordered(Path(names["__file__"]).read_text("utf-8")), names)
    try:
        for p, v, m in ((2, 2, 4), (2, 2, 8), (2, 3, 6), (3, 2, 6), (4, 2, 8)):
            assert not verified(source(rows(site, p, v, m)), "strict")
    finally:
        names["_batched_p2p_ops"] = kept


def _reordered(text: str) -> str:
    """Return _batched_p2p_ops with its four posts in the other order."""
    tree = ast.parse(text)
    (function,) = [x for x in tree.body if isinstance(x, ast.FunctionDef) and x.name == "_batched_p2p_ops"]
    posts = [x for x in function.body if isinstance(x, ast.If) and "P2POp" in ast.dump(x)]
    order = ("send_next", "recv_prev", "send_prev", "recv_next")
    new = [next(x for x in posts if f"tensor_{name}" in ast.unparse(x.test)) for name in order]
    begin = function.body.index(posts[0])
    function.body[begin : begin + 4] = new
    return ast.unparse(function)


@each
@pytest.mark.parametrize("p", [2, 3, 4, 5, 6])
def test_the_flush_in_one_queue(site: Path, p: int) -> None:
    """Overlap with flush is a cycle in one queue at even p above 2, and none in a queue for each pair."""
    if "overlap_p2p_comm_warmup_flush" not in core(site).options():
        pytest.skip("this release has no flush")
    lines = rows(site, p, 2, 2 * p, **EXCHANGES["flush"])
    assert set(verified(source(lines), "one-stream")) == ({"PS401"} if p % 2 == 0 and p > 2 else set())
    assert not verified(source(lines), "pair-stream")
    without = rows(site, p, 2, 2 * p, **EXCHANGES["overlap"])
    assert not verified(source(without), "one-stream")


# The command


@executed
def test_a_finding_names_the_lines_that_posted() -> None:
    """The finding names the post, and the line of the schedule that called it."""
    report = pipesched.verify("megatron:interleaved", p=2, v=2, m=4, framework_path=str(SITE))
    files = {path.name for path in (SITE / "megatron/core/pipeline_parallel").iterdir()}
    assert {"schedules.py", "p2p_communication.py"} <= files
    for label in (label for x in report.diagnostics for label in x.labels):
        post, _, outer = label.message.partition("(")[2].partition(")")[0].partition(", from ")
        file, line = post.split(":")
        assert "P2POp" in (SITE / file).read_text("utf-8").split("\n")[int(line) - 1]
        line = outer.split(":")[1]
        text = (SITE / "megatron/core/pipeline_parallel/schedules.py").read_text("utf-8").split("\n")[int(line) - 1]
        assert "send_forward_backward_recv_forward_backward" in text or ")" in text
    assert any(core(SITE).version in note for note in report.notes)


REFUSED = {
    "no such option": ("interleaved", {"overlap_p2p_com": True}, "PS855", "has no option overlap_p2p_com"),
    "no such schedule": ("interleave", {}, "PS855", "has no schedule interleave"),
    "not a truth": ("interleaved", {"batch_p2p_comm": 2}, "PS855", "batch_p2p_comm must be true or false"),
    "v of 1f1b": ("1f1b", {}, "PS855", "1f1b has one stage per rank"),
    "refused by core": ("interleaved", {"overlap_p2p_comm": True}, "PS851", "Can not use both"),
    "not executed": ("interleaved", {"use_ring_exchange_p2p": True}, "PS851", "ring_exchange() is unknown"),
}


@executed
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_recorded_is_refused(case: str) -> None:
    """An unrecordable call is refused with a code and its name; a refusal of the release itself with its own message
    and line."""
    name, options, code, words = REFUSED[case]
    report = pipesched.verify(f"megatron:{name}", p=2, v=2, m=4, framework_path=str(SITE), **options)
    (only,) = report.diagnostics
    assert str(only.code) == code
    assert words in only.message
    if code == "PS851":
        assert str(only.labels[0].span).startswith("megatron/core/pipeline_parallel/")


def test_without_megatron(tmp_path: Path) -> None:
    """PS850, if a folder has none; also for a folder that only looks like it."""
    (tmp_path / "megatron" / "core").mkdir(parents=True)
    if find_spec("megatron") is None:
        report = pipesched.verify("megatron:1f1b", p=2, m=2, framework_path=str(tmp_path))
        assert [str(x.code) for x in report.diagnostics] == ["PS850"]


@executed
def test_forward_only() -> None:
    """Evaluation with the same code has only forwards, and is complete."""
    for name, v in (("1f1b", 1), ("interleaved", 2)):
        report = pipesched.verify(f"megatron:{name}", p=2, v=v, m=4, forward_only=True, framework_path=str(SITE))
        assert report.ok, report
        assert report.parts is not None and report.parts.operations == 2 * v * 4


@pytest.mark.nightly
@executed
def test_the_page_shows_what_verify_says() -> None:
    """The recorded block of schedules/found is its output."""
    if core(SITE).version != "0.16.1":
        pytest.skip("the page is of 0.16.1")
    page = (HERE.parent / "schedules" / "found" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"^```text\n(.*?)^```", page, re.M | re.S)
    for command, recorded in re.findall(r"^\$ pipesched (.*)\n((?:[^$].*\n)+)", block, re.M):
        told = typed(*command.split(), "--framework-path", str(SITE))
        assert (told.out + told.err).decode() == recorded


# Real processes


@pytest.mark.nightly
@executed
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_real_processes_do_what_is_predicted() -> None:
    """As posted and with one queue per rank, real processes are right, wrong or hang, as the verdict says; three of
    many."""
    code = (
        "import sys; from pathlib import Path; from tests.runtime import megatron_processes as m;"
        "core = m.megatron.load(Path(sys.argv[1]));"
        "told = lambda e, s: [(m.outcome(core, 'interleaved', s, m.EXCHANGES[e], x),"
        " m.predicted(core, 'interleaved', s, m.EXCHANGES[e])[x]) for x in (m.POSTED, m.QUEUE)];"
        "print(told('batched', (2, 2, 4)), told('overlap', (3, 2, 3)), told('flush', (4, 2, 4)))"
    )
    command = [sys.executable, "-c", code, str(SITE / "megatron" / "core")]
    made = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, timeout=100, check=False)
    pairs = lambda *found: str([(x, x) for x in found])  # noqa: E731
    assert made.stdout.strip() == " ".join([pairs("wrong", "wrong"), pairs("right", "right"), pairs("right", "hang")])


# Recorded programs


def test_recorded_verdicts() -> None:
    """Without a release, the recorded programs of 0.16.1 get the verdicts of executed ones."""
    batched = Source("x.txt", (DATA / "batched_p2_v2_m4.txt").read_text("utf-8"))
    assert {code: len(x) for code, x in verified(batched, "strict").items()} == {"PS403": 2}
    flush = Source("x.txt", (DATA / "flush_p4_v2_m8.txt").read_text("utf-8"))
    (found,) = pipesched.verify(flush, comm="one-stream").diagnostics
    assert str(found.code) == "PS401"
    blocked = ["recv:B5.5<1", "recv:B6.6<2", "recv:B7.7<3", "recv:B4.4<0"]
    assert [label.span.text for label in found.labels if label.span] == blocked
    assert not verified(flush, "pair-stream")


@executed
@pytest.mark.parametrize("name", ["batched_p2_v2_m4", "flush_p4_v2_m8"])
def test_what_was_recorded_is_what_the_newest_release_does(name: str) -> None:
    """The files of `data` are its programs."""
    if FACTS.get(core(SITE).version) != FACTS["0.16.1"]:
        pytest.skip("other programs than those of 0.16.1")
    exchange, *sizes = name.split("_")
    p, v, m = (int(size[1:]) for size in sizes)
    assert "\n".join(rows(SITE, p, v, m, **EXCHANGES[exchange])) + "\n" == (DATA / f"{name}.txt").read_text("utf-8")


# Fakes


@pytest.mark.parametrize("use", [bool, len, iter, int, float, lambda x: x < 1, lambda x: x == 1, lambda x: 1 in x])
def test_a_fake_decides_nothing(use: Any) -> None:
    """A recorded value cannot be used in a branch, as a length or as a number."""
    with pytest.raises(Undecided, match=r"torch\.some"):
        use(Fake("torch").some)


def test_a_fake_is_whatever_an_import_needs() -> None:
    """It serves as a base class, a decorator, a context, an operand, an attribute of an attribute."""
    fake = Fake("torch")
    Derived = type("Derived", fake.nn.__mro_entries__(()), {})

    @fake.no_grad
    def function() -> int:
        return 7

    with fake.stream(3) as entered:
        assert entered is not None
    assert function() == 7 and Derived() is not None
    assert fake.a.b.c is fake.a.b.c and fake.a + 1 is fake.a
    with pytest.raises(Undecided, match=r"torch\.distributed\.all_reduce\(\)"):
        Fake("torch.distributed", inert=False).all_reduce(1, 2)


def main() -> None:
    """Record again: the digests of all releases, the programs of the last."""
    found = {core(site).version: digest(site) for site in SITES}
    DATA.mkdir(exist_ok=True)
    (DATA / "programs.json").write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    for name, sizes in (("batched", (2, 2, 4)), ("flush", (4, 2, 8))):
        p, v, m = sizes
        text = "\n".join(rows(SITE, p, v, m, **EXCHANGES[name])) + "\n"
        (DATA / f"{name}_p{p}_v{v}_m{m}.txt").write_text(text, "utf-8")


if __name__ == "__main__":
    main()


@executed
@pytest.mark.parametrize(
    ("sizes", "own", "model"),
    [
        ((2, 1, 4), {}, "strict"),
        pytest.param((3, 2, 6), {}, "strict", marks=pytest.mark.nightly),
        ((2, 2, 4), {"batch_p2p_comm": False, "overlap_p2p_comm": True, "overlap_p2p_comm_warmup_flush": True}, "one"),
    ],
)
def test_the_model_follows_the_posts(sizes: tuple[int, int, int], own: dict[str, bool], model: str) -> None:
    """Waited for at once, it is strict; waited for after a compute, one-stream; `--comm` wins.

    The flush on two ranks has a queue each way (`get_pp_group` of two groups), so that one-stream holds; its posts
    cross, so that a rendezvous does not.
    """
    p, v, m = sizes
    name = "megatron:1f1b" if v == 1 else "megatron:interleaved"
    given: dict[str, Any] = {"p": p, "m": m, **({"v": v} if v > 1 else {}), **own}
    found = pipesched.verify(name, **given)
    strict = pipesched.verify(name, comm="strict", **given)
    assert found.ok and strict.ok == (model == "strict")
    assert any("the model is one-stream unless" in note for note in found.notes) == (model == "one")
