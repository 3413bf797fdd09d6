"""Writes an order as a `.ps` file for exactly its size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pipesched.diagnostics import Code, fail
from pipesched.formats.targets import Head, Writer
from pipesched.lift import writer
from pipesched.model.schedule import Program, Schedule


class Language(Writer):
    """The writer of the language."""

    def require(self, schedule: Schedule, program: Program | None) -> None:
        """Do nothing: the writer refuses features that the language cannot express."""

    def pieces(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        yield writer.write(
            cast("Schedule", order), documentation=head.documentation, costs=head.costs, statements=head.statements
        )

    def by_rank(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        raise fail(Code.USAGE, "a .ps file contains the programs of all ranks", help="-o FILE.ps writes it")


LANGUAGE = Language()
