"""`pipesched emit` verifies what it writes, writes a complete file or nothing, and emits a large schedule rank by
rank."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched import stream
from pipesched.__main__ import main
from pipesched.shell.app import commands

BAD = "rank 0: F0.0 F0.1 B0.0\nrank 1: F1.0 F1.1 B1.0 B1.1\n"
LARGE = ("interleaved", "--p", "64", "--v", "4", "--m", "1024")


EMIT = Path(__file__).resolve().parents[2] / "emit"
REPORT, STREAM = (
    Draft202012Validator(json.loads((EMIT / f"{name}.schema.json").read_text("utf-8")))
    for name in ("report", "v2/stream")
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "PIPESCHED_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def emit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run emit: status, stdout, stderr."""
    status = main(["emit", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_json_of_the_contract_follows_its_schemas() -> None:
    """Every json block of emit/README.md is a stream, a part of one, or a report, with right fingerprints."""
    blocks = re.findall(r"^```json\n(.*?)^```$", (EMIT / "README.md").read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 2
    for data in map(json.loads, blocks):
        (STREAM if "version" in data else REPORT).validate(data)
        if "instructions" in data:
            whole = {**data, "ranks": [data["instructions"]]}
            assert stream.loads(json.dumps(whole)).fingerprint == data["fingerprint"]


def test_the_contract_names_every_instruction_with_its_fields() -> None:
    """The table of instructions agrees with the reader, and so does its order of fields."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([a-z, ]*)\|", (EMIT / "README.md").read_text("utf-8"), re.M)
    told = {name: tuple(re.findall("[a-z]+", fields)) for name, fields in rows}

    assert told == {op: tuple(x for x in fields if x != "route") for op, fields in stream.FIELDS.items()}


def test_the_tables_name_every_key_of_the_report() -> None:
    """Every key of the schema is described."""
    text = (EMIT / "README.md").read_text("utf-8")
    kinds = ("report", "diagnostic", "label", "communication", "memory", "time", "claim")
    keys = {key for kind in kinds for key in REPORT.schema["$defs"][kind]["properties"]}

    assert "`K_decimal`" in text  # documented once, for every key K
    assert [key for key in sorted(keys) if f"`{key.removesuffix('_decimal')}`" not in text] == []


def test_the_tables_have_every_command() -> None:
    """The --json output of every command is described, and begins with `ok`; `lsp` has its own protocol."""
    part = (EMIT / "README.md").read_text("utf-8").partition("## JSON of the commands")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", part.partition("### The other commands")[2], re.M))

    assert {*rows, *re.findall(r"^### `(\w+) --json`", part, re.M)} == set(commands()) - {"lsp"}
    assert all(row.startswith("`ok`") for row in rows.values())


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_a_stream_goes_to_stdout(output: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout has only the stream; its fingerprint is right."""
    status, text, said = emit(capsys, "zb_h1", "--p", "3", "--m", "4", *output)

    assert (status, said) == (0, "")
    assert stream.dumps(stream.loads(text)) == text
    assert stream.loads(text).parameters == {"p": 3, "m": 4}


def test_a_file_appears_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has the same bytes as stdout and the mode of the previous file, and no other file is left beside it."""
    target = folder / "out.json"
    target.write_text("old")
    target.chmod(0o640)
    _, text, _ = emit(capsys, "1f1b", "--p", "3")

    assert emit(capsys, "1f1b", "--p", "3", "-o", "out.json") == (0, "", "")
    assert target.read_text() == text and target.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in folder.iterdir()] == ["out.json"]


def test_emitted_is_verified(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """emit | verify - has no finding; emit | emit - gives the same bytes."""
    _, text, _ = emit(capsys, "dualpipe", "--p", "4")
    for arguments, expected in (
        (["verify", "-", "--json"], None),
        (["emit", "-"], text),
        (["emit", "-", "--target", "program"], None),
    ):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert expected is None or out == expected
        assert arguments[0] != "verify" or json.loads(out)["diagnostics"] == []
    assert main(["emit", "dualpipe", "--p", "4", "--target", "program"]) == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize("target", ["stream", "torch-csv", "torch-comms"])
@pytest.mark.parametrize("where", [["-o", "out"], ["--per-rank", "out"], []])
def test_what_is_wrong_is_not_written(
    target: str, where: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The findings of verify go to stderr, exit status 1, and no file is written."""
    (folder / "bad.txt").write_text(BAD)
    status, out, said = emit(capsys, "bad.txt", "--target", target, *where)

    assert (status, out) == (1, "")
    assert said.startswith("error[PS301]: stage 0 never runs") and said.endswith("1 error in bad.txt\n")
    assert [path.name for path in folder.iterdir()] == ["bad.txt"]


def test_options_of_verify_decide(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With too small a cap, a model under which the schedule deadlocks, or invalid costs, nothing is emitted."""
    assert emit(capsys, "gpipe", "--p", "2", "--m", "4", "--mem-cap", "3")[:2] == (1, "")
    assert emit(capsys, "gpipe", "--p", "2", "--m", "4", "--mem-cap", "4")[0] == 0
    assert emit(capsys, "gpipe", "--p", "2", "--cost", "F=x")[:2] == (2, "")
    assert emit(capsys, "gpipe", "--p", "2", "--cost", "F=[1,2,3]")[:2] == (2, "")


def test_a_missing_file_is_status_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file is the command line's fault, as everywhere."""
    for arguments in (
        ["none.ps"],
        ["1f1b", "--p", "2..4"],
        ["1f1b", "--p", "2", "-o", "a", "--per-rank", "b"],
        ["1f1b", "--p", "2", "-o", "no/such/folder/file"],
        ["1f1b", "--p", "2", "--per-rank", "file/inside"],
    ):
        (folder / "file").write_text("")
        status, out, said = emit(capsys, *arguments)
        assert (status, out) == (2, "") and said.startswith("error["), arguments


def test_one_file_a_rank(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file has its rank's instructions and the common fingerprint; for torch the rows, which make up the file."""
    _, text, _ = emit(capsys, "1f1b", "--p", "3", "--m", "3")
    assert emit(capsys, "1f1b", "--p", "3", "--m", "3", "--per-rank", "parts")[0] == 0
    parts = [json.loads((folder / "parts" / f"rank{rank}.json").read_text()) for rank in range(3)]
    assert [part["instructions"] for part in parts] == json.loads(text)["ranks"]
    assert {part["fingerprint"] for part in parts} == {json.loads(text)["fingerprint"]}

    _, rows, _ = emit(capsys, "1f1b", "--p", "3", "--m", "3", "--target", "torch-csv")
    status, _, said = emit(capsys, "1f1b", "--p", "3", "--m", "3", "--target", "torch-csv", "--per-rank", "rows")
    assert status == 0 and "one file" in said
    assert "".join((folder / "rows" / f"rank{rank}.csv").read_text() for rank in range(3)) == rows


def test_a_part_is_no_stream_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """verify on the part of a rank asks for the whole."""
    emit(capsys, "1f1b", "--p", "2", "--per-rank", "parts")

    assert main(["verify", "parts/rank0.json"]) == 1
    assert "this is the file of one rank" in capsys.readouterr().out


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON is one object: the text, or the files; the report if something is wrong."""
    _, text, _ = emit(capsys, "1f1b", "--p", "2", "--target", "torch-csv")
    status, out, said = emit(capsys, "1f1b", "--p", "2", "--target", "torch-csv", "--json")
    told = json.loads(out)
    assert (status, said) == (0, "")
    assert (told["ok"], told["text"], told["files"], told["diagnostics"]) == (True, text, [], [])
    assert any("1F1B" in line for line in told["settings"])

    told = json.loads(emit(capsys, "1f1b", "--p", "2", "--json", "-o", "a.json")[1])
    assert (told["text"], told["files"]) == (None, ["a.json"])

    (folder / "bad.txt").write_text(BAD)
    status, out, _ = emit(capsys, "bad.txt", "--json")
    assert status == 1 and [x["code"] for x in json.loads(out)["diagnostics"]] == ["PS301"]
    assert emit(capsys, "bad.txt", "--format", "github")[1].startswith("::error ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["1f1b", "--p", "4"],
            [
                "torchtitan 0.2.2, in its TOML file:\n  [parallelism]\n  pipeline_parallel_degree = 4\n",
                "\n  [training]\n  local_batch_size = 8 ",
                "torchtitan 0.3.0, on its command line: --parallelism.pipeline_parallel_degree 4 "
                "--parallelism.pipeline_parallel_schedule 1F1B "
                "--parallelism.pipeline_parallel_schedule_csv order.csv --training.local_batch_size 8\n",
            ],
        ),
        (
            ["zb_h1", "--p", "4"],
            ["with I and W, as in this file, torchtitan 0.3.0 on torch 2.15 silently leaves the last norm"],
        ),
        (["interleaved", "--p", "4", "--v", "3"], ['"PipelineScheduleMulti"', "has 12 stages, 3 per rank"]),
        (["vee.txt"], ['"ZBVZeroBubble"', "2 stages per rank"]),
        (["wave.txt"], ["torchtitan cannot build this placement (ranks by stage: 1,0)", "n_microbatches=1"]),
    ],
)
def test_settings_of_the_trainer_go_to_stderr(
    arguments: list[str], words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a placement, stderr names the schedule with which torchtitan builds these stages on these ranks."""
    (folder / "vee.txt").write_text("rank 0: F0.0 F3.0 B3.0 B0.0\nrank 1: F1.0 F2.0 B2.0 B1.0\n")
    (folder / "wave.txt").write_text("rank 0: F1.0 B1.0\nrank 1: F0.0 B0.0\n")
    status, out, said = emit(capsys, *arguments, "--target", "torch-csv", "-o", "order.csv")

    assert (status, out) == (0, "")
    assert all(word in said for word in words), said
    assert ("with I and W" in said) == (arguments[0] == "zb_h1")
    assert "num_pp_microbatches" not in said
    assert emit(capsys, *arguments)[2] == ""


@pytest.mark.parametrize("target", ["torch-csv", pytest.param("stream", marks=pytest.mark.nightly)])
def test_a_large_schedule_is_emitted_a_rank_at_a_time(target: str, tmp_path: Path) -> None:
    """For 0.5 million cells and 1.6 million instructions the process needs little more memory than the columns."""
    code = (
        "import sys; from pipesched.__main__ import main; status = main(sys.argv[1:]); "
        "own = next(line for line in open('/proc/self/status') if line.startswith('VmHWM')); "  # not the parent's
        "print(own.split()[1], file=sys.stderr); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, "emit", *LARGE, "--target", target, "-o", str(tmp_path / "out")]
    done = subprocess.run(
        command, check=True, stderr=subprocess.PIPE, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    assert int(done.stderr.split()[-1]) < 500 * 1024
