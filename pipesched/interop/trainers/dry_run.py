"""Executes a script with bash, with its programs replaced by recorders of their arguments.

    torchrun, python, srun, deepspeed, accelerate, …    not started; their arguments are recorded
    srun … bash -c TEXT, sbatch FILE.sh, docker … bash  the inner shell runs, with the same recorders
    rm, cp, mv, mkdir, pip, git, curl, kill, …          do nothing
    cd, source, module, conda without their target      do nothing; the script continues, even under `set -eu`

All other commands run unchanged, and redirections write files. The recorders are bash functions, so a PATH that the
script sets has no effect; a program that is called by its path is caught by a DEBUG trap before it starts. The script
runs in a process group of its own, which is killed at its end, and has a time limit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipesched.diagnostics import Code, fail
from pipesched.interop.trainers.scripts import UNKNOWN
from pipesched.interop.trainers.tables import data

SECONDS = 20
_MOMENTS, _MOMENT = 50, 0.02
_MOST = 200  # most recorded commands
_LARGEST = 1 << 20  # most bytes of a record

_REPLACED = data("shell")["dry_run"]
PROGRAMS = _REPLACED["recorded"]
_ASSIGNED = r"""^[A-Za-z_][A-Za-z_0-9]*=([^[:space:]"'$`]*|"[^"]*"|'[^']*'|[$][{]?[A-Za-z_0-9]+[}]?)[[:space:]]+"""


@dataclass(frozen=True)
class Recorded:
    """The commands that a script would have started. asked: the programs with which it queried the machine. status: the
    exit status of bash, None if it reached the time limit.
    """

    commands: tuple[tuple[str, ...], ...]
    asked: tuple[str, ...]
    status: int | None


def dry_run(path: str, variables: Mapping[str, str], seconds: float = SECONDS) -> Recorded:
    """Execute a script with recorders instead of its programs.

    Raises:
        PipeschedError: PS820 if bash is not installed; PS809 if there is no such file.
    """
    bash = shutil.which("bash")
    if bash is None:
        raise fail(Code.NEEDS, "executing a script requires bash, which is not installed")
    if not os.path.isfile(path):
        raise fail(Code.UNREADABLE, f"cannot read {path}: no such file")
    with tempfile.TemporaryDirectory(prefix="pipesched-dry-run-") as folder:
        records = Path(folder) / "records"
        records.mkdir()
        environment = _environment(Path(folder), records, bash) | dict(variables)
        status = _executed([bash, path], environment, records, seconds)
        return _read(records, status)


def _environment(folder: Path, records: Path, bash: str) -> dict[str, str]:
    """Return the environment: every bash loads the recorders, and other programs find them first in PATH."""
    functions = {name: f'__pipesched_record {name} "$@"' for name in PROGRAMS}
    functions |= dict.fromkeys(_REPLACED["inert"], ":")
    functions |= {name: f"__pipesched_asked {name}" for name in _REPLACED["asked"]}
    functions |= dict.fromkeys(_REPLACED["shells"], '"$BASH" "$@"')
    made = "".join(f"{name}() {{ {body}; }}\nexport -f {name}\n" for name, body in functions.items())
    recorders = Path(__file__).with_name("dry_run.bash").read_text("utf-8")
    (folder / "prelude").write_text(f"{recorders}{made}set -T\ntrap '__pipesched_debug \"$@\"' DEBUG\n", "utf-8")
    programs = folder / "bin"
    programs.mkdir()
    for name in functions:
        (programs / name).write_text(f'#!{bash}\n{name} "$@"\n', "utf-8")
        (programs / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "BASH_ENV": str(folder / "prelude"),
        "__PIPESCHED_RECORDS": str(records),
        "__PIPESCHED_BEFORE": "",
        "__PIPESCHED_UNKNOWN": UNKNOWN,
        "__PIPESCHED_ASSIGNED": _ASSIGNED,
        "__PIPESCHED_PROGRAMS": " ".join(PROGRAMS),
        "__PIPESCHED_PYTHONS": " ".join(name for name in PROGRAMS if name.startswith(("python", "torchrun"))),
    }


def _executed(command: list[str], environment: Mapping[str, str], records: Path, seconds: float) -> int | None:
    """Run a command in its own process group, and kill the group; return its status, None at the time limit."""
    limits = f"ulimit -f 102400 -t {max(1, int(seconds))}; "
    process = subprocess.Popen(
        [command[0], "-c", f'{limits}builtin exec "$0" "$@"', *command],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    else:
        _settle(process.pid)
        return status
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _settle(group: int) -> None:
    """Wait a moment for background processes of a script, so that they are recorded."""
    for _ in range(_MOMENTS):
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(_MOMENT)


def _read(records: Path, status: int | None) -> Recorded:
    """Read the records in chronological order."""
    names = sorted(x for x in os.listdir(records) if not x.startswith("asked-"))[:_MOST]
    commands = []
    for name in names:
        file = records / name
        if file.stat().st_size <= _LARGEST:
            words = file.read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            commands.append(tuple(words))
    asked = sorted(x.removeprefix("asked-") for x in os.listdir(records) if x.startswith("asked-"))
    return Recorded(tuple(dict.fromkeys(commands)), tuple(asked), status)
