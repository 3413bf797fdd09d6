"""Computes with known values: arithmetic and tests on integers, and substrings such as ``${X##*_}``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from pipesched.interop.trainers.bash.text import Text

NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SUM = re.compile(r"[0-9+\-*/%()\s]{1,200}")
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TESTS = dict(zip(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"), _COMPARED.values(), strict=True))
_CONDITION = re.compile(r"\(\((.*?)(==|!=|<=|>=|<|>)(.*)\)\)", re.S)
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
}


def computed(chars: str, variables: Mapping[str, object]) -> int | None:
    """Return the result of an expression with ``+ - * / %`` on integers, None if it is unknown."""
    for name in dict.fromkeys(NAME.findall(chars)):
        value = variables.get(name)
        if not isinstance(value, Text) or not _NUMBER.fullmatch(value.chars):
            return None
        chars = re.sub(rf"\b{name}\b", value.chars, chars)
    if not _SUM.fullmatch(chars):
        return None
    try:
        return _value(ast.parse(chars.strip().replace("/", "//"), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, KeyError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    """Return the value of an expression.

    Raises:
        ValueError: if the expression contains anything but integers and operators, or its value is too large.
    """
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=sign, right=right):
            value = _OPERATORS[type(sign)](_value(left), _value(right))
            if abs(value) < 10**18:
                return value
    raise ValueError


def condition(chars: str, number: Callable[[str], int | None]) -> bool | None:
    """Return whether ``((A > B))`` is true, None if that is unknown."""
    found = _CONDITION.fullmatch(chars)
    left, right = (number(found[1]), number(found[3])) if found else (None, None)
    return None if found is None or left is None or right is None else _COMPARED[found[2]](left, right)


def test(words: list[str]) -> bool | None:
    """Return whether ``[ WORDS ]`` is true, None if that is unknown, as for combined conditions."""
    match words:
        case ["!", *rest]:
            found = test(rest)
            return None if found is None else not found
        case ["-z" | "-n" as sign, word]:
            return (word == "") == (sign == "-z")
        case [left, "=" | "==" | "!=" as sign, right] if not re.search(r"[*?\[]", right):
            return (left == right) == (sign != "!=")
        case [left, sign, right] if sign in _TESTS and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
            return _TESTS[sign](int(left), int(right))
    return None


def _before(value: str, sign: str, longest: bool) -> str:
    head, mark, _ = value.partition(sign) if longest else value.rpartition(sign)
    return head if mark else value


def _behind(value: str, sign: str, longest: bool) -> str:
    _, mark, tail = value.rpartition(sign) if longest else value.partition(sign)
    return tail if mark else value


_CUTS: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], str]], ...] = (
    (re.compile(r"(##?)\*([\w/.-])"), lambda value, found: _behind(value, found[2], found[1] == "##")),
    (re.compile(r"(%%?)([\w/.-])\*"), lambda value, found: _before(value, found[2], found[1] == "%%")),
    (
        re.compile(r":\s*([0-9]{1,6})(?::([0-9]{1,6}))?"),
        lambda value, found: value[int(found[1]) :][: None if found[2] is None else int(found[2])],
    ),
)


def cut(value: str, sign: str) -> str | None:
    """Cut a value by ``##*/``, ``%_*``, ``:0:4`` and similar operators; return None for other expansions."""
    return next((made(value, found) for pattern, made in _CUTS if (found := pattern.fullmatch(sign))), None)
