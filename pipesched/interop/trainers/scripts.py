"""Reads command lines as settings: from the text of a script, or from words that a shell has expanded.

    torchrun --nnodes 2 pretrain_gpt.py --num-layers 12 --bf16      launch: nnodes = 2; --num-layers = 12, --bf16 = true
    python -m torchtitan.train --module llama3 a.b=2 ac:none        --module = llama3, a.b = 2, ac = none

Every command that has options is judged separately. Option names in unevaluated text are mentions: findings do not
assume the default of such an option.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pipesched.diagnostics import Label, fail
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.bash.run import Command, Script
from pipesched.interop.trainers.bash.text import Text, plain
from pipesched.interop.trainers.bash.words import Hole, TooMuch
from pipesched.interop.trainers.settings import Mention, Setting, Settings, Unset
from pipesched.interop.trainers.tables import data
from pipesched.support.foreign import foreign, values
from pipesched.support.source import Source

LARGEST = 2**18
UNKNOWN = "@what-a-program-prints@"
"""The placeholder in a recorded command for the output of a program that was not run."""
_OPTION = re.compile(r"(--[A-Za-z][\w.-]*)(?:=(.*))?", re.S)
_SHORT = re.compile(r"-(N|n|np)")
_DOTTED = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.S)
_CHOSEN = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z][\w.-]*)")
_TRAINING = re.compile(r"(?<!\S)--\S*(?:parallel|pipeline|batch|num[-_]layers|zero|config|module)")
_MENTIONED = re.compile(r"(?<![\w-])(?:--[A-Za-z][\w-]*|[A-Za-z]+(?:_[A-Za-z]+)*(?!\w))")
_OF_PIPELINES = frozenset({"PP", "VPP", "PIPE", "PIPELINE"})
_COMMENT = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|(?P<comment>(?<!\S)\#[^\n]*)""", re.S)
_SBATCH = re.compile(r"^#SBATCH\s+(?:--([\w-]+)[=\s]\s*|-(\w)\s*)([\w:.-]+)", re.M)
_KNOWN = data("shell")
_OPTIONS = re.compile(r"\$\{?\w*?(?:ARGS?|OPTS?|OPTIONS?|FLAGS?|PARAMS?|EXTRA\w*)(?:\[[@*]\])?\}?", re.I)
_NO_OPTIONS = re.compile(r"\$\{?\w*?(?:SCRIPT|PATH|FILE|DIR|PY|ENTRY|PROGRAM|HOST|PORT|NAME)(?:\[[@*]\])?\}?", re.I)
_BROKEN = re.compile(r"\\(?:[ \t]+(?:#[^\n]*)?\n|\r?\n[ \t]*(?:#[^\n]*)?\n)(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*\Z")
_DEEPEST = 12


@dataclass
class _Reading:
    """The options of a command. repeated: options that a later one replaced. open: holes that may contain further
    options. names: the offsets of the characters of option names.
    """

    given: dict[str, Setting] = field(default_factory=dict)
    repeated: list[Setting] = field(default_factory=list)
    open: list[Hole] = field(default_factory=list)
    names: list[int] = field(default_factory=list)

    def put(self, setting: Setting) -> None:
        if old := self.given.get(setting.key):
            self.repeated.append(old)
        self.given[setting.key] = setting


@dataclass(frozen=True)
class _Words:
    """Reads the options in a command's fields. script: the script that explains the holes in the fields."""

    source: Source
    script: Script

    def read(self, fields: tuple[Text, ...], depth: int = 0) -> _Reading:
        """Read the options in a command's fields.

        Raises:
            TooMuch: if the holes have too many possible values.
        """
        self.script.spend(20 * len(fields))
        made, rest = _Reading(), list(reversed(fields))
        while rest:
            word = rest.pop()
            if option := _OPTION.fullmatch(word.chars):
                self._option(made, word, option, rest)
            elif short := _SHORT.fullmatch(word.chars):
                if rest:
                    made.put(self._setting(f"-{short[1]}", self._value(rest[-1]), word))
            elif word.chars == UNKNOWN:
                reason = "the output of a program, which was not run and may contain options"
                made.open.append(Hole(reason, word.place))
            elif (hole := self.script.hole_in(word)) and (len(word) == 1 or self._hides(word)):
                self._fill(made, hole if len(word) == 1 else replace(hole, ways=()), depth)
            elif dotted := _DOTTED.fullmatch(word.chars):
                key = word[dotted.start(1) : dotted.end(1)]
                made.put(self._setting(dotted[1], self._value(word[dotted.start(2) :]), key))
            elif chosen := _CHOSEN.fullmatch(word.chars):
                made.put(self._setting(chosen[1], foreign(chosen[2]), word))
        return made

    def _option(self, made: _Reading, word: Text, option: re.Match[str], rest: list[Text]) -> None:
        """Read an option, with the next field if that is its value. rest: the remaining fields, the next one last."""
        made.names += word.at
        text = None if option[2] is None else word[option.start(2) :]
        if text is None and rest:
            flag = option[1] in _KNOWN["flags"] or option[1].startswith(tuple(_KNOWN["flags_begin"]))
            alone = self.script.hole_in(rest[-1]) and flag
            text = rest.pop() if not alone and self._is_value(rest[-1]) else None
        made.put(self._setting(option[1], True if text is None else self._value(text), word[: option.end(1)]))

    def _fill(self, made: _Reading, hole: Hole, depth: int) -> None:
        """Read the options in the possible values of a hole; an option that differs between them is unknown."""
        if not hole.ways or depth > _DEEPEST:
            program = _NO_OPTIONS.fullmatch(hole.reason.partition(",")[0])
            made.open += [] if program else [replace(hole, reason=f"{hole.reason}: it may contain options")]
            return
        ways = [self.read(self._split(way), depth + 1) for way in hole.ways]
        for way in ways:
            made.open += way.open
            made.names += way.names
        for key in dict.fromkeys(key for way in ways for key in way.given):
            found = [way.given.get(key) for way in ways]
            first = next(x for x in found if x is not None)
            same = all(x is not None and x.value == first.value for x in found)
            made.put(first if same else replace(first, value=Unset(hole.reason)))

    @staticmethod
    def _split(way: Text | tuple[Text, ...]) -> tuple[Text, ...]:
        if isinstance(way, tuple):
            return way
        return tuple(way[x.start() : x.end()] for x in re.finditer(r"\S+", way.chars))

    def _hides(self, word: Text) -> bool:
        """Return True if a word that begins with a hole may contain more options."""
        first = self.script.hole_in(word[:1])
        whole = all(self.script.hole_in(word[n : n + 1]) for n in range(len(word)))
        return first is not None and (whole or "--" in word.chars)

    def _is_value(self, word: Text) -> bool:
        """Return True if a word is the value of the option before it."""
        hole = self.script.hole_in(word)
        if hole is not None and not word.chars.startswith("--"):
            begins = any("--" in x.chars for way in hole.ways for x in (way if isinstance(way, tuple) else (way,)))
            return not begins and (bool(hole.ways) or not _OPTIONS.fullmatch(hole.reason.partition(",")[0]))
        return not word.chars.startswith("--") and not _CHOSEN.fullmatch(word.chars)

    def _value(self, text: Text) -> object:
        hole = self.script.hole_in(text)
        if hole is None and UNKNOWN in text.chars:
            return Unset("the output of a program, which was not run")
        return Unset(hole.reason) if hole else values(value(text.chars))

    def _setting(self, key: str, value: object, at: Text) -> Setting:
        known = [x for x in at.at if x >= 0]
        span = self.source.span(known[0], max(known[-1], known[0]) + 1) if known else None
        if span is not None and span.end - span.start > 2 * len(at):
            span = self.source.span(known[0], known[0] + 1)
        return Setting(foreign(key), value, span, foreign(key))


def value(text: str) -> object:
    """Convert a word to an integer or a boolean; any other word stays a string."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def of_script(source: Source, given: Mapping[str, str]) -> list[Settings]:
    """Read the commands of a script that have options; if there are none, the options in the script's variables."""
    slurm = {name: x[3] for x in _SBATCH.finditer(source.text) for name in _KNOWN["slurm"].get(x[1] or x[2], ())}
    folder = os.path.dirname(source.name) or "."
    script = Script(given=given, sourced=lambda path: _text_beside(source.name, path), folder=folder)
    script.variables |= {name: plain(number) for name, number in slurm.items()}
    text = re.sub("[\U000f0000-\U000fffff]", "?", source.text)
    try:
        script.run(Text(text, tuple(range(len(text)))))
        _require_whole(source, script)
        return _commands(source, script)
    except (TooMuch, RecursionError):
        return [Settings(source, "shell", {}, open_at=(Mention("the script is too complex to read", None),))]


def _commands(source: Source, script: Script) -> list[Settings]:
    """Return the settings of the commands that a script runs; if none has options, the settings in the script's
    variables.

    Raises:
        TooMuch: if the holes have too many possible values.
    """
    words = _Words(source, script)
    commands = [x for x in script.commands if any("--" in y.chars or script.hole_in(y) for y in x.fields)]
    made = [(x, words.read(_apart(x.fields)[1])) for x in commands]
    if not any(reading.given for _, reading in made):
        fields = tuple(y for way in script.variables.values() for y in _Words._split(way))
        fragment = words.read(tuple(x for x in fields if x.chars))
        fragment.open.append(Hole("the command that uses these options is not in the file", -1))
        made = [(Command(fields), fragment)]
    return _settled(source, words, made)


def _require_whole(source: Source, script: Script) -> None:
    """Raise PipeschedError, PS870, if options follow a backslash that does not continue its line."""
    for command in script.commands:
        option = command.fields[0].chars if command.fields else ""
        broken = _BROKEN.search(source.text, 0, max(command.at, 0))
        if option.startswith("--") and broken and _TRAINING.search(" ".join(x.chars for x in command.fields)):
            label = Label(source.span(broken.start(), broken.start() + 1), "the command ends after this backslash")
            message = f"{source.name}: {option.partition('=')[0][:40]} is not an option of the command before it"
            help = "end the line with the backslash, and continue on the next line, without a comment in between"
            raise fail(InteropCode.CONFIG_SYNTAX, message, label, help=help)


def _settled(source: Source, words: _Words, made: list[tuple[Command, _Reading]]) -> list[Settings]:
    """Build the settings of each command, with launcher options, unread parts and assumptions."""
    script = words.script
    covered = set(script.covered)
    for command, reading in made:
        covered.update(reading.names)
        covered.update(x for field in _apart(command.fields)[0] for x in field.at)
    mentions = tuple(_mentions(source, script, covered))
    found: list[Settings] = []
    for command, reading in made:
        launch = words.read(_apart(command.fields)[0]).given
        settings = Settings(
            source,
            "shell",
            reading.given,
            tuple(reading.repeated),
            mentions,
            launch={key.lstrip("-").replace("-", "_"): x for key, x in launch.items()},
            open_at=tuple(
                dict.fromkeys(
                    Mention(foreign(hole.reason), source.span(hole.at, hole.at + 1) if hole.at >= 0 else None)
                    for hole in (*reading.open, *script.unread)
                )
            ),
            taken=tuple(foreign(x) for x in script.taken),
            words=tuple(foreign(script.shown(x)) for x in command.fields),
        )
        found.append(settings)
    return distinct(found)


def distinct(found: Iterable[Settings]) -> list[Settings]:
    """Remove commands that have the same settings as an earlier command."""
    kept: dict[object, Settings] = {}
    for settings in found:
        same = tuple((x.key, str(x.value)) for x in (*settings, *settings.launch.values()))
        kept.setdefault((same, settings.open_at), settings)
    return list(kept.values())


def _apart(fields: tuple[Text, ...]) -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """Split fields into the launcher's and the program's; without a program name, all of them belong to the program."""
    for number, word in enumerate(fields):
        if word.chars.endswith(".py"):
            return fields[:number], fields[number + 1 :]
        if word.chars == "-m" and number + 1 < len(fields) and "." in fields[number + 1].chars:
            if fields[number + 1].chars.startswith(("torch.distributed", "deepspeed.", "accelerate.")):
                continue
            return fields[:number], fields[number + 2 :]
    return (), fields


def _mentions(source: Source, script: Script, covered: set[int]) -> Iterator[Mention]:
    """Yield names of options, and of a pipeline's variables, in parts of the text that are not read."""
    comments = {x for found in _COMMENT.finditer(source.text) if found["comment"] for x in range(*found.span())}
    for found in _MENTIONED.finditer(source.text):
        if found.start() in covered or found.start() in comments:
            continue
        if not found[0].startswith("--") and _OF_PIPELINES.isdisjoint(found[0].upper().split("_")):
            continue
        value = script.variables.get(found[0])
        if found[0].startswith("--") or not (isinstance(value, Text) and value.chars in ("0", "1", "")):
            yield Mention(found[0], source.span(*found.span()))


def of_words(name: str, words: Iterable[str]) -> list[Settings]:
    """Read a command that a shell has expanded; if it is a shell with ``-c``, read the commands in its text."""
    texts = [re.sub("[\U000f0000-\U000fffff]", "?", word) for word in words]
    shown = [shlex.quote(text) for text in texts]
    source = Source(name, " ".join(shown))
    fields, at = [], 0
    for text, word in zip(texts, shown, strict=True):
        begin = at + (text != word)
        inner = word[1:-1] == text
        fields.append(Text(text, tuple(range(begin, begin + len(text)) if inner or text == word else [at] * len(text))))
        at += len(word) + 1
    script = Script()
    script.command(list(fields))
    commands = [x for x in script.commands if any("--" in y.chars for y in x.fields)] or [Command(tuple(fields))]
    reader = _Words(source, script)
    return _settled(source, reader, [(x, reader.read(_apart(x.fields)[1])) for x in commands])


def beside(source: str, path: str) -> str | None:
    """Return the path of a file that a configuration names, in the current or the configuration's folder, or None."""
    return next((x for x in (path, os.path.join(os.path.dirname(source), path)) if os.path.isfile(x)), None)


def _text_beside(source: str, path: str) -> str | None:
    """Return the text of a file that a script names; None if it does not exist, or is longer than any script."""
    file = beside(source, path)
    if file is None or os.path.getsize(file) > LARGEST:
        return None
    with open(file, encoding="utf-8", errors="replace") as stream:
        return stream.read()
