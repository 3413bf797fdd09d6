"""A script of bash as statements: words with their places, lists, branches, loops, functions.

    text ──tokens──> words and signs ──statements──> Simple, If, Case, Loop, Group, Function

Nothing is expanded here. A character of a text has the offset where it stands in the source, -1 where it has none, so
that a command in quotes, read as a script of its own, keeps its places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Text:
    """Characters, each with its offset in the source."""

    chars: str = ""
    at: tuple[int, ...] = ()

    def __getitem__(self, part: slice) -> Text:
        return Text(self.chars[part], self.at[part])

    def __add__(self, other: Text) -> Text:
        return Text(self.chars + other.chars, self.at + other.at)

    def __len__(self) -> int:
        return len(self.chars)

    @property
    def place(self) -> int:
        """The first offset in the source, -1 if there is none."""
        return next((x for x in self.at if x >= 0), -1)


def plain(chars: str, at: int = -1) -> Text:
    """A text all of which has one place."""
    return Text(chars, (at,) * len(chars))


@dataclass(frozen=True)
class Token:
    """A word, or a sign such as ``;`` with the body of its heredoc."""

    text: Text
    sign: bool = False
    body: Text | None = None
    raw: bool = False


@dataclass(frozen=True)
class Simple:
    """Words of a command as they are written. bodies: heredocs, each with whether its text is taken as it is."""

    words: tuple[Text, ...]
    bodies: tuple[tuple[Text, bool], ...] = ()
    redirected: bool = False


@dataclass(frozen=True)
class If:
    """Conditions with what follows them; the last condition is empty for ``else``."""

    branches: tuple[tuple[Body, Body], ...]


@dataclass(frozen=True)
class Case:
    """A word, and patterns with what follows them."""

    word: Text
    branches: tuple[tuple[tuple[Text, ...], Body], ...]


@dataclass(frozen=True)
class Loop:
    """``for`` with its variable and words, else ``while`` or ``until`` with its condition."""

    variable: str | None
    words: tuple[Text, ...]
    condition: Body
    body: Body


@dataclass(frozen=True)
class Group:
    """Statements in braces, or in brackets, which run in a shell of their own."""

    body: Body
    own: bool


@dataclass(frozen=True)
class Function:
    """A name for statements."""

    name: Text
    body: Body


Statement: TypeAlias = Simple | If | Case | Loop | Group | Function
Body: TypeAlias = "tuple[tuple[str, Statement], ...]"
"""Statements, each with the sign before it: ``;``, ``&&``, ``||``, ``|``."""

_SIGNS = re.compile(r"&&|\|\||;;&|;;|;&|\|&|&>>?|<<<|<<-?|[0-9]*[<>]&[0-9-]?|[0-9]*>[>|]?|[0-9]*<>?|[;&|()\n]")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\n]*\])?\+?=\Z")
_CLOSED = {"(": ")", "{": "}"}
_WAYS = {"then", "elif", "else", "fi", "do", "done", "esac", "}"}
_DEEPEST = 40


class Unclosed(Exception):
    """A quote, a bracket or a statement has no end. at: the offset where it begins."""

    def __init__(self, at: int) -> None:
        self.at = at
        super().__init__(at)


def closing(chars: str, begin: int) -> int:
    """The index behind what begins at ``(`` or ``{``; quotes in it hide what they hold.

    Raises:
        Unclosed: it has no end.
    """
    stack, at = [_CLOSED[chars[begin]]], begin + 1
    while at < len(chars):
        sign = chars[at]
        if sign == "\\":
            at += 2
            continue
        if sign in "'\"`":
            at = quoted(chars, at)
            continue
        if sign == stack[-1]:
            stack.pop()
            if not stack:
                return at + 1
        elif sign == "(" or (sign == "{" and chars[at - 1] == "$"):
            stack.append(_CLOSED[sign])
        at += 1
    raise Unclosed(begin)


def quoted(chars: str, begin: int) -> int:
    """The index behind a quote of any kind.

    Raises:
        Unclosed: it has no end.
    """
    sign, at = chars[begin], begin + 1
    while at < len(chars):
        if chars[at] == sign:
            return at + 1
        if chars[at] == "\\" and sign != "'":
            at += 1
        elif sign == '"' and chars[at] == "$" and chars[at + 1 : at + 2] in ("(", "{"):
            at = closing(chars, at + 1) - 1
        at += 1
    raise Unclosed(begin)


def word_end(chars: str, begin: int) -> int:
    """The index behind the word that begins here; behind an array in brackets too.

    Raises:
        Unclosed: a quote or a bracket in it has no end.
    """
    at = begin
    while at < len(chars):
        sign = chars[at]
        if sign == "\\":
            at += 2
        elif sign in "'\"`":
            at = quoted(chars, at)
        elif sign == "$" and chars[at + 1 : at + 2] in ("(", "{"):
            at = closing(chars, at + 1)
        elif sign == "(" and (_ASSIGNED.match(chars[begin:at]) or (chars[at - 1] in "<>@!+*?" and at > begin)):
            at = closing(chars, at)
        elif sign in "<>" and chars[at + 1 : at + 2] == "(" and at == begin:
            at += 1
        elif sign in " \t\r\n;&|()<>":
            break
        else:
            at += 1
    return min(at, len(chars))


def tokens(text: Text) -> Iterator[Token]:
    """Words and signs; comments are left out, bodies of heredocs go with their sign.

    Raises:
        Unclosed: a quote or a bracket has no end.
    """
    chars, at, waiting = text.chars, 0, list[tuple[str, bool, bool]]()
    while at < len(chars):
        if chars[at] in " \t\r":
            at += 1
        elif chars.startswith("\\\n", at) or chars.startswith("\\\r\n", at):
            at = chars.index("\n", at) + 1
        elif chars[at] == "#":
            at = _line_end(chars, at)
        elif chars.startswith("((", at) or re.compile(r"\[\[\s").match(chars, at):
            end = closing(chars, at) if chars[at] == "(" else _test_end(chars, at)
            yield Token(text[at:end])
            at = end
        elif (sign := _SIGNS.match(chars, at)) and not re.compile(r"[<>]\(").match(chars, at):
            at = sign.end()
            if sign[0] == "\n":
                yield Token(text[sign.start() : at], sign=True)
                for ending, stripped, raw in waiting:
                    body, at = _heredoc(text, at, ending, stripped)
                    yield Token(Text("<<"), sign=True, body=body, raw=raw)
                waiting.clear()
                continue
            yield Token(text[sign.start() : at], sign=True)
            if sign[0].lstrip("0123456789") in ("<<", "<<-"):
                at += len(chars[at:]) - len(chars[at:].lstrip(" \t"))
                end = word_end(chars, at)
                delimiter = re.sub(r"['\"\\]", "", chars[at:end])
                waiting.append((delimiter, sign[0].endswith("-"), delimiter != chars[at:end]))
        else:
            end = word_end(chars, at)
            if end == at:
                raise Unclosed(at)
            yield Token(text[at:end])
            at = end


def _line_end(chars: str, at: int) -> int:
    end = chars.find("\n", at)
    return len(chars) if end < 0 else end


def _test_end(chars: str, at: int) -> int:
    """The index behind ``]]``."""
    found = re.compile(r"\s\]\]").search(chars, at)
    if found is None:
        raise Unclosed(at)
    return found.end()


def _heredoc(text: Text, at: int, delimiter: str, stripped: bool) -> tuple[Text, int]:
    """The body up to its last line, and the index behind it."""
    begin = at
    while at < len(text):
        end = _line_end(text.chars, at)
        line = text.chars[at:end].rstrip("\r")
        if (line.lstrip("\t") if stripped else line) == delimiter:
            return text[begin:at], end
        at = end + 1
    return text[begin:], len(text)


@dataclass
class _Reader:
    """Tokens one after the other, and bodies of heredocs that belong to a command before them."""

    rest: list[Token]
    at: int = 0
    depth: int = 0
    bodies: list[tuple[Text, bool]] = field(default_factory=list)

    def peek(self) -> Token | None:
        return self.rest[self.at] if self.at < len(self.rest) else None

    def word(self) -> str:
        """The next token where it is a word, else nothing."""
        found = self.peek()
        return "" if found is None or found.sign else found.text.chars

    def sign(self) -> str:
        """The next token where it is a sign, else nothing."""
        found = self.peek()
        return found.text.chars if found is not None and found.sign else ""

    def next(self) -> Token:
        self.at += 1
        return self.rest[self.at - 1]

    def want(self, word: str) -> None:
        """Passes a word that must be there.

        Raises:
            Unclosed: it is not.
        """
        self.lines()
        if self.word() != word and self.sign() != word:
            found = self.peek()
            raise Unclosed(found.text.place if found else -1)
        self.at += 1

    def lines(self) -> None:
        while self.sign() in ("\n", ";"):
            self.at += 1


def statements(text: Text) -> Body:
    """The statements of a script.

    Raises:
        Unclosed: one has no end.
    """
    found = [*tokens(text)]
    owned: list[Token] = []
    bodies: dict[int, list[tuple[Text, bool]]] = {}
    opened: list[int] = []
    for token in found:
        if token.body is not None:
            bodies.setdefault(opened.pop(0), []).append((token.body, token.raw))
            continue
        if token.sign and token.text.chars.lstrip("0123456789") in ("<<", "<<-"):
            opened.append(len(owned))
        owned.append(token)
    reader = _Reader(owned)
    made = _body(reader, bodies, ())
    if reader.peek() is not None:
        raise Unclosed(reader.next().text.place)
    return made


Bodies: TypeAlias = dict[int, list[tuple[Text, bool]]]


def _body(reader: _Reader, bodies: Bodies, ends: tuple[str, ...]) -> Body:
    """Statements up to one of the words or signs that end them."""
    found: list[tuple[str, Statement]] = []
    before = ";"
    reader.depth += 1
    if reader.depth > _DEEPEST:
        raise Unclosed(-1)
    while reader.peek() is not None and reader.word() not in ends and reader.sign() not in ends:
        sign = reader.sign()
        if sign in ("\n", ";", "&", "&&", "||", "|", "|&"):
            reader.at += 1
            before = ";" if sign in (";", "&") or (sign == "\n" and before == ";") else before if sign == "\n" else sign
            continue
        if reader.word() in _WAYS or (
            sign and sign != "(" and sign[-1] not in "<>&-|" and sign[-1:] not in "0123456789"
        ):
            raise Unclosed(reader.next().text.place)
        found.append((before, _statement(reader, bodies)))
        before = ";"
    reader.depth -= 1
    return tuple(found)


def _statement(reader: _Reader, bodies: Bodies) -> Statement:
    word = reader.word()
    if word == "!":
        reader.at += 1
        word = reader.word()
    made = _STATEMENTS.get(word)
    if made is not None:
        reader.at += 1
        return _then(reader, made(reader, bodies))
    if reader.sign() == "(":
        reader.at += 1
        inner = _body(reader, bodies, (")",))
        reader.want(")")
        return _then(reader, Group(inner, own=True))
    after = reader.rest[reader.at + 1 : reader.at + 3]
    if re.fullmatch(r"[\w.:-]+", word) and [x.text.chars for x in after if x.sign] == ["(", ")"]:
        name = reader.next().text
        reader.at += 2
        reader.lines()
        return Function(name, ((";", _statement(reader, bodies)),))
    return _simple(reader, bodies)


def _then(reader: _Reader, made: Statement) -> Statement:
    """A compound without what redirects it."""
    while (sign := reader.sign()) and re.search(r"[<>]", sign):
        reader.at += 1
        if sign[-1] in "<>|":
            reader.at += 1
    return made


def _simple(reader: _Reader, bodies: Bodies) -> Simple:
    words: list[Text] = []
    own: list[tuple[Text, bool]] = []
    redirected = False
    while (token := reader.peek()) is not None:
        sign = token.text.chars if token.sign else ""
        if sign and not re.search(r"[<>]", sign):
            break
        reader.at += 1
        if not sign:
            words.append(token.text)
            continue
        own += bodies.get(reader.at - 1, [])
        redirected |= ">" in sign and sign != "2>"
        if (sign[-1] in "<>|" or sign.endswith("<<-")) and reader.word():
            following = reader.next().text
            own += [(following, False)] if sign.endswith("<<<") else []
    return Simple(tuple(words), tuple(own), redirected)


def _if(reader: _Reader, bodies: Bodies) -> If:
    branches = []
    while True:
        condition = _body(reader, bodies, ("then",))
        reader.want("then")
        branches.append((condition, _body(reader, bodies, ("elif", "else", "fi"))))
        way = reader.word()
        if way == "elif":
            reader.at += 1
            continue
        if way == "else":
            reader.at += 1
            branches.append(((), _body(reader, bodies, ("fi",))))
        reader.want("fi")
        return If(tuple(branches))


def _case(reader: _Reader, bodies: Bodies) -> Case:
    word = reader.next().text
    reader.want("in")
    branches = []
    reader.lines()
    while reader.peek() is not None and reader.word() != "esac":
        patterns = []
        while reader.peek() is not None and reader.sign() != ")":
            token = reader.next()
            patterns += [] if token.sign else [token.text]
        reader.want(")")
        branches.append((tuple(patterns), _body(reader, bodies, (";;", ";&", ";;&", "esac"))))
        if reader.sign() in (";;", ";&", ";;&"):
            reader.at += 1
        reader.lines()
    reader.want("esac")
    return Case(word, tuple(branches))


def _for(reader: _Reader, bodies: Bodies) -> Loop:
    variable, words = reader.next().text, list[Text]()
    reader.lines()
    if reader.word() == "in":
        reader.at += 1
        while reader.word():
            words.append(reader.next().text)
    named = variable.chars if re.fullmatch(r"[A-Za-z_]\w*", variable.chars) else None
    return Loop(named, tuple(words), (), _do(reader, bodies))


def _while(reader: _Reader, bodies: Bodies) -> Loop:
    condition = _body(reader, bodies, ("do",))
    return Loop(None, (), condition, _do(reader, bodies))


def _do(reader: _Reader, bodies: Bodies) -> Body:
    reader.want("do")
    inner = _body(reader, bodies, ("done",))
    reader.want("done")
    return inner


def _braces(reader: _Reader, bodies: Bodies) -> Group:
    inner = _body(reader, bodies, ("}",))
    reader.want("}")
    return Group(inner, own=False)


def _function(reader: _Reader, bodies: Bodies) -> Function:
    name = reader.next().text
    if reader.sign() == "(":
        reader.at += 1
        reader.want(")")
    reader.lines()
    return Function(name, ((";", _statement(reader, bodies)),))


_STATEMENTS: Mapping[str, Callable[[_Reader, Bodies], Statement]] = {
    "if": _if,
    "case": _case,
    "for": _for,
    "select": _for,
    "while": _while,
    "until": _while,
    "{": _braces,
    "function": _function,
}
