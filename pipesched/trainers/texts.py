"""TOML, YAML, JSON and command lines as settings, each with the place of its key.

    [parallelism]                          parallelism.pipeline_parallel_degree = 4      tomllib
    pipeline_parallel_degree = 4
    distributed: {pp_size: 4}              distributed.pp_size = 4                       PyYAML
    {"zero_optimization": {"stage": 1}}    zero_optimization.stage = 1                   json
    --num-layers 12  a.b=2  ac:none        --num-layers = 12, a.b = 2, ac = none         words of a shell

A script of the shell is not run: its options are read wherever they are, variables that it sets are put in, and one
that it does not set leaves a value open.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from pipesched import budget, toml
from pipesched.diagnostics import Code, Label, PipeschedError, budgeted, fail
from pipesched.foreign import foreign, json_of
from pipesched.foreign import values as marked
from pipesched.source import Source, Span
from pipesched.trainers.settings import Mention, Setting, Settings, Unset

LARGEST = 2**18
_LONGEST = 20_000  # characters of a line
_MOST = 5_000  # settings of a text
_MULTIPLE = "[]"  # the part of a path that is an entry of a list
_PLACEHOLDER = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<word>\b[A-Z][A-Z0-9_]+\b)')
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]')
_WORD = re.compile(
    r"""(?P<skip>\s+|\\\r?\n|(?<!\S)\#[^\n]*|[();])
    |(?P<word>(?:\$\(\([^()]*\)\)|\$\([^()]*\)|\$\{[^{}\n]*\}|'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\();])+|['"\\])""",
    re.X | re.S,
)
_OPTION = re.compile(r"(--[A-Za-z][\w.-]*)(?:=(.*))?", re.S)
_MENTIONED = re.compile(
    r"(?<![\w-])--[A-Za-z][\w-]*|(?<![\w-])(?:[A-Za-z]+_)*(?:V?PP|PIPE|PIPELINE)(?:_[A-Za-z]+)*(?!\w)", re.I
)
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_OPTIONS = re.compile(r"""[A-Za-z_]\w*\+?=["'](?=(?:\s|\\\r?\n)*(?:--[A-Za-z]|\$))""")
_BRANCH = {"if": "fi", "case": "esac", "for": "done", "while": "done"}
_DOTTED = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.S)
_CHOSEN = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z][\w.-]*)")
_USED = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)|\$\(.*\)", re.S)


def read(source: Source) -> Settings:
    """The settings of a text, by the ending of its name, else by how it begins.

    Raises:
        PipeschedError: PS870, it is none of these; PS809, it is too long; PS843, it costs more than its budget; PS820,
            YAML without PyYAML.
    """
    if len(source.text) > LARGEST:
        message = f"{source.name} holds more than {LARGEST // 2**10} KiB, which no configuration does"
        raise fail(Code.UNREADABLE, message)
    if any(len(line) > _LONGEST for line in source.text.split("\n")):
        raise fail(Code.CONFIG_SYNTAX, f"{source.name} has a line of more than {_LONGEST:,} characters")
    kind = kind_of(source)
    with budgeted(source):
        try:
            values, places, repeated = _READ[kind](source)
        except RecursionError:
            raise budget.deep() from None
    if len(values) > _MOST:
        raise fail(Code.CONFIG_SYNTAX, f"{source.name} has more than {_MOST:,} settings, which no configuration has")
    given = [_setting(key, _filled(value), toml.place(key, places)) for key, value in values.items()]
    again = [_setting(one.key, one.value, one.at) for one in repeated]
    read_at = {x.at.start for x in (*given, *again) if x.at}
    mentions = _mentions(source, read_at) if kind == "shell" else ()
    return Settings(source, kind, {one.key: one for one in given}, tuple(again), mentions)


def _mentions(source: Source, read_at: set[int]) -> tuple[Mention, ...]:
    """Names of options, and of variables of a pipeline, that stand unread in a script, outside its comments."""
    comments = [x.span() for x in _WORD.finditer(source.text) if (x["skip"] or "").startswith("#")]
    found = [x for x in _MENTIONED.finditer(source.text) if x.start() not in read_at]
    found = [x for x in found if not any(low <= x.start() < high for low, high in comments)]
    return tuple(Mention(x[0], source.span(*x.span())) for x in found)


def kind_of(source: Source) -> str:
    """``toml``, ``yaml``, ``json`` or ``shell``."""
    ending = source.name.lower().rpartition(".")[2]
    named = {"toml": "toml", "yaml": "yaml", "yml": "yaml", "json": "json", "sh": "shell", "bash": "shell"}
    if ending in named:
        return named[ending]
    text = re.sub(r"^\s*#.*$", "", source.text, flags=re.M).strip()
    if text.startswith("{"):
        return "json"
    if re.search(r"^\[[\w.\"' -]+\]", text, re.M):
        return "toml"
    if re.search(r"(?:^|\s)--[A-Za-z][\w.-]*[= \t]", text) and not re.search(r"^\s*--[\w-]+:", text, re.M):
        return "shell"
    return "yaml"


def _setting(key: str, value: object, at: Span | None) -> Setting:
    """A key and its value, as the file has them."""
    return Setting(foreign(key), marked(value), at, foreign(key))


def _filled(value: object) -> object:
    """The value; one that something else fills in is open."""
    return Unset(value) if isinstance(value, str) and (value == "auto" or "${" in value) else value


Made = tuple[dict[str, object], Mapping[str, Span], list[Setting]]


def _broken(source: Source, what: str, reason: str, line: int, column: int) -> PipeschedError:
    """PS870, at a place."""
    return toml.broken(source, Code.CONFIG_SYNTAX, what, reason, line, column)


def _json(source: Source) -> Made:
    try:
        values = _json_values(source.text)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise _broken(source, "JSON", reason, error.lineno, error.colno) from None
    except ValueError as error:
        raise _broken(source, "JSON", str(error).partition(";")[0], 1, 1) from None
    if not isinstance(values, dict):
        raise _broken(source, "configuration", "its JSON is no object", 1, 1)
    return dict(toml.flat(values)), *_json_places(source)


def _json_values(text: str) -> object:
    """The values; in a template, that of a word in capitals is open: ``"train_batch_size": CONFIG_BATCH_SIZE``."""
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
    """The place of every key by its path, and of those that are written again."""
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
        yaml: Any = import_module("yaml")
    except ImportError:
        raise fail(Code.NEEDS, "YAML needs PyYAML, which is not installed", help="pip install pyyaml") from None
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
        raise _broken(source, "configuration", "its YAML is no mapping of keys to values", 1, 1)
    values: dict[str, object] = {}
    places: dict[str, Span] = {}
    repeated: list[Setting] = []
    for path, key, value in _leaves(yaml, loader, node, "", frozenset(), set()):
        span = source.span(key.start_mark.index, max(key.end_mark.index, key.start_mark.index + 1))
        if path in values and path in places:
            repeated.append(Setting(path, values[path], places[path], path))
        values[path], places[path] = _scalar(yaml, loader, value), span
        if len(values) > _MOST:
            break
    return values, places, repeated


def _leaves(
    yaml: Any, loader: Any, node: Any, path: str, inside: frozenset[int], taken: set[object]
) -> Iterator[tuple[str, Any, Any]]:
    """Path, key and value of every leaf; a mapping that holds itself is left where it begins again.

    taken: keys of the mappings into which this one is merged, and mappings that are merged already. A key of a mapping
    is before those that are merged into it, and of these the first that has it counts.
    """
    if id(node) in inside or id(node) in taken:
        return
    before = frozenset(taken)
    merged: list[Any] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in before:
            continue
        if key.tag.endswith(":merge"):
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            continue
        taken.add(key.value)
        own = f"{path}.{key.value}" if path else key.value
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _leaves(yaml, loader, value, own, inside | {id(node)}, set())
        else:
            yield own, key, value
    for other in merged:
        if isinstance(other, yaml.MappingNode):
            yield from _leaves(yaml, loader, other, path, inside | {id(node)}, taken)
            taken.add(id(other))


def _scalar(yaml: Any, loader: Any, node: Any) -> object:
    """The value of a leaf: a scalar, or a list of such or of their lists; of a tag that is not YAML's own its text."""
    if isinstance(node, yaml.SequenceNode) and not all(_shallow(yaml, entry) for entry in node.value):
        return None
    try:
        value = loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, LookupError):
        return str(getattr(node, "value", ""))[:60]
    return None if isinstance(value, dict) else value


def _shallow(yaml: Any, node: Any) -> bool:
    inner = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return all(isinstance(entry, yaml.ScalarNode) for entry in inner)


def _shell(source: Source) -> Made:
    words = list(_words(source, source.text))
    variables: dict[str, object] = {}
    values: dict[str, object] = {}
    places: dict[str, Span] = {}
    repeated: list[Setting] = []
    given_by: dict[str, int] = {}
    branches = 0

    def put(key: str, value: object, start: int, width: int, command: int) -> None:
        if key in values and 0 < given_by[key] != command > 0:
            repeated.append(Setting(key, values[key], places[key], key))
            value = value if value == values[key] else Unset("given otherwise by another command")
        elif key in values:
            repeated.append(Setting(key, values[key], places[key], key))
        values[key], places[key], given_by[key] = value, source.span(start, start + width), command

    for number, (word, start, command) in enumerate(words):
        branches += (word in _BRANCH) - (word in _BRANCH.values() and branches > 0)
        if option := _OPTION.fullmatch(word):
            key, text = option[1], option[2]
            following = words[number + 1][0] if number + 1 < len(words) else "--"
            if text is None and not _begins_another(following):
                text = following
            put(key, True if text is None else _word(text, variables), start, len(key), command)
        elif variable := _VARIABLE.fullmatch(word):
            name, value = variable[1], _word(variable[2], variables)
            perhaps = branches > 0 or (number > 0 and words[number - 1][0] in ("&&", "||"))
            open = perhaps and name in variables and variables[name] != value
            variables[name] = Unset(f"${name}, which the file sets in several ways") if open else value
        elif dotted := _DOTTED.fullmatch(word):
            put(dotted[1], _word(dotted[2], variables), start + dotted.start(1), len(dotted[1]), command)
        elif chosen := _CHOSEN.fullmatch(word):
            put(chosen[1], chosen[2], start, len(word), command)
    return values, places, repeated


def _words(source: Source, text: str, begin: int = 0, *, quoted: bool = False) -> Iterator[tuple[str, int, int]]:
    """Words, where each begins, and the number of its command; 0 of a word in brackets or in a text of options.

    Raises:
        PipeschedError: PS870, options follow a backslash that does not continue its line.
    """
    command, inside, continues, broken, over = 1, int(quoted), -1, -1, -1
    for found in _WORD.finditer(text):
        word, skip, at = found["word"], found["skip"] or "", begin + found.start()
        if word is None:
            ends = skip == ";" or (skip[0] != "\\" and "\n" in skip)
            if skip[0] == "\\":
                continues = at
            elif continues >= 0 and not inside and (ends or skip[0] == "#"):
                continues, broken = -1, continues
            if ends:
                broken, over = -1, max(over, broken)
            inside = max(0, inside + (skip == "(") - (skip == ")"))
            command += ends and not inside
            continue
        if over >= 0 and word.startswith("--"):
            label = Label(source.span(over, over + 1), "the command ends behind this backslash")
            message = f"{source.name}: {word.partition('=')[0][:40]} is no option of the command before it"
            help = "end the line with the backslash, and go on in the next line, without a comment between"
            raise fail(Code.CONFIG_SYNTAX, message, label, help=help)
        continues, over, broken = -1, -1, at if re.match(r"\\[ \t]", word) else broken
        yield word, at, 0 if inside else command
        command += word in ("&&", "||", "|", "&")
        if options := _OPTIONS.match(word):
            inner = _words(source, word[options.end() : -1], at + options.end(), quoted=True)
            yield from ((one, place, 0) for one, place, _ in inner)


def _begins_another(word: str) -> bool:
    """Whether a word is not the value of the option before it."""
    if word.strip('"').endswith("[@]}") or _CHOSEN.fullmatch(word):
        return True
    return word.startswith(("--", "${", "|", "&", ">", "2>")) and not _USED.fullmatch(word)


def _word(text: str, variables: Mapping[str, object]) -> object:
    """A word as a value: quotes off, variables put in, numbers as such."""
    bare = re.sub(r"\\\r?\n", "", text)
    if not bare.startswith("'"):
        for used in _USED.finditer(bare):
            value = variables.get(used[1] or used[3] or "")
            if value is None and used[2]:
                value = _word(used[2], variables)
            if isinstance(value, Unset) and value.text.endswith("ways"):
                return value
            if value is None or isinstance(value, Unset) or len(bare) > _LONGEST:
                return Unset(f"{used[0][:40]}, which the file does not set")
            bare = bare.replace(used[0], _plain(value), 1)
    bare = re.sub(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", lambda m: m[1] or m[2] or m[3] or "", bare, flags=re.S)
    if re.fullmatch(r"[+-]?[0-9]{1,30}", bare):
        return int(bare)
    return {"true": True, "false": False}.get(bare.lower(), bare)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_READ: Mapping[str, Callable[[Source], Made]] = {
    "toml": lambda source: (*toml.read(source, Code.CONFIG_SYNTAX), []),
    "yaml": _yaml,
    "json": _json,
    "shell": _shell,
}
