"""Runs a command line in this process with the given input, and returns its output as bytes and its exit status.

It saves the start of an interpreter and of torch. Limits, signals, closed pipes and a working `-m`, which need a
process, are tried by `test_cli_streams.py`, `test_hostile.py` and `test_isolation.py`.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from pipesched.__main__ import main


@dataclass(frozen=True)
class Typed:
    """The exit status, and the text of each stream; `shown`: of both, line by line, as a terminal gets it."""

    status: int
    out: bytes
    err: bytes
    shown: bytes


class _Pipe(io.RawIOBase):
    """An end of a pipe: flushed text goes to all its readers."""

    def __init__(self, *readers: bytearray) -> None:
        self.readers = readers

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        for reader in self.readers:
            reader.extend(data)
        return len(bytes(data))


def typed(*arguments: str, stdin: bytes = b"", encoding: str = "utf-8") -> Typed:
    """Run `pipesched` with these arguments and this input; its output is not a terminal and has this encoding."""
    out, err, shown = bytearray(), bytearray(), bytearray()
    stdout = io.TextIOWrapper(io.BufferedWriter(_Pipe(out, shown)), encoding, line_buffering=True)
    stderr = io.TextIOWrapper(io.BufferedWriter(_Pipe(err, shown)), encoding, "backslashreplace", line_buffering=True)
    with (
        _input(stdin) as given,
        mock.patch.object(sys, "stdin", given),
        mock.patch.object(sys, "stdout", stdout),
        mock.patch.object(sys, "stderr", stderr),
    ):
        status = main(list(arguments))
    stdout.flush()
    stderr.flush()
    return Typed(status, bytes(out), bytes(err), bytes(shown))


@contextlib.contextmanager
def _input(content: bytes) -> Iterator[io.TextIOWrapper]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield io.TextIOWrapper(file, "utf-8")
