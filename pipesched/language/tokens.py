"""The words of a text, whatever its state: nothing is lost, nothing is refused.

The terminals are the grammar's own; this reader adds what a text that does not parse may hold besides. Tokens and the
blanks between them are the whole text, so a text can be put together again from its tokens (`printer`), and a mistake
can be found in it (`recover`).

    rank r { F[0] § B }    ->   RANK NAME LBRACE F LSQB NUMBER RSQB UNKNOWN B RBRACE
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pipesched.model.ops import LETTERS
from pipesched.source import Source

LONGEST = 18  # digits: every such number fits in 64 bits
COMMENT, END, UNKNOWN, UNCLOSED = "COMMENT", "$END", "UNKNOWN", "UNCLOSED"  # the last two are not the grammar's
ITEMS = ("schedule", "require", "let", "route", "stage", "frozen", "slices", "rank", "costs", "claim")
SOFT = ("frozen", "reads", "slices", "greedy", "R", "O", "L")
"""Words that are names too, wherever a name can be."""
STATEMENTS = (*LETTERS, "overlap", "drain", "for", "repeat", "if", "greedy")
_VALUE_ENDS = (*LETTERS, *")]}{", "true", "false")
_SKIPPED = ("BLANK", "MARK")
_LINE_END = re.compile(r"[\r\n]|\Z")
_NEXT_ITEM = re.compile(rf"[\r\n][ \t]*(?:{'|'.join(ITEMS)})\b|\Z")


class Token(NamedTuple):
    """A word of the text. kind: its terminal in the grammar, or UNKNOWN, or UNCLOSED (a string without its end).

    supplied: not in the text at all, but put where it is missing.
    """

    kind: str
    text: str
    start: int
    supplied: bool = False

    @property
    def named(self) -> bool:
        """Whether it may be a name."""
        return self.kind == "NAME" or self.text in SOFT

    @property
    def end(self) -> int:
        return self.start if self.supplied else self.start + len(self.text)


def too_long(number: str) -> bool:
    """Whether a number has more digits than the language takes."""
    return len(number) - number.count(".") > LONGEST


def known_release(rule: str) -> bool:
    """Whether a rule may follow `release`, besides the letters: ``torch``, or ``split:x`` with x from 0 to 1."""
    name, _, share = rule.partition(":")
    try:
        return rule == "torch" or (name == "split" and 0 <= Fraction(share) <= 1)
    except (ValueError, ZeroDivisionError):
        return False


class Words:
    """The terminals of the grammar: `kinds` by their text, `texts` by their kind, where the text is fixed.

    patterns: kind and regular expression, in the order in which they are tried; of words that are no names, too.
    """

    def __init__(self, patterns: Sequence[tuple[str, str]], kinds: Mapping[str, str], ignored: Container[str]) -> None:
        self.patterns, self.kinds, self._ignored = patterns, kinds, ignored
        self.texts = {kind: text for text, kind in kinds.items()}

    def kind(self, word: str) -> str:
        """The kind of a single word."""
        return self.scan(word)[0].kind

    @cached_property
    def _known(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in self.patterns))

    @cached_property
    def _any(self) -> re.Pattern[str]:
        known = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in self.patterns if kind != "GAP")
        begins = re.escape("".join({text[0] for text in self.kinds} | set('"#<>!*%.')))
        return re.compile(rf"(?P<DOTS>\.{{3,}})|{known}|(?P<{UNKNOWN}>\w+|[^\w\s{begins}]+|(?s:.))")

    def read(self, text: str) -> Iterator[Token]:
        """The tokens of a text in the language, an END behind them; elsewhere an UNKNOWN is the last."""
        at = 0
        while found := self._known.match(text, at):
            at = found.end()
            kind, word = str(found.lastgroup), found.group()
            if kind not in self._ignored:
                yield Token(self.kinds.get(word, kind), word, found.start())
        yield Token(END if at == len(text) else UNKNOWN, "", at)

    def scan(self, text: str) -> list[Token]:
        """Every token of a text, comments among them, blanks not."""
        tokens: list[Token] = []
        at, quoted, last, words = 0, False, "", 0
        while at < len(text):
            token = self._token(text, at, not quoted and last == ")")
            at = token.end
            quoted |= token.text.startswith('"') and words != 2  # the third word of a file may be its display name
            if token.kind in _SKIPPED:
                continue
            if tokens and _one_word(tokens[-1], token):
                token = Token(UNKNOWN, tokens[-1].text + token.text, tokens.pop().start)
            tokens.append(token)
            words += token.kind != COMMENT
            last = last if token.kind == COMMENT else token.text
        return tokens

    def _token(self, text: str, at: int, after_head: bool) -> Token:
        found = self._any.match(text, at)
        assert found is not None  # UNKNOWN takes any character
        kind, word = str(found.lastgroup).replace("DOTS", UNKNOWN), found.group()
        whole = kind == "TEXT" and _item_follows(text, found.end())
        if word == '"' or (kind == "TEXT" and not whole):
            end = _NEXT_ITEM if after_head else _LINE_END
            return Token(UNCLOSED, text[at : end.search(text, at).start()].rstrip(), at)  # type: ignore[union-attr]
        if kind == "TEXT" and not after_head:
            return Token(UNCLOSED, word, at)
        return Token(self.kinds.get(word, kind), word, at)


def _item_follows(text: str, end: int) -> bool:
    """Whether a string that ends here can be the documentation: an item or nothing comes next."""
    rest = re.compile(r"(?:\s|#[^\r\n]*)*(\w*)").match(text, end)
    return rest is None or rest.end() == len(text) or rest.group(1) in ITEMS


def _one_word(before: Token, token: Token) -> bool:
    """Whether unknown letters only carry on a name: ``naïve``."""
    return token.kind == UNKNOWN and token.text[0].isalnum() and before.named and before.end == token.start


def begins(tokens: Sequence[Token], at: int, source: Source) -> bool:
    """Whether a token can only begin a statement or an item, judged by the words around it."""
    word, before = tokens[at].text, tokens[max(0, at - 1)].text
    if word in tuple(LETTERS):
        return before not in ("(", ",", "drain", "release", "costs")
    if word in ("let", "repeat", "overlap", "drain"):
        return before not in ("(", ",") or first_in_line(tokens, at, source)
    if word in ("for", "if", "greedy", "stage", "rank"):  # these are inside statements and items too
        return at == 0 or apart(tokens, at, source)
    return word in ITEMS and (before == "}" or first_in_line(tokens, at, source))


def ends_value(token: Token) -> bool:
    """Whether a statement, an item or an expression can end with this token; true of `{` too."""
    return token.named or token.kind in ("NUMBER", "STRING", "TEXT") or token.text in _VALUE_ENDS


def first_in_line(tokens: Sequence[Token], at: int, source: Source) -> bool:
    """Whether a line end is before the token."""
    return at == 0 or "\n" in source.text[tokens[at - 1].end : tokens[at].start]


def apart(tokens: Sequence[Token], at: int, source: Source) -> bool:
    """Whether a word or a number is first in its line, or block, after something complete."""
    token = tokens[at]
    if at == 0 or (token.kind not in ("NAME", "NUMBER") and token.text not in (*ITEMS, *STATEMENTS)):
        return False
    before = tokens[at - 1]
    return ends_value(before) and (before.text in ("{", "}") or first_in_line(tokens, at, source))
