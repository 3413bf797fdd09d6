"""Frozen dataclasses without compiled methods.

`dataclass` compiles up to six methods for each class, which takes most of the time of importing a module of small
classes. A record has the fields and the keywords of a dataclass, and shares its methods with all records.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class Record:
    """A frozen dataclass, equal only to itself."""

    __match_args__: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *values: object, **named: object) -> None:
        given = dict(zip(self.__match_args__, values, strict=False)) | named
        for name, one in self.__dataclass_fields__.items():
            if name not in given and one.default_factory is not MISSING:
                given[name] = one.default_factory()
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
