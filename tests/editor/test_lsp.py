"""The language server, tested through its protocol, reports the findings of `verify`, finds and renames names, and
offers repairs that work.

A client without a screen talks to `pipesched lsp` over pipes; it knows the protocol and nothing of the server.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipesched
from tests.depth import deep

pytest.importorskip("pygls")

TOP = Path(__file__).parents[2]
LIBRARY = sorted((TOP / "schedules").glob("*.ps"))
HANGS = (TOP / "tests" / "torch_fixtures" / "c15_both_send_first.csv").read_text("utf-8")
TEXT = """schedule mine(p, m = 2 * p)
stage s in 0 .. p on rank s
let twice(k) = 2 * k

rank r {
  let warmup = min(p - 1 - r, m)
  repeat warmup            { F }
  for k in 0 .. m - warmup { F  B }
  for k in 0 .. warmup     { B }
}

claim peak(r) == min(p - r, m)
"""


class Client:
    """An editor without a screen."""

    def __init__(self, *sizes: str) -> None:
        command = [sys.executable, "-m", "pipesched", "lsp", *sizes]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=TOP
        )
        self.number, self.version = 0, 0
        self.shown: dict[str, list[dict[str, Any]]] = {}
        self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.tell("initialized", {})

    def tell(self, method: str, params: dict[str, Any], **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        said: dict[str, Any] = json.loads(self.process.stdout.read(length))
        if said.get("method") == "textDocument/publishDiagnostics":
            self.shown[said["params"]["uri"]] = said["params"]["diagnostics"]
        return said

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.number += 1
        self.tell(method, params, id=self.number)
        while (said := self.hear()).get("id") != self.number or "method" in said:
            pass
        assert "error" not in said, said
        return said["result"]

    def type(self, uri: str, text: str) -> list[dict[str, Any]]:
        """Set the text of a document; return the findings that the server shows."""
        self.version += 1
        self.shown.pop(uri, None)
        if self.version == 1 or uri not in self.known:
            self.known = {*getattr(self, "known", ()), uri}
            item = {"uri": uri, "languageId": "pipesched", "version": self.version, "text": text}
            self.tell("textDocument/didOpen", {"textDocument": item})
        else:
            document = {"uri": uri, "version": self.version}
            self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})
        while uri not in self.shown:
            self.hear()
        return self.shown[uri]

    def at(self, uri: str, text: str, word: str, number: int = 0) -> dict[str, Any]:
        """Return the parameters of a request at the n-th place of a word."""
        offset = -1
        for _ in range(number + 1):
            offset = text.index(word, offset + 1)
        line = text.count("\n", 0, offset)
        place = {"line": line, "character": offset - (text.rfind("\n", 0, offset) + 1)}
        return {"textDocument": {"uri": uri}, "position": place}

    def close(self) -> None:
        self.ask("shutdown", {})
        self.tell("exit", {})
        self.process.communicate(timeout=20)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """Return a text after the edits of an answer; all its characters are of one UTF-16 unit here."""
    lines = [0]
    for line in text.split("\n"):
        lines.append(lines[-1] + len(line) + 1)
    places = [
        [lines[edit["range"][x]["line"]] + edit["range"][x]["character"] for x in ("start", "end")] for edit in edits
    ]
    for (start, end), edit in sorted(zip(places, edits, strict=True), key=lambda one: one[0], reverse=True):
        text = text[:start] + edit["newText"] + text[end:]
    return text


def broken(seed: int) -> str:
    """Return a library file with a slip."""
    rng = random.Random(seed)
    text = rng.choice(LIBRARY).read_text("utf-8")
    at = rng.randrange(text.index("rank "), len(text))
    return text[:at] + rng.choice(["", "F", "x", "(", "}", "0", ".."]) + text[at + rng.randrange(1, 4) :]


@pytest.mark.parametrize("seed", range(deep(6)))
def test_findings_are_those_of_verify(seed: int, client: Client, tmp_path: Path) -> None:
    """After an edit: code and place of each finding, as `verify` has them at the size that the server took."""
    text = broken(seed)
    shown = client.type(f"file:///edit{seed % 3}.ps", text)
    file = tmp_path / "edited.ps"
    file.write_text(text, encoding="utf-8")
    sizes = [{}, *({"p": p, "v": v, "m": m} for p, v, m in [(4, 2, 8), (4, 2, 16), (2, 2, 4), (8, 4, 32)])]
    found = [{(x["code"], x["range"]["start"]["line"], x["range"]["start"]["character"]) for x in shown}]
    assert found[0] in [_verified(file, text, size) for size in sizes]


def _verified(file: Path, text: str, sizes: dict[str, int]) -> set[tuple[str, int, int]]:
    """Return code and place of each finding of the command line; sizes that the file does not know are left out."""
    head = re.search(r"^schedule\b[^(]*\(((?:[^()]|\([^()]*\))*)\)", text, re.M)
    parameters = re.sub(r"\([^()]*\)", "", head[1]).split(",") if head else []
    names = {x.strip() for x in parameters if "=" not in x}
    others = {name: 4 for name in names - sizes.keys() if sizes and "[" not in name}
    report = pipesched.verify(file, **{k: v for k, v in sizes.items() if k in names}, **others)
    places = [(str(x.code), x.where) for x in report.diagnostics]
    return {(code, *((at.line - 1, at.column - 1) if at else (0, 0))) for code, at in places}


@pytest.mark.parametrize("file", LIBRARY[:: 1 if deep(1) > 1 else 12], ids=lambda file: file.stem)
def test_the_library_has_no_findings(file: Path, client: Client) -> None:
    """No error is shown for a file that is right."""
    shown = client.type(f"file:///{file.name}", file.read_text("utf-8"))
    assert [x for x in shown if x["severity"] == 1] == []


def test_a_name_is_explained_found_and_renamed(client: Client) -> None:
    """Hover has the line of its definition and its value; of two `k` only one is renamed; the result still holds."""
    uri = "file:///mine.ps"
    assert client.type(uri, TEXT) == []
    said = client.ask("textDocument/hover", client.at(uri, TEXT, "m - warmup"))
    assert "parameter in line 1, 8 at p=4 m=8" in said["contents"]["value"]
    place = client.ask("textDocument/definition", client.at(uri, TEXT, "warmup", 2))
    assert place["range"]["start"] == {"line": 5, "character": 6}
    edit = client.ask("textDocument/rename", {**client.at(uri, TEXT, "k in 0", 1), "newName": "i"})
    renamed = applied(TEXT, edit["changes"][uri])
    assert renamed == TEXT.replace("for k in 0 .. warmup ", "for i in 0 .. warmup ")
    edit = client.ask("textDocument/rename", {**client.at(uri, TEXT, "warmup"), "newName": "w"})
    assert applied(TEXT, edit["changes"][uri]) == TEXT.replace("warmup", "w")
    edit = client.ask("textDocument/rename", {**client.at(uri, TEXT, "r {"), "newName": "q"})
    renamed = applied(TEXT, edit["changes"][uri])
    assert "rank q {" in renamed and "peak(q) == min(p - q, m)" in renamed
    assert client.type(uri, renamed) == []


def test_a_word_is_explained(client: Client) -> None:
    """A word of the language has its row of `explain`."""
    client.type("file:///word.ps", TEXT)
    said = client.ask("textDocument/hover", client.at("file:///word.ps", TEXT, "peak"))
    assert said["contents"]["value"].startswith("**peak**: ")


def test_completion_knows_what_is_visible(client: Client) -> None:
    """Inside a loop its variable is offered, outside it is not; claims have their names."""
    uri = "file:///complete.ps"
    client.type(uri, TEXT)
    inside = {x["label"] for x in client.ask("textDocument/completion", client.at(uri, TEXT, "F  B"))}
    above = {x["label"] for x in client.ask("textDocument/completion", client.at(uri, TEXT, "twice(k)"))}
    claim = {x["label"] for x in client.ask("textDocument/completion", client.at(uri, TEXT, "== min"))}
    assert {"k", "warmup", "r", "p", "F", "repeat"} <= inside
    assert not above & {"k", "warmup", "r"} - {"k"} and "p" in above
    assert {"makespan", "peak", "idle"} <= claim and "makespan" not in inside


def test_format_is_that_of_fmt(client: Client) -> None:
    """The text becomes the canonical form; a text with a mistake is left alone."""
    uri, wild = "file:///wild.ps", TEXT.replace("  repeat warmup            { F }", "repeat   warmup {F}")
    client.type(uri, wild)
    options = {"textDocument": {"uri": uri}, "options": {"tabSize": 2, "insertSpaces": True}}
    assert applied(wild, client.ask("textDocument/formatting", options)) == TEXT
    client.type(uri, wild.replace("{F}", "{F"))
    assert client.ask("textDocument/formatting", options) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("typo.ps", TEXT.replace("repeat warmup ", "repeat warmpu ")),
        pytest.param("hangs.csv", HANGS, marks=pytest.mark.nightly),
    ],
)
def test_a_repair_repairs(name: str, text: str, client: Client) -> None:
    """After the first repair that is offered no error is left."""
    uri = f"file:///{name}"
    assert any(x["severity"] == 1 for x in client.type(uri, text))
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    asked = {"textDocument": {"uri": uri}, "range": whole, "context": {"diagnostics": []}}
    first, *_ = client.ask("textDocument/codeAction", asked)
    repaired = applied(text, first["edit"]["changes"][uri])
    assert [x for x in client.type(uri, repaired) if x["severity"] == 1] == []
