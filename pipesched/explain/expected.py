"""Write messages for syntax errors: what was found, what was expected, and the remedy if it is clear.

The expected tokens come from the grammar's table; here they are summarized: eleven operators become "an operator", and
a value is never "NUMBER, NAME, LPAR or MINUS".
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.explain.words import ITEMS, STATEMENTS, apart, first_in_line
from pipesched.language.tokens import SOFT, Token
from pipesched.model.ops import KIND, LETTERS
from pipesched.support.source import Source, Span

_OPERATORS = {"+", "-", "*", "TIMES", "/", "COMPARE", "and", "or"}
_VALUES = {"NAME", "NUMBER", "(", "-", "not", "true", "false", "if"}
_LETTERS = set(LETTERS)
_KINDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "TEXT": "a string",
    "$END": "the end of the file",
}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_WRITTEN = ("≥", "≤", "≠", "−", "–", "×", "…", "...", "&", "&&", "|", "||", "!", "≈", "÷", "＝")
_AS = (">=", "<=", "!=", "-", "-", "*", "..", "..", "and", "and", "or", "or", "not", "==", "//", "=")
_MEANT = dict(zip(_WRITTEN, _AS, strict=True))
_NOT_WORDS = {
    **dict.fromkeys(("while", "until"), "every loop needs bounds: `for k in low .. high { … }` or `repeat n { … }`"),
    **dict.fromkeys(("return", "yield", "pass", "break", "continue"), "a program lists operations: remove this word"),
    **dict.fromkeys(
        ("print", "echo"), "there is no printing: `pipesched emit --target order` shows the order of every rank"
    ),
    **dict.fromkeys(("switch", "match", "case"), "write `if … else if …`"),
}
_NO_POWER = "there is no power operator: write the product, as in `p * p`"
_KEPT = "a name never changes its value; compute changing values from a loop variable: `for k in 0 .. n { … }`"


def unexpected(tokens: Sequence[Token], at: int, taken: set[str], source: Source) -> Diagnostic:
    """Return PS101 for an unexpected token. taken: the texts of the tokens accepted there, or their kinds if the text
    varies.
    """
    token = tokens[at]
    if "NAME" in taken:
        taken = taken - (set(SOFT) - (_LETTERS if taken >= _LETTERS else set()))
    before = next((tokens[i] for i in range(at - 1, -1, -1) if not tokens[i].supplied), None)
    alone = apart(tokens, at, source)
    expected = _listed(_phrases(taken, before, alone))
    message = f"expected {expected} {_after(before)}, found {_shown(token)}"
    if _chains(token, taken):
        message = f"comparisons cannot be chained: found a second comparison, {_shown(token)}"
    here = f"{expected} belongs here" if " or " not in expected else f"not expected {_after(before)}"
    help_ = _KEPT if _changes(tokens, at) else _remedy(token, alone, taken)
    if before and before.text + token.text == "**":
        help_ = _NO_POWER
    span = place(tokens, at, source) if not {"claim", "repeat"} & taken else source.span(token.start, token.end)
    return Diagnostic(Code.SYNTAX, message, (Label(span, here),), help=help_)


def place(tokens: Sequence[Token], at: int, source: Source) -> Span:
    """Return the position at which to report an omission before a token: at the token, or, if the token is the first on
    its line or the end of the text, after the token before it.
    """
    token, before = tokens[at], tokens[max(0, at - 1)]
    if at and (not token.text or first_in_line(tokens, at, source)):
        return source.span(before.end, before.end)
    return source.span(token.start, token.end)


def unknown(text: str, span: Span) -> tuple[Diagnostic, str | None]:
    """Return PS102 for characters that do not begin a word, and the intended word if it is clear."""
    plain = unicodedata.normalize("NFKC", text)
    if plain != text and re.fullmatch(r"[A-Za-z0-9_]+", plain):
        help_, meant = f"write `{plain}`", plain
    elif text[0].isalnum() or text[0] == "_":
        help_, meant = "names consist of ASCII letters, digits and `_`", "name"
    elif meant := _MEANT.get(text, ""):
        help_ = f"write `{meant}`"
    else:
        help_ = _odd_remedy(text[0])
    message = f"the language has no word {_character(text)}"
    return Diagnostic(Code.CHARACTER, message, (Label(span, "not a word"),), help=help_ or None), meant or None


# Expected tokens


def _phrases(taken: set[str], before: Token | None, alone: bool) -> list[str]:
    if before is None:
        return ["`schedule name(parameters)`"]
    if before.text == "release":
        return ["`W`, `I`, `torch` or `split:1/2`"]
    left, phrases, next_line = taken - {"STRING"} if taken == {"(", "STRING"} else set(taken), [], []
    if {"NAME", "NUMBER", "("} <= left:
        phrases.append("an expression")
        left -= _VALUES
    if {"+", "COMPARE"} & left and not phrases:
        phrases += ["an operator"] * bool({"claim", "repeat"} & left)
        left -= _OPERATORS | {"(", "["}
    if "claim" in left:
        next_line = ["a line such as `rank …`"]
        left -= {*ITEMS, "$END"} | ({",", "release", "when", "for", "reads", "STRING", "TEXT"} if alone else set())
    if "repeat" in left:
        phrases.append("a statement")
        left -= {*STATEMENTS, "let", "else", "[", "("}
    if left >= _LETTERS:
        phrases.append("a letter such as `F`" if "NAME" in left else "an operation")
        left -= _LETTERS | {"NAME"}
    words = {_KINDS.get(word, f"`{word}`") for word in left}
    return [*phrases, *sorted(words, key=lambda word: (word[1] in "([", word)), *next_line]


def _listed(phrases: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(phrases[:-1]), *phrases[-1:]) if part)


def _after(before: Token | None) -> str:
    return f"after {_shown(before)}" if before else "at the beginning"


def _shown(token: Token) -> str:
    if not token.text:
        return "the end of the file"
    return "a string" if token.text.startswith('"') else f"`{token.text[:40]}`"


# The remedy


def _changes(tokens: Sequence[Token], at: int) -> bool:
    """Return True for an assignment to a name: ``w++``, ``w += 1``."""
    after = "".join(token.text for token in tokens[at + 1 : at + 3])
    return tokens[at].kind == "NAME" and re.fullmatch(r"[+\-*/]=|\+\+|--", after) is not None


def _chains(token: Token, taken: set[str]) -> bool:
    return token.text in _COMPARISONS and "and" in taken and "COMPARE" not in taken


_REMEDIES: tuple[tuple[str, set[str], str], ...] = (
    ("=", {"COMPARE"}, "`=` defines a name; write `==` to compare"),
    ("", {".."}, "a range is written `low .. high`; it ends before high"),
    ("", {"when", *LETTERS}, "a line of `greedy` is an operation, optionally followed by `when` and a condition"),
    ("{", {"then"}, "for a value, write `if condition then a else b`"),
    ("then", {"{"}, "an `if` that chooses statements has no `then`: `if condition { … } else { … }`"),
    *((word, {"else"}, "write `else if`") for word in ("elif", "elsif", "elseif")),
    ("split", set(), "the fraction that W frees must be between 0 and 1: `split:1/2`, `split:0.5`"),
    ("schedule", set(), "a file contains one schedule"),
)
"""A word (None: any word), a token expected after it, and the remedy."""


def _remedy(token: Token, alone: bool, taken: set[str]) -> str | None:
    """Return the remedy, if it is clear."""
    word = token.text
    if word in _NOT_WORDS and token.kind == "NAME":
        return _NOT_WORDS[word]
    if _chains(token, taken):
        return "write `a < b and b < c`"
    for written, needed, remedy in _REMEDIES:
        if written in ("", word) and needed <= taken:
            return remedy
    if word in STATEMENTS and "claim" in taken and alone:
        return "operations are written inside a rank: `rank r { … }`"
    return _spelling(token, taken)


def _spelling(token: Token, taken: set[str]) -> str | None:
    word = token.text
    if token.kind == "NAME":
        if (found := re.fullmatch(rf"({KIND})_?([0-9]+)", word)) and taken >= _LETTERS:
            return f"write `{found[1]}({found[2]})` for microbatch {found[2]}, or `{found[1]}` for the next one"
        words = {text for text in taken if text.isalpha() and (text.islower() or text == "STEP" or len(text) == 1)}
        if word.upper() in words:
            return f"did you mean `{word.upper()}`?"
        known = {text.lower() if text[1:] else text: text for text in sorted(words)}
        close = difflib.get_close_matches(word.lower(), known, 1, 0.65)
        return f"did you mean `{known[close[0]]}`?" if close else None
    if "NAME" in taken and word.isalpha() and token.kind not in ("NUMBER", "STRING"):
        return f"`{word}` is a reserved word and cannot be used as a name"
    return None


# Characters


def _character(text: str) -> str:
    shown = text[:8] + "…" * (len(text) > 8)
    if text.isascii() and text.isprintable():
        return f"`{shown}`"
    odd = next(c for c in text if not (c.isascii() and c.isprintable()))
    point, name = f"U+{ord(odd):04X}", unicodedata.name(odd, "").lower()
    return f"`{shown}` ({point})" if shown.isprintable() else f"with {name or 'a control character'} ({point})"


def _odd_remedy(character: str) -> str:
    if character == ";":
        return "statements need no separator: remove it"
    if character == ".":
        return "a range is written `0 .. p`, a fraction `0.5`"
    if character == "^":
        return _NO_POWER
    if character in "'“”‘’„«»`":
        return 'strings are written in `"`'
    return "use a blank" if character.isspace() else ""
