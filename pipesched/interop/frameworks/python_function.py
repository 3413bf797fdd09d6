"""Anybody's function: ``module:function``, or ``path/to/file.py:function``, called with the options that it takes.

    def order(p, m):                    rows = ["0F0,0B0", "1F0,1B0"]       cells of torch's CSV, or words of an order
        return rows                     {0: [F, F, None, B], 1: …}          whatever prints as such; None is a bubble
                                        what has `pipeline_order`           a schedule of torch
                                        instructions as DeepSpeed's: `ForwardPass` with a `buffer_id`, and so on
    def order(p, m, rank):              one row; called for every rank
        yield "F0.0"                    where it yields, a finding names the line

A step of several instructions may be a list of its own.
"""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import GeneratorType
from typing import Any

from pipesched.interop.frameworks import pipe_instructions
from pipesched.interop.frameworks.recording import FOLDERS, Nonsense, Recorded, Unknown, shown, version_of

_MORE = "--max-ops raises the limit"
RANK = ("rank", "r", "stage_id", "pp_rank")


def record(name: str, options: Mapping[str, Any]) -> Recorded:
    """The order that a function gives."""
    most = int(options["max-ops"])
    given = {key: value for key, value in options.items() if key != "max-ops"}
    module, function = found(name)
    name = f"{module.__name__}:{name.rpartition(':')[2]}"
    version = getattr(module, "__version__", "") or version_of(name.partition(".")[0].partition(":")[0])
    if not callable(function):
        return _recorded(function, str(version), most)
    takes, every = _takes(function)
    rank = next((one for one in RANK if one in takes and one not in given), None)
    if strangers := [key for key in given if key not in takes and not every and not (rank and key == "p")]:
        raise Unknown(f"{name} takes no {', '.join(strangers)}", f"it takes {', '.join(takes) or 'nothing'}")
    needed = [key for key, needs in takes.items() if needs and key not in given and key != rank]
    if missing := needed + ["p"] * (rank is not None and "p" not in given):
        option = f"--{missing[0]} N" if missing[0] in ("p", "v", "m") else f"-D {missing[0]}=…"
        raise Unknown(f"{name} takes {missing[0]}, which is not given", f"give it: `{option}`")
    if rank is None:
        return _recorded(function(**given), str(version), most)
    own = {key: value for key, value in given.items() if key in takes or every}
    return _recorded([function(**own, **{rank: r}) for r in range(given["p"])], str(version), most)


def found(name: str) -> tuple[Any, Any]:
    """The module, and what it has under the name: of that very file, or where one of the user's folder wins."""
    path, _, attribute = name.rpartition(":")
    if not path or not attribute.isidentifier():
        raise Unknown(f"python:{name} names no function", "write python:module:function")
    if path.endswith(".py"):
        path, spec = Path(path).stem, spec_from_file_location(Path(path).stem, path)
    else:
        spec = None if "." in path else PathFinder.find_spec(path, FOLDERS)
    if spec is None or spec.loader is None:
        module = import_module(path)
    else:
        module = module_from_spec(spec)
        sys.modules.setdefault(path, module)
        spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        near = get_close_matches(attribute, dir(module), 1)
        raise Unknown(f"{path} has no {attribute}", f"did you mean `{near[0]}`?" if near else None)
    return module, getattr(module, attribute)


def _takes(function: Any) -> tuple[dict[str, bool], bool]:
    """The parameters of a function by name, each with whether it must be given; and whether it takes any other."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}, False
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    every = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return {one.name: one.default is one.empty for one in named}, every


def _recorded(order: Any, version: str, most: int) -> Recorded:
    """Whatever a function gave, as rows of texts."""
    if hasattr(order, "pipeline_order"):
        order = getattr(order, "pipeline_order_with_comms", None) or order.pipeline_order
    if isinstance(order, str):
        order = order.strip().splitlines()
    if isinstance(order, Mapping):
        ranks = {str(rank): row for rank, row in order.items()}
        if missing := [rank for rank in range(len(ranks)) if str(rank) not in ranks]:
            raise Nonsense(f"it gave a dict of {len(ranks)} rows, none of them for rank {missing[0]}")
        order = [ranks[str(rank)] for rank in range(len(ranks))]
    if isinstance(order, bytes) or not isinstance(order, Iterable):
        raise Nonsense(f"it gave {_short(order)}")
    rows: list[Any] = []
    places: list[list[Any]] = []
    for row, line in _yielded(order):
        if isinstance(row, str):
            rows.append(row)
            places.append([line] * len(re.split("[ ,]+", row)))
            most -= len(row)
        else:
            cells = list(_cells(row, len(rows), most))
            rows.append(cells)
            places.append([place or line for _, place in cells])
            most -= len(cells)
        if len(rows) > most:
            raise Nonsense("it gave more than can be checked", _MORE)
    if not rows:
        raise Nonsense("it gave no rows")
    if any(pipe_instructions.known(cell) for row in rows[:1] if type(row) is list for cell, _ in row):
        return pipe_instructions.recorded(rows, version)
    texts = [[_text(cell) for cell, _ in row] if type(row) is list else row for row in rows]
    return Recorded(texts, places if any(map(any, places)) else None, version)


def _yielded(values: Any) -> Iterator[tuple[Any, Any]]:
    """Values, each with the file and the line that yields it where a generator does."""
    frame = values.gi_frame if isinstance(values, GeneratorType) else None
    file = None if frame is None else shown(frame.f_code.co_filename)
    for value in values:
        yield value, None if frame is None else (file, frame.f_lineno)


def _cells(row: Any, rank: int, most: int) -> Iterator[tuple[Any, Any]]:
    """The cells of a row; where it is a generator's, with the line that yields each."""
    if isinstance(row, bytes) or not isinstance(row, Iterable):
        raise Nonsense(f"row {rank} is {_short(row)}")
    for count, (step, place) in enumerate(_yielded(row)):
        if count > most:
            raise Nonsense(f"row {rank} goes on after {most:,} actions", _MORE)
        for cell in step if type(step) in (list, tuple) else [step]:
            yield cell, place


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip()


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"{text[:60]} of type {type(value).__name__}"
