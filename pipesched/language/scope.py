"""Resolves names at a point of a file.

No name is ever shadowed or visible before its definition, so recursion cannot be written and any `k` has one meaning.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field
from types import CodeType
from typing import Literal, TypeAlias

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.extension import explained
from pipesched.language import ast
from pipesched.support.record import Value
from pipesched.support.source import Span

FINDINGS = 20  # most findings reported for one file

Kind: TypeAlias = Literal["number", "boolean", "list", "unknown"]
Arity: TypeAlias = tuple[int, int | None] | None
_NO_RECURSION = "recursion is not allowed, because every file must terminate; use `for` or a closed form"


class Binding(Value):
    """A known name: its kind (for a function, the kind of its result), its number of arguments, and the cost of a call.

    arity: None for a value; for a function the smallest and largest number of arguments (None: any number).
    bare: a function that may also be named without arguments (``peak``). now: whether its value depends on the
    operations that have run on the rank (``pending``); a file may redefine such a name.
    """

    kind: Kind = "number"
    arity: Arity = None
    cost: int = 1
    span: Span | None = None
    bare: bool = False
    now: bool = False


UNKNOWN = Binding("unknown", (0, None), bare=True)
BUILTINS = {"min": Binding(arity=(2, None)), "max": Binding(arity=(2, None)), "abs": Binding(arity=(1, 1))}


@dataclass
class Scope:
    """A chain of blocks, innermost first; errors are collected, not raised. code: the compiled nodes, by their id.

    reserved: names that have a meaning in claims, so that the top level of a file may not redefine them. there: a help
    text that lists the known names. defining: the name being defined.
    """

    names: ChainMap[str, Binding]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    code: dict[int, CodeType] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()
    there: str = ""
    defining: str = ""

    def inner(self, defining: str = "", **known: Binding) -> Scope:
        """Return the scope of a nested block. known: names that a file may redefine there."""
        return Scope(ChainMap({}, *self.names.maps, known), self.diagnostics, self.code, defining=defining)

    def define(self, name: ast.Name, kind: Kind = "number", arity: Arity = None, cost: int = 1) -> None:
        """Define a name from here on."""
        before, other = self.names.get(name.id), "choose another name"
        if name.id in self.reserved:
            self.report(Code.REDEFINED, f"`{name.id}` has a meaning in claims", name.span, "defined here", other)
        elif before is None or before.now:
            self.names[name.id] = Binding(kind, arity, cost, name.span)
        else:
            first = [Label(before.span, "first defined here")] if before.span else []
            what = "is already defined" if first else "is built in"
            self.report(Code.REDEFINED, f"`{name.id}` {what}", name.span, "defined again here", other, *first)

    def known(self, name: ast.Name) -> Binding:
        """Return the meaning of a name; an undefined name is reported."""
        if found := self.names.get(name.id):
            return found
        if name.id == self.defining:
            message, help = f"`{name.id}` is defined in terms of itself", _NO_RECURSION
            self.report(Code.RECURSION, message, name.span, "it is defined only later", help)
        elif not self.full:
            help = self.there or "names are visible only after their definition"
            here = Label(name.span, "used here")
            unknown = Diagnostic(Code.UNKNOWN_NAME, f"unknown name `{name.id}`", (here,), (), help)
            self.diagnostics += explained("name", [unknown], self.names, self.there)
        return UNKNOWN

    @property
    def full(self) -> bool:
        """True if no further findings are reported."""
        return len(self.diagnostics) >= FINDINGS

    def report(self, code: Code, message: str, span: Span, here: str, help: str | None = None, *more: Label) -> None:
        """Collect a finding at a span. here: the text of the label."""
        if not self.full:
            self.diagnostics.append(Diagnostic(code, message, (Label(span, here), *more), (), help))
