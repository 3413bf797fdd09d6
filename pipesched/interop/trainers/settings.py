"""A configuration as a flat table: dotted keys with values, each with its position in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipesched.diagnostics import Label
from pipesched.support.foreign import mark, real
from pipesched.support.source import Source, Span


@dataclass(frozen=True)
class Unset:
    """A value that the file does not determine, such as a shell variable or ``auto``. text: its description."""

    text: str

    def __post_init__(self) -> None:
        mark(self, "text")


@dataclass(frozen=True, init=False)
class Unread(Unset):
    """A value that is unknown because the setting is in an unread part of the file."""

    def __init__(self, at: Span | None) -> None:
        object.__setattr__(self, "text", f"not read: line {at.line}" if at else "not read")


@dataclass(frozen=True)
class Setting:
    """A key and its value. written: the key as written in the file. at: its position, None for a default."""

    key: str
    value: object
    at: Span | None = None
    written: str = ""

    def __post_init__(self) -> None:
        mark(self, "key", "value", "written")

    @property
    def shown(self) -> str:
        """The name and value, as in ``local_batch_size is 8``."""
        return f"{(self.written or self.key).rpartition('.')[2]} is {short(self.value)}"

    @property
    def label(self) -> Label:
        """A label with the name and value at the setting's position; without a position if the value is a default."""
        return Label(self.at, self.shown if self.at else f"{self.shown}, its default, since it is not in the file")


def short(value: object) -> str:
    """Return a value as text for a message, cut to 60 characters."""
    if isinstance(value, Unset):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(real(value) if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class Mention:
    """A name in the file, or the description of a part of it. at: its position, None if unknown."""

    name: str
    at: Span | None

    def __post_init__(self) -> None:
        mark(self, "name")


@dataclass(frozen=True)
class Settings:
    """All settings in a file or command, by key. kind: as in `texts.kind_of`. repeated: settings replaced by a later
    setting with the same key.

    mentions: option names in parts of the file that are not read. open_at: holes in a command that may contain any
    option. taken: assumptions made to read the text. launch: options of the launcher. words: words of the command.

    defaults: the trainer's values for keys that are not given. spellings: the names in the file of keys that have
    another name in the table.
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
        """Return the setting of a key, or its default."""
        return self.given.get(key) or Setting(key, self.defaults.get(key), written=self.spelled(key))

    def spelled(self, key: str) -> str:
        """Return the name of a key as a file of this kind spells it."""
        if key in self.spellings or self.kind != "shell" or key.startswith("--"):
            return self.spellings.get(key, key)
        return f"--{key}"
