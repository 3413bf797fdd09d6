"""The entry point, the only module that decides how a process ends.

    0 no error   1 an error in a file   2 a wrong command line, or an unreadable file   70 an internal error
    130 interrupted   141 the reader of our output closed the pipe (the status that a shell reports for any filter)

No traceback is shown unless PIPESCHED_DEBUG is set.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.pop(0)  # added by `python -m`: the current folder, whose json.py must not replace the library's

import contextlib
import gc
import os
from collections.abc import Sequence

CANNOT_WRITE, INTERNAL, INTERRUPTED, CLOSED_PIPE = 2, 70, 130, 141
_DIGITS = 4300  # most digits of a number that is read or written; the environment may set another limit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: the command line of the process) and return the exit status."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # halves the start-up time of numpy, which is used on one core
    sys.set_int_max_str_digits(_DIGITS)
    gc.set_threshold(50_000, 20, 20)  # trees and tokens make no cycles: collecting them took a fifth of the time
    try:
        from pipesched.shell.app import run  # imported here, so that an interrupt at start-up is also handled

        status = run(list(sys.argv[1:] if arguments is None else arguments))
        if sys.stdout is not None:
            sys.stdout.flush()
        if arguments is None:
            gc.freeze()  # the process ends: its last collections would take a tenth of the time of a short command
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return CLOSED_PIPE
    except Exception as error:
        if os.environ.get("PIPESCHED_DEBUG"):
            raise
        if not isinstance(error, OSError):
            said = " ".join(f"{type(error).__name__}: {error}".split())
            _say(f"error: internal: {said[:300]}; please report (PIPESCHED_DEBUG=1 shows where)")
            return INTERNAL
        _discard_output()  # an unreadable input has its own diagnostic; this error is about our output
        _say(f"error: cannot write: {error.strerror or error}")
        return CANNOT_WRITE
    return status


def _discard_output() -> None:
    """Redirect stdout to the null device, so that the interpreter's last flush does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(line: str) -> None:
    """Write a line to stderr, if stderr is open."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(line.encode("ascii", "replace").decode("ascii") + "\n")


if __name__ == "__main__":
    sys.exit(main())
