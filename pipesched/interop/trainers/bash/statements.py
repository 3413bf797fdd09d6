"""Parses a script into statements: commands, conditions, loops, functions; words are not yet expanded.

    text ──tokens──> words and signs ──statements──> Simple, If, Case, Loop, Group, Function

A heredoc is the body of its ``<<`` sign. Text that is not one of these statements raises `Unclosed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from pipesched.interop.trainers.bash.text import Text, Unclosed, closing, line_end, word_end


@dataclass(frozen=True)
class Token:
    """A word, or a sign such as ``;``. body: the heredoc of a sign ``<<``. raw: True if the heredoc is not expanded."""

    text: Text
    sign: bool = False
    body: Text | None = None
    raw: bool = False


@dataclass(frozen=True)
class Simple:
    """The words of a command as they are written. bodies: heredocs, each with True if it is not expanded."""

    words: tuple[Text, ...]
    bodies: tuple[tuple[Text, bool], ...] = ()
    redirected: bool = False


@dataclass(frozen=True)
class If:
    """An ``if``: conditions, each with its statements; the last condition is empty for ``else``."""

    branches: tuple[tuple[Body, Body], ...]


@dataclass(frozen=True)
class Case:
    """A ``case``: its word, and its branches, each with patterns and statements."""

    word: Text
    branches: tuple[tuple[tuple[Text, ...], Body], ...]


@dataclass(frozen=True)
class Loop:
    """``for`` with its variable and words; or, without words, ``while`` or ``until`` with its condition."""

    variable: str | None
    words: tuple[Text, ...]
    condition: Body
    body: Body


@dataclass(frozen=True)
class Group:
    """Statements in braces or parentheses. own: True for parentheses, which stand for a subshell."""

    body: Body
    own: bool = False


@dataclass(frozen=True)
class Function:
    """The definition of a function: its name and its statements."""

    name: Text
    body: Body


Statement: TypeAlias = Simple | If | Case | Loop | Group | Function
Body: TypeAlias = "tuple[tuple[str, Statement], ...]"
"""Statements, each preceded by its sign: ``;``, ``&&``, ``||``, ``|``."""

_SIGNS = re.compile(r"&&|\|\||;;&|;;|;&|\|&|&>>?|<<<|<<-?|[0-9]*[<>]&[0-9-]?|[0-9]*>[>|]?|[0-9]*<>?|[;&|()\n]")
_BLANK = re.compile(r"(?:[ \t\r]+|\\\r?\n)+|#[^\n]*")
_TEST = re.compile(r"\[\[\s.*?\s\]\]", re.S)
_OPENS_TEST = re.compile(r"\[\[\s")
_INPUT = re.compile(r"[<>]\(")
_BETWEEN = ("\n", ";", "&", "&&", "||", "|", "|&")
_ENDS = {"then", "elif", "else", "fi", "do", "done", "esac", "}"}
_DEEPEST = 40


def tokens(text: Text) -> list[Token]:
    """Split text into words and signs, without comments.

    Raises:
        Unclosed: if a quote or a bracket has no end.
    """
    chars, at, made, asking = text.chars, 0, list[Token](), list[int]()
    while at < len(chars):
        if blank := _BLANK.match(chars, at):
            at = blank.end()
            continue
        end, sign = _token_end(chars, at)
        if end == at:
            raise Unclosed(at)
        made.append(Token(text[at:end], sign))
        at = end
        if sign and (made[-1].text.chars.lstrip("0123456789") in ("<<", "<<-")):
            asking.append(len(made) - 1)
        elif sign and chars[at - 1] == "\n":
            for number in asking:
                made[number], at = _with_body(made[number : number + 2], text, at)
            asking.clear()
    return made


def _token_end(chars: str, at: int) -> tuple[int, bool]:
    """Return the index after a token, and True if the token is a sign."""
    if chars.startswith("((", at):
        return closing(chars, at), False
    if _OPENS_TEST.match(chars, at):
        found = _TEST.match(chars, at)
        if found is None:
            raise Unclosed(at)
        return found.end(), False
    sign = None if _INPUT.match(chars, at) else _SIGNS.match(chars, at)
    return (word_end(chars, at), False) if sign is None else (sign.end(), True)


def _with_body(asking: list[Token], text: Text, begin: int) -> tuple[Token, int]:
    """Attach a heredoc, the lines up to its delimiter (the next token), to a sign ``<<``; return the index after it."""
    sign, word = asking[0], "".join(x.text.chars for x in asking[1:] if not x.sign)
    delimiter, stripped, at = re.sub(r"['\"\\]", "", word), sign.text.chars.endswith("-"), begin
    while at < len(text):
        end = line_end(text.chars, at)
        line = text.chars[at:end].rstrip("\r")
        if (line.lstrip("\t") if stripped else line) == delimiter:
            return replace(sign, body=text[begin:at], raw=delimiter != word), end
        at = end + 1
    return replace(sign, body=text[begin:], raw=delimiter != word), len(text)


def statements(text: Text) -> Body:
    """Parse the statements of a script.

    Raises:
        Unclosed: if a statement has no end.
    """
    reader = _Reader(tokens(text))
    made = reader.body()
    if reader.token is not None:
        raise Unclosed(reader.token.text.place)
    return made


@dataclass
class _Reader:
    """The parser's state: the tokens, and the index of the next one. depth: the number of enclosing statements."""

    rest: list[Token]
    at: int = 0
    depth: int = 0

    @property
    def token(self) -> Token | None:
        return self.rest[self.at] if self.at < len(self.rest) else None

    @property
    def word(self) -> str:
        """The next token if it is a word, otherwise empty."""
        return "" if self.token is None or self.token.sign else self.token.text.chars

    @property
    def sign(self) -> str:
        """The next token if it is a sign, otherwise empty."""
        return self.token.text.chars if self.token is not None and self.token.sign else ""

    def next(self) -> Token:
        if self.token is None:
            raise Unclosed(-1)
        self.at += 1
        return self.rest[self.at - 1]

    def passes(self, *words: str) -> str:
        """Skip the next token if it is one of these words, and return it; otherwise return an empty string."""
        found = next((x for x in (self.word, self.sign) if x and x in words), "")
        self.at += bool(found)
        return found

    def want(self, word: str) -> None:
        """Skip line ends, then a required word.

        Raises:
            Unclosed: if the next token is a different one.
        """
        self.lines()
        if not self.passes(word):
            raise Unclosed(self.token.text.place if self.token else -1)

    def lines(self) -> None:
        while self.passes("\n", ";"):
            pass

    def body(self, *ends: str) -> Body:
        """Parse statements up to one of the words or signs `ends`, which is not skipped."""
        found: list[tuple[str, Statement]] = []
        before = ";"
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unclosed(-1)
        while self.token is not None and self.word not in ends and self.sign not in ends:
            if sign := self.passes(*_BETWEEN):
                before = before if sign == "\n" else ";" if sign in (";", "&") else sign
                continue
            if self.word in _ENDS or (self.sign and self.sign != "(" and not re.search(r"[<>][&|0-9-]*\Z", self.sign)):
                raise Unclosed(self.token.text.place)
            found.append((before, self.statement()))
            before = ";"
        self.depth -= 1
        return tuple(found)

    def until(self, word: str) -> Body:
        """Parse statements up to the word that ends them, and skip that word."""
        made = self.body(word)
        self.want(word)
        return made

    def statement(self) -> Statement:
        self.passes("!")
        made = _STATEMENTS.get(self.word or self.sign)
        if made is not None:
            self.at += 1
            return self.redirected(made(self))
        after = self.rest[self.at + 1 : self.at + 3]
        if re.fullmatch(r"[\w.:-]+", self.word) and [x.text.chars for x in after if x.sign] == ["(", ")"]:
            return self.function()
        return self.simple()

    def redirected(self, made: Statement) -> Statement:
        """Skip the redirections after a compound statement, and return the statement."""
        while re.search(r"[<>]", self.sign):
            sign = self.next().text.chars
            self.at += sign[-1] in "<>|" or sign.endswith("<<-")
        return made

    def simple(self) -> Simple:
        words: list[Text] = []
        bodies: list[tuple[Text, bool]] = []
        redirected = False
        while self.token is not None and (not self.sign or re.search(r"[<>]", self.sign)):
            token = self.next()
            if not token.sign:
                words.append(token.text)
                continue
            sign = token.text.chars
            bodies += [] if token.body is None else [(token.body, token.raw)]
            redirected |= ">" in sign and sign != "2>"
            if (sign[-1] in "<>|" or sign.endswith("<<-")) and self.word:
                following = self.next().text
                bodies += [(following, False)] if sign.endswith("<<<") else []
        return Simple(tuple(words), tuple(bodies), redirected)

    def conditions(self) -> If:
        branches = [(self.until("then"), self.body("elif", "else", "fi"))]
        while self.passes("elif"):
            branches.append((self.until("then"), self.body("elif", "else", "fi")))
        if self.passes("else"):
            branches.append(((), self.body("fi")))
        self.want("fi")
        return If(tuple(branches))

    def case(self) -> Case:
        word = self.next().text
        self.want("in")
        branches = []
        self.lines()
        while self.token is not None and self.word != "esac":
            patterns = tuple(x.text for x in self.patterns() if not x.sign)
            branches.append((patterns, self.body(";;", ";&", ";;&", "esac")))
            self.passes(";;", ";&", ";;&")
            self.lines()
        self.want("esac")
        return Case(word, tuple(branches))

    def patterns(self) -> Iterator[Token]:
        while self.token is not None and self.sign != ")":
            yield self.next()
        self.want(")")

    def loop(self) -> Loop:
        variable, words = self.next().text, list[Text]()
        self.lines()
        if self.passes("in"):
            while self.word:
                words.append(self.next().text)
        named = variable.chars if re.fullmatch(r"[A-Za-z_]\w*", variable.chars) else None
        return Loop(named, tuple(words), (), self.do())

    def do(self) -> Body:
        self.want("do")
        return self.until("done")

    def function(self) -> Function:
        name = self.next().text
        if self.passes("("):
            self.want(")")
        self.lines()
        return Function(name, ((";", self.statement()),))


_STATEMENTS: Mapping[str, Callable[[_Reader], Statement]] = {
    "if": _Reader.conditions,
    "case": _Reader.case,
    "for": _Reader.loop,
    "select": _Reader.loop,
    "while": lambda reader: Loop(None, (), reader.body("do"), reader.do()),
    "until": lambda reader: Loop(None, (), reader.body("do"), reader.do()),
    "{": lambda reader: Group(reader.until("}")),
    "(": lambda reader: Group(reader.until(")"), own=True),
    "function": _Reader.function,
}
