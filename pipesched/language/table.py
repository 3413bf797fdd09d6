"""The grammar's LR table, walked without building anything.

A stack is a way into the table: states, each with the symbol that led to it. A token of a kind either moves the stack
on, by some reductions and one shift, or has no action, which is what a syntax error is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from lark import Lark

END = "$END"


class Entry(NamedTuple):
    state: Any
    symbol: str


Stack: TypeAlias = list[Entry]


class Move(NamedTuple):
    """What a token does to a stack: all above `keep` entries goes, `push` comes."""

    keep: int
    push: Stack


class Table:
    """The moves of a grammar."""

    def __init__(self, lark: Lark) -> None:
        conf = lark.parse_interactive("").parser_state.parse_conf
        self.actions: Mapping[Any, Mapping[str, tuple[Any, Any]]] = conf.states
        self.start: Any = conf.start_state
        self.end: Any = conf.end_state

    def move(self, stack: Stack, kind: str, height: int | None = None) -> Move | None:
        """The move of a token of this kind on the lowest `height` entries of a stack (default: all), or None."""
        keep, push = len(stack) if height is None else height, Stack()
        while True:
            state = push[-1].state if push else stack[keep - 1].state
            if kind == END and state == self.end:
                return Move(keep, push)
            act, what = self.actions[state].get(kind, (None, None))
            if act is None:
                return None
            if not hasattr(what, "expansion"):
                push.append(Entry(what, kind))
                return Move(keep, push)
            size = len(what.expansion)
            keep -= max(0, size - len(push))
            del push[max(0, len(push) - size) :]
            state = push[-1].state if push else stack[keep - 1].state
            push.append(Entry(self.actions[state][what.origin.name][1], what.origin.name))

    def advance(self, stack: Stack, kind: str, height: int | None = None) -> bool:
        """Moves a stack, if the token has an action there."""
        move = self.move(stack, kind, height)
        if move is not None:
            stack[move.keep :] = move.push
        return move is not None

    def takes(self, stack: Stack) -> set[str]:
        """The kinds of token that have an action."""
        return {kind for kind in self.actions[stack[-1].state] if kind.isupper() and self.move(stack, kind)}
