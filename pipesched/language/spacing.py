"""How tokens stand beside one another in canonical text.

F[c](i)    min(a, b)    0 .. m    a // b    -x    { F  B }    route up: stage s    release split:1/2
"""

from __future__ import annotations

from collections.abc import Sequence

from pipesched.language.tokens import Token

_VALUES = ("NAME", "NUMBER")
_VALUE_WORDS = (")", "]", "true", "false")
_BREAK_BEFORE = ("then", "else", "and", "or", "when", "release", "for", "on")
_OPERATORS = ("COMPARE", "TIMES")
_OPERATOR_WORDS = ("+", "-", "/", "=", ",", "and", "or")


def gap(tokens: Sequence[Token], at: int) -> str:
    """The blanks before the token at `at`, where it does not begin a line or a statement."""
    before, token = tokens[at - 1], tokens[at]
    tight_left = before.text in ("(", "[") or _unary(tokens, at - 1) or _in_share(tokens, at)
    tight_right = token.text in (")", "]", ",", ":") or (before.text == "{" and token.text == "}")
    return "" if tight_left or tight_right or _argument(before, token) else " "


def breakable(tokens: Sequence[Token], at: int) -> bool:
    """Whether a line may end before the token: beside an operator, after a comma, before a word like `when`."""
    before, token = tokens[at - 1], tokens[at]
    if gap(tokens, at) == "" or before.text in ("{", "}"):
        return False
    if token.text in _BREAK_BEFORE or _operates(before):
        return True
    return _operates(token) and token.text not in ("=", ",")


def _operates(token: Token) -> bool:
    return token.kind in _OPERATORS or token.text in _OPERATOR_WORDS


def _argument(before: Token, token: Token) -> bool:
    """Whether a bracket belongs to the word before it: a call, a chunk, a microbatch."""
    if token.text == "(":
        return before.kind == "NAME" or before.text in ("overlap", "]") or before.text in tuple("FIWB")
    return token.text == "[" and before.text in tuple("FIWB")


def _unary(tokens: Sequence[Token], at: int) -> bool:
    if tokens[at].text != "-" or at == 0:
        return False
    return tokens[at - 1].kind not in _VALUES and tokens[at - 1].text not in _VALUE_WORDS


def _in_share(tokens: Sequence[Token], at: int) -> bool:
    """Whether a gap is inside `split:1/2`, where nothing stands apart."""
    for start in range(max(0, at - 3), at):
        if tokens[start].text == ":" and tokens[start - 2].text == "release":
            share = tokens[start + 1 : start + 4]
            length = 4 if len(share) == 3 and share[1].text == "/" else 2
            return start < at < start + length
    return False
