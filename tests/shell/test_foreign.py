"""No string in a file, file name or argument can start a new line of output, control a terminal, or command a CI
system.

Every text of every kind of input (`makers/foreign_texts.py`) is changed, and every command that reads it is typed. The
judge is independent of `pipesched.support.safe`.
"""

from __future__ import annotations

import ast
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.stream import Route, Stream, dumps, loads
from pipesched.support.foreign import foreign, json_of, real, values
from pipesched.support.safe import Form, safe
from tests.depth import some
from tests.makers import foreign_texts
from tests.makers.foreign_texts import AS_IT_IS, GENERATOR, HOSTILE, MODEL, Input, as_toml
from tests.readers.typed import Typed, typed

OURS = re.compile(r"\x1b\[(?:0|1|1;3[1-6])m")
FORGED = re.compile(r"\s*(?:::add-mask::|ok  other\.py)|.*##(?:\[|vso\[)")
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069\ufffe]")
ENDS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def wrong(done: Typed, *, colored: bool) -> str:
    """Return the forbidden parts of a command's output."""
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
        foreign_texts.streams,
        foreign_texts.routes,
        foreign_texts.answers,
        foreign_texts.programs,
        foreign_texts.orders,
        foreign_texts.numbers,
        foreign_texts.settings,
        foreign_texts.commands,
        foreign_texts.runs,
        foreign_texts.names,
        foreign_texts.arguments,
    )
}


LONG = ("streams", "routes", "programs", "orders", "names", "arguments")
"""The kinds whose texts all commands of a schedule read."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_is_an_input(kind: str, tmp_path: Path) -> None:
    """Unchanged, the first command of each reads it, without a finding."""
    for one in KINDS[kind]():
        if one.name.endswith(AS_IT_IS):
            for name, data in one.files.items():
                (tmp_path / name).write_bytes(data)
            done = typed(*next(one.lines(tmp_path)))
            assert done.status == 0, (one.name, done)
            for name in one.files:
                (tmp_path / name).unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_an_input_makes_a_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test tries a few texts of each kind, or every text with ``--depth 2``."""
    monkeypatch.chdir(tmp_path)  # where -o writes
    inputs = list(KINDS[kind]())
    tried = some(
        inputs, len(inputs) // (2 if kind in LONG else 4) + 1, usual=len(inputs) // (1 if kind in LONG else 2) + 1
    )
    assert not [fault for one in tried for fault in faults(one, tmp_path)]


def test_generators_cannot_either(tmp_path: Path) -> None:
    """Their names, output, exceptions and results make no line; one process each."""
    assert not [fault for one in some(list(foreign_texts.generators()), 9) for fault in faults(one, tmp_path)]


def test_a_file_beside_cannot_either(tmp_path: Path) -> None:
    """A name from elsewhere adds no line: that of a suggested file, of a file in a folder, or of a path in Python."""
    name = "schedule\nok  other.py\x1b[31m"
    (tmp_path / f"{name}.ps").write_text(foreign_texts.PS)
    asked = [["verify", str(tmp_path / "scheduleok  other.py.ps")]]
    assert b"did you mean" in typed(*asked[0]).err
    asked += [["verify", "1f1b", "--p=2", "--m=2", "--recorded", str(tmp_path), *more] for more in ([], ["--json"])]
    assert not [said for words in asked if (said := wrong(typed(*words), colored=False))]
    for answer in (pipesched.verify(str(tmp_path / f"{name}.ps"), p=2), pipesched.verify(pipesched.Source(name, "x"))):
        said = safe(f"{answer}\n{answer.line()}\n{answer!r}", "terminal").encode()
        assert not wrong(Typed(0, said, b"", said), colored=False)


def test_json_has_the_text_itself(tmp_path: Path) -> None:
    """JSON has any name, in a verdict, and in a stream written from it and read again."""
    stream = loads(typed("emit", "1f1b", "--p=2", "--m=2").out.decode())
    routes = (Route(HOSTILE, stream.placement[0].ranks, stream.placement[0].microbatches),)
    named = Stream(HOSTILE, {**stream.parameters, HOSTILE: 7}, routes, stream.ranks)
    path = tmp_path / "named.json"
    path.write_text(dumps(named), "utf-8")
    verdict = json.loads(typed("verify", str(path), "--json").out)
    assert verdict["ok"] and verdict["name"] == HOSTILE and verdict["parameters"][HOSTILE] == 7
    assert loads(typed("emit", str(path)).out.decode()) == named


@pytest.mark.parametrize(
    "name", ['x""" + evil() + "', "x\nevil()", "x\\", '"\nrank r { B }\n"', "x # y", "{evil}", "\\N{BELL}"]
)
def test_a_name_is_no_code(name: str, tmp_path: Path) -> None:
    """A .ps file and a Python module written from an order are the same for any name."""
    stream = loads(typed("emit", "1f1b", "--p=2", "--m=2").out.decode())
    order = []
    for called in ("plain", name):
        path = tmp_path / "named.json"
        path.write_text(dumps(Stream(called, stream.parameters, stream.placement, stream.ranks)), "utf-8")
        (tmp_path / "made.ps").write_bytes(typed("emit", str(path), "--target=ps").out)
        module = ast.parse(typed("emit", str(path), "--target=deepspeed").out)
        assert isinstance(module.body[0], ast.Expr)
        again = typed("emit", str(tmp_path / "made.ps"), "--target=order")
        assert again.status == 0, again
        order.append((again.out, ast.dump(ast.Module(module.body[1:], []))))
    assert order[0] == order[1]


MARKUP = "</script></title></style></pre><b id=forged>]]><!--&amp;\"'"
CALLED = MARKUP.replace("/", "")


class Forged(HTMLParser):
    """Return True if an element or an attribute was injected."""

    found = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= ("id", "forged") in attrs


def test_a_name_is_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pages and pictures a name is text, wherever it comes from."""
    monkeypatch.chdir(tmp_path)
    stream = loads(typed("emit", "1f1b", "--p=2", "--m=2").out.decode())
    routes = (Route(MARKUP, stream.placement[0].ranks, stream.placement[0].microbatches),)
    Path("named.json").write_text(dumps(Stream(MARKUP, {MARKUP: 7}, routes, stream.ranks)), "utf-8")
    Path(f"{CALLED}.toml").write_bytes(
        as_toml({"model": {**MODEL["model"], "name": MARKUP}, "training": MODEL["training"]})
    )
    Path("mine.py").write_text(GENERATOR.replace('"1.0"', repr(MARKUP)))
    Path(f"{CALLED}.csv").write_text(foreign_texts.TORCH)
    plan = ["plan", f"--model={CALLED}.toml", "--gpus=2", "--device=h100", "--batch=4", "--executor=here"]
    commands = [
        *(["show", "named.json", "-o", f"a{ending}"] for ending in (".svg", ".html", ".graphml")),
        ["show", f"{CALLED}.csv", "-o", "b.html"],
        ["show", "1f1b", "--p=2", "--m=2", f"--model={CALLED}.toml", "-o", "c.html"],
        ["compare", "named.json", f"{CALLED}.csv", "--plot", "d.svg"],
        [*plan, "-o", "e.html"],
        [*plan, "--plot", "f.svg"],
    ]
    for words in commands:
        done = typed(*words)
        assert done.status in (0, 1), done
        drawn = Path(words[-1]).read_text("utf-8")
        parser = Forged()
        parser.feed(drawn)
        assert "forged" in drawn, words
        assert not parser.found and "<b id" not in drawn, words
        if not words[-1].endswith(".html"):
            ElementTree.fromstring(drawn)


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "a\tb", "\x1b[31m", "\u202e", "\u2028", "\x9b"])
def test_no_word_of_a_command_line_steers(word: str) -> None:
    """The word is refused by its place and its character, which is not shown."""
    done = typed("verify", word)
    steers = next(x for x in word if not x.isprintable())
    said = f"word 2 of the command line contains the character U+{ord(steers):04X}"
    assert done.status == 2 and said in done.err.decode()


@settings(deadline=None)
@given(st.text(), st.text())
def test_a_text_stays_marked(text: str, other: str) -> None:
    """Joined, split, cut and quoted, a marked text has no character that ends or steers a line, and stays marked."""
    one = foreign(text)
    assert foreign(one) == one and len(one) == len(text)
    assert not STEERS.search(one) and len(ENDS.split(one)) == 1
    assert real(one) == text or re.search("[\U00100000-\U0010ffff]", text)
    assert json_of(json.dumps({text: [other]})) == {one: [foreign(other)]} == values({text: [other]})
    for form in ("line", "data", "terminal", "commands", "annotation", "property", "text", "xml", "dot"):
        shown = safe(f"<{one}>", cast("Form", form))
        assert not STEERS.search(shown) and len(ENDS.split(shown)) == 1


if __name__ == "__main__":
    import contextlib
    import sys
    import tempfile
    import time

    for name, made in {**KINDS, "generators": foreign_texts.generators}.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        start, inputs, lines = time.process_time(), list(made()), set[str]()
        with tempfile.TemporaryDirectory() as there, contextlib.chdir(there):
            for one in inputs:
                for fault in faults(one, Path(there)):
                    lines.add(fault)
                    print(ascii(fault)[:400], flush=True)
        tried, took = sum(len(one.commands) for one in inputs), time.process_time() - start
        print(f"{name}: {len(inputs)} inputs, {tried} commands, {len(lines)} faults, {took:.0f} s")
