"""Finds the commands that a script runs, as far as its text determines them.

    statements ──run──> Command, Command, …     each a list of fields with their offsets

If the text decides a condition, only that branch is run. Otherwise every branch is run, and a variable that gets
different values in them is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pipesched.interop.trainers.bash.known import NAME, condition, test
from pipesched.interop.trainers.bash.statements import (
    Body,
    Case,
    Function,
    Group,
    If,
    Loop,
    Simple,
    Statement,
    statements,
)
from pipesched.interop.trainers.bash.text import Text, Unclosed, joined, plain, split
from pipesched.interop.trainers.bash.words import Hole, TooMuch, Value, Words
from pipesched.interop.trainers.tables import data

_LONGEST = 20_000  # most characters of a value
_DEEPEST = 30
_WAYS = 8  # most values of an open variable that are kept
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_TEXT_OPTION = re.compile(r"-\w*c")
SHELLS = ("bash", "sh", "zsh", "dash")
SILENT = frozenset(data("shell")["silent"])
"""The programs whose arguments are never settings of a trainer."""
_DECLARED = ("export", "declare", "local", "readonly", "typeset")
_PREFIXES = ("exec", "command", "builtin", "nohup", "time", "sudo", "env", "eval", "coproc")


@dataclass(frozen=True)
class Command:
    """A command that is run. fields: its words after expansion. at: its offset in the source."""

    fields: tuple[Text, ...]
    at: int = -1


@dataclass
class Script(Words):
    """The state of a script's run, with the commands found so far.

    sourced: returns the text of a file that the script names. unread: parts that could not be read. piped: True if the
    output of the current command is the input of the next one. covered: offsets of text that is read or irrelevant.
    """

    sourced: Callable[[str], str | None] = lambda _: None
    commands: list[Command] = field(default_factory=list)
    unread: list[Hole] = field(default_factory=list)
    covered: set[int] = field(default_factory=set)
    functions: dict[str, Body] = field(default_factory=dict)
    piped: bool = False
    depth: int = 0

    def run(self, text: Text) -> None:
        """Run the text of a script. If it is not in the supported subset of bash, it is added to `unread`."""
        self.spend(len(text))
        try:
            self.body(statements(text))
        except (Unclosed, RecursionError) as error:
            at = error.at if isinstance(error, Unclosed) else -1
            place = text.at[at] if 0 <= at < len(text) else text.place
            self.unread.append(Hole("the construct that begins here is never closed", place))

    def command(self, fields: list[Text]) -> None:
        """Run a command that another shell has expanded, after making the assignments before it."""
        while fields and (assigned := _ASSIGN.match(fields[0].chars)):
            self.variables[assigned[1]] = fields.pop(0)[assigned.end() :]
        self._called(fields, Simple(()))

    # Statements

    def body(self, body: Body) -> None:
        """Run statements; a statement after ``&&`` or ``||`` may be skipped."""
        last: bool | None = None
        signs = [sign for sign, _ in body[1:]] + [";"]
        for (before, statement), sign in zip(body, signs, strict=False):
            self.piped = sign in ("|", "|&")
            runs = True if before not in ("&&", "||") else None if last is None else last == (before == "&&")
            if runs:
                last = self._one(statement)
            elif runs is None:
                self._maybe([partial(self._one, statement)])
                last = None
            else:
                self._cover(statement)

    def _one(self, statement: Statement) -> bool | None:
        """Run a statement; return True if it succeeds, False if it fails, None if that is unknown."""
        self.spend(1)
        match statement:
            case Simple():
                return self._simple(statement)
            case If(branches):
                self._if(branches)
            case Case(word, branches):
                self._case(self.joined(word), branches)
            case Loop(None):
                self._while(statement)
            case Loop(str(name)):
                self._for(name, statement)
            case Group(body, own):
                before = dict(self.variables)
                self.body(body)
                self.variables = before if own else self.variables
            case Function(name, body):
                self.functions[name.chars] = body
        return None

    def _cover(self, *parts: object) -> None:
        """Mark parts that are not run as covered."""
        for part in parts:
            if isinstance(part, Text):
                self.covered.update(part.at)
            elif isinstance(part, tuple):
                self._cover(*part)
            elif isinstance(part, Simple | If | Case | Loop | Group | Function):
                self._cover(*vars(part).values())

    def _maybe(self, ways: list[Callable[[], object]], *, certain: bool = False) -> None:
        """Run each alternative from the same state; a variable whose final values differ becomes unknown.

        certain: True if one of the alternatives is certain to run.
        """
        before, ends = dict(self.variables), []
        for way in ways:
            self.variables = dict(before)
            way()
            ends.append(self.variables)
        ends += [] if certain else [before]
        self.variables = {name: self._merged(name, ends) for name in dict.fromkeys(x for end in ends for x in end)}

    def _merged(self, name: str, ends: list[dict[str, Value]]) -> Value:
        ways = list(dict.fromkeys(end.get(name, Text()) for end in ends))
        if len({_chars(way) for way in ways}) == 1:
            return ways[0]
        lines = next((x.place for way in ways for x in (way if isinstance(way, tuple) else (way,)) if x.place >= 0), -1)
        return self.hole(f"${name}, which the file sets in different ways", lines, *ways[:_WAYS])

    def _if(self, branches: tuple[tuple[Body, Body], ...]) -> None:
        ways: list[Callable[[], object]] = []
        certain = False
        for number, (asked, body) in enumerate(branches):
            known = self._condition(asked)
            if known is False:
                self._cover(body)
                continue
            ways.append(partial(self.body, body))
            if certain := known is True:
                self._cover(branches[number + 1 :])
                break
        if certain and len(ways) == 1:
            ways[0]()
        else:
            self._maybe(ways, certain=certain)

    def _condition(self, asked: Body) -> bool | None:
        known: bool | None = True
        for before, statement in asked:
            holds = self._one(statement)
            known = holds if before not in ("&&", "||") else _both(known, before, holds)
        return known

    def _case(self, value: Text, branches: tuple[tuple[tuple[Text, ...], Body], ...]) -> None:
        ways: list[Callable[[], object]] = []
        every = False
        for patterns, body in branches:
            self._cover(patterns)
            texts = [self.joined(pattern).chars for pattern in patterns]
            exact = self.hole_in(value) is None and all(re.fullmatch(r"[\w.+-]*|\*", x) for x in texts)
            matches = "*" in texts or value.chars in texts
            if exact and not matches:
                self._cover(body)
                continue
            ways.append(partial(self.body, body))
            every |= "*" in texts or (exact and matches)
            if exact:
                break
        self._maybe(ways, certain=every)

    def _while(self, loop: Loop) -> None:
        words = [x.chars for _, statement in loop.condition if isinstance(statement, Simple) for x in statement.words]
        if not self.arguments and any("$#" in x or "getopts" in x for x in words):
            self._cover(loop)
            self.taken.setdefault("the script is assumed to have no arguments", -1)
        else:
            self._maybe([partial(self.body, (*loop.condition, *loop.body))])

    def _for(self, name: str, loop: Loop) -> None:
        items = self.fields(loop.words)
        if len(items) <= _WAYS and not any(map(self.hole_in, items)):
            for item in items:
                self.variables[name] = item
                self.body(loop.body)
            return
        self.variables[name] = self.hole(f"${name} of a loop", items[0].place if items else -1, *items[:_WAYS])
        self._maybe([partial(self.body, loop.body)])

    # Commands

    def _simple(self, command: Simple) -> bool | None:
        words = list(command.words)
        own: dict[str, Value] = {}
        while words and (assigned := _ASSIGN.match(words[0].chars)):
            own[assigned[1]] = self._assigned(words.pop(0), assigned)
        if not words:
            self.variables.update(own)
            return True
        first = words[0]
        if first.chars.startswith("(("):
            self._cover(first)
            return condition(first.chars, lambda x: self.arithmetic(plain(x)))
        if first.chars.startswith("[["):
            return self._test([self.joined(x) for x in split(first[2:-2])])
        if first.chars in _DECLARED:
            given = [(word, found) for word in words[1:] if (found := _ASSIGN.match(word.chars))]
            self.variables |= {found[1]: self._assigned(word, found) for word, found in given}
            return True
        before = {name: self.variables[name] for name in own if name in self.variables}
        self.variables.update(own)
        result = self._called(self.fields(tuple(words)), command)
        if own:
            self.variables = {x: value for x, value in self.variables.items() if x not in own} | before
        return result

    def _assigned(self, word: Text, assigned: re.Match[str]) -> Value:
        """Return the value that a word assigns to a variable; a variable set from outside keeps its value."""
        name, index, more = assigned[1], assigned[2], assigned[3]
        if name in self.given:
            self._cover(word)
            return plain(self.given[name])
        rest, old = word[assigned.end() :], self.variables.get(name, Text())
        array = old if isinstance(old, tuple) else (old,) if old else ()
        value: Value
        if rest.chars.startswith("("):
            value = (*(array if more else ()), *self.fields(tuple(split(rest[1:-1]))))
        elif index:
            self.joined(rest)
            return self.hole(f"${name}, which the file sets element by element", word.place)
        else:
            last = array[-1] if array and more else Text()
            value = last + self.joined(rest)
        if sum(map(len, value)) > _LONGEST if isinstance(value, tuple) else len(value) > _LONGEST:
            return self.hole(f"${name}, which is too long", word.place)
        return value

    def _test(self, fields: list[Text]) -> bool | None:
        """Return whether a test is true, None if its text does not determine that."""
        self._cover(*fields)
        words = [x.chars for x in fields]
        several = any(x in ("&&", "||", "-a", "-o", "(") for x in words)
        return None if several or any(map(self.hole_in, fields)) else test(words)

    def _called(self, fields: list[Text], command: Simple) -> bool | None:
        """Run a command with these fields: a builtin, a function, or a program, which may be a shell."""
        if not fields:
            return None
        name = fields[0].chars.rpartition("/")[2]
        if name in _BUILTINS:
            return _BUILTINS[name](self, fields, command)
        if name in self.functions:
            self._inside(fields[1:], partial(self.body, self.functions[name]))
        elif name in SILENT:
            self._silent(fields, command)
        else:
            self._program(fields, command)
        return None

    def _silent(self, fields: list[Text], command: Simple) -> None:
        """Ignore a program without settings, unless its output is redirected or piped."""
        if not command.redirected and not self.piped:
            self._cover(*command.words, *(text for text, _ in command.bodies))

    def _set(self, fields: list[Text], command: Simple) -> None:
        if len(fields) > 1 and fields[1].chars == "--":
            self.arguments = tuple(fields[2:])
        else:
            self._silent(fields, command)

    def _unset(self, fields: list[Text], command: Simple) -> None:
        for x in fields[1:]:
            self.variables.pop(x.chars, None)

    def _read(self, fields: list[Text], command: Simple) -> None:
        """Run ``read``: one variable gets the text after ``<<<``; with any other input the variables become unknown."""
        names = [x.chars for x in fields[1:] if NAME.fullmatch(x.chars)]
        one = command.bodies[0][0] if len(names) == 1 and command.bodies else None
        known = self.joined(one) if one is not None and "\n" not in one.chars else None
        for name in names:
            self.variables[name] = known or self.hole(f"${name}, which is set elsewhere", command.words[0].place)

    def _opens(self, fields: list[Text], command: Simple) -> None:
        """Run a builtin whose results are not computed here: the variables that it sets become unknown."""
        for x in fields[1:]:
            if found := NAME.match(x.chars):
                self.variables[found[0]] = self.hole(f"${found[0]}, which {fields[0].chars} sets", x.place)

    def _printf(self, fields: list[Text], command: Simple) -> None:
        if len(fields) > 2 and fields[1].chars == "-v":
            self._opens([fields[0], fields[2]], command)
        else:
            self._silent(fields, command)

    def _source(self, fields: list[Text], command: Simple) -> None:
        for path in fields[1:2]:
            text = self._file(path)
            if text is None:
                self.unread.append(
                    Hole(f"{_end(self.shown(path))}, which cannot be read, may set any variable", path.place)
                )
            else:
                self._enter(partial(self.run, text))

    def _eval(self, fields: list[Text], command: Simple) -> None:
        self._enter(partial(self.run, joined(fields[1:], " ")))

    def _file(self, path: Text) -> Text | None:
        text = None if self.hole_in(path) else self.sourced(path.chars)
        return None if text is None else plain(text)

    def _inside(self, arguments: list[Text], run: Callable[[], None]) -> None:
        """Run a function or a shell with its own arguments."""
        before, self.arguments = self.arguments, tuple(arguments)
        self._enter(run)
        self.arguments = before

    def _enter(self, run: Callable[[], None]) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise TooMuch
        run()
        self.depth -= 1

    def _program(self, fields: list[Text], command: Simple) -> None:
        """Run a program: record it, or, if it is a shell, run the text, file or heredoc that it is given."""
        shell = next((n for n, x in enumerate(fields) if x.chars.rpartition("/")[2] in SHELLS), None)
        if shell is None:
            self._record(fields)
            return
        before, rest = fields[:shell], fields[shell + 1 :]
        option = next((n for n, x in enumerate(rest) if _TEXT_OPTION.fullmatch(x.chars)), None)
        file = next((n for n, x in enumerate(rest) if not x.chars.startswith("-")), None)
        if option is not None:
            self._shell(before, joined(rest[option + 1 : option + 2]), rest[option + 3 :])
        elif file is not None:
            self._script_file(fields, shell, shell + 1 + file)
        for body, raw in command.bodies if option is None and file is None else ():
            self._shell(before, body if raw else self.joined(body, quote=True), [])

    def _script_file(self, fields: list[Text], shell: int, file: int) -> None:
        """Run a shell whose argument is a script file; a missing file is recorded as unread."""
        text = self._file(fields[file])
        if text is None:
            self._record(fields)
            reason = f"the script {_end(self.shown(fields[file]))}, which cannot be read"
            self.unread.append(Hole(reason, fields[file].place))
        else:
            self._shell(fields[:shell], text, fields[file + 1 :])

    def _shell(self, before: list[Text], text: Text, arguments: list[Text]) -> None:
        """Run the text of a script in a subshell; `before` precedes each of its commands."""
        kept, count = dict(self.variables), len(self.commands)
        self._inside(arguments, partial(self.run, text))
        self.variables = kept
        self.commands[count:] = [replace(x, fields=(*before, *x.fields)) for x in self.commands[count:]]

    def _record(self, fields: list[Text]) -> None:
        while len(fields) > 1 and fields[0].chars in _PREFIXES:
            fields = fields[1:]
        self.commands.append(Command(tuple(fields), next((x.place for x in fields if x.place >= 0), -1)))


_BUILTINS: Mapping[str, Callable[[Script, list[Text], Simple], bool | None]] = {
    "[": lambda script, fields, _: script._test(fields[1:-1]),
    "test": lambda script, fields, _: script._test(fields[1:]),
    "true": lambda *_: True,
    ":": lambda *_: True,
    "set": Script._set,
    "unset": Script._unset,
    "read": Script._read,
    "let": Script._opens,
    "mapfile": Script._opens,
    "readarray": Script._opens,
    "printf": Script._printf,
    "source": Script._source,
    ".": Script._source,
    "eval": Script._eval,
}


def _end(path: str) -> str:
    """Return the path for a message: only the end of a long path."""
    return path if len(path) <= 60 else f"…{path[-59:]}"


def _both(known: bool | None, sign: str, other: bool | None) -> bool | None:
    """Return the result of ``&&`` or ``||`` in three-valued logic (None: unknown)."""
    ends = sign == "||"
    if known is ends or other is ends:
        return ends
    return None if known is None or other is None else other


def _chars(value: Value) -> tuple[str, ...] | str:
    return value.chars if isinstance(value, Text) else tuple(x.chars for x in value)
