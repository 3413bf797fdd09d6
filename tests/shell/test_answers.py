"""Every object that a command prints with --json has exactly the keys and types in its published schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from pipesched.__main__ import main
from pipesched.shell.app import verbs

TOP = Path(__file__).parents[2]
HANGING = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"
TITAN = '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "1F1B"\n'


@cache
def schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of the commands, with those in the folders of extensions, and the schema of a report."""
    commands, report, *own = (
        json.loads(path.read_text("utf-8"))
        for path in (
            *(TOP / "emit" / f"{name}.schema.json" for name in ("commands", "report")),
            *sorted((TOP / "pipesched").glob("*/answers.schema.json")),
        )
    )
    return {
        **commands,
        "$defs": {name: body for one in (commands, *own) for name, body in one["$defs"].items()},
    }, report


def validator(name: str) -> Draft202012Validator:
    """Return the validator of a command's object."""
    known = [(schema["$id"], Resource.from_contents(schema)) for schema in schemas()]
    whole = {"$ref": f"{schemas()[0]['$id']}#/$defs/{quote(name)}"}
    return Draft202012Validator(whole, registry=Registry().with_resources(known))


COMMANDS = {
    "emit": ("1f1b --p 2 --m 2", "dualpipe --p 4 --m 8 --target ps", "1f1b --p 2 --target torch-csv -o a.csv"),
    "list": ("", "1f1b", "llama3-70b"),
    "show": ("1f1b --p 2 --m 2", "zb_h1 --p 2 --cost F=10,B=21 --format svg", "hanging.csv"),
    "why": (
        "zb_h1 --p 4 --cost F=10,B=21,C=1",
        "interleaved --p 2 --v 2 --model llama3-70b --device h100",
        "pipedream --p 4",
    ),
    "compare": (
        "1f1b zb_h1 gpipe --p 4 --m 8,16 --mem-cap 3 --comm one-stream",
        "1f1b forward_only pipedream pipeoffload --p 4 --m 8",
        "1f1b --p 4 --jitter 5% --model llama3-70b --device h100",
    ),
    "diff": ("1f1b gpipe --p 2 --m 4", "1f1b 1f1b --p 2 --m 4"),
    "plan": ("--model megatron-1.7b --gpus 4 --device a100 --executor here --only t=1,c=1 --trainer torchtitan==0.2",),
    "plan --explain-model": ("--model llama3-70b --gpus 8 --device h100 --explain-model",),
    "check": ("titan.toml",),
    "prove": ("gpipe",),
    "explain": ("", "PS401", "chunk"),
    "fmt": ("--check own.ps",),
    "play": ("--p 2 -o page",),
}
ELSEWHERE = {"run", "run --rank", "calibrate", "plan --sweep"}  # in tests of their extensions
PUBLISHED = {unquote(ref["$ref"].rpartition("/")[2]) for ref in schemas()[0]["anyOf"]}
NAMES = (PUBLISHED | set(verbs()) & schemas()[0]["$defs"].keys()) - ELSEWHERE


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    Path("hanging.csv").write_text(HANGING)
    Path("titan.toml").write_text(TITAN)
    Path("own.ps").write_text((TOP / "schedules" / "1f1b.ps").read_text("utf-8"))

    def asked(name: str) -> Iterator[dict[str, Any]]:
        for words in COMMANDS.get(name, ("1f1b --p 2 --m 4",)):
            main([name.split()[0], *words.split(), "--json"])
            yield json.loads(capsys.readouterr().out)

    return asked


def wrong(value: Any) -> Iterator[Any]:
    """Yield copies of an answer without one of its keys, with one more, and with one value of another type."""
    for key in list(value):
        yield {name: x for name, x in value.items() if name != key}
        yield {**value, key: 1.25 if isinstance(value[key], dict | list | str | bool) else [[True]]}
    yield {**value, "strange": 1}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_an_answer_is_as_its_schema_says(name: str, answers: Any) -> None:
    """Every answer is valid; without a key, with another type or with a key more it is not, but for optional keys."""
    check = validator(name)
    body = schemas()[0]["$defs"][name]
    required = {key for part in body.get("oneOf", [body]) for key in part["required"]}
    for answer in answers(name):
        check.validate(answer)
        for changed in filter(check.is_valid, wrong(answer)):
            lacks = answer.keys() - changed.keys()
            assert lacks and not lacks & required, {
                key: x for key, x in changed.items() if x != answer.get(key)
            } or lacks


def test_every_verb_has_its_object() -> None:
    """Every verb has an object, but those with a schema of their own, and the one that speaks another protocol."""
    names = {name.split()[0] for name in NAMES | ELSEWHERE}
    assert names == set(verbs()) - {"verify", "optimize", "lsp"}


def test_the_page_names_the_keys() -> None:
    """Each command of the schema has its row on the page, which names every key of its object."""
    page = (TOP / "emit" / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", page.partition("### The other commands")[2], re.M))
    for name, body in schemas()[0]["$defs"].items():
        if name not in PUBLISHED:
            continue
        keys = {key for part in body.get("oneOf", [body]) for key in part["properties"]}
        named = set(re.findall(r"`(\w+)`", rows.get(name, "")))
        assert {key for key in keys if not key.endswith("_decimal")} - named == set(), (
            f"the row of {name} in emit/README.md"
        )
