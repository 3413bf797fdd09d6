"""Which names mean what, at one point of a file.

No name is ever shadowed and none is visible before its definition, so recursion cannot be written, and a reader
never has to ask which `k` is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.extension import explained
from pipesched.language import ast
from pipesched.source import Span

FINDINGS = 20  # so many are reported of one file

Kind: TypeAlias = Literal["number", "boolean", "list", "unknown"]


@dataclass(frozen=True, slots=True)
class Binding:
    """A name that is known: its kind (of the result, for a function), how many arguments it takes, what a call costs.

    arity: None for a value; for a function the least and greatest count of arguments (greatest None: any number).
    bare: a function that may also be named without arguments (``peak``). now: what the program of a rank knows of what
    has run there (``pending``); a file may give the name a meaning of its own.
    """

    kind: Kind = "number"
    arity: tuple[int, int | None] | None = None
    cost: int = 1
    span: Span | None = None
    bare: bool = False
    now: bool = False


BUILTINS = {
    "min": Binding(arity=(2, None)),
    "max": Binding(arity=(2, None)),
    "abs": Binding(arity=(1, 1)),
}


@dataclass
class Scope:
    """A chain of blocks, the innermost last; what is wrong is collected, not raised.

    reserved: names that have a meaning in claims, so that the top level of a file may not give them another. there:
    what to say of the names that there are, to who uses another.
    """

    blocks: list[dict[str, Binding]]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    reserved: frozenset[str] = frozenset()
    there: str = ""

    def inner(self) -> Scope:
        """The scope of a block inside this one; what it defines ends with it."""
        return Scope([*self.blocks, {}], self.diagnostics)

    def find(self, name: str) -> Binding | None:
        return next((block[name] for block in reversed(self.blocks) if name in block), None)

    def visible(self) -> Iterator[str]:
        for block in self.blocks:
            yield from block

    def define(self, name: ast.Name, binding: Binding) -> None:
        """Make a name known from here on."""
        if name.id in self.reserved:
            message = f"`{name.id}` has a meaning in claims"
            self.report(Code.REDEFINED, message, Label(name.span, "defined here"), help="choose another name")
            return
        before = self.find(name.id)
        if before is not None and not before.now:
            labels = [Label(name.span, "defined again here")]
            if before.span is not None:
                labels.append(Label(before.span, "first defined here"))
            what = "is built in" if before.span is None else "is already defined"
            self.report(Code.REDEFINED, f"`{name.id}` {what}", *labels, help="choose another name")
            return
        self.blocks[-1][name.id] = binding

    def unknown(self, name: ast.Name) -> None:
        """Report a name that nothing defines."""
        help = self.there or "names are visible after their definition"
        here = Label(name.span, "used here")
        found = Diagnostic(Code.UNKNOWN_NAME, f"no name `{name.id}` is known here", (here,), (), help)
        if not self.full:
            self.diagnostics += explained("name", [found], self.visible(), self.there)

    @property
    def full(self) -> bool:
        """Whether as much was found as is reported."""
        return len(self.diagnostics) >= FINDINGS

    def report(self, code: Code, message: str, *labels: Label, help: str | None = None) -> None:
        if not self.full:
            self.diagnostics.append(Diagnostic(code, message, labels, (), help))
