"""Frozen dataclasses with shared methods; `dataclass` compiles six per class, most of the time of an import."""

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
