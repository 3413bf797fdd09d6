"""Long work is visible: one line on stderr, about once a second, rewritten in place on a terminal.

12.4s  best 29  bound 27  gap 7.4 %  (zb_h1)  cadical at 28, glucose at 27
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from pipesched.cli.terminal import Output

if TYPE_CHECKING:
    from pipesched.optimizer.search.state import State

EVERY = 1.0  # seconds: quick work says nothing
EVERY_LINE = 10.0  # where lines cannot be rewritten


class Ticker:
    """Shows how far a search is."""

    def __init__(self, out: Output) -> None:
        self.live = sys.stderr is not None and sys.stderr.isatty()
        self.out, self.last, self.width = out, time.monotonic(), 0

    def state(self, state: State) -> None:
        """Called by the search whenever it can."""
        now = time.monotonic()
        if now - self.last >= (EVERY if self.live else EVERY_LINE):
            self.last = now
            self._say(state.line)

    def _say(self, line: str) -> None:
        if not self.live:
            self.out.complain(line)
            return
        sys.stderr.write("\r" + line[:118].ljust(self.width))
        sys.stderr.flush()
        self.width = min(118, len(line))

    def __enter__(self) -> Ticker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.live and self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
