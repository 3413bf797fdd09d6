"""The schedules that come with us, at sizes; and which of the sizes that are given a file takes.

`--v 2` is for the interleaved schedules of a comparison, and an order that is written out has its p and m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.formats.readers import PS, checked, reader_of
from pipesched.language.evaluate import MAX_OPS, at_size, placement_at, takes
from pipesched.language.grammar import grammar
from pipesched.library.assets import built_in
from pipesched.library.inputs import read
from pipesched.model.numbers import Value
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source


def plainest() -> list[tuple[str, Source]]:
    """The built-in schedules, those with fewer parameters first: one chunk a rank makes an interleaved one another."""
    return sorted(((name, read(name)) for name in built_in()), key=lambda x: _parameters(x[1].text))


def _parameters(text: str) -> int:
    """The number of parameters of a file, from its head alone: the commas between its first brackets, and one."""
    depth = count = 0
    for token in grammar().words.read(text):
        depth += (token.kind in ("LPAR", "LSQB")) - (token.kind in ("RPAR", "RSQB"))
        count += token.kind == "COMMA" and depth == 1
        if token.kind == "RPAR" and depth == 0:
            break
    return count + 1


def sized(
    source: Source,
    sizes: Mapping[str, Value],
    *,
    placed: Callable[[Placement], bool] = lambda _: True,
    max_ops: int = MAX_OPS,
) -> Schedule | None:
    """A .ps file at those of the sizes that it takes, None where it is not for them.

    placed: whether the placement is one that is asked for; an order that has another is not written out.
    """
    try:
        file = checked(source)
        own = {name: x for name, x in sizes.items() if name in file.parameters}
        fits = takes(file, own) and placed(placement_at(file, own, max_ops=max_ops))
        return at_size(file, own, max_ops=max_ops).schedule if fits else None
    except PipeschedError:
        return None


def shared(sources: Sequence[Source], sizes: Mapping[str, Value]) -> list[dict[str, Value]]:
    """The given sizes that each file takes.

    Raises:
        PipeschedError: PS208, one that none of the files has.
    """
    taken = [_takes(source) for source in sources]
    known = dict.fromkeys(name for names in taken for name in names or ())
    strangers = [f"`{name}`" for name in sizes if name not in known]
    if strangers and None not in taken:
        message = f"none of these schedules has a parameter {', '.join(strangers)}"
        raise fail(Code.PARAMETER_UNKNOWN, message, help=f"they have {', '.join(known) or 'none'}")
    return [{name: x for name, x in sizes.items() if names is None or name in names} for names in taken]


def lists(sources: Iterable[Source]) -> frozenset[str]:
    """The parameters that one of these files declares as lists; of a file that cannot be read none."""
    found: set[str] = set()
    for source in sources:
        with suppress(PipeschedError):
            found |= checked(source).lists if reader_of(source) is PS else set()
    return frozenset(found)


def parameters_of(source: Source) -> tuple[str, ...]:
    """The parameters of a .ps file, () of any other and of one that cannot be read."""
    return (_takes(source) or ()) if reader_of(source) is PS else ()


def _takes(source: Source) -> tuple[str, ...] | None:
    """The parameters that a file has; None for all, and where it cannot be read: loading it says why."""
    if reader_of(source) is not PS:
        return None if source.origin else ("p", "m")
    try:
        return tuple(checked(source).parameters)
    except PipeschedError:
        return None
