"""The grammar as plain data, and the parser that executes its LALR(1) table.

    grammars/pipesched.lark --lark--> grammars/pipesched.lalr.json --`grammar`--> Grammar --`read`--> a tree

After a change of the grammar, `python -m tests.core.test_grammar` rewrites the tables; this needs lark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from json import loads
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from pipesched.language.tokens import Words
from pipesched.library.assets import asset

Children: TypeAlias = list[Any]  # tokens, and values of builders; None for an omitted part


class Rule(NamedTuple):
    """A rule of the grammar; a rule whose name begins with `_` passes its children to the enclosing rule.

    action: the builder method that makes the value, or None to pass on the only child.
    """

    origin: str
    action: str | None
    symbols: Sequence[str]


class Grammar(NamedTuple):
    """The parser's table. states: for each state and symbol the next state, or ``~r`` if rule r is complete."""

    words: Words
    rules: Sequence[Rule]
    states: Sequence[Mapping[str, int]]

    def read(self, text: str, build: object) -> Any:
        """Parse text and return the builder's value, or the first misplaced token if the text does not parse.

        Neither this function nor the builder recurses, so a deeply nested file cannot overflow the stack.
        """
        ends = [(len(rule.symbols), rule.origin, _maker(rule, build)) for rule in self.rules]
        states: list[int] = [0]
        values: Children = []
        for token in self.words.read(text):
            while (move := self.states[states[-1]].get(token.kind)) is not None and move < 0:
                size, origin, make = ends[~move]
                at = len(values) - size
                values[at:] = [make(values[at:])]
                states[at + 1 :] = [self.states[states[at]][origin]]
            if move is None:
                return token
            states.append(move)
            values.append(token)
        return values[0]


def _maker(rule: Rule, build: object) -> Callable[[Children], Any]:
    """Return the function that computes a rule's value from its children."""
    if rule.action is None:
        return itemgetter(0)
    nested = any(symbol.startswith("_") and symbol.islower() for symbol in rule.symbols)
    if rule.origin.startswith("_"):
        return _flat if nested else list
    make = getattr(build, rule.action)
    return (lambda children: make(_flat(children))) if nested else make


def _flat(children: Children) -> Children:
    """Return the children with inner lists flattened; the first list grows in place, so n repetitions take n steps."""
    flat = children[0] if type(children[0]) is list else children[:1]
    for child in children[1:]:
        flat.extend(child if type(child) is list else (child,))
    return flat


@cache
def grammar() -> Grammar:
    """Return the grammar of the language; loading takes about 3 ms."""
    data = loads(asset("grammars", "pipesched.lalr.json").read_bytes())
    words = Words(data["terminals"], data["words"], frozenset(data["ignored"]))
    rules = [Rule(origin, action, tuple(symbols)) for origin, action, symbols in data["rules"]]
    return Grammar(words, rules, data["states"])
