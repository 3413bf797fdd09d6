"""Execute a script by bash with its programs replaced by recorders of their arguments.

    torchrun, python, srun, deepspeed, accelerate, …    are not started; their arguments are recorded
    srun … bash -c TEXT, sbatch FILE.sh, docker … bash  the inner shell runs, with the same recorders
    rm, cp, mv, mkdir, pip, git, curl, kill, …          do nothing
    cd, source, module, conda without their target      do nothing, and the script goes on, also under `set -eu`

All other commands run as they are, and redirections write files. The recorders are functions of bash, so a PATH that
the script sets changes nothing; a program that is called by its path is caught by a DEBUG trap before it starts. The
script runs in a process group of its own, which is killed at its end, and has a time limit.
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

SECONDS = 20
_MOMENTS, _MOMENT = 50, 0.02
_MOST = 200  # recorded commands
_LARGEST = 1 << 20  # bytes of a record

PROGRAMS = (
    *("torchrun", "python", "python2", "python3", *(f"python3.{n}" for n in range(7, 16)), "deepspeed", "accelerate"),
    *("srun", "sbatch", "salloc", "mpirun", "mpiexec", "mpiexec.hydra", "horovodrun", "msrun", "colossalai", "pdsh"),
    *("ssh", "docker", "podman", "nerdctl", "singularity", "apptainer", "enroot", "kubectl", "ray", "uv", "poetry"),
    *("numactl", "taskset", "nsys", "ncu", "nohup", "timeout", "env", "setsid", "stdbuf", "sudo", "gdb"),
)
_SHELLS = ("sh", "dash", "zsh", "ksh")
_INERT = (
    *("rm", "rmdir", "cp", "mv", "mkdir", "touch", "ln", "chmod", "chown", "rsync", "scp", "tar", "unzip", "dd"),
    *("pip", "pip3", "conda", "mamba", "module", "ml", "spack", "apt", "apt-get", "yum", "git", "wget", "curl", "aws"),
    *(
        "gsutil",
        "hf",
        "huggingface-cli",
        "wandb",
        "kill",
        "killall",
        "pkill",
        "shutdown",
        "reboot",
        "scancel",
        "squeue",
    ),
    *("sleep", "ulimit", "sysctl", "mount", "umount", "ibstat", "ib_write_bw", "make", "gcc", "ninja"),
)
_ASKED = ("nvidia-smi", "rocm-smi", "npu-smi", "scontrol", "sinfo", "lscpu", "nproc")
"""Programs that query the machine, so that their output here would differ from that of the training machine."""

_ASSIGNED = r"""^[A-Za-z_][A-Za-z_0-9]*=([^[:space:]"'$`]*|"[^"]*"|'[^']*'|[$][{]?[A-Za-z_0-9]+[}]?)[[:space:]]+"""
_PRELUDE = r"""
__pipesched_record() {
  local name=$1 n; shift
  local words=("$@")
  case " $__PIPESCHED_PYTHONS " in *" $name "*) ;; *)
    for n in "${!words[@]}"; do
      case "${words[n]##*/}" in
        bash|sh|dash|zsh) __pipesched_shell "$name" "$n" "$@"; return 0 ;;
        *.sh|*.slurm|*.sbatch)
          if [ -f "${words[n]}" ]; then
            __PIPESCHED_BEFORE="$__PIPESCHED_BEFORE$(printf '%s\036' "$name" "${words[@]:0:n}")" \
              "$BASH" "${words[@]:n}"
            return 0
          fi ;;
      esac
    done ;;
  esac
  local file="$__PIPESCHED_RECORDS/$EPOCHREALTIME-$BASHPID-$RANDOM"
  { printf '%s' "$__PIPESCHED_BEFORE" | tr '\036' '\0'; printf '%s\0' "$name" "$@"; } > "$file"
  printf '%s\n' "$__PIPESCHED_UNKNOWN"
  return 0
}
__pipesched_shell() {
  local name=$1 n=$2; shift 2
  local words=("$@")
  __PIPESCHED_BEFORE="$__PIPESCHED_BEFORE$(printf '%s\036' "$name" "${words[@]:0:n}")" "$BASH" "${words[@]:n+1}"
}
__pipesched_asked() { : > "$__PIPESCHED_RECORDS/asked-$1"; printf '%s\n' "$__PIPESCHED_UNKNOWN"; }
__pipesched_is_program() {
  case "$1" in */*) ;; *) return 1 ;; esac
  case " $__PIPESCHED_PROGRAMS " in *" ${1##*/} "*) return 0 ;; *) return 1 ;; esac
}
__pipesched_debug() {
  shopt -s extdebug 2>/dev/null
  set -T +eu
  local __pipesched_c=$BASH_COMMAND __pipesched_f
  while [[ $__pipesched_c =~ $__PIPESCHED_ASSIGNED ]]; do
    __pipesched_c=${__pipesched_c:${#BASH_REMATCH[0]}}
  done
  __pipesched_f=${__pipesched_c%%[[:space:]]*}
  case "$__pipesched_f" in *'$('*|*'`'*|*=*|'[['*|'(('*) return 0 ;; *'$'*|*/*) ;; *) return 0 ;; esac
  eval "__pipesched_f=($__pipesched_f)" 2>/dev/null || return 0
  if __pipesched_is_program "${__pipesched_f[0]-}"; then eval "__pipesched_record $__pipesched_c"; return 1; fi
  if __pipesched_is_shell "${__pipesched_f[0]-}"; then eval "__pipesched_other $__pipesched_c"; return 1; fi
}
__pipesched_is_shell() {
  local first
  case "$1" in */sh|*/dash|*/zsh|*/ksh) return 0 ;; */*) ;; *) return 1 ;; esac
  [ -f "$1" ] && [ -r "$1" ] && IFS= read -r first < "$1" && case "$first" in '#!'*sh|'#!'*sh' '*) return 0 ;; esac
  return 1
}
__pipesched_other() {
  case "$1" in */sh|*/dash|*/zsh|*/ksh) shift ;; esac
  "$BASH" "$@"
}
__pipesched_run() { if __pipesched_is_program "$1"; then __pipesched_record "$@"; else "$@"; fi; }
cd() { builtin cd "$@" 2>/dev/null || true; }
pushd() { builtin pushd "$@" >/dev/null 2>&1 || true; }
popd() { builtin popd "$@" >/dev/null 2>&1 || true; }
source() { if [ -f "$1" ]; then builtin source "$@"; fi; }
exec() { if [ $# -gt 0 ]; then __pipesched_run "$@"; exit; fi; }
command() {
  case "${1-}" in -v|-V) builtin command "$@" ;; -p) shift; __pipesched_run "$@" ;; *) __pipesched_run "$@" ;; esac
}
xargs() {
  local flags
  while case "${1-}" in -[nPILdsa]) shift ;; -*) ;; *) false ;; esac; do flags=$__PIPESCHED_UNKNOWN; shift; done
  __pipesched_run "$@" $(cat) $flags
}
tee() { cat; }
command_not_found_handle() {
  case "$1" in python*|torchrun*) __pipesched_record "$@" ;; esac
  return 0
}
for __pipesched_f in __pipesched_record __pipesched_shell __pipesched_asked __pipesched_is_program \
  __pipesched_debug __pipesched_is_shell __pipesched_other __pipesched_run \
  cd pushd popd source exec command tee xargs command_not_found_handle; do export -f "$__pipesched_f"; done
"""


@dataclass(frozen=True)
class Recorded:
    """Commands that a script would have started. asked: programs it ran that query the machine.

    status: exit status of bash, None if its time limit was reached.
    """

    commands: tuple[tuple[str, ...], ...]
    asked: tuple[str, ...]
    status: int | None


def dry_run(path: str, variables: Mapping[str, str], seconds: float = SECONDS) -> Recorded:
    """Execute a script with recorders in place of its programs.

    Raises:
        PipeschedError: PS820, bash is not installed; PS809, there is no such file.
    """
    bash = shutil.which("bash")
    if bash is None:
        raise fail(Code.NEEDS, "a script is executed by bash, which is not installed")
    if not os.path.isfile(path):
        raise fail(Code.UNREADABLE, f"cannot read {path}: no such file")
    with tempfile.TemporaryDirectory(prefix="pipesched-dry-run-") as folder:
        records = Path(folder) / "records"
        records.mkdir()
        environment = _environment(Path(folder), records, bash) | dict(variables)
        status = _executed([bash, path], environment, records, seconds)
        return _read(records, status)


def _environment(folder: Path, records: Path, bash: str) -> dict[str, str]:
    """Environment in which every bash loads the recorders at its start, and other programs find them first in PATH."""
    functions = {name: f'__pipesched_record {name} "$@"' for name in PROGRAMS}
    functions |= dict.fromkeys(_INERT, ":") | {name: f"__pipesched_asked {name}" for name in _ASKED}
    functions |= dict.fromkeys(_SHELLS, '"$BASH" "$@"')
    made = "".join(f"{name}() {{ {body}; }}\nexport -f {name}\n" for name, body in functions.items())
    (folder / "prelude").write_text(f"{_PRELUDE}{made}set -T\ntrap '__pipesched_debug \"$@\"' DEBUG\n", "utf-8")
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
    """Run a command in a process group of its own, and kill the group; return its status, None if its time is over."""
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
    """Read the records in the order of their time."""
    names = sorted(x for x in os.listdir(records) if not x.startswith("asked-"))[:_MOST]
    commands = []
    for name in names:
        file = records / name
        if file.stat().st_size <= _LARGEST:
            words = file.read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            commands.append(tuple(words))
    asked = sorted(x.removeprefix("asked-") for x in os.listdir(records) if x.startswith("asked-"))
    return Recorded(tuple(dict.fromkeys(commands)), tuple(asked), status)
