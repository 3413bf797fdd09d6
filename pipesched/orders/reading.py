"""Recognizes kinds of order by their first line, and loads them as schedules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pipesched.diagnostics import Code, fail
from pipesched.formats.readers import IDLE, Loaded, read_by
from pipesched.model.numbers import Value, whole
from pipesched.model.ops import KIND
from pipesched.model.placement import most_ranks
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source

_WORD = rf"(?i:{KIND})[0-9]+\.[0-9]+"  # a text that cannot occur in a line of the language
_ORDER = re.compile(rf"(?i:rank|r|device)?\s*[0-9]+\s*:(?!\s*$)|(?:{_WORD}\+?[ \t,]+){{2}}|[^:]{{1,40}}:\s*{_WORD}")
_CELL = re.compile(r"""(?:,|"?(?:[0-9]+[A-Z]|\([^)]*\)OVERLAP))""")


def is_order(first: str) -> bool:
    """Return True if a file with that first line is order text."""
    return bool(_ORDER.match(first) or IDLE.match(first))


def is_csv(first: str) -> bool:
    """Return True if a file with that first line is a torch CSV."""
    return bool(_CELL.match(first))


def order(source: Source, *, parameters: Mapping[str, Value], max_ops: int) -> Loaded:
    """Read order text."""
    from pipesched.orders import order_text

    made = order_text.read(source, _sizes(source, parameters), most_ranks(max_ops))
    return Loaded(source.name, made if isinstance(made, Schedule) else made.schedule)


def csv(
    source: Source, *, parameters: Mapping[str, Value], stages: int | None = None, max_ops: int, **expected: Any
) -> Loaded:
    """Read a torch CSV."""
    from pipesched.orders import torch_csv

    if "\r" in source.text:  # torch's csv module also ends a row at a U+000D without U+000A
        source = Source(source.name, re.sub(r"\r(?!\n)", "\n", source.text))
    given = {"stages": stages, **_sizes(source, parameters)}
    read = partial(torch_csv.read, given=given, most_ranks=most_ranks(max_ops), **expected)
    order = read_by("torch-csv", source, read)
    return Loaded(source.name, order if isinstance(order, Schedule) else order.schedule, torch=True)


def stream(source: Source, *, parameters: Mapping[str, Value]) -> Loaded:
    """Read a stream."""
    from pipesched.orders import stream_read

    program, own = stream_read.read(source, whole(parameters))
    return Loaded(source.name, replace(program.computes, parameters=own).with_program(program))


def _sizes(source: Source, parameters: Mapping[str, Value]) -> Mapping[str, Value]:
    """Raise PipeschedError (PS208) for parameters other than the p and m of the order."""
    if extra := sorted(set(parameters) - {"p", "m"}):
        given = f"{', '.join(extra)} {'was' if len(extra) == 1 else 'were'} given"
        raise fail(Code.PARAMETER_UNKNOWN, f"{source.name} is an order, which has no parameters, but {given}")
    return parameters
