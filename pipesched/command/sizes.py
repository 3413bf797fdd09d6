"""Sizes and other parameters of schedules, each with several values, and their combinations.

--p 4        --p 4,8,16        --p 2..8 (both ends)        -D name=value, likewise, or @FILE with a list
p=4          p=[4, 8, 16]      p="2..8"                    name=[4, 3, 7]: a list, or several sizes, as the file
declares
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from pipesched.command.values import WHOLE, Not, listed, short, whole
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import Value

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"(?=.*[A-Za-z_])[\w./+:-]{1,300}", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,15}")
SIZES = ("p", "v", "m")
"""The sizes of every schedule: ranks, stages per rank, microbatches."""
MOST_RUNS = 10_000
MOST_ENTRIES = 2_000_000

Several: TypeAlias = tuple[int, ...] | tuple[tuple[int, ...], ...]
"""Several integers, or several lists.

For a parameter declared as a list, the integers are its entries; for any other, they are alternative sizes.
"""


def alternatives(several: Several, listed: bool) -> tuple[Value, ...]:
    """Return the values to try for a parameter; if it is declared as a list, several integers are one value."""
    return several if not listed or isinstance(several[0], tuple) else (several,)


def read(value: object) -> Several:
    """Parse ``8``, ``8,16``, ``2..8`` or a mix of these; or accept a number, several numbers, or several lists."""
    if isinstance(value, str):
        ranges = [_range(part.strip()) for part in value.split(",")]
        if (many := sum(each.stop - each.start for each in ranges)) > MOST_ENTRIES:
            raise ValueError(f"{short(value)} has {many:,} numbers; the limit is {MOST_ENTRIES:,}")
        return tuple(itertools.chain(*ranges))
    if isinstance(value, Sequence) and value and all(isinstance(x, Sequence) and not isinstance(x, str) for x in value):
        return tuple(tuple(map(whole, x)) for x in value)
    if not (found := tuple(map(whole, value if isinstance(value, Iterable) else [value]))):
        raise Not(value, "a whole number, or a list of whole numbers")
    return found


def _range(part: str) -> range:
    low, dots, high = (end.strip() for end in part.partition(".."))
    if not WHOLE.fullmatch(low) or (dots and not WHOLE.fullmatch(high)):
        raise Not(part, "a whole number, a list such as 8,16 or a range such as 2..8")
    first, last = int(low), int(high if dots else low)
    if first > last:
        raise ValueError(f"the range {part} is empty; write {high}..{low}")
    return range(first, last + 1)


def setting(value: object) -> str | float | None:
    """Return a framework's setting that is not a size: a boolean, a decimal or a name, or None."""
    if isinstance(value, bool | float) or not isinstance(value, str):
        return value if isinstance(value, bool | float) else None
    if _WORD.fullmatch(value):
        return {"true": True, "false": False}.get(value, value)
    return float(value) if _DECIMAL.fullmatch(value) else None


def definition(value: str) -> tuple[str, Several | str | float]:
    """Parse ``name=value``; the value is a size or a setting."""
    name, equals, size = (part.strip() for part in value.partition("="))
    if not equals or not _NAME.fullmatch(name):
        raise Not(value, "name=value")
    if size.startswith("@"):
        return name, (_list_file(size[1:]),)
    given = None if name in SIZES else setting(size)
    return name, read(size) if given is None else given


def _list_file(path: str) -> tuple[int, ...]:
    """Return the integers in a file, separated by spaces, commas or line breaks; brackets around them are ignored.

    Raises:
        PipeschedError: PS225: the file has no number, too many numbers, or an entry that is not an integer; PS809: the
        file cannot be read.
    """
    from pipesched.library.inputs import read_path

    words = [word for word in re.split(r"[\s,]+", read_path(path).text.strip().strip("[]")) if word]
    wrong = next((word for word in words if not WHOLE.fullmatch(word)), None)
    if wrong is not None or not words or len(words) > MOST_ENTRIES:
        found = f"it contains {short(wrong)}" if wrong is not None else f"it contains {len(words):,} numbers"
        help = f"a list file contains at most {MOST_ENTRIES:,} whole numbers, such as 4,3,7,2"
        raise fail(Code.USAGE, f"{path} is not a list: {found}", help=help)
    return tuple(map(int, words))


def count(grid: Mapping[str, Several], files: Iterable[Collection[str]]) -> int:
    """Return the number of combinations of files and sizes. files: the lists that each file declares.

    Raises:
        PipeschedError: PS225: there are too many for one call.
    """
    runs = sum(math.prod(len(alternatives(size, name in listed)) for name, size in grid.items()) for listed in files)
    if runs > MOST_RUNS:
        raise fail(Code.USAGE, f"{runs:,} combinations of files and sizes; one call accepts at most {MOST_RUNS:,}")
    return runs


def combinations(grid: Mapping[str, Several], listed: Collection[str] = ()) -> Iterator[dict[str, Value]]:
    """Yield every combination; the last parameter varies fastest. listed: the parameters that are lists."""
    for chosen in itertools.product(*(alternatives(size, name in listed) for name, size in grid.items())):
        yield dict(zip(grid, chosen, strict=True))


def one(command: str, grid: Mapping[str, Several]) -> dict[str, Value]:
    """Return the sizes for a command that takes one size at a time; several values of any other parameter form a list.

    Raises:
        PipeschedError: PS225: a parameter has several values.
    """
    listed = [name for name, size in grid.items() if name not in SIZES and len(size) != 1]
    if any(len(alternatives(size, name in listed)) != 1 for name, size in grid.items()):
        raise fail(Code.USAGE, f"{command} takes one size at a time", help="give each parameter one value")
    return next(combinations(grid, listed))


def stages(value: object) -> tuple[int, ...]:
    """Return stages in ascending order, from ``[0, 1]`` or the text ``0..2,5`` with inclusive ranges."""
    from pipesched.model.placement import STAGES

    what = "stages such as 0,1 or 0..2"
    given = value if isinstance(value, str) else tuple(listed(value, what))
    with suppress(ValueError):
        found = [x for x in read(given) if isinstance(x, int)] if given else []
        if len(found) <= STAGES and all(stage >= 0 for stage in found):
            return tuple(sorted({*found}))
    raise Not(value, what)
