"""Distribute sizes to schedules: `--v 2` applies to interleaved schedules; an order that lists every operation has its
own p and m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipesched.common.sources import known_parameters
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import Value
from pipesched.support.source import Source


def shared(sources: Sequence[Source], sizes: Mapping[str, Value]) -> list[dict[str, Value]]:
    """Return, for each file, the given sizes that it has as parameters.

    Raises:
        PipeschedError: PS208 if none of the files has one of these parameters.
    """
    taken = [known_parameters(source) for source in sources]
    known = dict.fromkeys(name for names in taken for name in names or ())
    strangers = [f"`{name}`" for name in sizes if name not in known]
    if strangers and None not in taken:
        message = f"none of these schedules has a parameter called {', '.join(strangers)}"
        raise fail(Code.PARAMETER_UNKNOWN, message, help=f"they have {', '.join(known) or 'none'}")
    return [{name: x for name, x in sizes.items() if names is None or name in names} for names in taken]
