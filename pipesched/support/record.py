"""Frozen dataclasses with shared methods; `dataclass` compiles six per class, which takes most of the import time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class Record:
    """A frozen dataclass, equal only to itself."""

    __match_args__: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]
    _made: ClassVar[list[tuple[str, Callable[[], object]]]]

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)
        cls._made = [(x.name, x.default_factory) for x in fields(cls) if x.default_factory is not MISSING]

    def __init__(self, *values: object, **named: object) -> None:
        for name, make in self._made:
            self.__dict__[name] = make()
        self.__dict__.update(zip(self.__match_args__, values, strict=False), **named)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(name)


class Value(Record):
    """A record that is equal to any record of its class with equal fields."""

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        named = (f"{name}={value!r}" for name, value in zip(self.__dataclass_fields__, self._fields(), strict=True))
        return f"{type(self).__name__}({', '.join(named)})"

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)
