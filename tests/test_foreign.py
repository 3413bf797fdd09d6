"""No text of a file, of its name or of an argument makes a line of its own, steers a terminal, or commands a CI system.

Every text of every kind of input (`makers/foreign_texts.py`) is changed, and every command that reads it is typed. The
judge knows nothing of `pipesched.safe`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.depth import some
from tests.makers import foreign_texts
from tests.makers.foreign_texts import AS_IT_IS, Input
from tests.readers.typed import Typed, typed

OURS = re.compile(r"\x1b\[(?:0|1|1;3[1-6])m")
FORGED = re.compile(r"\s*(?:::add-mask::|ok  other\.py)|.*##(?:\[|vso\[)")
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069\ufffe]")
ENDS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def wrong(done: Typed, *, colored: bool) -> str:
    """What a command wrote and must not."""
    if done.status not in (0, 1, 2, 3, 4):
        return f"status {done.status}"
    for written in (done.out, done.err):
        told = written.decode("utf-8", "surrogatepass")
        plain = OURS.sub("", told) if colored else told
        if found := STEERS.search(plain):
            return f"raw {found[0]!r} in {plain[max(found.start() - 80, 0) : found.end() + 40]!r}"
        if line := next((line for line in ENDS.split(plain) if FORGED.match(line)), None):
            return f"forged {line!r}"
    return ""


def faults(one: Input, folder: Path) -> list[str]:
    for name, data in one.files.items():
        (folder / name).write_bytes(data)
    found = []
    for words in one.lines(folder):
        said = wrong(typed(*words), colored="always" in words)
        found += [f"{one.name}: {' '.join(words)[:200]!r}: {said}"] * bool(said)
    for name in one.files:
        (folder / name).unlink()
    return found


KINDS = {
    made.__name__: made
    for made in (
        foreign_texts.schedules,
        foreign_texts.numbers,
        foreign_texts.settings,
        foreign_texts.runs,
        foreign_texts.names,
    )
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_is_an_input(kind: str, tmp_path: Path) -> None:
    """As it was, the first command of each reads it, and nothing is wrong."""
    for one in KINDS[kind]():
        if one.name.endswith(AS_IT_IS):
            for name, data in one.files.items():
                (tmp_path / name).write_bytes(data)
            done = typed(*next(one.lines(tmp_path)))
            assert done.status == 0, (one.name, done)
            for name in one.files:
                (tmp_path / name).unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_an_input_makes_a_line(kind: str, tmp_path: Path) -> None:
    """With ``--depth 2`` every text; else one in 37, of schedules one in 131."""
    assert not [
        fault
        for one in some(list(KINDS[kind]()), 131 if kind == "schedules" else 37)
        for fault in faults(one, tmp_path)
    ]


if __name__ == "__main__":
    import sys
    import tempfile
    import time

    for name, made in {**KINDS, "generators": foreign_texts.generators}.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        start, inputs, lines = time.process_time(), list(made()), set[str]()
        with tempfile.TemporaryDirectory() as there:
            for one in inputs:
                for fault in faults(one, Path(there)):
                    lines.add(fault)
                    print(ascii(fault)[:400], flush=True)
        tried, took = sum(len(one.commands) for one in inputs), time.process_time() - start
        print(f"{name}: {len(inputs)} inputs, {tried} commands, {len(lines)} faults, {took:.0f} s")
