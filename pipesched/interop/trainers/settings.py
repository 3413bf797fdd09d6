"""A configuration as a flat table: dotted keys with values, each with the place where it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipesched.diagnostics import Label
from pipesched.support.foreign import mark, real
from pipesched.support.source import Source, Span


@dataclass(frozen=True)
class Unset:
    """A value that a text leaves open: a variable of the shell, or ``auto``."""

    text: str

    def __post_init__(self) -> None:
        mark(self, "text")


@dataclass(frozen=True, init=False)
class Unread(Unset):
    """A value that is not known, because the name of its setting stands in the text unread."""

    def __init__(self, at: Span | None) -> None:
        object.__setattr__(self, "text", f"not read: line {at.line}" if at else "not read")


@dataclass(frozen=True)
class Setting:
    """A key and its value. written: the key as the text has it. at: its place, None for a default."""

    key: str
    value: object
    at: Span | None = None
    written: str = ""

    def __post_init__(self) -> None:
        mark(self, "key", "value", "written")

    @property
    def shown(self) -> str:
        """``local_batch_size is 8``."""
        return f"{(self.written or self.key).rpartition('.')[2]} is {short(self.value)}"

    @property
    def label(self) -> Label:
        """What is said at its place, or of its default."""
        return Label(self.at, self.shown if self.at else f"{self.shown}, its default: it is not in the file")


def short(value: object) -> str:
    """A value as a message shows it."""
    if isinstance(value, Unset):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(real(value) if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class Mention:
    """A name in a text, and where it stands; None where it has no place in it."""

    name: str
    at: Span | None

    def __post_init__(self) -> None:
        mark(self, "name")


@dataclass(frozen=True)
class Settings:
    """All settings of a text, by key. kind: of the text. repeated: settings that a later one of the same key replaces.

    mentions: places where the name of an option stands in the text and is not read as a setting. open_at: holes of a
    command in which any option may stand. taken: what was assumed to read it. launch: options of what starts it. words:
    the command.

    defaults: what the trainer takes where a key is not given. spellings: how a text has a key that goes by another name
    in the table.
    """

    source: Source
    kind: str
    given: Mapping[str, Setting]
    repeated: tuple[Setting, ...] = ()
    mentions: tuple[Mention, ...] = ()
    open_at: tuple[Mention, ...] = ()
    taken: tuple[str, ...] = ()
    launch: Mapping[str, Setting] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    spellings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mark(self, "given", "taken", "launch", "words")

    def __contains__(self, key: str) -> bool:
        return key in self.given

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.given.values())

    def __call__(self, key: str) -> Setting:
        """The setting of a key, else its default."""
        return self.given.get(key) or Setting(key, self.defaults.get(key), written=self.spelled(key))

    def spelled(self, key: str) -> str:
        """A key as a text of this kind has it."""
        if key in self.spellings or self.kind != "shell" or key.startswith("--"):
            return self.spellings.get(key, key)
        return f"--{key}"

    def whole(self, key: str) -> int | None:
        """The value of a key where it is a whole number."""
        value = self(key).value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def count(self, key: str) -> int | None:
        """The value of a key where it is a whole number from 1."""
        value = self.whole(key)
        return value if value is not None and value >= 1 else None

    def text(self, key: str) -> str | None:
        """The value of a key where it is a text that is not empty."""
        value = self(key).value
        return value if isinstance(value, str) and value else None

    def open(self, key: str) -> bool:
        """Whether the text leaves the value of a key open."""
        return isinstance(self(key).value, Unset)
