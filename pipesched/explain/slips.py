"""What people write from the habit of another language, and what to write instead.

A row says how a habit looks and what is meant by it. Where a text does not parse, what a row says is tried: it counts
if less is wrong of the text with it. Then every place of the habit is one finding, which names the edits that were
tried and work, and the rest of the findings are those that the edited text still has.

    repeat 2 * p { forward }             write `F`
    let w = 4p                           write `4 * p`
    for i in range(m):   \\n  F  \\n       write `for i in 0 .. m{`, put `}` behind the block
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from pipesched.diagnostics import Diagnostic, Label
from pipesched.explain.habits import HABITS, Edit, Habit
from pipesched.source import Source, Span

_LONGEST, _WIDEST = 50_000, 500  # characters of a text, and of a line, in which habits are looked for
_READ = 400_000  # characters of all readings: about a second
_SHOWN = 8
_ADVISED = 4

Reader: TypeAlias = Callable[[Source], list[Diagnostic]]


class _Key(NamedTuple):
    """What makes a finding of an edited text the finding that it was."""

    start: int
    message: str


@dataclass(frozen=True)
class _Edited:
    """A text with edits; `back` gives the place that one had before them."""

    source: Source
    edits: tuple[Edit, ...]

    @property
    def text(self) -> str:
        pieces, at = [], 0
        for edit in self.edits:
            pieces += [self.source.text[at : edit.start], edit.text]
            at = edit.end
        return "".join([*pieces, self.source.text[at:]])

    def back(self, offset: int) -> int:
        moved = 0
        for edit in self.edits:
            if offset - moved <= edit.start:
                break
            if offset - moved < edit.start + len(edit.text):
                return edit.start
            moved += len(edit.text) - (edit.end - edit.start)
        return offset - moved

    def place(self, span: Span) -> Span:
        start = self.back(span.start)
        return self.source.span(start, max(start, self.back(span.end)))

    def finding(self, finding: Diagnostic) -> Diagnostic:
        labels = tuple(Label(label.span and self.place(label.span), label.message) for label in finding.labels)
        return replace(finding, labels=labels)


def explained(source: Source, read: Reader) -> list[Diagnostic]:
    """The findings of a text that does not parse, habits reported as such. read: all findings of a text.

    Habits are those of people, and looking for them takes more than linear time: not in what people do not write.
    """
    if len(source.text) > _LONGEST or max(map(len, source.text.split("\n"))) > _WIDEST:
        return read(source)
    return _Explanation(read, _READ).of(source)[0]


@dataclass
class _Explanation:
    """left: characters that may still be read, for every trial is another reading."""

    read: Reader
    left: int

    def of(self, source: Source) -> tuple[list[Diagnostic], bool]:
        """The findings, and whether habits explain them all; unless they do, they never become more."""
        found = self.read(source)
        for habit in HABITS if found else ():
            edits, rest = self._tried(habit, source, found)
            if edits:
                edited, left = _Edited(source, edits), set(map(_key, rest))
                others, clean = self.of(Source(source.name, edited.text)) if rest else ([], True)
                if clean or len(others) < len(found):
                    gone = next((finding for finding in found if _key(finding) not in left), found[0])
                    named = [_finding_of(habit, edits, gone, source), *_as_before(map(edited.finding, others), found)]
                    return sorted(named, key=lambda finding: _key(finding).start), clean
        return found, not found

    def _tried(
        self, habit: Habit, source: Source, found: list[Diagnostic]
    ) -> tuple[tuple[Edit, ...], list[Diagnostic]]:
        """The edits that leave less wrong, at all places of a habit or in the lines of findings, and what is left."""
        every = tuple(_apart(habit.edits(source.text)))
        lines = {finding.where.line for finding in found if finding.where}
        near = tuple(edit for edit in every if source.position(edit.start)[0] in lines)
        for edits in dict.fromkeys((every, near)) if near else ():
            self.left -= len(source.text)
            if self.left > 0:
                edited = _Edited(source, edits)
                rest = [edited.finding(finding) for finding in self.read(Source(source.name, edited.text))]
                if _less(rest, found):
                    return edits, rest
        return (), found


def _as_before(rest: Iterable[Diagnostic], found: list[Diagnostic]) -> Iterator[Diagnostic]:
    """What is left, in the words of the text as it was written, where the place is the same."""
    messages = {_key(finding).start: finding.message for finding in found}
    for finding in rest:
        yield replace(finding, message=messages.get(_key(finding).start, finding.message))


def _apart(edits: Iterator[Edit]) -> Iterator[Edit]:
    """Edits in order, without those that overlap one before."""
    end = 0
    for edit in sorted(edits):
        if edit.start >= end:
            yield edit
            end = edit.end


def _less(rest: list[Diagnostic], found: list[Diagnostic]) -> bool:
    """Whether there are fewer findings, or as many of which the first that differs is further on."""
    if len(rest) != len(found):
        return len(rest) < len(found)
    differ = ((_key(a).start, _key(b).start) for a, b in zip(rest, found, strict=True) if _key(a) != _key(b))
    first = next(differ, (0, 0))
    return first[0] > first[1]


def _finding_of(habit: Habit, edits: tuple[Edit, ...], first: Diagnostic, source: Source) -> Diagnostic:
    """One finding for every place of a habit; what is wrong is said as of the first of those that it explains."""
    labels = tuple(Label(source.span(e.start, e.end), _advice(e, source)) for e in edits[:_SHOWN])
    more = (f"and in {len(edits) - _SHOWN} more places",) if len(edits) > _SHOWN else ()
    advice = ", ".join(dict.fromkeys(label.message for label in labels[:_ADVISED]))
    meant = f"did you mean `{edits[0].text}`?"
    help = meant if first.help == meant and len(edits) == 1 else f"{habit.why}: {advice}"
    return Diagnostic(first.code, first.message, labels, more, help)


def _advice(edit: Edit, source: Source) -> str:
    shown = edit.text.strip()
    if not shown:
        return "take it away"
    before = source.text[edit.start : edit.end]
    return f"write `{shown}`" if before else f"put `{shown}` here"


def _key(finding: Diagnostic) -> _Key:
    return _Key(finding.where.start if finding.where else 0, finding.message)
