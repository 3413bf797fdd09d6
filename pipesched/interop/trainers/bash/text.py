"""The text of a script with the offset of each character, and the ends of quotes, brackets and words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ASSIGNED = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\n]*\])?\+?=\Z")
_CLOSED = {"(": ")", "{": "}"}
_CONTINUED = re.compile(r"\\\r?\n")


@dataclass(frozen=True)
class Text:
    """A string, with the offset of each character in the source."""

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
        """The first offset in the source, -1 if none of the characters comes from the source."""
        return next((x for x in self.at if x >= 0), -1)


class Unclosed(Exception):
    """Raised if a quote, a bracket or a statement has no end. at: the offset of its beginning."""

    def __init__(self, at: int) -> None:
        self.at = at
        super().__init__(at)


def plain(chars: str, at: int = -1) -> Text:
    """Return a `Text` whose characters all have the same offset."""
    return Text(chars, (at,) * len(chars))


def joined(texts: Iterable[Text], sign: str = "") -> Text:
    """Join texts with `sign` between them."""
    chars, at = list[str](), list[int]()
    for text in texts:
        between = sign if chars else ""
        chars += between, text.chars
        at += (*(-1 for _ in between), *text.at)
    return Text("".join(chars), tuple(at))


def closing(chars: str, begin: int) -> int:
    """Return the index after the bracket that closes the ``(`` or ``{`` at `begin`; brackets in quotes do not count.

    Raises:
        Unclosed: if no bracket closes it.
    """
    stack, at = [_CLOSED[chars[begin]]], begin + 1
    while at < len(chars):
        sign = chars[at]
        if sign in "\\'\"`":
            at = at + 2 if sign == "\\" else quoted(chars, at)
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
    """Return the index after the quoted text that begins at `begin` with any kind of quote.

    Raises:
        Unclosed: if the quote is not closed.
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
    """Return the index after the word that begins at `begin`, which may be an array in parentheses.

    Raises:
        Unclosed: if a quote or a bracket in the word has no end.
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


def split(text: Text) -> Iterator[Text]:
    """Split the text of an array or a test into words, at whitespace, without comments."""
    chars, at = text.chars, 0
    while at < len(chars):
        if chars[at].isspace():
            at += 1
        elif continued := _CONTINUED.match(chars, at):
            at = continued.end()
        elif chars[at] == "#":
            at = line_end(chars, at)
        else:
            end = max(word_end(chars, at), at + 1)
            while end < len(chars) and chars[at] in "&|<>=" and chars[end] in "&|<>=":
                end += 1
            yield text[at:end]
            at = end


def line_end(chars: str, at: int) -> int:
    """Return the index of the next line end, or of the end of the text."""
    end = chars.find("\n", at)
    return len(chars) if end < 0 else end
