"""Records the order of a user's function: ``module:function`` or ``path/to/file.py:function``, called with the options
that it takes.

    def order(p, m):                    rows = ["0F0,0B0", "1F0,1B0"]       cells of torch's CSV, or words of an order
        return rows                     {0: [F, F, None, B], 1: …}          objects that print like actions;
                                                                            None is a bubble
                                        an object with `pipeline_order`     a schedule of torch
                                        instructions like DeepSpeed's: `ForwardPass` with a `buffer_id`, …
    posting.traced(step, p, "package")  code that posts its own messages, traced on stand-ins for tensors
    def order(p, m, rank):              one row; called for every rank
        yield "F0.0"                    a finding names the line of the yield

A step with several instructions may be a nested list.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import GeneratorType

from pipesched.common.functions import Unknown, found
from pipesched.interop.frameworks import pipe_instructions
from pipesched.interop.frameworks.recording import (
    FOLDERS,
    Nonsense,
    Options,
    Place,
    Recorded,
    shown,
    version_of,
)

_MORE = "--max-ops raises the limit"
RANK = ("rank", "r", "stage_id", "pp_rank")


def record(name: str, options: Options) -> Recorded:
    """Record the order that a function returns or yields."""
    most = int(options["max-ops"])
    given = {key: value for key, value in options.items() if key != "max-ops"}
    module, function = found(name, FOLDERS)
    name = f"{module.__name__}:{name.rpartition(':')[2]}"
    version = str(getattr(module, "__version__", "") or version_of(name.partition(".")[0].partition(":")[0]))
    if not callable(function):
        return _recorded(function, version, most)
    takes, every = _takes(function)
    rank = next((one for one in RANK if one in takes and one not in given), None)
    _require(name, given, takes, rank, every=every)
    if rank is None:
        return _recorded(function(**given), version, most)
    own = {key: value for key, value in given.items() if key in takes or every}
    return _recorded([function(**own, **{rank: r}) for r in range(int(given["p"]))], version, most)


def _require(name: str, given: Options, takes: Mapping[str, bool], rank: str | None, *, every: bool) -> None:
    """Require that a function takes all given options, and that all required options are given.

    Raises:
        Unknown: if an option is not taken, or a required one is missing.
    """
    known = {*takes, *(["p"] if rank else ()), *(given if every else ())}
    if strangers := [key for key in given if key not in known]:
        raise Unknown(f"{name} does not take {', '.join(strangers)}", f"it takes {', '.join(takes) or 'nothing'}")
    for key in [*(key for key, needs in takes.items() if needs and key != rank), *(["p"] if rank else ())]:
        if key not in given:
            option = f"--{key} N" if key in ("p", "v", "m") else f"-D {key}=…"
            raise Unknown(f"{name} requires {key}, which is not given", f"give it: `{option}`")


def _takes(function: Callable[..., object]) -> tuple[dict[str, bool], bool]:
    """Return whether each parameter of a function is required, and whether the function takes any option (`**`)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}, False
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    every = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return {one.name: one.default is one.empty for one in named}, every


def _recorded(order: object, version: str, most: int) -> Recorded:
    """Convert a function's result to rows of strings."""
    if isinstance(order, Recorded):
        return replace(order, version=version)
    rows: list[str | list[str]] = []
    places: list[list[Place | None]] = []
    actions: list[list[tuple[object, Place | None]]] = []
    for row, line in _yielded(_rows(order)):
        if isinstance(row, str):
            rows.append(row)
            places.append([line] * len(re.split("[ ,]+", row)))
        else:
            actions.append(list(_cells(row, len(rows), most)))
            rows.append([_text(cell) for cell, _ in actions[-1]])
            places.append([place or line for _, place in actions[-1]])
        most -= len(rows[-1])
        if len(rows) > most:
            raise Nonsense("it returned more operations than the limit", _MORE)
    if not rows:
        raise Nonsense("it returned no rows")
    if len(actions) == len(rows) and any(pipe_instructions.known(cell) for cell, _ in actions[0]):
        return pipe_instructions.recorded(actions, version)
    return Recorded(rows, places if any(map(any, places)) else (), version)


def _rows(order: object) -> Iterable[object]:
    """Return the rows of a function's result, by rank.

    Raises:
        Nonsense: if the result has no rows.
    """
    if hasattr(order, "pipeline_order"):
        order = getattr(order, "pipeline_order_with_comms", None) or order.pipeline_order
    if isinstance(order, str):
        return order.strip().splitlines()
    if isinstance(order, Mapping):
        ranks = {str(rank): row for rank, row in order.items()}
        if missing := [rank for rank in range(len(ranks)) if str(rank) not in ranks]:
            raise Nonsense(f"it returned a dict of {len(ranks)} rows without rank {missing[0]}")
        return [ranks[str(rank)] for rank in range(len(ranks))]
    if isinstance(order, bytes) or not isinstance(order, Iterable):
        raise Nonsense(f"it returned {_short(order)}")
    return order


def _yielded(values: Iterable[object]) -> Iterator[tuple[object, Place | None]]:
    """Yield each value with the file and line of its yield, or None if it does not come from a generator."""
    frame = values.gi_frame if isinstance(values, GeneratorType) else None
    file = "" if frame is None else shown(frame.f_code.co_filename)
    for value in values:
        yield value, None if frame is None else (file, frame.f_lineno)


def _cells(row: object, rank: int, most: int) -> Iterator[tuple[object, Place | None]]:
    """Yield each cell of a row with the file and line of its yield, or None if it does not come from a generator."""
    if isinstance(row, bytes) or not isinstance(row, Iterable):
        raise Nonsense(f"row {rank} must be a string or a list, not {_short(row)}")
    for count, (step, place) in enumerate(_yielded(row)):
        if count > most:
            raise Nonsense(f"row {rank} has more than {most:,} actions", _MORE)
        for cell in step if isinstance(step, (list, tuple)) and type(step) in (list, tuple) else [step]:
            yield cell, place


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip()


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return f"{text[:60]} of type {type(value).__name__}"
