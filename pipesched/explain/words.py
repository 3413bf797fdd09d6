"""Split any text into tokens, even if it is invalid; no character is lost or refused.

    rank r { F[0] § B }    ->   RANK NAME LBRACE F LSQB NUMBER RSQB UNKNOWN B RBRACE

The terminals are the grammar's; any other text is UNKNOWN, or UNCLOSED (an unterminated string).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from pipesched.language.tokens import UNKNOWN, Token, Words
from pipesched.model.ops import LETTERS
from pipesched.support.source import Source

COMMENT, UNCLOSED = "COMMENT", "UNCLOSED"
ITEMS = (
    "schedule",
    "require",
    "let",
    "route",
    "stage",
    "frozen",
    "slices",
    "versions",
    "rank",
    "costs",
    "parts",
    "claim",
)
STATEMENTS = (*LETTERS, "overlap", "drain", "STEP", "for", "repeat", "if", "greedy", "backfill")
_VALUE_ENDS = (*LETTERS, *")]}{", "true", "false")
_SKIPPED = ("BLANK", "MARK")
_LINE_END = re.compile(r"[\r\n]|\Z")
_NEXT_ITEM = re.compile(rf"[\r\n][ \t]*(?:{'|'.join(ITEMS)})\b|\Z")


def kind(words: Words, word: str) -> str:
    """Return the kind of a single word."""
    return scan(words, word)[0].kind


@cache
def _pattern(words: Words) -> re.Pattern[str]:
    known = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in words.patterns if kind != "GAP")
    begins = re.escape("".join({text[0] for text in words.kinds} | set('"#<>!*%.')))
    return re.compile(rf"(?P<DOTS>\.{{3,}})|{known}|(?P<{UNKNOWN}>\w+|[^\w\s{begins}]+|(?s:.))")


def scan(words: Words, text: str) -> list[Token]:
    """Return every token of a text, including comments but not white space."""
    tokens: list[Token] = []
    at, quoted, last, count = 0, False, "", 0
    while at < len(text):
        token = _token(words, text, at, not quoted and last == ")")
        at = token.end
        quoted |= token.text.startswith('"') and count != 2  # the third word of a file may be its display name
        if token.kind in _SKIPPED:
            continue
        if tokens and _one_word(tokens[-1], token):
            token = Token(UNKNOWN, tokens[-1].text + token.text, tokens.pop().start)
        tokens.append(token)
        count += token.kind != COMMENT
        last = last if token.kind == COMMENT else token.text
    return tokens


def _token(words: Words, text: str, at: int, after_head: bool) -> Token:
    found = _pattern(words).match(text, at)
    assert found is not None  # UNKNOWN takes any character
    kind, word = str(found.lastgroup).replace("DOTS", UNKNOWN), found.group()
    whole = kind == "TEXT" and _item_follows(text, found.end())
    if word == '"' or (kind == "TEXT" and not whole):
        end = _NEXT_ITEM if after_head else _LINE_END
        stop = end.search(text, at)
        assert stop is not None  # the end of the text
        return Token(UNCLOSED, text[at : stop.start()].rstrip(), at)
    if kind == "TEXT" and not after_head:
        return Token(UNCLOSED, word, at)
    return Token(words.kinds.get(word, kind), word, at)


def _item_follows(text: str, end: int) -> bool:
    """Return True if a string that ends here can be the documentation: an item or the end of the text follows."""
    rest = re.compile(r"(?:\s|#[^\r\n]*)*(\w*)").match(text, end)
    return rest is None or rest.end() == len(text) or rest.group(1) in ITEMS


def _one_word(before: Token, token: Token) -> bool:
    """Return True if unknown letters merely continue a name: ``naïve``."""
    return token.kind == UNKNOWN and token.text[0].isalnum() and before.named and before.end == token.start


def begins(tokens: Sequence[Token], at: int, source: Source) -> bool:
    """Return True if a token can only begin a statement or an item, judged by its neighbours."""
    word, before = tokens[at].text, tokens[max(0, at - 1)].text
    if word in tuple(LETTERS):
        return before not in ("(", ",", "drain", "release", "costs", "parts")
    if word in ("let", "repeat", "overlap", "drain"):
        return before not in ("(", ",") or first_in_line(tokens, at, source)
    if word in ("for", "if", "greedy", "backfill", "stage", "rank"):  # these are inside statements and items too
        return at == 0 or apart(tokens, at, source)
    return word in ITEMS and (before == "}" or first_in_line(tokens, at, source))


def ends_value(token: Token) -> bool:
    """Return True if a statement, an item or an expression can end with this token, or if it is `{`."""
    return token.named or token.kind in ("NUMBER", "STRING", "TEXT") or token.text in _VALUE_ENDS


def first_in_line(tokens: Sequence[Token], at: int, source: Source) -> bool:
    """Return True if the token is the first on its line."""
    return at == 0 or "\n" in source.text[tokens[at - 1].end : tokens[at].start]


def apart(tokens: Sequence[Token], at: int, source: Source) -> bool:
    """Return True if a word or a number is the first on its line or in its block, after a complete construct."""
    token = tokens[at]
    if at == 0 or (token.kind not in ("NAME", "NUMBER") and token.text not in (*ITEMS, *STATEMENTS)):
        return False
    before = tokens[at - 1]
    return ends_value(before) and (before.text in ("{", "}") or first_in_line(tokens, at, source))
