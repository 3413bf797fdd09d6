"""Finds missing brackets and their places, in one linear pass after which every bracket is paired.

A parser notices an unclosed `{` only at the end of the file, far from the mistake, after errors that only follow from
it. Brackets are therefore paired first, by the clues that a reader uses: no item (`rank`, `claim`, ...) is inside a
block, a word that begins a statement does not follow a value inside `( )`, and a `}` that begins a line has the
indentation of its opener's line.

    rank r { repeat 3 { F }
    claim peak(r) == 1

Here a `}` is missing: it is inserted before the next item, and parsing continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.explain.expected import place
from pipesched.explain.words import ITEMS, STATEMENTS, begins, first_in_line
from pipesched.language.tokens import Token
from pipesched.model.ops import LETTERS
from pipesched.support.source import Source

CLOSER = {"{": "}", "[": "]", "(": ")"}
MOST = 20  # most findings of one run


class Problem(NamedTuple):
    """A finding, and an offset within the faulty statement."""

    offset: int
    diagnostic: Diagnostic


class _Opener(NamedTuple):
    token: Token
    after: str  # the word before it


@dataclass
class Pairing:
    """Pairs the brackets of a text. out: the tokens of the text and the brackets that were supplied. problems: the
    findings.
    """

    source: Source
    tokens: Sequence[Token]
    kinds: Mapping[str, str]
    out: list[Token] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    open: list[_Opener] = field(default_factory=list)
    header: str = ""  # the keyword of a block whose `{` has not come yet
    surplus: int = 0  # number of `}` minus `{`, from here to the next item
    suspect: Token | None = None  # the first opener whose closer is indented differently

    def run(self) -> Pairing:
        for at, token in enumerate(self.tokens):
            if begins(self.tokens, at, self.source) or self._headless(at):
                self._boundary(at, token)
            elif token.text in CLOSER:
                self._opens(at, token)
            elif token.text in CLOSER.values() and not self._closes(at, token):
                continue
            self.header = token.text if self._heads(at) else self.header
            self.out.append(token)
            if len(self.problems) >= MOST:
                return self
        self._unclosed(0, Token("", "", self.tokens[-1].end))
        return self

    # Brackets before a word, judged by that word

    def _boundary(self, at: int, token: Token) -> None:
        part_of_overlap = bool(self.open) and self.open[-1].after == "overlap" and token.text in tuple(LETTERS)
        if not part_of_overlap or first_in_line(self.tokens, at, self.source):
            self._close_round(token)
        if token.text in ITEMS and token.text != "let":
            self._item(at, token)
        elif self.header:
            self._no_block(at, token)

    def _item(self, at: int, token: Token) -> None:
        """Handle the start of an item: close the open brackets, unless their `}` come after the item."""
        surplus = self._count(at)
        if self.open and surplus >= len(self.open):
            self.surplus += surplus
            return
        self._unclosed(0, token)
        self.header, self.suspect, self.surplus = "", None, surplus

    def _headless(self, at: int) -> bool:
        """Return True if a statement begins a line, but the `{` of its block was forgotten."""
        words = (*STATEMENTS, "let")
        return bool(self.header) and self.tokens[at].text in words and first_in_line(self.tokens, at, self.source)

    def _count(self, at: int) -> int:
        """Return the number of `}` minus the number of `{` from one item to the next."""
        surplus = 0
        for i in range(at, len(self.tokens)):
            word = self.tokens[i].text
            if i > at and word in ITEMS and word != "let" and begins(self.tokens, i, self.source):
                break
            surplus += (word == "}") - (word == "{")
        return surplus

    def _heads(self, at: int) -> bool:
        """Return True if the word begins the header of a block."""
        word, before = self.tokens[at].text, self.tokens[max(0, at - 1)].text
        if word in ("for", "rank", "if", "greedy") and not (word == "if" and before == "else"):
            after = self.tokens[at + 1].text if at + 1 < len(self.tokens) else ""
            return after != "microbatch" and begins(self.tokens, at, self.source)
        return word in ("repeat", "if") or (word == "else" and before == "}")

    def _no_block(self, at: int, token: Token) -> bool:
        """Report that the `{` after a header was forgotten, if the file has one `}` too many. Return True if the token
        is that `}`, which is then dropped.
        """
        header, self.header = self.header, ""
        if self.surplus <= 0:
            return False
        before = next(t.text for t in reversed(self.out) if not t.supplied)
        message = f"expected `{{` after `{before}`, found `{token.text}`"
        here = Label(place(self.tokens, at, self.source), f"the block of `{header}` begins with `{{`")
        self.problems.append(Problem(self.out[-1].start, Diagnostic(Code.SYNTAX, message, (here,))))
        self.open.append(_Opener(self._put("{"), ""))
        replaced = token.text == "}" and self.surplus > 1
        self.surplus -= 1 + replaced
        return replaced

    # Brackets

    def _opens(self, at: int, token: Token) -> None:
        if token.text == "{":
            self._close_round(token)
            self.header = ""
        self.open.append(_Opener(token, self.tokens[max(0, at - 1)].text))

    def _closes(self, at: int, token: Token) -> bool:
        """Pair a closing bracket; return False if it must be dropped."""
        if token.text == "}":
            self._close_round(token)
            if self.header and self._no_block(at, token):
                return False
        if not self._reaches(token):
            return self._wrong(token) if self.open and self.open[-1].token.text in ("(", "[") else self._stray(token)
        while CLOSER[self.open[-1].token.text] != token.text:
            self._unclosed(len(self.open) - 1, token)
        if token.text == "}" and self.surplus > 0 and self._out_of_place(at):
            self.surplus -= 1
            return self._stray(token)
        self._note_indentation(at, self.open.pop().token)
        return True

    def _reaches(self, token: Token) -> bool:
        """Return True if an opening bracket of the same kind is open, with no `{` in between."""
        for opener in reversed(self.open):
            if CLOSER[opener.token.text] == token.text:
                return True
            if opener.token.text == "{":
                break
        return False

    def _out_of_place(self, at: int) -> bool:
        """Return True if a `}` is neither on its opener's line nor first on a line with the same indentation."""
        opener, closer = self.open[-1].token, self.tokens[at]
        if self.source.position(opener.start)[0] == self.source.position(closer.start)[0]:
            return False
        level = self._indentation(opener.start) == self._indentation(closer.start)
        return not (level and first_in_line(self.tokens, at, self.source))

    def _note_indentation(self, at: int, opener: Token) -> None:
        if opener.text != "{" or self.suspect or not first_in_line(self.tokens, at, self.source):
            return
        if self._indentation(opener.start) != self._indentation(self.tokens[at].start):
            self.suspect = opener

    def _indentation(self, offset: int) -> int:
        line = self.source.line(self.source.position(offset)[0])
        return len(line) - len(line.lstrip())

    def _put(self, bracket: str) -> Token:
        """Supply a bracket after the last token."""
        self.out.append(Token(self.kinds[bracket], bracket, self.out[-1].end, supplied=True))
        return self.out[-1]

    # Findings

    def _close_round(self, token: Token) -> None:
        while self.open and self.open[-1].token.text in ("(", "["):
            self._unclosed(len(self.open) - 1, token)

    def _unclosed(self, height: int, token: Token) -> None:
        """Close every bracket from `height` on, before the token, and report all of them in one finding."""
        openers = [opener.token for opener in self.open[height:]]
        del self.open[height:]
        for opener in reversed(openers):
            self._put(CLOSER[opener.text])
        openers = [opener for opener in openers if not opener.supplied]
        if not openers:
            return
        if self.suspect and openers[-1].text == "{":
            openers[-1], self.suspect = self.suspect, None
        bracket = openers[-1].text
        where = f"before `{token.text}`" if token.text else "before the end of the file"
        message = f"expected `{CLOSER[bracket]}` {where}: a `{bracket}` is never closed"
        labels = [Label(self.source.span(o.start, o.end), f"this `{o.text}` is never closed") for o in openers]
        here = Label(self.source.span(token.start, token.end), f"`{CLOSER[bracket]}` belongs before this")
        diagnostic = Diagnostic(Code.SYNTAX, message, (*labels, here))
        self.problems.append(Problem(openers[-1].start, diagnostic))

    def _wrong(self, token: Token) -> bool:
        """Replace a closing bracket of the wrong kind by the right one."""
        opener = self.open.pop().token
        right = CLOSER[opener.text]
        message = f"expected `{right}`, found `{token.text}`"
        labels = (
            Label(self.source.span(token.start, token.end), f"`{right}` belongs here"),
            Label(self.source.span(opener.start, opener.end), f"it closes this `{opener.text}`"),
        )
        self.problems.append(Problem(token.start, Diagnostic(Code.SYNTAX, message, labels)))
        self._put(right)
        return False

    def _stray(self, token: Token) -> bool:
        message = f"found `{token.text}`, which closes no bracket"
        here = Label(self.source.span(token.start, token.end), f"no bracket is open for this `{token.text}`")
        diagnostic = Diagnostic(Code.SYNTAX, message, (here,), help="remove it, or open its bracket earlier")
        self.problems.append(Problem(token.start, diagnostic))
        return False
