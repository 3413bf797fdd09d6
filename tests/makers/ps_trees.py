"""Random syntax trees of the language, and texts for them.

The printer of trees here is written from the reference (grammars/README.md), not from the grammar: it puts the brackets
that the table of precedence asks for and no others, so that reading the words back proves the precedence too.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from pipesched.language import ast
from pipesched.language.tokens import SOFT
from pipesched.support.source import Source, Span

NOWHERE = Span(Source("", ""), 0, 0)
LOOSEST, TIGHTEST = 0, 8
LEVEL = {
    **dict.fromkeys(("or",), 1),
    **dict.fromkeys(("and",), 2),
    **dict.fromkeys(("not",), 3),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "//", "%", "/"), 6),
}
MINUS = 7
LETTERS = ("F", "I", "W", "B")
NAMES = ("p", "m", "k", *SOFT, "fwd", "FB", "Fx", "W1", "torch", "split", "min", "_", "iff", "rank_", "Repeat", "x0")


def made(kind: type[Any], *parts: Any, **named: Any) -> st.SearchStrategy[Any]:
    """Return the nodes of a kind, without a place."""
    return st.builds(kind, st.just(NOWHERE), *parts, **named)


def some(strategy: st.SearchStrategy[Any], most: int = 3, least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


names = made(ast.Name, st.sampled_from(NAMES))
numbers = made(ast.Number, st.integers(0, 10**18 - 1) | st.integers(1, 99).map(lambda n: Fraction(2 * n + 1, 2)))
leaves = names | numbers | made(ast.Boolean, st.booleans())


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    operators = st.sampled_from([op for op in LEVEL if op != "not"])
    return (
        made(ast.Binary, operators, inner, inner)
        | made(ast.Unary, st.sampled_from(["-", "not"]), inner)
        | made(ast.Conditional, inner, inner, inner)
        | made(ast.Call, names, some(inner))
        | made(ast.Entry, names, inner)
    )


expressions = st.recursive(leaves, _larger, max_leaves=8)
maybe = st.none() | expressions
operations = made(ast.Operation, st.sampled_from(LETTERS), maybe, maybe)
lets = made(ast.Let, names, st.none() | some(names), expressions)
simple = operations | made(ast.Overlap, operations, operations) | made(ast.Drain, maybe) | made(ast.Step, maybe) | lets


def _blocks(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = some(inner, 4)
    return (
        made(ast.For, names, expressions, expressions, body)
        | made(ast.Repeat, expressions, body)
        | made(ast.If, expressions, body, body)
    )


statements = st.recursive(simple, _blocks, max_leaves=8)
rules = made(ast.Greedy, some(made(ast.Line, operations, maybe), 4), st.just("greedy")) | made(
    ast.Greedy, st.just(()), st.just("backfill")
)
texts = st.text(st.sampled_from("ab #{}[]()=/é.,"), max_size=12)
ranges = st.tuples(expressions, expressions)
formula = st.tuples(names, expressions, expressions)
single = st.tuples(st.none(), expressions, st.none())
stages = st.builds(
    lambda route, ends, rank, *rest: ast.Stages(NOWHERE, route, *ends, rank, *rest),
    st.none() | names,
    formula | single,
    expressions,
    st.none() | ranges,
    some(expressions, 3),
)
costs = made(
    ast.Costs,
    some(
        st.builds(
            lambda name, values: ast.Cost(NOWHERE, name, *values),
            st.sampled_from([*LETTERS, "C", "FB", "other"]),
            st.tuples(expressions, st.none())
            | st.tuples(st.none(), some(expressions, least=1))
            | st.tuples(expressions, st.none(), some(names, 2, 1)),
        ),
        least=1,
    ),
)
parts = st.builds(
    lambda letter, of, layers, each: ast.Parts(NOWHERE, letter, of, layers, each),
    st.sampled_from(LETTERS),
    some(names, 1),
    expressions,
    some(made(ast.Part, names, expressions, st.none() | names), least=1),
)
releases = st.none() | st.sampled_from(["W", "I", "torch", "split:1/2", "split:0.25", "split:1"])
items = (
    made(ast.Require, expressions, st.none() | texts)
    | lets
    | stages
    | st.builds(lambda ends: ast.Frozen(NOWHERE, *ends), formula | single)
    | made(ast.Slices, expressions)
    | made(ast.Versions, st.sampled_from(("stash", "latest")), st.none())
    | made(ast.Versions, st.just("delay"), expressions)
    | made(ast.Rank, expressions, some(statements | rules, 5))
    | costs
    | parts
    | made(ast.Claim, expressions, releases, maybe)
)
documents = st.none() | st.text(st.sampled_from("ab \n#{}'é"), max_size=30)
parameters = some(made(ast.Parameter, names, maybe, maybe))
files = made(ast.File, names, parameters, documents, some(items, 6), st.none() | texts)


def words(node: Any, level: int = LOOSEST) -> list[str]:
    """Return the words of a node; brackets around an expression that binds looser than `level`."""
    match node:
        case ast.Number(value=value):
            return [f"{float(value)}" if isinstance(value, Fraction) else str(value)]
        case ast.Boolean(value=truth):
            return [str(truth).lower()]
        case ast.Name(id=name):
            return [name]
        case ast.Call(function=function, arguments=arguments):
            return [function.id, "(", *listed(arguments), ")"]
        case ast.Entry(list=name, index=index):
            return [name.id, "[", *words(index), "]"]
        case ast.Unary(operator=operator, operand=operand):
            own = MINUS if operator == "-" else LEVEL["not"]
            return bracketed([operator, *words(operand, own)], own, level)
        case ast.Binary(operator=operator, left=left, right=right):
            own = LEVEL[operator]
            beside = own + 1 if own == LEVEL["=="] else own
            return bracketed([*words(left, beside), operator, *words(right, own + 1)], own, level)
        case ast.Conditional(condition=condition, yes=yes, no=no):
            said = ["if", *words(condition), "then", *words(yes), "else", *words(no)]
            return bracketed(said, LOOSEST, level)
    return statement(node)


def bracketed(said: list[str], own: int, level: int) -> list[str]:
    return ["(", *said, ")"] if own < level else said


def listed(nodes: tuple[Any, ...]) -> list[str]:
    return [word for node in nodes for word in (",", *words(node))][1:]


def block(body: tuple[Any, ...]) -> list[str]:
    return ["{", *(word for node in body for word in words(node)), "}"]


def statement(node: Any) -> list[str]:
    match node:
        case ast.Operation(op=op, chunk=chunk, microbatch=microbatch):
            inner = [] if chunk is None else ["[", *words(chunk), "]"]
            return [op, *inner, *([] if microbatch is None else ["(", *words(microbatch), ")"])]
        case ast.Overlap(first=first, second=second):
            return ["overlap", "(", *words(first), ",", *words(second), ")"]
        case ast.Drain(chunk=chunk):
            return ["drain", "W", *([] if chunk is None else ["[", *words(chunk), "]"])]
        case ast.Step(chunk=chunk):
            return ["STEP", *([] if chunk is None else ["[", *words(chunk), "]"])]
        case ast.Let(name=name, parameters=parameters, value=value):
            arguments = [] if parameters is None else ["(", *listed(parameters), ")"]
            return ["let", name.id, *arguments, "=", *words(value)]
        case ast.For(variable=variable, low=low, high=high, body=body):
            return ["for", variable.id, "in", *words(low), "..", *words(high), *block(body)]
        case ast.Repeat(count=count, body=body):
            return ["repeat", *words(count), *block(body)]
        case ast.If(condition=condition, yes=yes, no=no):
            chained = len(no) == 1 and isinstance(no[0], ast.If)
            rest = words(no[0]) if chained else block(no)
            return ["if", *words(condition), *block(yes), *(["else", *rest] if no else [])]
        case ast.Greedy(lines=lines, word=word):
            return [word, *(block(lines) if word == "greedy" else ())]
        case ast.Line(operation=operation, condition=condition):
            return [*words(operation), *([] if condition is None else ["when", *words(condition)])]
    return item(node)


def item(node: Any) -> list[str]:
    match node:
        case ast.File(name=name, parameters=parameters, documentation=text, items=items_, title=title):
            head = ["schedule", name.id, *quoted(title), "(", *listed(parameters), ")", *quoted(text)]
            return [*head, *(word for part in items_ for word in words(part))]
        case ast.Parameter(name=name, default=default, size=size):
            entries = [] if size is None else ["[", *words(size), "]"]
            return [name.id, *entries, *([] if default is None else ["=", *words(default)])]
        case ast.Require(condition=condition, message=message):
            return ["require", *words(condition), *([] if message is None else [",", *quoted(message)])]
        case ast.Stages(
            route=route, variable=variable, low=low, high=high, rank=rank, microbatches=microbatches, reads=reads
        ):
            said = [] if route is None else ["route", route.id, ":"]
            where = words(low) if variable is None else [variable.id, "in", *words(low), "..", *words(high)]
            range_ = [] if microbatches is None else [*words(microbatches[0]), "..", *words(microbatches[1])]
            which = ["for", "microbatch", *range_] if range_ else []
            others = ["reads", *listed(reads)] if reads else []
            return [*said, "stage", *where, "on", "rank", *words(rank), *others, *which]
        case ast.Frozen(variable=variable, low=low, high=high):
            ends = words(low) if variable is None else [variable.id, "in", *words(low), "..", *words(high)]
            return ["frozen", *ends]
        case ast.Versions(rule=rule, delay=delay):
            return ["versions", rule, *([] if delay is None else words(delay))]
        case ast.Slices(count=count):
            return ["slices", *words(count)]
        case ast.Rank(rank=rank, body=body):
            return ["rank", *words(rank), *block(body)]
        case ast.Costs(entries=entries):
            return ["costs", *listed(entries)]
        case ast.Cost(name=name, value=value, values=values, of=of):
            known = ["[", *listed(of), "]"] if of else []
            return [name, *known, "=", *(words(value) if values is None else ["[", *listed(values), "]"])]
        case ast.Parts(letter=letter, of=of, layers=layers, each=each):
            known = ["[", *listed(of), "]"] if of else []
            return ["parts", letter, *known, "=", *words(layers), "of", "(", *listed(each), ")"]
        case ast.Part(name=name, time=time, engine=engine):
            return [name.id, *words(time), *([] if engine is None else ["on", engine.id])]
        case ast.Claim(claim=claim, release=release, condition=condition):
            rule = [] if release is None else ["release", *release.replace(":", " : ").replace("/", " / ").split()]
            return ["claim", *words(claim), *rule, *([] if condition is None else ["when", *words(condition)])]
    raise AssertionError(node)


def quoted(text: str | None) -> list[str]:
    return [] if text is None else [f'"{text}"']


GAPS = [" ", "  ", "\n", "\r\n", "\n\n\n", "\t", " # a note\n", '\n  # { own line } "\n', "\n\n#\n\n"]
TIGHT = set("()[]{},:")


@st.composite
def written(draw: st.DrawFn) -> tuple[ast.File, str]:
    """Return a tree, and a text of it, with random blanks and comments between the words."""
    file = draw(files)
    said = words(file)
    gaps = draw(st.lists(st.sampled_from(GAPS), min_size=1, max_size=7))
    text = draw(st.sampled_from(["", "\ufeff", "\n", "# first\n"]))
    for at, word in enumerate(said):
        close = at > 0 and bool(TIGHT & {word, said[at - 1]}) and len(gaps) % 2 == 0
        text += word if close or at == 0 else gaps[at % len(gaps)] + word
    return file, text + draw(st.sampled_from(["", "\n", "\n\n # last"]))
