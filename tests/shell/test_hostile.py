"""Any hostile input gets a code within 5 CPU seconds and 1 GB of memory, and sends no escape codes to the terminal.

All cases of `hostile_cases` and `hostile_readers`, a process each: python -m tests.shell.test_hostile [WORDS OF A NAME]
"""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipesched import compile
from pipesched.__main__ import main as pipesched
from pipesched.diagnostics import Code, PipeschedError
from pipesched.stream import Instruction, Route, Stream, dumps
from pipesched.support import files
from pipesched.support.safe import safe
from pipesched.support.source import Source
from pipesched.verbs.verify import verify
from tests.depth import deep
from tests.makers.hostile_cases import BOTH, CASES, HEAD, Content, Hostile, lets
from tests.makers.hostile_readers import FOLDER, READERS
from tests.readers.typed import typed

ALL = {**CASES, **READERS}
CPU, MEMORY = 5.0, 1e9
STOPPED, ADDRESSES = 60, 6 * 2**30  # seconds of CPU, and bytes of address space, at which the kernel ends a case
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|^[ \t]*::[a-z]", re.MULTILINE)
QUICK = (
    "a rank that is half",
    "10 MB of signs",
    "CSV of zeros",
    "JSON of brackets",
    "/dev/zero",
    "costs of many denominators",
    "an escape for a schedule",
    "pickle of a large memo number",
    "recorded orders of blank lines",
    "trace packed by 10 GB",
    "costs by microbatch of many denominators",
    "YAML of 700 digits with Python's least limit",
)
NIGHTLY = (
    "10 MB of signs",
    "trace packed by 10 GB",
    "recorded orders of blank lines",
    "pickle of a large memo number",
    "YAML of 700 digits with Python's least limit",
)
TOP = "461168601842738790 * 10"  # 2**62 - 4
STEERING = "\x1b[31mred\x1b[0m\n::add-mask::x\nok  forged\x85\u202e\x00\ud800]]>&<\"'"


@dataclass(frozen=True)
class Ended:
    """The end of a process, and its resources."""

    status: int
    told: str
    seconds: float
    memory: float


def write(path: Path, content: Content) -> None:
    """Write a file in a separate process, so that its resources are not counted."""
    if content is None:
        return
    pid = os.fork()
    if pid == 0:
        made = content if isinstance(content, str | bytes) else content()
        path.write_bytes(made if isinstance(made, bytes) else made.encode())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0 and path.stat().st_size <= 11e6


def limited() -> None:
    """Kernel limits, beyond our own."""
    resource.setrlimit(resource.RLIMIT_CPU, (STOPPED, STOPPED))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def ended(case: Hostile, folder: Path) -> Ended:
    """Return the our process on the case."""
    beside = folder / "beside"
    beside.mkdir()
    for name, content in case.beside.items():
        write(beside / name, content)
    write(folder / case.file, case.content)
    file = case.file if case.content is None else str(folder / case.file)
    arguments = [x.replace(FOLDER, str(beside)) for x in case.arguments]
    command = [sys.executable, "-m", "pipesched", case.command, file, *arguments]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **case.environment},
            preexec_fn=limited,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        told = out.read().decode("utf-8", "surrogateescape")
    return Ended(process.returncode, told, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def fault(done: Ended, case: Hostile) -> str:
    """Return the fault of an answer, except for its time."""
    raw = RAW.search(done.told)
    if raw:
        return f"raw {raw[0]!r}"
    if done.status not in (0, 1, 2, 3, 4) or "internal" in done.told or "Traceback" in done.told:
        return f"status {done.status}"
    if done.status and case.command != "diff" and not re.search(r"\[PS\d{3}\]|PS\d{3}:", done.told):
        return "no code"
    return "" if done.memory <= MEMORY else f"{done.memory / 1e6:.0f} MB"


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.nightly if x in NIGHTLY else ()) for x in (QUICK if deep(1) == 1 else ALL)],
)
def test_a_hostile_file_is_answered(name: str, tmp_path: Path) -> None:
    """Coded, within limits, and safe to print; times are those of the issue, doubled for a busy machine.

    With ``--depth 2`` all cases; cases cut short by the budget of steps are tried below without a process.
    """
    done = ended(ALL[name], tmp_path)
    assert not fault(done, ALL[name]), done.told[:2000]
    assert done.seconds < 2 * CPU


@pytest.mark.parametrize(
    "item",
    [
        "let x = f39(1)",
        "require f39(1) > 0",
        "claim f39(1) > 0",
        "claim peak == 1 when f39(1) > 0",
        "costs F = f39(1)",
        "stage f39(9) on rank 0",
        "stage 1 on rank f39(0)",
        "rank f39(0) { F B }",
        "rank 1 { repeat f39(m) { F } }",
        "rank 1 { F[f39(0)] }",
        "rank 1 { F(f39(0)) }",
        "rank 1 { let x = f39(1) F }",
        "rank 1 { if f39(1) > 0 { F } }",
        "rank 1 { for k in 0 .. 9000000 { if f5(k) < 0 { F } } }",
        "claim f39(peak(0)) > 0",
    ],
)
def test_every_expression_is_in_the_budget(item: str) -> None:
    """2 ** 39 calls are refused anywhere, with the place and the limit."""
    report = verify(Source("a.ps", BOTH + lets() + item), compile.Options({"p": 2, "m": 2}, max_ops=10_000))
    (found,) = [x for x in report.diagnostics if x.code is Code.TOO_MANY_STEPS]
    assert found.labels[0].span is not None and "--max-ops" in str(found.help)


@pytest.mark.parametrize(
    "large", [f"{TOP} + 4", f"{TOP} + 4 - 1 + 1", f"0 - {TOP} - 4", "x + x", "x * 2", "x - (0 - x)"]
)
@pytest.mark.parametrize(
    "item", ["let y = {}", "require {} != 0", "claim {} != 0", "rank 1 {{ repeat {} {{ F }} }}", "costs C = {}"]
)
def test_no_result_leaves_62_bits(item: str, large: str) -> None:
    """Sums as well as products are refused, anywhere."""
    text = HEAD + "rank r { F B }\nlet x = 461168601842738790 * 9\n" + item.format(large)
    report = verify(Source("a.ps", text), compile.Options({"p": 2, "m": 1}))
    assert Code.OVERFLOW in {found.code for found in report.diagnostics}, report.text()


@pytest.mark.nightly
def test_a_call_in_a_call_names_the_innermost() -> None:
    """The bindings of the loops and of one call, however deep."""
    text = HEAD + lets() + "rank r { for j in 0 .. 1 { repeat f39(j + 900000000000000000) { F } } }"
    report = verify(Source("a.ps", text), compile.Options({"p": 1, "m": 1}))
    assert all(d.labels[0].message.count(" = ") <= 2 for d in report.diagnostics), report.text()


def test_sums_within_62_bits_are_right() -> None:
    """The largest numbers are right, and so are sums without a larger intermediate one."""
    text = HEAD + "rank r { F B }\nlet x = 461168601842738790 * 10 + 3\nclaim x - 1 + 1 == x and 0 - x < 0 - x + 1"
    assert verify(Source("a.ps", text), compile.Options({"p": 2, "m": 1})).ok


def steering_stream() -> str:
    """Return a stream whose names try everything."""
    name = STEERING.replace("\ud800", "")
    program = ((Instruction("F", 0, 0), Instruction("B", 0, 0), Instruction("REDUCE_GRAD", 0), Instruction("STEP")),)
    return dumps(Stream(name, {name: 1, "m": 1}, (Route("", (0,), (0, 1)),), program))


@pytest.mark.parametrize("format", ["text", "svg", "html", "trace", "dag", "csv"])
def test_names_of_a_file_cannot_steer(format: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Names steer no picture, terminal or annotation; XML and JSON are well-formed."""
    path = tmp_path / "a.json"
    path.write_text(steering_stream(), "utf-8")
    pipesched(["show", str(path), "--format", format])
    told = capfd.readouterr().out
    assert ("red" in told or format == "csv") and not RAW.search(told)
    if format == "svg":
        ElementTree.fromstring(told)
    for arguments in (
        ["verify", str(path)],
        ["verify", str(path), "--format", "github"],
        ["why", str(path)],
        ["compare", str(path), str(path)],
        ["emit", str(path)],
    ):
        pipesched(arguments)
        said = capfd.readouterr()
        assert "red" in said.out and not RAW.search(
            (said.out + said.err).replace("::error ", "").replace("::warning ", "")
        )


def test_graphs_of_steering_names_are_well_formed(tmp_path: Path) -> None:
    """GraphML is well-formed too."""
    path = tmp_path / "a.json"
    path.write_text(steering_stream(), "utf-8")
    pipesched(["show", str(path), "--format", "dag", "--to", "graphml", "-o", str(tmp_path / "a.graphml")])
    assert (
        "red" in str(ElementTree.parse(tmp_path / "a.graphml").getroot().attrib) + (tmp_path / "a.graphml").read_text()
    )


@pytest.mark.parametrize("form", ["line", "xml", "annotation", "property", "dot", "ascii-json"])
def test_ordinary_text_stays_readable(form: str) -> None:
    """Words of any script, joined letters and emoji are shown as they are."""
    text = "déjà vu — 東京 עברית हिन्दी می‌خواهم 👩‍👩‍👧 ½ ≤ 5 €"
    shown = safe(text, form)  # type: ignore[arg-type]
    assert (
        shown
        if form != "ascii-json"
        else shown.encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")
    ) == text


def test_a_tab_keeps_the_caret_right() -> None:
    """The mark is below its text, whatever precedes it on the line."""
    report = verify(Source("a.ps", HEAD + "rank r {\tF\t$ }\n"), compile.Options({"p": 1, "m": 1}))
    lines = report.text().splitlines()
    shown = next(i for i, line in enumerate(lines) if "$ }" in line)
    assert lines[shown].index("$") == lines[shown + 1].index("^")


def test_steering_characters_are_no_part_of_a_schedule() -> None:
    """Steering characters are refused in comments too, where a reviewer would read a different program."""
    for character in "\x1b\x07\x85\u202e\u2066":
        report = verify(Source("a.ps", BOTH + f"# a {character} comment\n"), compile.Options({"p": 1, "m": 1}))
        assert [found.code for found in report.diagnostics] == [Code.CHARACTER]


def test_special_files_are_read_as_far_as_they_can_be(tmp_path: Path) -> None:
    """A pipe without a writer, a socket, and a pipe with a late and slow writer are read."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(PipeschedError, match="nothing writes to the pipe"):
        compile.read(str(pipe))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(PipeschedError, match="PS809"):
            compile.read(str(tmp_path / "socket"))

    def writes() -> None:
        with pipe.open("w") as stream:
            stream.write(HEAD)
            stream.flush()
            time.sleep(0.2)
            stream.write("rank r { F }")

    writer = threading.Thread(target=writes)
    writer.start()
    assert compile.read(str(pipe)).text == HEAD + "rank r { F }"
    writer.join()


EMIT = ("emit", "1f1b", "--p", "2", "--m", "2", "--target", "torch-csv", "-o")


@pytest.mark.parametrize("target", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_results_go_to_descriptors(target: str, tmp_path: Path) -> None:
    """Results are appended to a descriptor's file or pipe, after earlier content."""
    expected = typed(*EMIT, "-").out
    from_us, to_us = os.pipe()
    with open(from_us, "rb") as given, open(to_us, "wb") as pipe, (tmp_path / "out").open("wb") as out:
        out.write(b"before\n")
        for stream in (pipe, out):
            stream.flush()
            assert typed(*EMIT, target.format(stream.fileno())).status == 0
        pipe.close()
        assert given.read() == expected
    assert (tmp_path / "out").read_bytes() == b"before\n" + expected


def test_results_go_to_the_output_and_a_pipe_of_the_shell(tmp_path: Path) -> None:
    """Results go to /dev/stdout and to a process substitution as to a file."""
    mine = " ".join([sys.executable, "-m", "pipesched", *EMIT])
    shell = f"{mine} >(cat > {tmp_path}/piped); wait $!; exec {mine} /dev/stdout"
    assert subprocess.run(["bash", "-c", shell], capture_output=True, check=True).stdout == typed(*EMIT, "-").out
    expected, limit = typed(*EMIT, "-").out, time.monotonic() + 10
    while (tmp_path / "piped").read_bytes() != expected and time.monotonic() < limit:
        time.sleep(0.01)
    assert (tmp_path / "piped").read_bytes() == expected


def test_a_run_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    """The killed run leaves nothing in place of the file, and the next run writes it."""
    target = tmp_path / "out.txt"
    pieces = "(os.kill(os.getpid(), 9) for _ in 'x')"
    code = f"import os\nfrom pipesched.support import files\nfiles.replace({str(target)!r}, {pieces})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert not target.exists()
    files.replace(str(target), [b"whole"])
    assert target.read_bytes() == b"whole"


def test_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    """Whoever is last, the file is whole, and nothing else is left."""
    target = str(tmp_path / "out.txt")
    code = f"from pipesched.support import files\nfor _ in range(200): files.replace({target!r}, [b'x' * 1000] * 10)"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [10_000]


def main() -> int:
    wanted = [name for name in ALL if all(word in name for word in sys.argv[1:])]
    wrong = 0
    slowest = largest = (0.0, "")
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            done = ended(ALL[name], Path(folder))
        problem = fault(done, ALL[name]) or ("" if done.seconds <= CPU else "slow")
        wrong += bool(problem)
        slowest, largest = max(slowest, (done.seconds, name)), max(largest, (done.memory / 1e6, name))
        code = re.search(r"PS\d{3}", done.told)
        print(
            f"{problem or 'good':8} {name:52} status {done.status}  {code[0] if code else '':5}  "
            f"{done.seconds:5.2f} s  {done.memory / 1e6:4.0f} MB",
            flush=True,
        )
    print(f"slowest {slowest[0]:.2f} s: {slowest[1]}; largest {largest[0]:.0f} MB: {largest[1]}")
    print(f"{len(wanted)} cases, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
