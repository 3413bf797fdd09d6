"""Reads TOML, YAML and JSON as settings, each with the position of its key.

    [parallelism]                          parallelism.pipeline_parallel_degree = 4      tomllib
    pipeline_parallel_degree = 4
    distributed: {pp_size: 4}              distributed.pp_size = 4                       PyYAML
    {"zero_optimization": {"stage": 1}}    zero_optimization.stage = 1                   json

Shell scripts are read by `scripts`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from pipesched.diagnostics import Code, PipeschedError, budgeted, fail
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers import python_configs
from pipesched.interop.trainers.scripts import LARGEST, of_script
from pipesched.interop.trainers.settings import Setting, Settings, Unset
from pipesched.planning import toml
from pipesched.support import budget
from pipesched.support.foreign import json_of
from pipesched.support.source import Source, Span

Node: TypeAlias = Any  # a node of PyYAML, or its loader, which have no types here
_LONGEST = 20_000  # most characters of a line
_MOST = 5_000  # most settings of a text
_ENDINGS = {x: x for x in ("toml", "yaml", "json")} | {"yml": "yaml", "sh": "shell", "bash": "shell", "py": "python"}
_MULTIPLE = "[]"  # part of a path that represents an entry of a list
_PLACEHOLDER = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<word>\b(?!(?:True|False|None|NaN|Infinity)\b)[A-Z]\w+\b)')
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]')


def commands(source: Source, given: Mapping[str, str] | None = None) -> list[Settings]:
    """Read the settings of every command in a script, or of a file of another kind. given: values for variables of the
    script.

    Raises:
        PipeschedError: as for `read`.
    """
    _require_short(source)
    if kind_of(source) == "python":
        return python_configs.settings(source)
    if kind_of(source) != "shell":
        return [read(source)]
    found = of_script(source, given or {})
    if any(len(x.given) > _MOST for x in found):
        raise fail(
            InteropCode.CONFIG_SYNTAX, f"{source.name} has more than {_MOST:,} settings, too many for a configuration"
        )
    return found


def _require_short(source: Source) -> None:
    """Raise PipeschedError, PS809, if the text is too long; PS870, if one of its lines is too long."""
    if len(source.text) > LARGEST:
        message = f"{source.name} is larger than {LARGEST // 2**10} KiB, too large for a configuration"
        raise fail(Code.UNREADABLE, message)
    if any(len(line) > _LONGEST for line in source.text.split("\n")):
        raise fail(InteropCode.CONFIG_SYNTAX, f"{source.name} has a line of more than {_LONGEST:,} characters")


def read(source: Source) -> Settings:
    """Read the settings in a TOML, YAML or JSON file; its kind is recognized by its extension, or by its contents.

    Raises:
        PipeschedError: PS870 if the file cannot be read as its kind; PS809 if it is too long; PS843 if reading it
            exceeds the budget; PS820 if the file is YAML and PyYAML is not installed.
    """
    _require_short(source)
    kind = kind_of(source)
    with budgeted(source):
        try:
            values, places, repeated = _READ[kind](source)
        except RecursionError:
            raise budget.deep() from None
    if len(values) > _MOST:
        raise fail(
            InteropCode.CONFIG_SYNTAX, f"{source.name} has more than {_MOST:,} settings, too many for a configuration"
        )
    given = {key: Setting(key, _filled(value), toml.place(key, places), key) for key, value in values.items()}
    return Settings(source, kind, given, tuple(repeated))


def kind_of(source: Source) -> str:
    """Return the kind of a file: ``toml``, ``yaml``, ``json``, ``shell`` or ``python``."""
    ending = source.name.lower().rpartition(".")[2]
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    text = re.sub(r"^\s*#.*$", "", source.text, flags=re.M).strip()
    if text.startswith("{"):
        return "json"
    if re.search(r"^\[[\w.\"' -]+\]", text, re.M):
        return "toml"
    if re.search(r"(?:^|\s)--[A-Za-z][\w.-]*[= \t]", text) and not re.search(r"^\s*--[\w-]+:", text, re.M):
        return "shell"
    return "yaml"


def _filled(value: object) -> object:
    """Return the value as read; a placeholder (``auto``, ``???``, ``${...}``) is unknown."""
    return Unset(value) if isinstance(value, str) and (value in ("auto", "???") or "${" in value) else value


Made = tuple[dict[str, object], Mapping[str, Span], list[Setting]]


def _broken(source: Source, what: str, reason: str, line: int, column: int) -> PipeschedError:
    """Return a PS870 error at a line and column."""
    return toml.broken(source, InteropCode.CONFIG_SYNTAX, what, reason, line, column)


def _json(source: Source) -> Made:
    try:
        values = _json_values(source.text)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise _broken(source, "JSON", reason, error.lineno, error.colno) from None
    except ValueError as error:
        raise _broken(source, "JSON", str(error).partition(";")[0], 1, 1) from None
    if not isinstance(values, dict):
        raise _broken(source, "a configuration", "its JSON is not an object", 1, 1)
    return dict(toml.flat(values)), *_json_places(source)


def _json_values(text: str) -> object:
    """Parse JSON; the placeholder of a template, as in ``{"train_batch_size": CONFIG_BATCH}``, is an unknown value."""
    try:
        return json_of(text)
    except json.JSONDecodeError:
        filled = _PLACEHOLDER.sub(lambda x: x[0] if x["word"] is None else f'"${{{x["word"]}}}"', text)
        if filled == text:
            raise
        with contextlib.suppress(json.JSONDecodeError):
            return json_of(filled)
        raise


def _json_places(source: Source) -> tuple[dict[str, Span], list[Setting]]:
    """Return the position of every key, by the path of the key, and the settings of repeated keys."""
    places: dict[str, Span] = {}
    repeated: list[Setting] = []
    path: list[str] = []
    last: re.Match[str] | None = None
    for token in _JSON_TOKEN.finditer(source.text):
        sign = token[0]
        if sign.startswith('"'):
            last = token
        elif sign == ":" and last is not None and path:
            path[-1] = last[0][1:-1]
            key, span = ".".join(path), source.span(*last.span())
            if key in places and _MULTIPLE not in path:
                repeated.append(Setting(key, Unset("given a second time"), span, key))
            places.setdefault(key, span)
        elif sign in "{[":
            path.append("" if sign == "{" else _MULTIPLE)
        elif sign in "}]" and path:
            path.pop()
    return places, repeated


def _yaml(source: Source) -> Made:
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise fail(
            Code.NEEDS, "YAML needs PyYAML, which is not installed", help="pip install 'pipesched[interop]'"
        ) from None
    budget.numbers(source.text, budget.SEXAGESIMAL)
    try:
        loader = yaml.SafeLoader(source.text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _broken(source, "YAML", str(reason), line, column) from None
    if not isinstance(node, yaml.MappingNode):
        raise _broken(source, "a configuration", "its YAML is not a mapping of keys to values", 1, 1)
    values: dict[str, object] = {}
    places: dict[str, Span] = {}
    repeated: list[Setting] = []
    for path, key, value in _leaves(yaml, node, "", frozenset(), set()):
        span = source.span(key.start_mark.index, max(key.end_mark.index, key.start_mark.index + 1))
        if path in values and path in places:
            repeated.append(Setting(path, values[path], places[path], path))
        values[path], places[path] = _scalar(yaml, loader, value), span
        if len(values) > _MOST:
            break
    return values, places, repeated


def _leaves(
    yaml: ModuleType, node: Node, path: str, inside: frozenset[int], taken: set[object]
) -> Iterator[tuple[str, Node, Node]]:
    """Yield path, key and value of every leaf of a mapping; a mapping that contains itself is not entered again.

    taken: keys of the mappings into which this one is merged, and mappings that are merged already. A mapping's own key
    precedes merged keys; among several merged mappings, the first with the key counts.
    """
    if not isinstance(node, yaml.MappingNode) or id(node) in inside or id(node) in taken:
        return
    before = frozenset(taken)
    merged: list[Node] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in before:
            continue
        if key.tag.endswith(":merge"):
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            continue
        taken.add(key.value)
        own = f"{path}.{key.value}" if path else key.value
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _leaves(yaml, value, own, inside | {id(node)}, set())
        else:
            yield own, key, value
    for other in merged:
        yield from _leaves(yaml, other, path, inside | {id(node)}, taken)
        taken.add(id(other))


def _scalar(yaml: ModuleType, loader: Node, node: Node) -> object:
    """Return the value of a leaf: a scalar, or a list of scalars or of lists of scalars; None for other nodes.

    If a node has a tag that is not YAML's own, its value is its text.
    """
    if isinstance(node, yaml.SequenceNode):
        inner = (x for entry in node.value for x in (entry.value if isinstance(entry, yaml.SequenceNode) else [entry]))
        if not all(isinstance(x, yaml.ScalarNode) for x in inner):
            return None
    try:
        value = loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, LookupError):
        return str(getattr(node, "value", ""))[:60]
    return None if isinstance(value, dict) else value


_READ: Mapping[str, Callable[[Source], Made]] = {
    "toml": lambda source: (*toml.read(source, InteropCode.CONFIG_SYNTAX), []),
    "yaml": _yaml,
    "json": _json,
}
