"""Report, in one pass, every independent mistake in a text that does not parse.

The tokens are run through the parser's table. If a token has no action, the expected tokens are reported; then parsing
resumes where the next statement or item begins, in the innermost state that accepts it: panic mode, with brackets
paired beforehand. Each statement is reported at most once.

    let x 3
    repeat x { F ) }
    claim a == b c

In this example, the incomplete `let` is reported and dropped at `repeat`. The `)`, which closes no bracket, is reported
and left out. The `c` is reported, since an operator or a new line was expected after `b`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.explain.brackets import MOST, Pairing, Problem
from pipesched.explain.expected import unexpected, unknown
from pipesched.explain.habits import explained
from pipesched.explain.words import (
    COMMENT,
    ITEMS,
    STATEMENTS,
    UNCLOSED,
    apart,
    begins,
    first_in_line,
    kind,
    scan,
)
from pipesched.language.grammar import Grammar, grammar
from pipesched.language.tokens import END, LONGEST, UNKNOWN, Token, Words, known_release, too_long
from pipesched.support.source import Source

_HEAD = ("schedule", "name", "(", ")")


def mistakes(_: Sequence[Diagnostic], source: Source) -> list[Diagnostic]:
    """Return the first `MOST` mistakes in a text, in order, with remedies for habits from other languages."""
    words = grammar().words
    written = [token for token in scan(words, source.text) if token.kind != COMMENT]
    if not written:
        return [_empty(source)]
    problems: list[Problem] = []
    tokens = [kept for token in written for kept in _words_meant(token, source, words, problems)]
    if tokens:
        pairing = Pairing(source, tokens, words.kinds).run()
        problems += pairing.problems
        if pairing.out and len(pairing.problems) < MOST:
            problems += Walk(source, pairing.out, problems, grammar()).run()
    return _once(map(explained, _one_a_line([problem.diagnostic for problem in problems])))[:MOST]


def _one_a_line(findings: list[Diagnostic]) -> list[Diagnostic]:
    """Return the findings in order, without those that probably follow from an earlier finding on the same line.

    An unterminated string hides later findings, an unknown word hides syntax errors, and the first syntax error hides
    later ones.
    """
    kept: list[tuple[int, Diagnostic]] = []
    blamed: dict[int, int] = {}  # by line: findings from this weight on are dropped
    for weight, start, line, finding in sorted(map(_weighed, findings), key=itemgetter(0, 1)):
        if weight < blamed.get(line, 3):
            kept.append((start, finding))
            blamed[line] = min(blamed.get(line, 3), 1 if weight == 0 else 2)
    return [finding for _, finding in sorted(kept, key=itemgetter(0))]


def _once(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the findings; of findings on the same line with the same remedy, only the first is kept."""
    first: dict[tuple[int, str], Diagnostic] = {}
    for finding in findings:
        first.setdefault((finding.where.line if finding.where else 0, finding.help or finding.message), finding)
    return list(first.values())


def _weighed(finding: Diagnostic) -> tuple[int, int, int, Diagnostic]:
    """Return the weight of a finding (0: unterminated string, 1: unknown word or number, 2: syntax error), its offset
    and its line.
    """
    assert finding.where is not None
    unclosed = finding.code is Code.CHARACTER and finding.where.text.startswith('"')
    weight = 2 if finding.code is Code.SYNTAX else int(not unclosed)
    return weight, finding.where.start, finding.where.line, finding


def _empty(source: Source) -> Diagnostic:
    state = "holds only comments" if source.text.strip("\ufeff \t\f\r\n") else "is empty"
    end = len(source.text.rstrip())
    where = Label(source.span(end, end), "a schedule begins here")
    return Diagnostic(Code.EMPTY, f"the file {state}", (where,), help="begin with `schedule name(p, m = 2 * p)`")


def _words_meant(token: Token, source: Source, words: Words, problems: list[Problem]) -> list[Token]:
    """Return the token; for an unknown word, report a finding and return the intended word, if any."""
    span = source.span(token.start, token.end)
    if token.kind == UNCLOSED:
        begun = Label(span, "it begins here")
        advice = "close the string on the same line; only the documentation after the header may span several lines"
        finding = Diagnostic(Code.CHARACTER, 'a string has no closing `"`', (begun,), help=advice)
        problems.append(Problem(token.start, finding))
        string = token._replace(kind="STRING")
        brace = re.search(r"[{}](?=\s*(#.*)?$)", token.text)
        return [string, Token(words.kinds[brace[0]], brace[0], token.start + brace.start())] if brace else [string]
    if token.kind == UNKNOWN:
        finding, meant = unknown(token.text, span)
        problems.append(Problem(token.start, finding))
        return [token._replace(kind=kind(words, meant))] if meant else []
    if token.kind == "NUMBER" and too_long(token.text):
        finding = Diagnostic(Code.OVERFLOW, f"a number has more than {LONGEST} digits", (Label(span, "too long"),))
        problems.append(Problem(token.start, finding))
    return [token]


class Walk:
    """A run of the parser's table over tokens whose brackets are paired.

    known: findings about words and brackets, whose statements are not reported again.
    """

    def __init__(self, source: Source, tokens: list[Token], known: list[Problem], grammar: Grammar) -> None:
        self.source, self.table, self.words = source, Table(grammar), grammar.words
        self.texts = {kind: text for text, kind in self.words.kinds.items()}
        self.tokens = [*tokens, Token(END, "", tokens[-1].end)]
        self.blamed = sorted(problem.offset for problem in known)
        self.problems: list[Problem] = []
        self.stack = START
        self.begun = self.item = 0  # beginnings of the current statement and of its item
        self.carried_on = -1  # the last unexpected token: no statement begins within its line
        self.astray = False  # whether statements outside every rank have been reported
        self.forgiven: set[int] = set()  # ends of blocks without a head, where errors follow from that

    def run(self) -> list[Problem]:
        at = 0
        while at < len(self.tokens) and len(self.problems) < MOST:
            if self._advance(self._kind(at)):
                if begins(self.tokens, at, self.source) and at != self.carried_on:
                    self.begun = self.tokens[at].start
                    self.astray &= self.tokens[at].text not in ITEMS
                    self.item = self.begun if self.tokens[at].text in ITEMS else self.item
                at += 1
            else:
                self._mistake(at)
                self.carried_on = -1 if first_in_line(self.tokens, at, self.source) else at
                at = self._resume(at)
        return self.problems

    def _advance(self, kind: str) -> bool:
        """Advance the stack by a token of this kind; return False if the stack has no action for the kind."""
        moved = self.table.moved(self.stack, kind)
        self.stack = moved or self.stack
        return moved is not None

    def _kind(self, at: int) -> str:
        """Return the kind of a token; UNKNOWN for an unknown release rule."""
        token = self.tokens[at]
        if token.kind == "NAME" and at and self.tokens[at - 1].text == "release":
            return "NAME" if self._rule_begins(at) else UNKNOWN
        return token.kind

    def _rule_begins(self, at: int) -> bool:
        """Return True if a release rule begins here; if the rule is incomplete, the parser's table decides."""
        words = [token.text for token in self.tokens[at : at + 5]]
        if words[1] != ":":
            return known_release(words[0])
        length = 5 if words[3:4] == ["/"] else 3
        return self.tokens[at + 2].kind != "NUMBER" or known_release("".join(words[:length]))

    # Blame

    def _mistake(self, at: int) -> None:
        """Report the token, unless its statement has been reported."""
        token = self.tokens[at]
        taken = {self.texts.get(kind, kind) for kind in self.table.takes(self.stack)}
        alone = apart(self.tokens, at, self.source)
        if ("claim" in taken or "repeat" in taken) and alone:
            self.begun = token.start
        outside = token.text in STATEMENTS and "claim" in taken and alone
        if token.supplied or at in self.forgiven or (outside and self.astray) or self._is_blamed(token.start):
            return
        if token.text == "when" and self._is_blamed(token.start, self.item):  # an unrecognized `greedy`
            return
        self.astray |= outside
        insort(self.blamed, self.begun)
        self.problems.append(Problem(self.begun, unexpected(self.tokens, at, taken, self.source)))

    def _is_blamed(self, here: int, since: int | None = None) -> bool:
        first = bisect_left(self.blamed, self.begun if since is None else since)
        return first < len(self.blamed) and self.blamed[first] <= here

    # Recovery

    def _resume(self, at: int) -> int:
        """Drop the unfinished part of the text; return the index of the next token that the stack accepts."""
        depth = self._open_round()
        for i in range(at, len(self.tokens)):
            token = self.tokens[i]
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if depth > 0:
                continue
            if token.text == "{":
                self._enter(i)
                return i
            if token.text == "}" or token.kind == END or begins(self.tokens, i, self.source):
                if self._settle(token):
                    return i
            elif i > at and apart(self.tokens, i, self.source) and self._drop_to_list():
                return i
        return len(self.tokens)

    def _settle(self, token: Token) -> bool:
        """Drop the unfinished part, and return True if the token is then accepted."""
        if self._drop_to_list():
            return self.table.moved(self.stack, token.kind) is not None
        if token.text in ITEMS:  # the item's head is the unfinished part
            self.stack = START
            return token.text == "schedule" or self._supply(*_HEAD)
        return False

    def _open_round(self) -> int:
        """Return the number of open `(` and `[` in the unfinished part."""
        block = self.words.kinds["{"]
        half_read = [*takewhile(lambda symbol: symbol != block, self.stack.symbols())]
        opened, closed = (sum(half_read.count(self.words.kinds[text]) for text in pair) for pair in ("([", ")]"))
        return opened - closed

    def _enter(self, at: int) -> None:
        """Make the stack accept this `{`, which opens the current block or a block with an unknown header."""
        self.forgiven.add(self._after_block(at))  # belongs to an `if` that was not recognized
        if self._drop_to(self.words.kinds["{"]):
            return
        self.forgiven.add(at + 1)
        if not self._drop_to_list():
            self.stack = START
            self._supply(*_HEAD)
        if not self._supply("if", "true"):
            self._supply("rank", "0")

    def _after_block(self, at: int) -> int:
        """Return the index after the `}` of the block that begins here if an `else` follows it, else 0."""
        depth = 0
        for i in range(at, len(self.tokens)):
            depth += (self.tokens[i].text == "{") - (self.tokens[i].text == "}")
            if depth == 0:
                return i + 1 if self.tokens[i + 1].text == "else" else 0
        return 0

    def _drop_to_list(self) -> bool:
        """Drop the unfinished part of a statement, or of an item."""
        return self._drop_to(self.words.kinds["repeat"], self.words.kinds["claim"])

    def _drop_to(self, *kinds: str) -> bool:
        """Drop the top of the stack, at most to the last `{`, until it accepts a token of one of these kinds."""
        stack = self.stack
        while not any(self.table.moved(stack, kind) for kind in kinds):
            if stack.below is None or stack.symbol == self.words.kinds["{"]:
                return False
            stack = stack.below
        self.stack = stack
        return True

    def _supply(self, *texts: str) -> bool:
        """Advance the stack by supplied words; return False, leaving the stack unchanged, if it does not accept the
        first word.
        """
        return all(self._advance(kind(self.words, text)) for text in texts)


# The grammar's LR table, walked without building a tree. A stack is a path through the table: states, each with the
# symbol that led to it. A token either moves it, by some reductions and one shift, or has no action: a syntax error.


class Stack(NamedTuple):
    """The top of a stack, and the stack below it; stacks share common parts."""

    state: int
    symbol: str
    below: Stack | None

    def symbols(self) -> Iterator[str]:
        """Yield the symbols of the stack from the top down."""
        stack: Stack | None = self
        while stack:
            yield stack.symbol
            stack = stack.below


START = Stack(0, "", None)


class Table:
    """The moves of a grammar's table."""

    def __init__(self, grammar: Grammar) -> None:
        self.states = grammar.states
        self.ends = [(rule.origin, len(rule.symbols)) for rule in grammar.rules]

    def moved(self, stack: Stack, kind: str) -> Stack | None:
        """Return the stack after a token of this kind, or None."""
        while (move := self.states[stack.state].get(kind)) is not None:
            if move >= 0:
                return Stack(move, kind, stack)
            origin, size = self.ends[~move]
            for _ in range(size):
                assert stack.below is not None
                stack = stack.below
            stack = Stack(self.states[stack.state][origin], origin, stack)
        return None

    def takes(self, stack: Stack) -> set[str]:
        """Return the kinds of token that have an action on this stack."""
        return {kind for kind in self.states[stack.state] if kind.isupper() and self.moved(stack, kind)}
