"""Reads configurations written in Python as settings; the Python code is never run.

    def small() -> Trainer.Config:                                     small: parallelism.pipeline_parallel_degree = 4,
        return Trainer.Config(                                                training.steps = 20
            training=TrainingConfig(steps=2 * 10),
            parallelism=ParallelismConfig(pipeline_parallel_degree=4),
        )

    def large() -> Trainer.Config:                                     large: as small, with a degree of 8
        config = small()
        config.parallelism.pipeline_parallel_degree = 8
        return config

A function without required arguments whose result type is a ``Config`` is a configuration. A value that is neither a
literal nor computed from literals is unknown. If the whole configuration is passed to a function that the file does not
define, all of it is unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import add, floordiv, mod, mul, sub

from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.settings import Mention, Setting, Settings, Unset
from pipesched.planning.toml import broken
from pipesched.support.foreign import foreign
from pipesched.support.foreign import values as marked
from pipesched.support.source import Source, Span

_DEEPEST = 20  # most nested calls of functions
_STEPS = 5_000  # most statements that are read; a function's count at each of its calls
_LARGEST = 10**12
_ENTRIES = 10_000  # most entries of a list, including nested lists
_CONSTANT = int | float | str | bool | None
_OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Mod: mod}
_SECTIONS = {"parallelism", "training"}
_COPIES = "replace", "dataclasses.replace"
_ELSEWHERE = Unset("made by another function")


@dataclass(frozen=True)
class PythonConfig:
    """A configuration. given: settings by section and name. open: the place where code outside the file receives the
    configuration.
    """

    name: str
    at: Span
    given: Mapping[str, Setting] = field(default_factory=dict)
    open: Span | None = None


def settings(source: Source) -> list[Settings]:
    """Read the settings of every configuration in a file. Their `words` are the modules that the file imports.

    Raises:
        PipeschedError: PS870 if the file is not Python.
    """
    modules = tuple(dict.fromkeys(re.findall(r"^(?:from|import)[ \t]+([\w.]+)", source.text, re.M)))
    made = [x for x in read(source) if x.open or any(key.partition(".")[0] in _SECTIONS for key in x.given)]
    return [_settings(source, config, modules) for config in made]


def _settings(source: Source, config: PythonConfig, modules: tuple[str, ...]) -> Settings:
    handed = "the configuration is made or changed by code outside the file"
    open_at: tuple[Mention, ...] = (Mention(handed, config.open),) if config.open else ()
    unlisted = (x for key, x in config.given.items() if key.endswith(".*") and key[:-2] in _SECTIONS)
    open_at += tuple(Mention(f"{x.key} is not a call with keyword arguments", x.at) for x in unlisted if x.at)
    given = {key: replace(x, value=_ELSEWHERE) for key, x in config.given.items()} if config.open else config.given
    named = replace(source, name=f"{source.name} ({config.name})")
    return Settings(named, "python", given, open_at=open_at, words=modules)


def read(source: Source) -> tuple[PythonConfig, ...]:
    """Read every configuration in a file, in the order of the file.

    Raises:
        PipeschedError: PS870 if the file is not Python.
    """
    try:
        file = _File(source, ast.parse(source.text))
        return tuple(file.config(name) for name, made in file.functions.items() if _is_config(made))
    except SyntaxError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise broken(
            source, InteropCode.CONFIG_SYNTAX, "Python", reason, error.lineno or 1, error.offset or 1
        ) from None
    except ValueError:
        raise broken(
            source, InteropCode.CONFIG_SYNTAX, "Python", "it contains a character that Python does not allow", 1, 1
        ) from None
    except (RecursionError, MemoryError):
        raise broken(source, InteropCode.CONFIG_SYNTAX, "Python", "an expression is nested too deeply", 1, 1) from None


def _is_config(function: ast.FunctionDef) -> bool:
    """Return True if a function makes a configuration: it requires no argument, and its result type is a ``Config``."""
    needed = len(function.args.args) + len(function.args.posonlyargs) - len(function.args.defaults)
    result = function.returns
    return not needed and not function.name.startswith("_") and _dotted(result).endswith("Config")


def _dotted(node: ast.expr | None) -> str:
    """Return the dotted name of an expression, as in ``Trainer.Config``; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _setting(key: str, value: object, at: Span) -> Setting:
    return Setting(foreign(key), marked(value), at, foreign(key))


class _File:
    """The functions and the constants of a file."""

    def __init__(self, source: Source, tree: ast.Module) -> None:
        self.source, self.steps = source, _STEPS
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.constants: dict[str, object] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = self.value(node.value, self.constants)

    def at(self, node: ast.stmt | ast.expr | ast.keyword) -> Span:
        """Return the span of a node, cut at the end of its first line."""
        line = self.source.line(node.lineno)
        until = node.end_col_offset if node.end_lineno == node.lineno else None
        start = self.source.line_starts[node.lineno - 1]
        columns = [len(line.encode()[:column].decode(errors="ignore")) for column in (node.col_offset, until)]
        return self.source.span(start + columns[0], start + max(columns[1], columns[0] + 1))

    def config(self, name: str, caller: _Body | None = None, call: ast.Call | None = None) -> PythonConfig:
        """Return the configuration that a function makes when called with these arguments."""
        function = self.functions[name]
        start = PythonConfig(name, self.at(function))
        body = _Body(self, 0 if caller is None else caller.depth + 1)
        if body.depth > _DEEPEST:
            return replace(start, open=start.at)
        if caller is not None and call is not None:
            body.take(function, call, caller)
        return replace(body.run(function) or replace(start, open=start.at), name=name, at=start.at)

    def value(self, node: ast.expr, names: Mapping[str, object]) -> object:
        """Return the value of a literal or of a calculation with literals; all other expressions are unknown."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, _CONSTANT) else _ELSEWHERE
        if isinstance(node, ast.Name):
            return names.get(node.id, self.constants.get(node.id, Unset(f"{node.id}, which is defined elsewhere")))
        if isinstance(node, ast.List | ast.Tuple):
            entries = [self.value(entry, names) for entry in node.elts]
            unset = any(isinstance(entry, Unset) for entry in entries)
            return _ELSEWHERE if unset or _many(entries) else entries
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, names)
            return -inner if isinstance(inner, int) else _ELSEWHERE
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self.value(node.left, names), self.value(node.right, names)
            return _calculated(type(node.op), left, right)
        return _ELSEWHERE


def _many(entries: list[object]) -> bool:
    """Return True if a list has more than `_ENTRIES` entries, including those of nested lists."""
    found, inside = 0, [entries]
    while inside and found <= _ENTRIES:
        entries = inside.pop()
        found += len(entries)
        inside += [entry for entry in entries if isinstance(entry, list)]
    return found > _ENTRIES


def _calculated(operator: type[ast.operator], left: object, right: object) -> object:
    """Return the result of an operator; unknown if an operand is too large or no integer, or if it divides by 0."""
    if not (isinstance(left, int) and isinstance(right, int)) or max(abs(left), abs(right)) > _LARGEST:
        return _ELSEWHERE
    if operator in (ast.FloorDiv, ast.Mod) and right == 0:
        return _ELSEWHERE
    return _OPERATORS[operator](left, right)


class _Body:
    """The state of reading a function's body, statement after statement."""

    def __init__(self, file: _File, depth: int) -> None:
        self.file, self.depth = file, depth
        self.names: dict[str, object] = {}
        self.configs: dict[str, PythonConfig] = {}
        self.sections: dict[str, ast.Call] = {}

    def take(self, function: ast.FunctionDef, call: ast.Call, caller: _Body) -> None:
        """Bind the arguments of a call to the function's parameters."""
        given = zip((x.arg for x in function.args.args), call.args, strict=False)
        named = ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)
        for name, value in (*given, *named):
            self.names[name] = self.file.value(value, caller.names)
            if isinstance(value, ast.Name) and value.id in caller.configs:
                self.configs[name] = caller.configs[value.id]
            if isinstance(value, ast.Name) and value.id in caller.sections:
                self.sections[name] = caller.sections[value.id]

    def run(self, function: ast.FunctionDef) -> PythonConfig | None:
        """Read the function; return its configuration, None if it does not return one."""
        for given, value in zip(reversed(function.args.args), reversed(function.args.defaults), strict=False):
            self.names.setdefault(given.arg, self.file.value(value, {}))
        for statement in function.body:
            self.file.steps -= 1
            if self.file.steps < 0:
                return None
            if isinstance(statement, ast.Return):
                return None if statement.value is None else self.made(statement.value)
            self.step(statement)
        return None

    def step(self, statement: ast.stmt) -> None:
        """Read a statement: an assignment or a call; any other statement makes the values that it sets unknown."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target = statement.target
        if target is not None and isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            self.assign(target, statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self.called(statement.value)
        elif not isinstance(statement, ast.Assert | ast.Expr | ast.Pass | ast.Import | ast.ImportFrom):
            self.forget(statement)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Read ``config = small()``, ``config.parallelism.pipeline_parallel_degree = 8``, ``size = 4``."""
        root, *path = _dotted(target).split(".")
        if not path:
            config = self.made(value)
            self.names[root] = _ELSEWHERE if config else self.file.value(value, self.names)
            if config is not None:
                self.configs[root] = config
            else:
                self.configs.pop(root, None)
            self.sections.pop(root, None)
            if config is None and isinstance(value, ast.Call):
                self.sections[root] = value
        elif root in self.sections:
            self.sections.pop(root)
        elif root in self.configs:
            self.handed(value)
            self.put(root, path, value, self.file.at(target))

    def put(self, root: str, path: list[str], value: ast.expr, at: Span) -> None:
        """Assign a setting, or replace a whole section."""
        config = self.configs[root]
        given = dict(config.given)
        if len(path) == 1:
            given = {key: x for key, x in given.items() if key.partition(".")[0] != path[0]}
            given.update(self.section(path[0], value, at))
        else:
            key = ".".join(path)
            given[key] = _setting(key, self.file.value(value, self.names), at)
        self.configs[root] = replace(config, given=given)

    def section(self, name: str, value: ast.expr, at: Span) -> dict[str, Setting]:
        """Return the settings of ``parallelism=ParallelismConfig(…)``; for a plain value, one setting."""
        if isinstance(value, ast.Name):
            value = self.sections.get(value.id, value)
        if not isinstance(value, ast.Call):
            plain = self.file.value(value, self.names)
            unlisted = {f"{name}.*": _setting(f"{name}.*", plain, at)} if isinstance(plain, Unset) else {}
            return {name: _setting(name, plain, at), **unlisted}
        made = {name: _setting(name, Unset(_dotted(value.func) or "made by a call"), at)}
        whole = not value.args and all(keyword.arg for keyword in value.keywords)
        if not whole or not _dotted(value.func).endswith("Config"):
            made[f"{name}.*"] = _setting(f"{name}.*", _ELSEWHERE, at)
        for keyword in value.keywords:
            if keyword.arg:
                key = f"{name}.{keyword.arg}"
                place = self.file.at(keyword)
                made[key] = _setting(key, self.file.value(keyword.value, self.names), place)
        return made

    def made(self, value: ast.expr) -> PythonConfig | None:
        """Return the configuration that a name, a function of the file or ``Trainer.Config(…)`` makes, or None."""
        if isinstance(value, ast.Name):
            return self.configs.get(value.id)
        if not isinstance(value, ast.Call):
            return None
        name, at = _dotted(value.func), self.file.at(value)
        if name in self.file.functions:
            result = _dotted(self.file.functions[name].returns)
            return self.file.config(name, self, value) if result.endswith("Config") else None
        if name in _COPIES and value.args and (base := self.made(value.args[0])):
            return self.with_sections(base, value)
        if not value.args and _SECTIONS & {keyword.arg for keyword in value.keywords}:
            return self.with_sections(PythonConfig("", at), value)
        return PythonConfig("", at, open=at) if self.takes_config(value) else None

    def with_sections(self, config: PythonConfig, call: ast.Call) -> PythonConfig:
        """Add the sections that a call names to a configuration; with a ``**`` argument all of it is unknown."""
        given = dict(config.given)
        for keyword in call.keywords:
            if keyword.arg is None:
                return replace(config, open=self.file.at(call))
            given = {key: x for key, x in given.items() if key.partition(".")[0] != keyword.arg}
            given.update(self.section(keyword.arg, keyword.value, self.file.at(keyword)))
        return replace(config, given=given)

    def takes_config(self, call: ast.Call) -> bool:
        """Return True if an argument of a call is a configuration."""
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        return any(
            (isinstance(x, ast.Name) and x.id in self.configs) or (isinstance(x, ast.Call) and self.made(x) is not None)
            for x in arguments
        )

    def called(self, call: ast.Call) -> None:
        """Read ``enable_it(config)``; a function of another file makes the whole configuration unknown."""
        function = self.file.functions.get(_dotted(call.func))
        held = [x.id for x in call.args if isinstance(x, ast.Name) and x.id in self.configs]
        if function is None or self.depth >= _DEEPEST or len(held) != 1:
            self.handed(call)
            return
        inner = _Body(self.file, self.depth + 1)
        inner.take(function, call, self)
        inner.run(function)
        own = next(iter(inner.configs), None)
        self.configs[held[0]] = inner.configs[own] if own else self.configs[held[0]]
        if self.file.steps < 0:
            self.open(held[0], call)

    def handed(self, value: ast.expr) -> None:
        """Mark as unknown every configuration that is an argument of a call in this expression."""
        for call in (node for node in ast.walk(value) if isinstance(node, ast.Call)):
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                if isinstance(argument, ast.Name) and argument.id in self.configs:
                    self.open(argument.id, call)

    def open(self, name: str, node: ast.stmt | ast.expr) -> None:
        """Mark all values of a configuration as unknown."""
        self.configs[name] = replace(self.configs[name], open=self.file.at(node))

    def forget(self, statement: ast.stmt) -> None:
        """Mark every value that a branch, a loop or another compound statement assigns as unknown."""
        for node in ast.walk(statement):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in [*targets, *([node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else [])]:
                root, *path = _dotted(target).split(".")
                if root in self.configs and path:
                    self.put(root, path, ast.Name("it", ast.Load()), self.file.at(target))
                elif root in self.configs:
                    self.open(root, statement)
                else:
                    self.names[root] = _ELSEWHERE
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                self.handed(node)
