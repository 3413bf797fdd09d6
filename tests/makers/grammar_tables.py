"""The tables that lark makes for a grammar, independent of the release of lark and of the order of sets.

States are numbered as a walk from the start meets them, symbols in the order of their names; rules are sorted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pipesched.language.grammar import Rule
from pipesched.language.tokens import END

if TYPE_CHECKING:
    from lark import Lark
    from lark.grammar import Rule as LarkRule
    from lark.lexer import TerminalDef


def made(text: str) -> dict[str, Any]:
    """Return the tables of a grammar."""
    from lark import Lark

    lark = Lark(text, parser="lalr", lexer="basic", start="file", keep_all_tokens=True, maybe_placeholders=False)
    texts = {t.pattern.value: t.name for t in lark.terminals if t.pattern.type == "str"}
    rules = sorted({_rule(rule) for rule in lark.rules}, key=str)
    return {
        "words": dict(sorted(texts.items())),
        "ignored": sorted(lark.ignore_tokens),
        "terminals": [[t.name, t.pattern.to_regexp()] for t in _tried(lark.terminals)],
        "rules": rules,
        "states": _states(lark, {rule: ~number for number, rule in enumerate(rules)}),
    }


def written(text: str) -> str:
    """Return the file of a grammar's tables: one line per rule and per state."""
    parts = []
    for key, value in made(text).items():
        rows = ",\n".join(map(json.dumps, value)) if isinstance(value, list) else ""
        parts.append(f'"{key}": ' + (f"[\n{rows}\n]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _rule(rule: LarkRule) -> Rule:
    symbols = tuple(symbol.name for symbol in rule.expansion)
    passed = rule.options.expand1 and rule.alias is None and len(symbols) == 1
    return Rule(rule.origin.name, None if passed else rule.alias or rule.origin.name, symbols)


def _tried(terminals: Collection[TerminalDef]) -> list[TerminalDef]:
    """Return the terminals in the order in which the basic lexer tries them, without words that a pattern matches."""
    patterns = [t for t in terminals if t.pattern.type == "re"]
    words = [
        t
        for t in terminals
        if t.pattern.type == "str" and not any(re.fullmatch(x.pattern.to_regexp(), t.pattern.value) for x in patterns)
    ]
    return sorted(patterns + words, key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))


def _states(lark: Lark, ends: Mapping[Rule, int]) -> list[dict[str, int]]:
    """Return the moves of each state; the end of a text leads from the end of `file` to itself."""
    conf = lark.parse_interactive("").parser_state.parse_conf
    met, number, rows = [conf.start_state], {conf.start_state: 0}, []
    for state in met:
        moves: Mapping[str, tuple[Any, Any]] = conf.states[state] if state != conf.end_state else {END: (None, state)}
        row = {}
        for symbol, (_, to) in sorted(moves.items()):
            if not hasattr(to, "expansion") and to not in number:
                number[to] = len(met)
                met.append(to)
            row[symbol] = ends[_rule(to)] if hasattr(to, "expansion") else number[to]
        rows.append(row)
    return rows
