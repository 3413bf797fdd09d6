"""Frozen dataclasses with shared methods; `dataclass` compiles six per class, most of the time of an import."""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class Record:
    """A frozen dataclass, equal only to itself."""

    __match_args__: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *values: object, **named: object) -> None:
        for name, one in self.__dataclass_fields__.items():
            if one.default_factory is not MISSING:
                self.__dict__[name] = one.default_factory()
        self.__dict__.update(zip(self.__match_args__, values, strict=False), **named)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(name)
