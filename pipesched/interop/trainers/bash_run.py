"""The commands of a script of bash, as far as its text tells them: what it sets is put in, what it asks others is open.

    statements ──run──> Command, Command, …     each a list of fields with their places

A hole is one character that stands for what the text does not tell: a variable of the environment, the output of a
program. It has the ways in which it may be filled, where branches of the script set it. A branch whose condition the
text decides is taken or left; of any other both are, and what they set apart is open.
"""

from __future__ import annotations

import ast
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pipesched.interop.trainers.bash_text import (
    Body,
    Case,
    Function,
    Group,
    If,
    Loop,
    Simple,
    Statement,
    Text,
    Unclosed,
    closing,
    plain,
    quoted,
    statements,
    word_end,
)

_FIRST = 0xF0000  # of the private characters that stand for holes
_HOLE = re.compile("[\U000f0000-\U000ffffd]")
_LONGEST = 20_000  # characters of a value
_MOST = 600_000  # characters that are looked at, and steps
_DEEPEST = 30
_WAYS = 8  # in which a variable may be set
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_PARAMETER = re.compile(r"(#?)([A-Za-z_]\w*|[0-9@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.S)
_SELF = r"""["']?\$(?:0|\{0\}|\{BASH_SOURCE(?:\[0\])?(?:-\$0|:-\$0)?\}|BASH_SOURCE)["']?"""
_REAL = rf"""["']?\$\((?:readlink -f|realpath) (?:--)?{_SELF}\)["']?"""
_DIRNAME = rf"dirname (?:-- )?(?:{_SELF}|{_REAL})"
_FOLDER = re.compile(
    rf"""{_DIRNAME}|(?:cd|realpath|readlink -f) (?:-- )?["']?\$\({_DIRNAME}\)["']?(?:.*&& *pwd(?: -P)?)?"""
)
_ARGUMENTS = ("@", "*")
SHELLS = ("bash", "sh", "zsh", "dash")
_SILENT = (
    "echo printf cat grep egrep sed awk mkdir rm cp mv ls cd pwd test [ [[ true false : tee sleep wait date chmod",
    "touch ln which type ulimit trap set shopt module conda pip pip3 pushd popd hostname head tail cut tr sort wc exit",
    "return break continue alias umask kill nvidia-smi scontrol find tar unzip wget curl git log info warn basename",
    "dirname seq logger",
)
SILENT = frozenset(" ".join(_SILENT).split())
"""Programs whose arguments are no settings of a trainer."""
_PREFIXES = ("exec", "command", "builtin", "nohup", "time", "sudo", "env", "eval", "coproc")
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
}


Value: TypeAlias = "Text | tuple[Text, ...]"
"""A variable: a text, or an array of them."""


@dataclass(frozen=True)
class Hole:
    """What the text does not tell. ways: how it may be filled, where that is known."""

    reason: str
    at: int = -1
    ways: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command that is run: its fields. at: where it stands."""

    fields: tuple[Text, ...]
    at: int = -1


@dataclass
class Script:
    """What a script runs.

    given: variables that are set from outside, which nothing in the script changes. sourced: the text of a file that it
    names. commands: what it runs. taken: defaults that were put in, and other things that were assumed. unread: what it
    leaves to others. folder: that of the script. piped: what a command prints goes to the next. covered: offsets of
    what is read or means nothing here.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    sourced: Callable[[str], str | None] = lambda _: None
    commands: list[Command] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)
    unread: list[Hole] = field(default_factory=list)
    covered: set[int] = field(default_factory=set)
    folder: str = "."
    holes: list[Hole] = field(default_factory=list)
    variables: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Body] = field(default_factory=dict)
    arguments: tuple[Text, ...] | None = None
    piped: bool = False
    depth: int = 0
    work: int = 0

    def run(self, text: Text) -> None:
        """Runs a text; what is no script of bash as far as it is known here is unread."""
        self.spend(len(text))
        try:
            self.body(statements(text))
        except (Unclosed, RecursionError) as error:
            at = error.at if isinstance(error, Unclosed) else -1
            place = text.at[at] if 0 <= at < len(text) else text.place
            self.unread.append(Hole("what begins here has no end that is known", place))

    def spend(self, count: int) -> None:
        """Counts work.

        Raises:
            TooMuch: more than any script that starts a training takes.
        """
        self.work += count + 1
        if self.work > _MOST:
            raise TooMuch

    def hole(self, reason: str, at: int, *ways: Value) -> Text:
        """A character for what is not known."""
        self.spend(0)
        if len(self.holes) > 60_000:
            raise TooMuch
        self.holes.append(Hole(reason, at, ways))
        return plain(chr(_FIRST + len(self.holes) - 1), at)

    def hole_in(self, text: Text) -> Hole | None:
        """The first hole of a text."""
        found = _HOLE.search(text.chars)
        return self.holes[ord(found[0]) - _FIRST] if found else None

    # Statements

    def body(self, body: Body) -> None:
        """Runs statements; behind ``&&`` and ``||`` one may be left out."""
        last: bool | None = None
        signs = [sign for sign, _ in body[1:]] + [";"]
        for (before, statement), sign in zip(body, signs, strict=False):
            self.piped = sign in ("|", "|&")
            if before in ("&&", "||"):
                runs = None if last is None else last == (before == "&&")
                if runs is False:
                    self._cover(statement)
                    continue
                if runs is None:
                    self._maybe(((statement,),))
                last = None if runs is None else self._one(statement)
            else:
                last = self._one(statement)

    def _one(self, statement: Statement) -> bool | None:
        """Runs a statement; whether it succeeds, None if that is not known."""
        self.spend(1)
        match statement:
            case Simple():
                return self._simple(statement)
            case If(branches):
                self._if(branches)
            case Case(word, branches):
                self._case(word, branches)
            case Loop():
                self._loop(statement)
            case Group(body, own):
                before = dict(self.variables)
                self.body(body)
                self.variables = before if own else self.variables
            case Function(name, body):
                self.functions[name.chars] = body
        return None

    def _cover(self, *parts: object) -> None:
        """Marks what is not run: what stands there means nothing."""
        for part in parts:
            if isinstance(part, Text):
                self.covered.update(part.at)
            elif isinstance(part, tuple):
                self._cover(*part)
            elif isinstance(part, Simple | If | Case | Loop | Group | Function):
                self._cover(*vars(part).values())

    def _maybe(self, ways: tuple[tuple[Statement, ...], ...], *, all: bool = False) -> None:
        """Runs each way from the same state, and what they set apart is open. all: one of them is run for certain."""
        before, ends = dict(self.variables), []
        for way in ways:
            self.variables = dict(before)
            for statement in way:
                self._one(statement)
            ends.append(self.variables)
        ends += [] if all else [before]
        self.variables = {name: self._merged(name, ends) for name in dict.fromkeys(x for end in ends for x in end)}

    def _merged(self, name: str, ends: list[dict[str, Value]]) -> Value:
        ways = list(dict.fromkeys(end.get(name, Text()) for end in ends))
        if len({_chars(way) for way in ways}) == 1:
            return ways[0]
        lines = next((x.place for way in ways for x in (way if isinstance(way, tuple) else (way,)) if x.place >= 0), -1)
        return self.hole(f"${name}, which the file sets in several ways", lines, *ways[:_WAYS])

    def _if(self, branches: tuple[tuple[Body, Body], ...]) -> None:
        open: list[Body] = []
        certain = False
        for number, (condition, body) in enumerate(branches):
            known: bool | None = True
            for before, statement in condition:
                holds = self._one(statement)
                known = holds if before not in ("&&", "||") else _joined(known, before, holds)
            if known is False:
                self._cover(body)
                continue
            open.append(body)
            if known:
                certain = True
                self._cover(branches[number + 1 :])
                break
        if certain and len(open) == 1:
            self.body(open[0])
        else:
            self._maybe(tuple((Group(body, own=False),) for body in open), all=certain)

    def _case(self, word: Text, branches: tuple[tuple[tuple[Text, ...], Body], ...]) -> None:
        value = self.joined(word)
        known = self.hole_in(value) is None
        open: list[Body] = []
        every = False
        for patterns, body in branches:
            self._cover(patterns)
            texts = [self.joined(pattern).chars for pattern in patterns]
            any = "*" in texts
            exact = known and all(re.fullmatch(r"[\w.+-]*", x) for x in texts if x != "*")
            if exact and not any and value.chars not in texts:
                self._cover(body)
                continue
            open.append(body)
            every |= any
            if exact and (value.chars in texts or any):
                every = True
                break
        self._maybe(tuple((Group(body, own=False),) for body in open), all=every)

    def _loop(self, loop: Loop) -> None:
        if loop.variable is None:
            asks = any("$#" in word.chars or "getopts" in word.chars for word in _words(loop.condition))
            if asks and not self.arguments:
                self._cover(loop)
                self.taken.setdefault("arguments of the script are taken to be none", -1)
                return
            self._maybe(((Group(loop.condition, own=False), Group(loop.body, own=False)),))
            return
        items = self.fields(loop.words)
        if len(items) <= _WAYS and not any(map(self.hole_in, items)):
            for item in items:
                self.variables[loop.variable] = item
                self.body(loop.body)
            return
        place = items[0].place if items else -1
        self.variables[loop.variable] = self.hole(f"${loop.variable} of a loop", place, *items[:_WAYS])
        self._maybe(((Group(loop.body, own=False),),))

    def _simple(self, command: Simple) -> bool | None:
        words = list(command.words)
        own: dict[str, Value] = {}
        while words and (assigned := _ASSIGN.match(words[0].chars)):
            own[assigned[1]] = self._assigned(words.pop(0), assigned)
        if not words:
            self.variables.update(own)
            return True
        if words[0].chars.startswith("(("):
            return self._arithmetic_holds(words[0])
        if words[0].chars.startswith("[["):
            return self._test([self.joined(x) for x in _split(words[0][2:-2])])
        name = words[0].chars
        if name in ("export", "declare", "local", "readonly", "typeset"):
            for word in words[1:]:
                if assigned := _ASSIGN.match(word.chars):
                    self.variables[assigned[1]] = self._assigned(word, assigned)
            return True
        before = dict(self.variables)
        self.variables.update(own)
        fields = self.fields(tuple(words))
        result = self._called(fields, command)
        if own:
            self.variables = {**self.variables, **{x: before[x] for x in own if x in before}}
            for x in own.keys() - before.keys():
                self.variables.pop(x, None)
        return result

    def _assigned(self, word: Text, assigned: re.Match[str]) -> Value:
        """The value that a word gives to a variable; one that is given from outside stays."""
        name, index, more = assigned[1], assigned[2], assigned[3]
        if name in self.given:
            self._cover(word)
            return plain(self.given[name])
        rest = word[assigned.end() :]
        old = self.variables.get(name, Text())
        value: Value
        if rest.chars.startswith("("):
            own = self.fields(tuple(_split(rest[1:-1])))
            value = (*((old if isinstance(old, tuple) else (old,) if old.chars else ()) if more else ()), *own)
        else:
            text = self.joined(rest)
            last = old[-1] if isinstance(old, tuple) and old else Text() if isinstance(old, tuple) else old
            if index:
                value = self.hole(f"${name}, parts of which are set one by one", word.place)
            elif more:
                value = last + text
            else:
                value = text
        if sum(map(len, value)) > _LONGEST if isinstance(value, tuple) else len(value) > _LONGEST:
            value = self.hole(f"${name}, which is too long", word.place)
        return value

    # Commands

    def _called(self, fields: list[Text], command: Simple) -> bool | None:
        """Runs a command of these fields: a function, a shell with its own text, or a program."""
        if not fields:
            return None
        name = fields[0].chars.rpartition("/")[2]
        if name in ("[", "test"):
            return self._test(fields[1:-1] if name == "[" else fields[1:])
        if name in ("true", ":"):
            return True
        if name == "set" and len(fields) > 1 and fields[1].chars == "--":
            self.arguments = tuple(fields[2:])
        elif name == "unset":
            for x in fields[1:]:
                self.variables.pop(x.chars, None)
        elif name == "read":
            self._read(fields[1:], command)
        elif name == "let":
            for x in fields[1:]:
                if (assigned := _ASSIGN.match(x.chars)) and not assigned[2] and not assigned[3]:
                    found = self._arithmetic(x[assigned.end() :])
                    unknown = self.hole(f"${assigned[1]}, which is not known", x.place)
                    self.variables[assigned[1]] = unknown if found is None else plain(str(found), x.place)
        elif name == "printf" and len(fields) == 5 and fields[1].chars == "-v" and fields[3].chars in ("%s", "%d"):
            self.variables[fields[2].chars] = fields[4]
        elif name in ("source", ".") and len(fields) > 1:
            self._source(fields[1])
        elif name in self.functions:
            self._function(name, fields[1:])
        elif name == "eval":
            self._deeper(_joined_by(fields[1:], " "))
        elif name in SILENT:
            kept = command.redirected or self.piped
            self._cover(*(() if kept else (*command.words, *(text for text, _ in command.bodies))))
        else:
            self._program(fields, command)
        return None

    def _read(self, fields: list[Text], command: Simple) -> None:
        """``read`` of a text behind ``<<<``; of anything else its variables are open."""
        names = [x.chars for x in fields if not x.chars.startswith("-") and _NAME.fullmatch(x.chars)]
        one = command.bodies[0][0] if len(names) == 1 and command.bodies else None
        known = self.joined(one) if one is not None and "\n" not in one.chars else None
        for name in names:
            self.variables[name] = known or self.hole(f"${name}, which is read from elsewhere", command.words[0].place)

    def _source(self, path: Text) -> None:
        text = None if self.hole_in(path) else self.sourced(path.chars)
        if text is None:
            self.unread.append(Hole(f"{_end(self.shown(path))}, which is not there, may set anything", path.place))
        else:
            self._deeper(plain(text))

    def _function(self, name: str, arguments: list[Text]) -> None:
        before, self.arguments = self.arguments, tuple(arguments)
        self._enter(lambda: self.body(self.functions[name]))
        self.arguments = before

    def _deeper(self, text: Text) -> None:
        self._enter(lambda: self.run(text))

    def _enter(self, run: Callable[[], None]) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise TooMuch
        run()
        self.depth -= 1

    def _program(self, fields: list[Text], command: Simple) -> None:
        """A program; a shell that it starts with a text, a file or a heredoc runs that."""
        shell = next((n for n, x in enumerate(fields) if x.chars.rpartition("/")[2] in SHELLS), None)
        if shell is None:
            self._record(fields)
            return
        rest = fields[shell + 1 :]
        flags = [x for x in rest if x.chars.startswith("-")]
        if any(re.fullmatch(r"-\w*c", x.chars) for x in flags):
            at = next(n for n, x in enumerate(rest) if re.fullmatch(r"-\w*c", x.chars))
            self._inside(fields[:shell], rest[at + 1] if at + 1 < len(rest) else Text(), rest[at + 3 :])
        elif command.bodies and not rest[len(flags) :]:
            for body, raw in command.bodies:
                self._inside(fields[:shell], body if raw else self._quoted(body), [])
        elif file := next((x for x in rest if not x.chars.startswith("-")), None):
            text = None if self.hole_in(file) else self.sourced(file.chars)
            if text is None:
                self._record(fields)
                self.unread.append(Hole(f"the script {_end(self.shown(file))}, which is not there", file.place))
            else:
                self._inside(fields[:shell], plain(text), rest[rest.index(file) + 1 :])

    def _inside(self, before: list[Text], text: Text, arguments: list[Text]) -> None:
        """Runs a text in a shell of its own; what it runs has the words before that shell before it."""
        kept, own, count = dict(self.variables), self.arguments, len(self.commands)
        self.arguments = tuple(arguments)
        self._deeper(text)
        self.variables, self.arguments = kept, own
        self.commands[count:] = [replace(x, fields=(*before, *x.fields)) for x in self.commands[count:]]

    def command(self, fields: list[Text]) -> None:
        """Runs a command that another shell has expanded; assignments before it count."""
        while fields and (assigned := _ASSIGN.match(fields[0].chars)):
            self.variables[assigned[1]] = fields.pop(0)[assigned.end() :]
        self._called(fields, Simple(()))

    def _record(self, fields: list[Text]) -> None:
        while len(fields) > 1 and fields[0].chars in _PREFIXES:
            fields = fields[1:]
        self.commands.append(Command(tuple(fields), next((x.place for x in fields if x.place >= 0), -1)))

    # Conditions

    def _test(self, fields: list[Text]) -> bool | None:
        """Whether a test holds, None if its text does not say."""
        self._cover(*fields)
        words = [x.chars for x in fields]
        if words[:1] == ["!"]:
            found = self._test(fields[1:])
            return None if found is None else not found
        if any(_HOLE.search(x) for x in words) or any(x in ("&&", "||", "-a", "-o", "(") for x in words):
            return None
        if len(words) == 2 and words[0] in ("-z", "-n"):
            return (words[1] == "") == (words[0] == "-z")
        if len(words) == 3 and words[1] in ("=", "==", "!="):
            if re.search(r"[*?\[]", words[2]):
                return None
            return (words[0] == words[2]) == (words[1] != "!=")
        if len(words) == 3 and words[1] in _COMPARED and all(re.fullmatch(r"-?[0-9]{1,18}", words[n]) for n in (0, 2)):
            return _COMPARED[words[1]](int(words[0]), int(words[2]))
        return None

    def _arithmetic_holds(self, word: Text) -> bool | None:
        self._cover(word)
        found = re.fullmatch(r"\(\((.*?)(==|!=|<=|>=|<|>)(.*)\)\)", word.chars, re.S)
        if found is None:
            return None
        left, right = (self._arithmetic(plain(found[n])) for n in (1, 3))
        if left is None or right is None:
            return None
        by = {"==": "-eq", "!=": "-ne", "<=": "-le", ">=": "-ge", "<": "-lt", ">": "-gt"}[found[2]]
        return _COMPARED[by](left, right)

    # Words

    def fields(self, words: tuple[Text, ...]) -> list[Text]:
        """Words as the fields that they become."""
        return [x for word in words for x in self._expanded(word)]

    def joined(self, word: Text) -> Text:
        """A word as one field, as an assignment has it."""
        return _joined_by([part for part, _ in self._parts(word, quote=False)], "")

    def shown(self, text: Text) -> str:
        """A text with its holes as they are written."""
        return _HOLE.sub(lambda found: self.holes[ord(found[0]) - _FIRST].reason.partition(",")[0], text.chars)

    def _expanded(self, word: Text) -> Iterator[Text]:
        """The fields of a word: split at blanks where it is not in quotes, an array an element each."""
        current: Text | None = None
        for part, kept in self._parts(word, quote=False, arrays=True):
            if kept is None:  # between two elements of an array
                if current:
                    yield current
                current = None
            elif kept:
                current = (current or Text()) + part
            else:
                pieces = [*re.finditer(r"\s+|\S+", part.chars)]
                for piece in pieces:
                    if piece[0].isspace():
                        if current is not None:
                            yield current
                        current = None
                    else:
                        current = (current or Text()) + part[piece.start() : piece.end()]
        if current is not None:
            yield current

    def _quoted(self, text: Text) -> Text:
        """A text in double quotes, which is one."""
        return _joined_by([part for part, _ in self._parts(text, quote=True)], "")

    def _parts(self, word: Text, *, quote: bool, arrays: bool = False) -> Iterator[tuple[Text, bool | None]]:
        """Parts of a word, each with whether it is kept whole; None: an element of an array ends."""
        self.spend(len(word))
        chars, at = word.chars, 0
        while at < len(chars):
            sign = chars[at]
            if sign == "\\" and at + 1 < len(chars):
                after = chars[at + 1]
                if after == "\r" and chars[at + 2 : at + 3] == "\n":
                    at += 1
                elif after != "\n":
                    bare = not quote or after in '$`"\\'
                    yield word[at + 1 if bare else at : at + 2], True
                at += 2
            elif sign == "'" and not quote:
                end = quoted(chars, at)
                yield word[at + 1 : end - 1], True
                at = end
            elif sign == '"' and not quote:
                end = quoted(chars, at)
                yield Text(), True
                yield from (
                    (x, None if kept is None else True)
                    for x, kept in self._parts(word[at + 1 : end - 1], quote=True, arrays=arrays)
                )
                at = end
            elif sign == "`":
                end = quoted(chars, at)
                yield self._output(word[at + 1 : end - 1], word[at:end]), quote
                at = end
            elif sign == "$" and at + 1 < len(chars):
                end = self._dollar_end(chars, at)
                inner = self._dollar(word[at:end], quote=quote, arrays=arrays)
                yield from inner
                at = end
            else:
                end = at + 1
                while end < len(chars) and chars[end] not in "\\'\"`$":
                    end += 1
                yield word[at:end], True
                at = end

    def _dollar_end(self, chars: str, at: int) -> int:
        after = chars[at + 1]
        if after in "({":
            return closing(chars, at + 1)
        if after == "'":
            return quoted(chars, at + 1)
        found = _NAME.match(chars, at + 1)
        return found.end() if found else at + (2 if after in "0123456789@*#?$!-" else 1)

    def _dollar(self, word: Text, *, quote: bool, arrays: bool) -> Iterator[tuple[Text, bool | None]]:
        """What stands behind a dollar."""
        chars = word.chars
        if len(chars) == 1:
            yield word, True
        elif chars.startswith("$'"):
            yield word[2:-1], True
        elif chars.startswith("$(("):
            inner = word[3:-2]
            value = self._arithmetic(inner)
            if value is None:
                yield self.hole(f"{chars[:40]}, which is not known", word.place), quote
            else:
                yield plain(str(value), word.place), quote
        elif chars.startswith("$("):
            yield self._output(word[2:-1], word), quote
        else:
            inner = word[2:-1] if chars.startswith("${") else word[1:]
            found = _PARAMETER.fullmatch(inner.chars)
            if found is None:
                yield self.hole(f"{chars[:40]}, which is not read", word.place), quote
            else:
                yield from self._parameter(word, inner, found, quote=quote, arrays=arrays)

    def _parameter(
        self, word: Text, inner: Text, found: re.Match[str], *, quote: bool, arrays: bool
    ) -> Iterator[tuple[Text, bool | None]]:
        """The value of a parameter, with what is asked of it."""
        counted, name, index, rest = found.groups()
        value = self._value(name, word)
        if counted:
            count = len(value) if isinstance(value, tuple) and index in _ARGUMENTS else None
            known = isinstance(value, Text) and not self.hole_in(value)
            length = len(value) if known and isinstance(value, Text) else count
            yield (
                (self.hole(f"{word.chars[:40]}, a count", word.place) if length is None else plain(str(length))),
                quote,
            )
            return
        several = index in _ARGUMENTS or name in _ARGUMENTS
        if isinstance(value, tuple) and not several:
            number = int(index) if index and re.fullmatch(r"[0-9]{1,6}", index) else 0 if not index else None
            value = None if number is None or number >= len(value) else value[number]
        elif index and not several and isinstance(value, Text) and index != "0":
            value = None
        if rest:
            value = self._asked(word, inner[found.start(4) :], name, value)
        if value is None:
            value = self.hole(f"{word.chars[:40]}, which the file does not set", word.place)
        if isinstance(value, Text):
            yield value, quote
            return
        star = quote and "*" in (name, index)
        for number, element in enumerate(value):
            if number:
                yield (plain(" "), True) if star or not arrays else (Text(), None)
            yield element, quote
        if not value and quote and arrays:
            yield Text(), None

    def _value(self, name: str, word: Text) -> Value | None:
        """What a variable is, None if nothing sets it."""
        if name in self.given:
            return plain(self.given[name])
        if name in _ARGUMENTS:
            if self.arguments is None:
                self.taken.setdefault(f"{word.chars[:20]}: arguments of the script are taken to be none", word.place)
            return self.arguments or ()
        if name in ("0", "BASH_SOURCE"):
            own = self.hole("the name of the script", word.place)
            return _joined_by([plain(f"{self.folder}/", word.place), own], "")
        if name.isdigit():
            number = int(name)
            known = self.arguments is not None and 0 < number <= len(self.arguments)
            return self.arguments[number - 1] if known and self.arguments else None
        if name == "#":
            return None if self.arguments is None else plain(str(len(self.arguments)))
        return self.variables.get(name)

    def _asked(self, word: Text, rest: Text, name: str, value: Value | None) -> Value | None:
        """``:-`` and its like, ``:4``, ``,,``; None of what is not known here."""
        sign = rest.chars
        empty = (
            value is None or (isinstance(value, tuple) and not value) or (isinstance(value, Text) and not value.chars)
        )
        open = isinstance(value, Text) and self.hole_in(value) is not None
        if asked := re.match(r":?[-=]", sign):
            used = value is None if len(asked[0]) == 1 else empty
            if not used:
                return value
            default = self.joined(rest[asked.end() :])
            if value is None and default.chars and not self.hole_in(default):
                self.taken.setdefault(
                    f"{name} is {default.chars[:40]}, as {word.chars[:40]} has it: -D {name}=…", word.place
                )
            if "=" in asked[0]:
                self.variables[name] = default
            return default
        if asked := re.match(r":?\+", sign):
            if value is None:
                return Text()
            return None if open else Text() if empty else self.joined(rest[asked.end() :])
        if re.match(r":?\?", sign):
            return value
        if value is None or open or isinstance(value, tuple):
            return self.hole(f"{word.chars[:40]}, which is not read", word.place)
        changed = _changed(value.chars, sign)
        return (
            self.hole(f"{word.chars[:40]}, which is not read", word.place)
            if changed is None
            else plain(changed, value.place)
        )

    def _output(self, text: Text, whole: Text) -> Text:
        """What a command prints: known of ``echo`` alone."""
        if _FOLDER.fullmatch(text.chars.strip()):
            return plain(self.folder, whole.place)
        words = text.chars.split(None, 1)
        if words and words[0] == "dirname" and not re.search(r"[|;&<>]", text.chars):
            path = [x.chars for x in self.fields(tuple(_split(text)))[1:] if x.chars != "--"]
            if len(path) == 1 and not _HOLE.search(folder := os.path.dirname(path[0].rstrip("/"))):
                return plain(folder or ".", whole.place)
        if words and words[0] == "echo" and not re.search(r"[|;&<>]", text.chars):
            fields = self.fields(tuple(_split(text)))[1:]
            if not any(re.fullmatch("-[neE]+", x.chars) for x in fields[:1]):
                return _joined_by(fields, " ")
        if words and words[0] == "expr":
            value = self._arithmetic(_joined_by(self.fields(tuple(_split(text)))[1:], " "))
            if value is not None:
                return plain(str(value), whole.place)
        return self.hole(f"{whole.chars[:40]}, the output of a program", whole.place)

    def _arithmetic(self, text: Text) -> int | None:
        """A whole number of ``+ - * / %``, None if it is not known."""
        chars = self._quoted(text).chars
        for name in dict.fromkeys(_NAME.findall(chars)):
            value = self.variables.get(name)
            if not isinstance(value, Text) or not re.fullmatch(r"-?[0-9]{1,18}", value.chars):
                return None
            chars = re.sub(rf"\b{name}\b", value.chars, chars)
        if len(chars) > 200 or not re.fullmatch(r"[0-9+\-*/%()\s]+", chars):
            return None
        try:
            return _computed(ast.parse(chars.strip().replace("/", "//"), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, KeyError, MemoryError):
            return None


class TooMuch(Exception):
    """A script takes more work than any that starts a training."""


_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def _computed(node: ast.expr) -> int:
    """The value of an expression.

    Raises:
        ValueError: it is none of whole numbers, or too large.
    """
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_computed(operand)
        case ast.BinOp(left=left, op=sign, right=right):
            value = _OPERATORS[type(sign)](_computed(left), _computed(right))
            if abs(value) < 10**18:
                return value
    raise ValueError


def _changed(value: str, sign: str) -> str | None:
    """``${X,,}``, ``${X:0:4}``, ``${X##*/}``: the value as it is asked for; None of any other sign."""
    if sign in (",,", "^^"):
        return value.lower() if sign == ",," else value.upper()
    if found := re.fullmatch(r":\s*([0-9]{1,6})(?::([0-9]{1,6}))?", sign):
        begin = int(found[1])
        return value[begin : begin + int(found[2]) if found[2] else None]
    if found := re.fullmatch(r"(##?)\*([\w/.-])", sign):
        _, mark, rest = value.rpartition(found[2]) if found[1] == "##" else value.partition(found[2])
        return rest if mark else value
    if found := re.fullmatch(r"(%%?)([\w/.-])\*", sign):
        rest, mark, _ = value.partition(found[2]) if found[1] == "%%" else value.rpartition(found[2])
        return rest if mark else value
    return None


def _end(path: str) -> str:
    """A path as a message shows it: of a long one the end."""
    return path if len(path) <= 60 else f"…{path[-59:]}"


def _joined_by(texts: list[Text], sign: str) -> Text:
    chars = sign.join(x.chars for x in texts)
    at: list[int] = []
    for number, text in enumerate(texts):
        at += ((-1,) * len(sign) if number else ()) + text.at
    return Text(chars, tuple(at))


def _joined(known: bool | None, sign: str, other: bool | None) -> bool | None:
    """``&&`` and ``||`` of what may not be known."""
    ends = sign == "||"
    if known is ends or other is ends:
        return ends
    return None if known is None or other is None else other


def _chars(value: Value) -> tuple[str, ...] | str:
    return value.chars if isinstance(value, Text) else tuple(x.chars for x in value)


def _split(text: Text) -> Iterator[Text]:
    """The words of an array or a test: apart at blanks and line ends, without comments."""
    chars, at = text.chars, 0
    while at < len(chars):
        if chars[at].isspace():
            at += 1
        elif chars.startswith(("\\\n", "\\\r\n"), at):
            at = chars.index("\n", at) + 1
        elif chars[at] == "#":
            end = chars.find("\n", at)
            at = len(chars) if end < 0 else end
        else:
            end = max(word_end(chars, at), at + 1)
            while end < len(chars) and chars[at] in "&|<>=" and chars[end] in "&|<>=":
                end += 1
            yield text[at:end]
            at = end


def _words(body: Body) -> Iterator[Text]:
    for _, statement in body:
        if isinstance(statement, Simple):
            yield from statement.words
