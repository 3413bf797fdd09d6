"""Alternative names of schedules, options and units are understood, or the answer suggests what to type instead."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.common.aliases import ROWS, known_as, plain
from pipesched.compile import Options, read
from pipesched.diagnostics import PipeschedError
from pipesched.explain.schedule_names import NEAR
from pipesched.library.assets import asset, built_in
from pipesched.support.source import Source
from pipesched.verbs.emit import emit

NAMES = {  # by their place; one without a schedule: words of the message
    "torch 2.15, pipelining/schedules.py: get_schedule_class": {
        "1F1B": "1f1b",
        "GPipe": "gpipe",
        "Interleaved1F1B": "interleaved",
        "LoopedBFS": "looped_bfs",
        "InterleavedZeroBubble": "interleaved_zb",
        "ZBVZeroBubble": "zb_v",
        "DualPipeV": "dualpipev",
    },
    "torch 2.15, its classes": {
        "Schedule1F1B": "1f1b",
        "ScheduleGPipe": "gpipe",
        "ScheduleInterleaved1F1B": "interleaved",
        "ScheduleLoopedBFS": "looped_bfs",
        "ScheduleInterleavedZeroBubble": "interleaved_zb",
        "ScheduleZBVZeroBubble": "zb_v",
        "ScheduleDualPipeV": "dualpipev",
    },
    "AutoModel 36044ad, its recipes": {
        "1f1b": "1f1b",
        "interleaved1f1b": "interleaved",
        "interleaved_1f1b": "interleaved",
    },
    "Megatron-core 0.16.1, pipeline_parallel/schedules.py": {
        "forward_backward_pipelining_without_interleaving": "1f1b",
        "forward_backward_pipelining_with_interleaving": "interleaved",
    },
    "DeepSpeed 0.19.8, runtime/pipe/schedule.py": {
        "TrainSchedule": "1f1b",
        "InferenceSchedule": "forward_only",
        "DualPipeVSchedule": "dualpipev",
    },
    "Primus fd1eeab, schedule_table_factory.py": {
        "1f1b": "1f1b",
        "1f1b-interleaved": "interleaved",
        "zero-bubble": "zero bubble is zb_h1",
        "zero-bubble-heuristic": "`pipesched optimize --mem-cap K`",
        "zbv-formatted": "zb_v",
        "v-half": "v_half",
        "v-min": "v_min",
        "zbv-greedy-half": "v_half",
        "zbv-greedy-min": "v_min",
        "auto": "`pipesched optimize",
    },
    "JaxPP cf9e386, schedules.py": {
        "Std1F1B": "1f1b",
        "Eager1F1B": "eager_1f1b",
        "GPipe": "gpipe",
        "Interleaved1F1B": "interleaved",
        "KimiK2": "interleaved_overlap",
        "DualPipeV": "dualpipev",
        "ZeroBubble": "zero bubble is zb_h1",
    },
    "PaddlePaddle, passes/pipeline_scheduler_pass: apply_pass": {
        "FThenB": "gpipe",
        "1F1B": "1f1b",
        "Eager1F1B": "eager_1f1b",
        "VPP": "interleaved",
        "ZBH1": "zb_h1",
    },
    "MindSpore, AutoParallel.pipeline": {"gpipe": "gpipe", "1f1b": "1f1b", "zero_bubble_v": "zb_v"},
    "Shardy, MPMD_PIPELINE_SCHEDULE_VALUES": {"1F1B": "1f1b", "GPipe": "gpipe", "ZeroBubbleH1": "zb_h1"},
    "ColossalAI 4f9953b, pipeline/schedule": {
        "OneForwardOneBackwardSchedule": "1f1b",
        "InterleavedSchedule": "interleaved",
    },
    "Nanotron, pipeline_parallel/engine.py": {
        "AllForwardAllBackwardPipelineEngine": "gpipe",
        "OneForwardOneBackwardPipelineEngine": "1f1b",
    },
    "nnScaler 1585c15, graph/schedule/predefined.py": {
        "sched_1f1b": "1f1b",
        "sched_1f1b_interleaved": "interleaved",
        "sched_1f1b_plus": "otherwise it is `1f1b`",
        "sched_gpipe": "gpipe",
        "sched_chimera_direct": "`chimera` has the same placement",
        "sched_infer_pipe": "forward_only",
    },
    "d9d f155a8d, pipelining/factory/config.py": {
        "inference": "forward_only",
        "gpipe": "gpipe",
        "looped_bfs": "looped_bfs",
        "1f1b": "1f1b",
        "zero_bubble_v": "zb_v",
        "dual_pipe_v": "dualpipev",
    },
    "veScale 20cf5c7, legacy/vescale/plan/spec.py: PipelineScheduleType": {
        "SIMPLE_1F1B": "1f1b",
        "INTERLEAVED_1F1B": "interleaved",
        "GPIPE": "gpipe",
        "ZERO_BUBBLE": "zero bubble is zb_h1",
        "GRAPH_PIPE": "`unet`",
    },
    "HyperParallel fdd0a80, core/pipeline_parallel": {
        "ScheduleGPipe": "gpipe",
        "Schedule1F1B": "1f1b",
        "ScheduleInterleaved1F1B": "interleaved",
    },
    "Megatron-core 0.16.1 and MindSpeed, flags": {
        "--overlap-moe-expert-parallel-comm": "interleaved_overlap",
        "dualpipev": "dualpipev",
    },
    "zero-bubble-pipeline-parallelism 39f2c18, examples/test_all_schedules.sh": {
        "1f1b": "1f1b",
        "1f1bv": "1f1b_v",
        "1f1b-interleaved": "interleaved",
        "offload-grouped-interleaved": "pipeoffload",
        "zb": "zero bubble is zb_h1",
        "zbv": "zb_v",
        "zbv-half": "v_half",
        "zbv-min": "v_min",
        "seq1f1b": "seq1f1b",
    },
    "arXiv:2401.10241": {
        "1F1B-I": "interleaved",
        "ZB-H1": "zb_h1",
        "ZB-H2": "zb_h2",
        "ZB-V": "zb_v",
        "ZB-1p": "zb_h1",
        "ZB-2p": "zb_h2",
    },
    "arXiv:2405.15362": {"V-Min": "v_min", "V-Half": "v_half", "V-ZB": "v_zb", "1F1B-V": "1f1b_v"},
    "arXiv:2104.04473 and arXiv:2006.09503": {
        "PipeDream-Flush": "1f1b",
        "PipeDream": "pipedream",
        "PipeDream-2BW": "pipedream_2bw",
        "interleaved 1F1B": "interleaved",
    },
    "other papers": {
        "DAPPLE": "1f1b",
        "Chimera": "chimera",
        "Hanayo": "hanayo",
        "BitPipe": "bitpipe",
        "DualPipe": "dualpipe",
        "Breadth-First": "looped_bfs",
        "Seq1F1B": "seq1f1b",
        "Mario": "mario",
        "PipeOffload": "pipeoffload",
        "TeraPipe": "terapipe",
        "Seq1F1B-I": "seq1f1b_i",
        "SlimPipe": "`seq1f1b`",
        "MEPipe": "`seq1f1b`",
        "AdaPipe": "in the order of `1f1b`",
        "WeiPipe": "which no file can express",
        "GEMS": "the placement of `chimera`",
        "SPPO": "`pipeoffload`",
        "DynaPipe": "`packed`",
        "Cornstarch": "`frozen_encoder`",
        "torchgpipe": "`gpipe_reversed`",
        "depth-first": "interleaved",
        "DFS": "interleaved",
    },
    "people": {
        "dapple": "1f1b",
        "pipedream_flush": "1f1b",
        "zbh1": "zb_h1",
        "zb-h1": "zb_h1",
        "1f1b_interleaved": "interleaved",
    },
}
TORCH = {  # torch's own classes: stages of a rank, the parameters of ours
    "ScheduleGPipe": (1, {}),
    "Schedule1F1B": (1, {}),
    "ScheduleInterleaved1F1B": (2, {"v": 2}),
    "ScheduleInterleavedZeroBubble": (2, {"v": 2}),
    "ScheduleLoopedBFS": (2, {"v": 2}),
    "ScheduleZBVZeroBubble": (2, {}),
    "ScheduleDualPipeV": (2, {}),
}


@pytest.mark.parametrize("where", NAMES)
def test_a_schedule_is_known_by_its_other_names(where: str) -> None:
    """Such a name finds the file of the library; a name of several or of missing orders is refused by name."""
    for name, own in NAMES[where].items():
        if own in built_in():
            assert read(name) == read(own), name
        else:
            with pytest.raises(PipeschedError) as told:
                read(name)
            assert own.lower() in str(told.value.diagnostics[0].help).lower(), name


def test_a_schedule_is_known_by_its_title() -> None:
    """The title of a library file in a report, such as `Chimera, two pairs`, finds the file."""
    for own in built_in():
        title = re.search(r'^schedule \w+ "(.*?)"', asset("schedules", f"{own}.ps").read_text("utf-8"), re.M)
        assert title and known_as(title[1]) == own


def test_there_are_many_names() -> None:
    """The library lists at least 60 names."""
    assert len({name for names in NAMES.values() for name in names}) >= 60


@pytest.mark.parametrize("name", TORCH)
def test_what_torch_calls_so_is_that_order(name: str) -> None:
    """The order is equal operation for operation, at several sizes, for every class that knows its order before it
    runs.
    """
    from tests.torch_fixtures import make  # imports torch, which nothing outside tests/runtime does on collection

    stages, own = TORCH[name]
    for ranks, microbatches in ((2, 4), (4, 8)):
        try:
            text, _ = make.torch_class(name, ranks, stages, microbatches)
        except AttributeError:
            continue
        asked = Options({"p": ranks, "m": microbatches, **own})
        theirs = emit(Source("x.csv", text), Options(), "order")
        assert [*emit(read(name), asked, "order").pieces()] == [*theirs.pieces()]


def test_names_are_different() -> None:
    """No name is in two rows or also a near miss, and no row has two files, so that no row hides another."""
    every = [plain(name) for row in ROWS for name in row]
    files = [plain(name) for name in built_in()]
    assert len(every) == len(set(every)) and not {x for x in every if known_as(x)} & set(NEAR)
    assert all(plain(name) == name for name in NEAR) and not set(files) & set(NEAR)
    assert len(files) == len(set(files)) and all(sum(name in map(plain, row) for name in files) <= 1 for row in ROWS)


def test_a_file_of_that_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of that name wins, with any content."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dapple").write_text("rank 0: F0.0 B0.0\n")
    assert main(["verify", "dapple"]) == 0
    shown = capsys.readouterr()
    assert "p=1 m=1" in shown.out and shown.err == ""


@pytest.mark.parametrize(("name", "own"), [("dapple", "1f1b"), ("ScheduleInterleavedZeroBubble", "interleaved_zb")])
def test_what_a_name_is_taken_for_is_said(name: str, own: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The meaning is shown on stderr, unless the name differs only in punctuation."""
    assert main(["verify", name, "--p", "2"]) == 0
    assert capsys.readouterr().err.startswith(f"{name} is {own} here")
    assert main(["verify", "ZB-H1", "--p", "2"]) == 0
    assert capsys.readouterr().err == ""


MISTAKES = (  # a command line, and words of its help
    ("verify 1f1b p=4", "`--p 4`"),
    ("verify 1f1b --m 8 p=4", "`--p 4`"),
    ("optimize m=8", "`--m 8`"),
    ("verify 1f1b -p 4", "`--p 4`"),
    ("verify 1f1b --p 4 -m 8", "`--m 8`"),
    ("verify 1f1b --pp 4", "`--p 4`"),
    ("verify 1f1b --p 4 --num-microbatches=8", "`--m 8`"),
    ("verify seq1f1b --p 4 --q 2", "`q` is a parameter of the schedule: write `-D q=2`"),
    ("verify seq1f1b --p 4 --q=2", "`-D q=2`"),
    ("verify 1f1b --p 4 --depth 2", "`pipesched verify --help`"),
    ("verify 1f1b --seq 4", "`pipesched verify --help`"),
    ("help verify", "write `pipesched verify --help`"),
    ("help", "write `pipesched --help`"),
    ("help PS401", "write `pipesched explain PS401`"),
    ("mine.ps --p 4", "did you mean `pipesched verify mine.ps`?"),
    ("nosuch mine.ps", "commands are verify, "),
    ("verify missing.csv", "does not contain a file with this name"),
    ("verify v_min.csv", "does not contain a file with this name"),
    ("verify v_half.ps", "did you mean `v_half`, the built-in schedule?"),
    ("verify tests/explain/test_aliasses.py", "did you mean `tests/explain/test_aliases.py`?"),
    ("verify tensorflow:1f1b", "frameworks are torch, "),
    ("verify touch:1F1B", "did you mean `torch:1F1B`?"),
    ("verify 1f1b --p 4 depth=2", "`-D depth=2`"),
    ("verify 1f1b 4", "`--p 4`"),
    ("verify 1f1b --p 4 --mem-cpa 3", "--mem-cap"),
    ("verify 1f1b --p 4 --comm nccl", "pair-stream"),
    ("verify 1f1b --p 4 --comm NCCL", "one-stream"),
    ("verify 1f1b --p 4 --comm gloo", "strict"),
    ("verify 1f1b --p 4 --comm one_stream", "did you mean one-stream?"),
    ("verify 1f1b --p 4 --mem-cap 80GB", "not bytes"),
    ("optimize --mem-cap 80GB", "`--mem-cap 8`"),
    ("optimize --mem-cap 40GiB..80GiB", "caps in bytes cannot form a range"),
    ("verify 1f1b --p 4 --mem-cap 50%", "activations"),
    ("verify 1f1b --p 4 --mem-cap none", "omit the option for no cap"),
    ("verify asynchronous --p 4", "schedules without a flush are `pipedream`"),
    ("verify BPipe --p 4", "`pipeoffload`"),
    ("verify zerobubble --p 4", "zb_h1"),
)


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_what_was_typed_is_told_as_it_is_to_be(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with status 2 and one finding, which shows the words to type."""
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert words in shown.err and len(re.findall(r"error\[PS\d+\]", shown.err)) == 1 and shown.out == ""


def test_the_functions_know_the_names_too() -> None:
    """Functions resolve names like the command line."""
    with mock.patch("sys.stdout", None):
        assert pipesched.verify("ScheduleGPipe", p=2).name == pipesched.load("GPipe", p=2).name == "gpipe"
