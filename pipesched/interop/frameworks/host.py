"""Requests a framework's schedule: the framework runs in a separate process, which returns one answer.

    record(call, options) ── a process ──> recording.main ──> Recorded: rows with source lines, version, notes

Every failure is reported as an error with a code, together with the last lines that the process printed.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict

from pipesched.common import child
from pipesched.diagnostics import Label, PipeschedError, budgeted, fail
from pipesched.interop.codes import InteropCode
from pipesched.interop.frameworks.frameworks import Call, Framework
from pipesched.interop.frameworks.recording import Recorded
from pipesched.support import files
from pipesched.support.budget import Spent
from pipesched.support.foreign import foreign, json_of, real
from pipesched.support.source import Source

if TYPE_CHECKING:
    from pipesched.interop.frameworks.recording import Line, Refusal, Request

TIME = 60.0
PATIENCE = 10.0  # seconds after the time limit in which the process may still end by itself
_SHOWN = 3  # most lines of its output, from the end, that an error shows
_MODULE = "pipesched.interop.frameworks.recording"


class Head(TypedDict):
    """How a process ended, and the last part of its output."""

    ended: str
    said: str


class Found(TypedDict, total=False):
    """The unchecked answer of the process: the fields of a recording, or an error and its kind."""

    error: str
    message: str
    help: str | None
    file: str
    shown: str
    line: int
    recorded: Mapping[str, Any]
    refused: list[Refusal]


def record(call: Call, options: Mapping[str, object], *, path: str | None = None, limit: float = TIME) -> Recorded:
    """Record the schedule that a call names. path: a folder of packages, or an environment.

    Raises:
        PipeschedError: PS850 if the framework is not installed; PS851 if its code raised an error; PS852 if it took too
            long; PS853 if it returned no order; PS854 if the fence refused an action; PS855: unknown name or option.
    """
    command, asked = _request(call, options, path, limit)
    head, body = _run(command, asked, limit)
    return _answer(call, options, _found(call, limit, head, body), _printed(head["said"]))


def _request(call: Call, options: Mapping[str, object], path: str | None, limit: float) -> tuple[list[str], Request]:
    """Return the command line that starts the process, and the request to send to the process.

    Raises:
        PipeschedError: PS850, PS855.
    """
    row, name = call.framework, call.text.partition(":")[2]
    strangers = [key for key in options if not row.open and key not in (*row.options, "p", "v", "m", "max-ops")]
    if strangers:
        known = "; ".join(f"-D {key}: {said}" for key, said in row.options.items())
        raise fail(InteropCode.FRAMEWORK_NAME, f"{row.name} has no option {', '.join(strangers)}", help=known or None)
    folders, command = _site(path)
    if row.name == "python" or ":" in name:
        file, _, function = name.rpartition(":")
        named = Path(file).absolute() if file.endswith(".py") else None
        if named and not os.path.isfile(named):
            here = Label(call.span(0, len(call.text)), "this is executed")
            raise fail(
                InteropCode.FRAMEWORK, f"{file} does not exist", here, help="paths are relative to the current folder"
            )
        name = f"{named}:{function}" if named else name
        folders = [str(named.parent if named else Path.cwd()), *folders]
    return command, {
        "name": name,
        "recorder": row.recorder,
        "options": dict(options),
        "limit": limit,
        "path": folders,
    }


def _site(path: str | None) -> tuple[list[str], list[str]]:
    """Return the folders to search before the installed packages, and the command line. path: as in `record`.

    Raises:
        PipeschedError: PS850 if `path` is not a folder.
    """
    command = child.command(_MODULE)
    if path is None:
        return [], command
    if not os.path.isdir(path):
        help = "name a folder of packages (pip install --target FOLDER), or an environment (python -m venv)"
        raise fail(InteropCode.FRAMEWORK, f"--framework-path {path} is not a folder", help=help)
    own = Path(path, "bin", "python").absolute()
    if own.exists():  # this Python may be too old for -P; every version has -I
        return [], [str(own), "-I", *command[2:]]
    return [str(Path(path).absolute())], command


def _run(command: list[str], asked: Request, limit: float) -> tuple[Head, bytes]:
    """Run the process; return how it ended, and its answer."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**environment, "PYTHONUTF8": "1"},
                start_new_session=True,
            )
        except OSError as error:
            reason = f"{command[0]} cannot be started: {(error.strerror or str(error)).lower()}"
            raise fail(
                InteropCode.FRAMEWORK, reason, help="--framework-path must name a folder or an environment"
            ) from None
        assert process.stdin is not None and process.stdout is not None
        head = body = b""
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            head, _, body = _all(process.stdout, limit + PATIENCE).partition(b"\n")
        except BrokenPipeError:
            pass  # it ended at once; its stderr is shown
        finally:  # when this pipe closes, the keeper kills all processes that it started
            process.stdin.close()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        errors.seek(0)
        complaint = errors.read(2**20).decode("utf-8", "replace")
    try:
        ended: Head = json_of(head)
    except (ValueError, Spent):
        return {"ended": "nothing", "said": complaint}, b""
    return ended, body


def _all(stream: IO[bytes], seconds: float) -> bytes:
    """Read a pipe to its end, or as much as arrives within `seconds`."""
    made, until = bytearray(), time.monotonic() + seconds
    while len(made) <= files.LARGEST and (left := until - time.monotonic()) > 0:
        if select.select([stream], [], [], min(left, 3600))[0]:
            block = os.read(stream.fileno(), 2**20)
            if not block:
                break
            made += block
    return bytes(made)


def _found(call: Call, limit: float, head: Head, body: bytes) -> Found:
    """Parse the answer of a process.

    Raises:
        PipeschedError: PS852 if the process took too long; PS853 if its answer is too large or missing.
    """
    here, printed = Label(call.span(0, len(call.text)), "this is executed"), _printed(head["said"])
    ended = head["ended"]
    if ended == "limit":
        help = "--framework-time SECONDS extends the limit"
        raise fail(
            InteropCode.GENERATOR_TIME, f"{call.name} did not end within {limit:g} s", here, notes=printed, help=help
        )
    if ended == "large":
        raise fail(InteropCode.NO_ORDER, f"{call.name} returned more data than any order needs", here, notes=printed)
    try:
        with budgeted(call):
            found: Found = json_of(body)
        assert isinstance(found, dict)
    except (ValueError, AssertionError):
        message = f"{call.name} returned nothing: its process ended with {ended}"
        raise fail(
            InteropCode.NO_ORDER, message, here, notes=printed, help="it must return or yield an order"
        ) from None
    return found


def _answer(call: Call, options: Mapping[str, object], found: Found, printed: tuple[str, ...]) -> Recorded:
    row, here = call.framework, Label(call.span(0, len(call.text)), "this is executed")
    given = {name: x for name, x in options.items() if name not in ("p", "v", "m", "max-ops")}
    settings = [f"{name}={str(x).lower() if isinstance(x, bool) else x}" for name, x in given.items()]
    if "error" in found:
        raise _failure(call, row, found, here, printed)
    made = Recorded(**found["recorded"])
    version, notes = foreign(made.version), [*made.notes]
    title = f"{row.package or call.text.partition(':')[2]} {version}".strip()
    title = " ".join([title, *(["with"] if settings else []), *settings])
    if row.tried and not version.startswith(tuple(row.tried)):
        tried = f"{row.tried[0]} to {row.tried[-1]}"
        notes.append(f"{row.package} {version or 'without a version'} is untested; tested versions are {tried}")
    refused = [f"it {one['message']}, which was refused{_at(one)}" for one in found["refused"]]
    said = tuple(map(foreign, (f"executed: {title}", *notes, *refused)))
    return replace(made, version=version, notes=said)


def _failure(call: Call, row: Framework, found: Found, here: Label, printed: tuple[str, ...]) -> PipeschedError:
    """Convert an error of the recorder to a PipeschedError at the framework's line that caused it."""
    kind, said, help = found["error"], found["message"], found.get("help")
    there = (*_line(found), here)
    match kind:
        case "unknown":
            return fail(InteropCode.FRAMEWORK_NAME, said, here, help=help)
        case "absent":
            needs = f"pip install {row.package}" if row.package else "install it, or put it into this folder"
            where = f"{needs}; or name its folder with --framework-path FOLDER"
            return fail(
                InteropCode.FRAMEWORK, f"{call.name} cannot be executed: {said}", *there, notes=printed, help=where
            )
        case "nonsense":
            gives = "return rows of cells or words, or a dict from rank to actions, or yield actions"
            return fail(
                InteropCode.NO_ORDER,
                f"{call.name} returned no order: {said}",
                *there,
                notes=printed,
                help=help or gives,
            )
        case "fence":
            can = "the code can read all files, but can write only to its temporary folder"
            return fail(InteropCode.FENCE, f"{call.name} {said}: refused", *there, notes=printed, help=can)
    if said.startswith("FileNotFoundError"):
        help = "its current folder is temporary: name files relative to __file__"
    return fail(InteropCode.GENERATOR, f"{call.name} raised {said}", *there, notes=printed, help=help)


def _line(found: Found) -> tuple[Label, ...]:
    """Return a label at the framework's source line that raised the error; empty if the file cannot be read."""
    if not found.get("file"):
        return ()
    try:
        source = Source(found["shown"], files.read(found["file"]).decode("utf-8"))
        start = source.line_starts[found["line"] - 1]
    except (OSError, ValueError, IndexError):
        return ()
    text = source.line(found["line"])
    begin = start + len(text) - len(text.lstrip())
    return (Label(source.span(begin, start + len(text)), "raised here"),)


def _at(one: Line) -> str:
    return f", at {one['shown']}:{one['line']}" if one.get("file") else ""


def _printed(said: str) -> tuple[str, ...]:
    lines = [line for line in real(said).splitlines() if line.strip()]
    return ("\n".join(["it printed:", *(f"| {foreign(line)}" for line in lines[-_SHOWN:])]),) if lines else ()
