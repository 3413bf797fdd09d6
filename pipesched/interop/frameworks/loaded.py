"""Load a framework's answer to a call, as the reader of a file does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipesched.analysis.communication import ONE_STREAM
from pipesched.diagnostics import Code, PipeschedError
from pipesched.extension import Extended
from pipesched.formats.readers import TORCH_CSV, Loaded, reader_of
from pipesched.interop.frameworks import host, recorded
from pipesched.interop.frameworks.frameworks import Call
from pipesched.interop.frameworks.host import Answer
from pipesched.interop.frameworks.kept import Keeping
from pipesched.model.numbers import Value
from pipesched.support.foreign import foreign
from pipesched.support.source import Source

_POSTED = "its posts are waited for later, so the model is one-stream unless --comm names another"


@dataclass(frozen=True)
class Framework:
    """framework_path: a folder of packages or an environment that has it. framework_time: seconds that it may take."""

    framework_path: str | None = None
    framework_time: float = 60


def read(
    source: Source,
    *,
    parameters: Mapping[str, Value],
    settings: Mapping[str, str | float],
    max_ops: int,
    owned: tuple[object, ...],
) -> Loaded:
    """Run a framework in a process of its own, and load the schedule that it gives for a call.

    Raises:
        PipeschedError: PS85x, the framework gives no schedule; as `answered`.
    """
    assert isinstance(source, Call)
    asked = {**parameters, **settings, "max-ops": max_ops}
    where = Extended(owned=owned).of(Framework)
    answer = host.record(source, asked, path=where.framework_path, limit=where.framework_time)
    return answered(source, answer, parameters, max_ops)


def answered(source: Call, answer: Answer, parameters: Mapping[str, Value], max_ops: int) -> Loaded:
    """Load the order that a framework answered to a call, by the reader of its format.

    Raises:
        PipeschedError: PS853, the answer is no order; PS8xx, the errors of that reader.
    """
    text, version = recorded.written(source, answer)
    sizes = {name: parameters[name] for name in ("p", "m") if name in parameters}
    row = reader_of(text)
    given = {"torch_version": version} if row is TORCH_CSV else {}
    named = replace(text, name=source.name)
    try:
        made = row.read.load()(named, parameters=sizes, max_ops=max_ops, **given)
    except PipeschedError as error:
        asked = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        help = f"it was called with {asked}: mend what it gives"
        found = error.diagnostics
        raise PipeschedError(replace(d, help=help) if d.code is Code.FILE_DISAGREES else d for d in found) from None
    assert isinstance(made, Loaded)
    own = {"p": made.schedule.ranks, "m": made.schedule.microbatches, **parameters}
    schedule = replace(made.schedule, name=source.name, parameters=own).with_program(made.program)
    version = given.get("torch_version")
    comm = str(ONE_STREAM) if answer.later and made.program is not None else None
    notes = (*answer.notes, foreign(_POSTED)) if comm else answer.notes
    return replace(
        made, schedule=schedule, torch_version=version, notes=notes, owned=(Keeping(answer.kept),), comm=comm
    )
