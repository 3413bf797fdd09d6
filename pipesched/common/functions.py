"""Lookup of a user's function by its name: ``module:function``, or ``path/to/file.py:function``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


class Unknown(Exception):
    """Raised for an unknown name or option. help: the known names or options."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.help = help


def found(name: str, folders: Sequence[str] = ()) -> tuple[ModuleType, object]:
    """Return the module and the attribute that a name denotes; a module is looked up in `folders` first.

    Raises:
        Unknown: there is no such attribute, or the name has no ``:function``.
    """
    path, _, attribute = name.rpartition(":")
    if not path or not attribute.isidentifier():
        raise Unknown(f"python:{name} does not name a function", "write python:module:function")
    if path.endswith(".py"):
        path, spec = Path(path).stem, spec_from_file_location(Path(path).stem, path)
    else:
        spec = None if "." in path else PathFinder.find_spec(path, [*folders])
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
