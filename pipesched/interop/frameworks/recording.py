"""The process in which a framework runs: a keeper, which needs only the standard library, and its child, the recorder.

    host ── request ──> keeper ── fork ──> recorder: `fence`, import, record(name, options) -> Recorded
         <── answer ───        <── answer, and its output

The keeper ends after its time limit, or when the host has ended; every process that the recorder started is then
killed. A guard, the parent of the keeper, kills them if the keeper itself is killed. HOME and the current folder are
temporary. The code of a generator runs with the rights of the user.

The interpreter may differ from the host's, so this file and all recorders run on Python 3.9.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypedDict

from pipesched.common.functions import Unknown
from pipesched.interop.frameworks import fence

if TYPE_CHECKING:
    from pipesched.interop.frameworks.kept import Kept

LARGEST = 256 * 2**20  # most bytes of an answer
SAID = 4096  # last bytes of the output that are kept
FOLDERS: list[str] = []  # folders searched for modules before the installed packages
_HERE = os.path.dirname(os.path.abspath(__file__))
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


Options = Mapping[str, "str | float"]
Place = tuple[str, int]


class Line(TypedDict, total=False):
    """A line of source code. shown: the path of its file, relative to the folder of its package."""

    file: str
    shown: str
    line: int


class Refusal(Line, total=False):
    """An action of the code that the fence refused, and its line."""

    message: str


class Request(TypedDict):
    """The request for a schedule. recorder: the name of the module in this folder that records the framework. limit:
    the time limit in seconds. path: folders to search before the installed packages.
    """

    name: str
    recorder: str
    options: dict[str, object]
    limit: float
    path: list[str]


@dataclass
class Recorded:
    """The result of a recorder.

    rows: for each rank, words of the order notation or cells of torch's CSV, as a string or a list. places: for each
    word or cell of each row, the file (`shown`) and line at which the framework created it, or None; brackets count as
    words. version: the version of the framework; empty if it has none. notes: assumptions, as sentences. kept: for each
    rank, the spans during which buffers hold microbatches. later: True if a rank computes between a post and its wait.
    calls: the lines of a file of calls on engines, if parts were recorded. called: for each of these lines, the place
    of each word.

    A recorder is a module of this folder with ``record(name, options) -> Recorded``. The options are the given sizes p,
    v and m, the options of ``-D``, and `max-ops`, the limit on operations, which ``-D`` cannot set. It raises `Unknown`
    for a name, a size or an option that it does not have, and `Nonsense` for a result that is not an order; every error
    of the framework passes through.
    """

    rows: Sequence[str | Sequence[str]]
    places: Sequence[Sequence[Place | None]] = ()
    version: str = ""
    notes: Sequence[str] = ()
    kept: Sequence[Sequence[Kept]] = ()
    later: bool = False
    calls: Sequence[str] = ()
    called: Sequence[Sequence[Place | None]] = ()

    @classmethod
    def of(
        cls, found: Iterable[Sequence[tuple[str, Place | None]]], version: str = "", *, later: bool = False
    ) -> Recorded:
        """Return a recording. found: for each rank, its words, each with the file and line that created it."""
        rows = [*found]
        places = [[at for _, at in row] for row in rows]
        return cls([[word for word, _ in row] for row in rows], places, version, later=later)


class Nonsense(Exception):
    """Raised if the result of a generator is not an order. help: the remedy, unless it is simply to return an order."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.help = help


class Refused(PermissionError):
    """Raised if the fence refuses an action of the code."""


def needed(options: Options, *names: str) -> list[int]:
    """Return the sizes with these names (p, m, …).

    Raises:
        Unknown: if a size is not given.
    """
    for name in names:
        if name not in options:
            raise Unknown(f"{name} is not given", f"give it: `--{name} N`")
    return [int(options[name]) for name in names]


def version_of(package: str) -> str:
    """Return the version of an installed package, empty if it is unknown."""
    try:
        return installed(package)
    except PackageNotFoundError:
        return ""


def main() -> None:
    """Guard a keeper: when it ends for any reason, kill its processes and remove its files."""
    folder = tempfile.mkdtemp(prefix="pipesched-")
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keeper = os.fork()
    if keeper == 0:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        keep(folder)
        return
    try:
        status = os.waitpid(keeper, 0)[1]
    finally:
        _end(keeper)
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(int(status != 0))


def keep(folder: str) -> None:
    """Run a recorder and answer the host. The request is one line on stdin, which stays open while the host runs."""
    request = json.loads(sys.stdin.readline())
    answer, answers = os.pipe()
    said, says = os.pipe()
    recorder = os.fork()
    if recorder == 0:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(says, 1)
        os.dup2(says, 2)
        for descriptor in (answer, said, says):
            os.close(descriptor)
        _record(request, folder, answers)
    os.close(answers)
    os.close(says)
    try:
        ended, made, printed = _keep(recorder, answer, said, request["limit"])
    finally:
        _end(recorder)
    print(json.dumps({"ended": ended, "said": printed.decode("utf-8", "replace")}), flush=True)
    sys.stdout.buffer.write(made)
    sys.stdout.flush()


def _keep(recorder: int, answer: int, said: int, limit: float) -> tuple[str, bytes, bytes]:
    """Wait for a recorder; return how it ended, its answer, and the last bytes of its output."""
    until, made, printed = time.monotonic() + limit, bytearray(), bytearray()
    pipes = select.poll()
    for descriptor in (0, answer, said):
        pipes.register(descriptor, select.POLLIN | select.POLLHUP)
    ended = ""
    while True:
        for descriptor, _ in pipes.poll(20):
            block = os.read(descriptor, 2**20)
            if descriptor == said:
                printed += block
                del printed[:-SAID]
            elif descriptor == answer:
                made += block
            elif not block:
                raise SystemExit(1)  # the host is gone
            if not block:
                pipes.unregister(descriptor)
            if len(made) > LARGEST:
                return "large", b"", bytes(printed)
        if ended:
            return ended, bytes(made), bytes(printed)
        if time.monotonic() > until:
            return "limit", b"", bytes(printed)
        done, status = os.waitpid(recorder, os.WNOHANG)
        if done:  # loop once more, to read the rest of the pipes
            ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"


def _end(recorder: int) -> None:
    """Kill the recorder and every process that it started; orphans are found as children of the keeper."""
    for _ in range(1000):
        with suppress(OSError):
            os.killpg(recorder, signal.SIGKILL)
        for process in _descendants():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        time.sleep(0.002)


def _descendants() -> list[int]:
    """Return the process ids of all descendants, empty if the system has no /proc."""
    parent = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    parent[int(name)] = int(stream.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found = [os.getpid()]
    for process in found:
        found += [child for child, above in parent.items() if above == process]
    return found[1:]


def _prctl(option: int, value: int) -> None:
    """Call Linux's prctl; on other systems do nothing, and rely on the process group."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _record(request: Request, folder: str, answers: int) -> NoReturn:
    """Run the recorder: write one answer, then exit immediately, without the exit handlers of other modules."""
    refused: list[Refusal] = []
    status, mine = 1, os.getpid()
    try:
        with os.fdopen(answers, "w", encoding="utf-8") as stream:
            answer = _answer(request, folder, refused)
            if os.getpid() != mine:  # a process that the code forked, which reached this line by an error
                os._exit(status)
            json.dump({**answer, "refused": refused[:3]}, stream)
            status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _answer(request: Request, folder: str, refused: list[Refusal]) -> dict[str, object]:
    """Record the schedule; return the recording, or the error that prevented it."""
    try:
        os.chdir(folder)
        os.environ.update(HOME=folder, TMPDIR=folder, CUDA_VISIBLE_DEVICES="")
        os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # set by a caller that has imported torch
        tempfile.tempdir = folder
        sys.dont_write_bytecode = True
        FOLDERS[:] = request["path"]
        at = next((i for i, entry in enumerate(sys.path) if "-packages" in entry), len(sys.path))
        sys.path[at:at] = FOLDERS  # before the installed packages, but after the standard library
        _fence(folder, refused)
        recorder = import_module(f"pipesched.interop.frameworks.{request['recorder']}")
        found = asdict(recorder.record(request["name"], request["options"]))
        json.dumps(found)
    except BaseException as error:
        return {"error": _kind(error), "message": _said(error), "help": getattr(error, "help", None), **_place(error)}
    return {"recorded": found}


def _fence(folder: str, refused: list[Refusal]) -> None:
    """Refuse every change outside of a folder, and record the line that attempted it."""

    def refuse(what: str) -> NoReturn:
        refused.append({**_frame(sys._getframe(2)), "message": what})
        raise Refused(what)

    fence.close(folder, refuse)


def _kind(error: BaseException) -> str:
    kinds = {"Unknown": Unknown, "Nonsense": Nonsense, "fence": Refused, "absent": ImportError, "exit": SystemExit}
    return next((name.lower() for name, kind in kinds.items() if isinstance(error, kind)), "raised")


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())[:400]
    if isinstance(error, (Unknown, Nonsense, Refused)):
        return text
    if isinstance(error, MemoryError):
        text = text or f"a process is limited to {fence.MEMORY >> 30} GiB"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> Line:
    """Return the innermost line of an error's traceback that is neither in pipesched nor in the standard library."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        return _at(error.filename, error.lineno or 1)
    theirs = [(frame, line) for frame, line in frames if _theirs(frame.f_code.co_filename)]
    return _at(theirs[-1][0].f_code.co_filename, theirs[-1][1]) if theirs else {}


def _frame(frame: FrameType | None) -> Line:
    """Return the file and line of the innermost frame that belongs neither to pipesched nor to the standard library."""
    while frame is not None and not _theirs(frame.f_code.co_filename):
        frame = frame.f_back
    return {} if frame is None else _at(frame.f_code.co_filename, frame.f_lineno)


def _at(file: str, line: int) -> Line:
    return {"file": file, "shown": shown(file), "line": line}


def _theirs(file: str) -> bool:
    library = sysconfig.get_path("stdlib") + os.sep
    installed = ("site-packages", "dist-packages")
    standard = file.startswith(library) and not any(name in file for name in installed)
    return not (file.startswith((_HERE, "<")) or standard)


def shown(file: str) -> str:
    """Return the path of a file relative to the folder of its package."""
    around = [entry + os.sep for entry in sys.path if entry and file.startswith(entry + os.sep)]
    return file[len(max(around, key=len)) :] if around else file
