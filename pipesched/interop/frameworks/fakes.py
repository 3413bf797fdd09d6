"""Executes a framework's files unchanged, with Fakes instead of the modules that they import.

    a named file             unchanged; its imports follow the same rules
    standard library         unchanged
    any other module         a Fake: has every attribute, accepts every call, and can be a base class or a decorator

A Fake has no value. If the code needs a value (for a branch, a length, a number, a call that moves data), `Undecided`
is raised with the name of the Fake, so that no part of an order is guessed. `sys.modules` is restored afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import NoReturn


class Undecided(Exception):
    """Raised if the code needs the value of a Fake. The argument is the name of the Fake."""

    help = "the order depends on code that is not executed: omit the option that selects this code"

    def __init__(self, name: str) -> None:
        super().__init__(f"the value of {name} is unknown")


class Fake(ModuleType):
    """A replacement for a module, or for an object in a module. inert: whether calls, which do nothing, are allowed."""

    def __init__(self, name: str, *, inert: bool = True) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._inert = inert

    def __getattr__(self, name: str) -> ModuleType:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        made = _loaded(full)
        made = Fake(full, inert=self._inert) if made is None else made
        setattr(self, name, made)
        return made

    def __call__(self, *given: object, **named: object) -> object:
        if len(given) == 1 and not named and isfunction(given[0]):
            return given[0]  # used as a decorator
        if not self._inert:
            raise Undecided(f"{self.__name__}()")
        return self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def _same(self, *others: object) -> Fake:
        return self

    __add__ = __radd__ = __iadd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __itruediv__ = _same
    __or__ = __ror__ = __getitem__ = _same

    def _undecided(self, *others: object) -> NoReturn:
        raise Undecided(self.__name__)

    __bool__ = __len__ = __iter__ = __int__ = __index__ = __float__ = _undecided
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _undecided
    __hash__ = object.__hash__

    def __instancecheck__(self, other: object) -> bool:
        """Return False for real objects, which are never instances of a Fake; raise Undecided for a Fake."""
        return isinstance(other, Fake) and self._undecided()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int | float | str) and self._undecided())


def _loaded(name: str) -> ModuleType | None:
    """Return the module of that name if an active Finder loads it or it is already loaded; otherwise None."""
    finder = next((x for x in sys.meta_path if isinstance(x, Finder)), None)
    if finder is None:
        return None
    return import_module(name) if name in finder.files else sys.modules.get(name)


class Finder(MetaPathFinder, Loader):
    """An import hook that loads `files` unchanged, takes modules from `made`, and fakes all other modules.

    silent: packages whose Fakes must not be called.
    """

    def __init__(self, files: Mapping[str, Path], made: Mapping[str, ModuleType], silent: tuple[str, ...] = ()) -> None:
        self.files, self._made, self._silent = files, made, silent
        self._kept: dict[str, ModuleType] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in self.files:
            return spec_from_file_location(name, self.files[name])
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name in self._made:
            return self._made[spec.name]
        return Fake(spec.name, inert=not any(spec.name.startswith(name) for name in self._silent))

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a Fake has no code."""

    def __enter__(self) -> Finder:
        self._kept = {name: module for name, module in sys.modules.items() if _foreign(name)}
        self._forget()
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)
        self._forget()
        sys.modules.update(self._kept)

    def _forget(self) -> None:
        for name in [name for name in sys.modules if _foreign(name)]:
            del sys.modules[name]


def _foreign(name: str) -> bool:
    """Return True if a module belongs neither to pipesched nor to the standard library."""
    return name.partition(".")[0] not in (*sys.stdlib_module_names, "pipesched", "__main__", "__mp_main__")


def lines(folder: str) -> Iterator[tuple[str, int]]:
    """Yield the lines of the folder's files that are on the call stack, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(folder):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
