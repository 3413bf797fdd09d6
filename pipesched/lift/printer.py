"""Writes a file in canonical form, for `pipesched fmt`.

Only spaces and line breaks change: the tokens of the file, including comments, stay in order.

- Lines are indented by two spaces per brace. Items, `let`, `for`, `repeat` and `if` have lines of their own; operations
  keep the user's lines, two spaces apart. An expression keeps its line breaks at operators; its further lines are
  indented.
- A block on one line stays there if it fits in 100 columns. There is at most one blank line in a row, and none at the
  start or end of a block.
- In consecutive lines, blocks, the `=` of lets, the parts of routes, and trailing comments are aligned.

    repeat warmup     { F }        # fill
    repeat m - warmup { F  B }     # steady
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pipesched.language import ast
from pipesched.language.grammar import grammar
from pipesched.language.parser import WORDS, parse
from pipesched.language.tokens import Token
from pipesched.lift.layout import WIDTH, Line, breakable, gap, rendered
from pipesched.support.source import Source

_COMMENT = re.compile(r"#[^\r\n]*")
_CONTAINERS = ast.File | ast.Rank | ast.For | ast.Repeat | ast.If | ast.Greedy
_OWN_LINES = ast.Item | ast.For | ast.Repeat | ast.If | ast.Greedy
_PARTS_AT = {"block": ("{",), "let": ("=",), "route": ("stage", "for")}


def format_source(source: Source, words: int = WORDS) -> str:
    """Return the text, of at most `words` words, in canonical form. Raises PipeschedError if that fails."""
    layout = _Layout(source.text)
    layout.mark(parse(source, words))
    layout.run()
    return "".join(f"{line}\n" for line in rendered(layout.lines))


@dataclass
class _Layout:
    """Arranges the words of a text in lines, one word at a time.

    own: the end offset of each item and statement that gets lines of its own, by its start. operations: likewise for
    operations. words: the tokens without comments.
    """

    text: str
    own: dict[int, int] = field(default_factory=dict)
    operations: dict[int, int] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    depth: int = 0  # number of enclosing braces
    seen: int = 0  # the end of the processed text
    closed: bool = True  # whether the next word must begin a line
    opened: bool = True  # whether the block, or the file, is still empty
    flat: int = -1  # the last word of a block that stays on its line

    def mark(self, node: ast.Node) -> None:
        """Record where a node and its parts begin and end."""
        if isinstance(node, ast.Operation | ast.Overlap | ast.Drain | ast.Step | ast.Line):
            self.operations[node.span.start] = node.span.end
        elif isinstance(node, _OWN_LINES):
            self.own[node.span.start] = node.span.end
        if isinstance(node, _CONTAINERS):
            for child in ast.children(node):
                self.mark(child)

    def run(self) -> None:
        """Lay out all words and comments."""
        *self.words, end = grammar().words.read(self.text)
        self.ends = set(self.own.values())
        for at, token in enumerate([*self.words, end]):
            for found in _COMMENT.finditer(self.text, self.seen, token.start):
                self.comment(found, at)
            if token is not end:
                self.word(token, at)

    def comment(self, found: re.Match[str], at: int) -> None:
        """Lay out a comment before the word at `at`."""
        content = found[0].rstrip()
        if self.lines and not self._newlines(found.start()):
            self.lines[-1].comment = content
        else:
            self._begin(found.start(), at, content)
            self.opened = False
        self.closed, self.seen = True, found.end()

    def word(self, token: Token, at: int) -> None:
        self.depth -= token.text == "}"
        if self.closed or (at > self.flat and self._starts_line(token, at)):
            line = self._begin(token.start, at, token.text)
            if token.start in self.own:
                self._note_kind(line, token, at)
        else:
            self._append(token, at)
        self.depth += token.text == "{"
        self.closed, self.opened, self.seen = False, token.text == "{", token.end

    # Lines

    def _begin(self, start: int, at: int, content: str) -> Line:
        first = self._is_first(at)
        blank = first and self._newlines(start) > 1 and not self.opened and content != "}"
        self.lines.append(Line(2 * self.depth + (0 if first else 2), [content], blank))
        return self.lines[-1]

    def _is_first(self, at: int) -> bool:
        """Return True if the word at `at` is the first of an item, statement or clause, or ends a block."""
        if at in (0, len(self.words)) or self._documents(at):
            return True
        word, before = self.words[at], self.words[at - 1]
        begins = word.start in self.own or word.start in self.operations or word.text == "}"
        return begins or (word.text == "else" and before.text == "}")

    def _documents(self, at: int) -> bool:
        return self.words[at].text.startswith('"') and self.words[at - 1].text == ")"

    def _starts_line(self, token: Token, at: int) -> bool:
        before = self.words[at - 1]
        if before.text == "{" or token.text == "}" or self._documents(at):
            return True
        if token.start in self.own:
            return before.text != "else"
        if token.start in self.operations:
            return before.end in self.ends or self._newlines(token.start) > 0 or self._too_wide(at)
        return self._newlines(token.start) > 0 and breakable(self.words, at)

    def _too_wide(self, at: int) -> bool:
        last = self._last(at, self.operations[self.words[at].start])
        return self.lines[-1].width + len(self._joined(at, last)) + 2 > WIDTH

    def _newlines(self, start: int) -> int:
        between = self.text[self.seen : start].replace("\r\n", "\n")
        return between.count("\n") + between.count("\r")

    # Words of a line

    def _append(self, token: Token, at: int) -> None:
        line = self.lines[-1]
        parts_at = _PARTS_AT.get(line.kind, ())
        if token.text in parts_at and (line.kind == "route" or len(line.parts) == 1):
            line.parts.append(" for" if token.text == "for" else token.text)  # two blanks separate the range
        else:
            line.parts[-1] += self._gap(at) + token.text

    def _gap(self, at: int) -> str:
        word, before = self.words[at], self.words[at - 1]
        statement = word.start in self.own or word.start in self.operations
        return "  " if statement and before.text not in ("{", "else") else gap(self.words, at)

    def _joined(self, first: int, last: int) -> str:
        rest = (self._gap(at) + self.words[at].text for at in range(first + 1, last + 1))
        return self.words[first].text + "".join(rest)

    def _last(self, at: int, end: int) -> int:
        """Return the index of the word that ends at `end`, searching at most as far as a line can reach."""
        last = at
        while self.words[last].end < end and last - at <= WIDTH:
            last += 1
        return last

    def _note_kind(self, line: Line, token: Token, at: int) -> None:
        """Record the kind of a line, if such lines are aligned, and whether the line is a whole block."""
        last = self._last(at, self.own[token.start])
        if token.text in ("let", "route"):
            line.kind = token.text
        elif self.words[last].text == "}" and self._fits(line, at, last):
            self.flat = last
            line.kind = "block" if all(word.text != "else" for word in self.words[at:last]) else ""

    def _fits(self, line: Line, first: int, last: int) -> bool:
        """Return True if a block is on one line and fits there after its head, whose line breaks are kept."""
        if self.words[last].end != self.own[self.words[first].start]:
            return False
        braces = 0
        for at in range(first + 1, last + 1):
            before, word = self.words[at - 1], self.words[at]
            braces += (before.text == "{") - (before.text == "}")
            between = self.text[before.end : word.start]
            kept = breakable(self.words, at) if braces == 0 else before.text + word.text != "{}"
            if "#" in between or (kept and ("\n" in between or "\r" in between)):
                return False
        return line.indent + len(self._joined(first, last)) <= WIDTH
