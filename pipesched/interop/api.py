"""The API function `pipesched.check`, which judges a trainer's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fsdecode, fspath
from typing import TYPE_CHECKING

from pipesched.command import options
from pipesched.common import keywords
from pipesched.common.keywords import File
from pipesched.common.values import texts
from pipesched.diagnostics import Code, fail
from pipesched.library.inputs import read_path
from pipesched.support.source import Source

if TYPE_CHECKING:
    from pipesched.interop.check_report import Checked


def check(
    file: File | list[str] | tuple[str, ...],
    *,
    trainer: str | None = None,
    torch_version: str | None = None,
    p: int | None = None,
    processes: int | None = None,
    variables: Mapping[str, object] | Sequence[str] = (),
    dry_run_script: bool = False,
) -> Checked:
    """Check a trainer's configuration, as ``pipesched check`` does. Errors in the file are returned, not raised.

    file: the path of a TOML, YAML or JSON file, or of a script with a command line; a `Source`; or the words of a
    command, as expanded by a shell. trainer: the trainer and its release, such as ``torchtitan==0.2.2``. p: the number
    of ranks, if the file does not specify it. processes: the number of processes in all replicas. variables: values for
    variables in the script. dry_run_script: whether to execute the script, with its programs replaced by recorders.

    Raises:
        PipeschedError: PS225 if an option is invalid; PS809 if there is no such file.
    """
    given, _ = keywords.read("check", locals() | {"parameters": {}})
    from pipesched.interop import check as verb

    asked = options.request(verb.Asked, given)
    if isinstance(file, list | tuple):
        return verb.check_command(texts(file), asked)
    if dry_run_script:
        if isinstance(file, Source):
            raise fail(Code.USAGE, "a script can only be executed from a file", help="give its path")
        return verb.check_file(fspath(file), asked, run=True)
    return verb.check(file if isinstance(file, Source) else _read(file), asked)


check_config = check


def _read(path: object) -> Source:
    """Read the file at a path.

    Raises:
        PipeschedError: PS809 if the file cannot be read; PS225 if `path` is not a path.
    """
    if not isinstance(path, str | PathLike):
        raise fail(Code.USAGE, f"a value of type {type(path).__name__} does not name a file", help="give its path")
    return read_path(fsdecode(path))
