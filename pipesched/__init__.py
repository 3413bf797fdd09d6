"""A compiler and verifier for pipeline-parallel training schedules.

    import pipesched
    print(pipesched.verify("zb_h1", p=8))

The names of `shell.public` are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from pipesched import extension

if TYPE_CHECKING:
    from pipesched.shell.public import *  # noqa: F403  all names, for type checkers

_EXTENSIONS = (
    "orders common views explain lift mend publish editor playground "
    "planning interop runtime optimizer engines versions greedy prover insight"
)
extension.register(*_EXTENSIONS.split())


class _Check(ModuleType):
    """The package `pipesched.check`, callable as the API function of the same name."""

    def __call__(self, *arguments: object, **given: object) -> object:
        return import_module("pipesched.interop.api").check(*arguments, **given)


class _Package(ModuleType):
    """The class of the module `pipesched`: the package `check`, once imported, becomes callable as the API function."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "check" and isinstance(value, ModuleType):
            value.__class__ = _Check
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    public = import_module("pipesched.shell.public")
    return public.__all__ if name == "__all__" else public.__getattr__(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *import_module("pipesched.shell.public").__all__])
