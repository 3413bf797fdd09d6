"""A refutation is a list of clauses, each of which follows from those before it, and the last of which is empty.

    7 -3 5 0 2 4 6 0       clause 7, "not 3, or 5", follows from clauses 2, 4 and 6, its hints, in this order:

all its literals are taken to be false; then each hint has at most one literal that is not, which must be true; the last
hint has none left. So whatever makes clauses 2, 4 and 6 true makes clause 7 true, and nothing makes an empty one true:
the clauses that the proof begins with contradict each other. This is the text of LRAT, where every step is of this kind
and nothing is deleted; any checker of LRAT reads it.

`optimum_clauses` writes what it begins with, from the terms. So it refutes these terms and no others.
"""

from __future__ import annotations

import lzma
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias

from pipesched.check.optimum_certificate import Entries, Unreadable
from pipesched.check.optimum_clauses import Clauses, TooManyError
from pipesched.check.optimum_paths import Facts

NO_TEXT = "its proof is no text of LRAT that is packed by xz, or too long"
MOST_TEXT = 100_000_000  # bytes
_MEMORY = 200_000_000
_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)  # of a file beside the answer

Beside: TypeAlias = Callable[[str], bytes]
"""What a file holds that lies beside the answer; OSError if it cannot be read."""

Step: TypeAlias = tuple[int, list[int], list[int]]
"""Number, literals and hints."""


def text_of(given: Entries, beside: Beside | None) -> bytes:
    """The text of the proof that a certificate has in it, or in a file beside the answer.

    Raises:
        Unreadable: there is none.
    """
    given.only("lrat") if "lrat" in given else given.only("file", "sha256")
    try:
        return unpacked(_packed(given, beside))
    except OSError:
        raise Unreadable(f"its proof is in {given.text('file')}, which cannot be read beside it") from None
    except ValueError:
        raise Unreadable(NO_TEXT) from None


def _packed(given: Entries, beside: Beside | None) -> bytes:
    if "lrat" in given:
        return b64decode(given.text("lrat"), validate=True)
    name = given.text("file")
    if beside is None or not _NAME.fullmatch(name):
        raise Unreadable(f"its proof is in another file, {name[:40]!r}, and there is none")
    packed = beside(name)
    if sha256(packed).hexdigest() != given.text("sha256"):
        raise Unreadable(f"its proof is not what is in {name}")
    return packed


def unpacked(packed: bytes) -> bytes:
    """The text of an xz file.

    Raises:
        ValueError: it is none, or one of more text than is ever followed.
    """
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        text = reader.decompress(packed, MOST_TEXT + 1)
    except (lzma.LZMAError, EOFError):
        raise ValueError from None
    if not reader.eof or len(text) > MOST_TEXT:
        raise ValueError
    return text


def proof(text: bytes) -> list[Step]:
    """Raises Unreadable: a line is no step of this kind."""
    try:
        return list(map(_step, text.splitlines()))
    except ValueError:
        raise Unreadable(NO_TEXT) from None


def _step(line: bytes) -> Step:
    number, *rest = map(int, line.split())
    end = rest.index(0)
    literals, hints = rest[:end], rest[end + 1 : -1]
    if rest[-1] or not hints or min(hints) < 1:
        raise ValueError
    return number, literals, hints


def unproved(steps: Sequence[Step], facts: Facts, bound: int, *, span: bool) -> str:
    """Why the steps do not show that no objective is at most `bound` ticks, or an empty string."""
    wanted = {hint for _, _, hints in steps for hint in hints}
    try:
        made = Clauses(facts, bound, span=span, wanted=wanted)
    except TooManyError as error:
        return str(error)
    if steps and steps[0][0] <= made.count:
        return f"its proof is of other terms: from these follow {made.count:,} clauses"
    found = unfollowed(made.known, steps)
    return f"its proof shows nothing: {found}" if found else ""


def unfollowed(clauses: Mapping[int, list[int]], steps: Sequence[Step]) -> str:
    """The first step that does not follow, or an empty string."""
    known = dict(clauses)
    for number, literals, hints in steps:
        false = set(literals)
        for hint in hints:
            if hint not in known:
                return f"clause {number} has the hint {hint}, and there is no such clause"
            left = [x for x in known[hint] if x not in false]
            if not left:
                break
            if len(left) > 1:
                return f"clause {number} does not follow: of clause {hint} more than one literal is left"
            false.add(-left[0])
        else:
            return f"clause {number} does not follow from its hints"
        if number in known:
            return f"clause {number} is there already"
        known[number] = literals
        if not literals:
            return ""
    return "it does not end in the empty clause"
