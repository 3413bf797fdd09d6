"""Checks a trainer's configuration: applies every rule of the trainer, verifies the CSV, and names the schedule.

    text ──read──> settings ──trainer?──> case ──rules──> facts, notes, diagnostics ──> Checked, with the next command

Assumptions (release, version of torch) and settings that are not judged are reported.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.interop.check_csv import csv
from pipesched.interop.check_report import Checked, several
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers import texts
from pipesched.interop.trainers.case import Case, Fact, Finding, Note, Plan
from pipesched.interop.trainers.dry_run import dry_run
from pipesched.interop.trainers.keys import ANY, FLAG
from pipesched.interop.trainers.marks import others
from pipesched.interop.trainers.scripts import beside, distinct, of_words
from pipesched.interop.trainers.settings import Setting, Settings, Unread, Unset
from pipesched.interop.trainers.torch_names import torch_name
from pipesched.interop.trainers.trainers import TRAINERS, Trainer, like, named, trainer_of
from pipesched.interop.trainers.worlds import Outcome, outcome
from pipesched.library.inputs import read_path
from pipesched.model.torch_versions import TorchVersion
from pipesched.support.source import Source

_COMMAND = "the command"
_OPTION = re.compile(r"(?<!\S)#.*|(?<![\w-])(?P<name>--[A-Za-z][\w-]*)")  # outside of comments
_MOST = 32  # most commands of a script that are judged
_EXPANDED = "let your shell expand it: `pipesched check -- COMMAND ARGUMENTS`"


@dataclass(frozen=True)
class Asked:
    """The options of `check`; None for an option that is not given. trainer: its name, or name and release as in
    ``a==1.0``.

    p: the number of ranks. processes: the number of processes in the job. variables: script variables by name.
    """

    trainer: str | None = None
    torch_version: TorchVersion | None = None
    p: int | None = None
    processes: int | None = None
    variables: tuple[tuple[str, str], ...] = ()


def check(source: Source, asked: Asked) -> Checked:
    """Check a configuration. Errors are part of the result, not raised.

    Raises:
        PipeschedError: PS225 if an option has a wrong value.
    """
    if asked.variables and texts.kind_of(source) != "shell":
        raise fail(Code.USAGE, f"-D sets a variable of a script, but {source.name} is {texts.kind_of(source)}")
    return _of(source, lambda: texts.commands(source, dict(asked.variables)), asked)


def check_command(words: Sequence[str], asked: Asked) -> Checked:
    """Check a command that a shell has expanded.

    Raises:
        PipeschedError: PS225 if an option has a wrong value.
    """
    if asked.variables:
        raise fail(Code.USAGE, "-D sets a variable of a script, but the shell has already expanded this command")
    source = Source(_COMMAND, shlex.join(words))
    return _of(source, lambda: of_words(_COMMAND, words), asked)


def check_file(path: str, asked: Asked, *, run: bool = False) -> Checked:
    """Check a file. run: whether to execute the file, which must be a script.

    Raises:
        PipeschedError: PS225 if an option has a wrong value; PS809 if there is no such file; PS820 if there is no bash.
    """
    if not run:
        return check(read_path(path), asked)
    made = dry_run(path, dict(asked.variables))
    found = [x for n, words in enumerate(made.commands, 1) for x in of_words(f"{path} (command {n})", words)]
    ended = "it exceeded the time limit" if made.status is None else f"it ended with status {made.status}"
    started = f"it started {len(made.commands)} command{'s' * (len(made.commands) != 1)}"
    notes = [f"{path} was executed with recorders instead of its programs: {started}"]
    notes += [f"{ended}: later commands are unknown"] if made.status != 0 else []
    notes += [f"{name} was called: its result depends on the training machine" for name in made.asked]
    text = read_path(path)
    found = [replace(_as_run(x, text), taken=(*x.taken, *notes), launch={} if made.asked else x.launch) for x in found]
    return _of(Source(path, ""), lambda: distinct(found), asked, tuple(notes))


def _as_run(settings: Settings, script: Source) -> Settings:
    """Mark as unknown the values and options that depend on a script's unknown arguments and variables."""
    given = dict(settings.given)
    for row in TRAINERS:
        keys = row.keys(settings) if row.known(settings) else {}
        has = {row.canonical(x.key) for x in settings}
        for option in _OPTION.finditer(script.text) if keys else ():
            name = option["name"]
            if name and (own := row.canonical(name)) in keys and own not in has:
                open = Unset("not passed in this run, although the script contains it")
                given[name] = Setting(name, open, script.span(*option.span("name")), name)
        for name, x in settings.given.items():
            key = keys.get(row.canonical(x.key))
            if key is not None and x.value is True and key.kind not in (FLAG, ANY):
                given[name] = replace(x, value=Unset("without a value in this run, which had no arguments"))
    return replace(settings, given=given)


def _of(source: Source, read: Callable[[], list[Settings]], asked: Asked, notes: tuple[str, ...] = ()) -> Checked:
    """Judge separately each command that has options of a trainer."""
    _require_counts(asked)
    row, release = named(asked.trainer) if asked.trainer else (None, None)
    try:
        found = [_with_file(settings) for settings in read()]
    except PipeschedError as error:
        return Checked(source.name, diagnostics=error.diagnostics)
    if not found:
        message = f"{source.name} does not run a command with a trainer's options"
        return Checked(source.name, diagnostics=(Diagnostic(InteropCode.CONFIG_UNKNOWN, message),), notes=notes)
    rows = (row,) if row else TRAINERS
    known = [x for x in found if any(one.known(x) for one in rows) or (not row and others(x))]
    made = [_judged(row, release, x, asked) for x in (known or found[:1])[:_MOST]]
    if len(known) > _MOST:
        message = f"{len(known) - _MOST} more commands in {source.name} are not judged; the limit is {_MOST}"
        made.append(Checked(source.name, diagnostics=(Diagnostic(InteropCode.CONFIG_UNREAD, message),)))
    return several(source.name, made)


def _require_counts(asked: Asked) -> None:
    """Raise PipeschedError, PS225, if a count is below 1."""
    for name, count in (("p", asked.p), ("processes", asked.processes)):
        if count is not None and count < 1:
            raise fail(Code.USAGE, f"--{name} is {count}, not a positive whole number")


def _judged(row: Trainer | None, release: str | None, settings: Settings, asked: Asked) -> Checked:
    """Judge the settings in one command or file."""
    try:
        row = row or trainer_of(settings)
        _require_text(row, settings)
    except PipeschedError as error:
        return _of_a_fork(settings, asked, error)
    case, worlds = _case(row, release, settings, asked)
    made = outcome(row, case, worlds, csv)
    if asked.p is not None and made.plan.ranks not in (None, asked.p):
        message = f"{case.settings.source.name} has {made.plan.ranks} ranks, but {asked.p} were given"
        raise fail(Code.USAGE, message, help="omit --p: the file determines it")
    if release is None and (told := _telling(row, case)):
        bare = row.plan(replace(case, settings=replace(case.settings, defaults={})))
        made = Outcome(bare, notes=made.notes, not_judged=made.not_judged, diagnostics=(told,))
    launched = [*_launched(case, asked)]
    assumed = (("release", release is None), ("torch", row.torch_least is not None and asked.torch_version is None))
    return Checked(
        settings.source.name,
        row.name,
        case.release,
        None if row.torch_least is None else str(case.torch),
        tuple(name for name, taken in assumed if taken),
        plan=made.plan,
        facts=(*(x for x in launched if isinstance(x, Fact)), *made.facts),
        notes=(*settings.taken, *(x.text for x in launched if isinstance(x, Note)), *made.notes),
        not_judged=made.not_judged,
        possible=made.possible,
        diagnostics=(*made.diagnostics, *_unread(case, made.plan)),
        command=_command(case, made.plan),
    )


def _require_text(row: Trainer, settings: Settings) -> None:
    """Raise PipeschedError, PS871, if the trainer does not read settings in this format."""
    if settings.kind not in row.texts:
        kinds = " and ".join(row.texts)
        message = f"{settings.source.name} is {settings.kind}; {row.name} is read from {kinds}"
        raise fail(InteropCode.CONFIG_UNKNOWN, message)


def _telling(row: Trainer, case: Case) -> Diagnostic | None:
    """Return the diagnostic on the first setting that only an unknown release can have, or None."""
    keys = row.keys(case.settings)
    told = next((x for x in case.settings if x.key in keys and keys[x.key].telling), None)
    if told is None:
        return None
    message = f"no known release of {row.name} has {told.written} (known: {', '.join(row.releases)})"
    help = f"--trainer {row.typed}==RELEASE selects the trainer and release"
    return Diagnostic(InteropCode.CONFIG_UNKNOWN, message, (told.label,), (), help)


def _case(
    row: Trainer, release: str | None, settings: Settings, asked: Asked
) -> tuple[Case, list[tuple[str, TorchVersion]]]:
    """Return the case to judge, and its possible releases, each with a version of torch."""
    settled = row.settled(settings)
    releases = (release,) if release else row.candidates(settled)
    newest = releases[-1]
    torch = asked.torch_version or row.torch(newest)
    processes = asked.processes or _processes(settings)[0]
    case = Case(
        settled,
        row.name,
        newest,
        row.releases,
        torch,
        ranks=asked.p,
        processes=processes,
        size=row.ranks,
        assumed=not release,
    )
    versions = {x: (asked.torch_version,) if asked.torch_version else row.torches(x) for x in releases}
    return case, [(x, version) for x in releases for version in versions[x]]


def _of_a_fork(settings: Settings, asked: Asked, error: PipeschedError) -> Checked:
    """Report a configuration of an unknown trainer. No rules are checked; if its options are those that a known trainer
    shares with its forks, the sizes are reported.
    """
    name, row = settings.source.name, None if asked.trainer else like(settings)
    if row is None:
        unread = () if settings.given else _holes(settings)
        return Checked(name, diagnostics=(*error.diagnostics, *unread), notes=settings.taken)
    case, worlds = _case(row, None, settings, asked)
    told = outcome(row, case, worlds, csv).plan
    plan = replace(told, options=()) if row.ranks and row.ranks in case.settings else Plan()
    notes = (*settings.taken, f"the sizes are read as in {row.name} and its forks; no rules are checked")
    return Checked(name, plan=plan, diagnostics=error.diagnostics, notes=notes, command=_command(case, plan))


def _unread(case: Case, plan: Plan) -> Iterator[Diagnostic]:
    """Report settings and options that cannot be read, and a number of ranks that is unknown."""
    settings = case.settings
    for setting in settings:
        if isinstance(setting.value, Unread) and setting.at is not None:
            message = f"line {setting.at.line} is not read: {setting.written} has an unknown value"
            yield Diagnostic(InteropCode.CONFIG_UNREAD, message, (Label(setting.at, "not read"),), (), _EXPANDED)
    if plan.off or plan.chunks is not None:
        return
    yield from _holes(settings)
    for setting in settings:
        shell = settings.kind in ("shell", "cli")
        if plan.ranks is None and shell and type(setting.value) is Unset and setting.key == case.size and setting.at:
            message = f"{setting.written} is not known: {setting.value.text}"
            help = f"{_EXPANDED}; or set a variable with -D NAME=N"
            yield Diagnostic(InteropCode.CONFIG_UNREAD, message, (setting.label,), (), help)


def _holes(settings: Settings) -> Iterator[Diagnostic]:
    """Report the unread parts of a command that may contain options."""
    for hole in settings.open_at:
        message = f"line {hole.at.line} is not read: {hole.name}" if hole.at else f"not read: {hole.name}"
        labels = (Label(hole.at, "not read"),) if hole.at else ()
        yield Diagnostic(InteropCode.CONFIG_UNREAD, message, labels, (), _EXPANDED)


_LAUNCHED = (  # launchers' options: processes per node, number of nodes
    ("nproc_per_node", "nnodes"),
    ("num_gpus", "num_nodes"),
    ("ntasks_per_node", "nodes"),
    ("ntasks_per_node", "N"),
)


def _processes(settings: Settings) -> tuple[int | None, str]:
    """Return the number of processes that the launcher's options give, None if unknown, and the options in words.

    The number is the processes per node times the number of nodes (1 by default).
    """
    given = {x.written.lstrip("-").replace("-", "_"): x.value for x in settings if x.written.startswith("--n")}
    given |= {name: x.value for name, x in settings.launch.items()}
    pairs = [pair for pair in _LAUNCHED if pair[0] in given]
    if not pairs:
        return None, ""
    each, nodes = next((pair for pair in pairs if pair[1] in given), pairs[0])
    said = f"{each} and {nodes if nodes in given else f'one node, since {nodes} is not given'}"
    count, of = given[each], given.get(nodes, 1)
    elsewhere = each == "nproc_per_node" and nodes not in given and given.keys() & {"N", "nodes"}
    if elsewhere or not isinstance(count, int) or not isinstance(of, int) or min(count, of) < 1:
        return None, said
    return count * of, said


def _launched(case: Case, asked: Asked) -> Iterator[Finding]:
    """Report the number of processes that the launcher's options give, and a configuration file that is missing."""
    if case.processes is not None and asked.processes is None:
        yield Fact("processes", f"{case.processes}, from {_processes(case.settings)[1]}")
    file = case.settings("job.config_file").value
    if case.settings.kind == "shell" and isinstance(file, str) and beside(case.settings.source.name, file) is None:
        yield Note(f"file {file[:100]} does not exist: its settings are unknown, so defaults are assumed")


def _with_file(settings: Settings) -> Settings:
    """Return the settings of the TOML file that a command line names, overridden by the command line's options."""
    named = next((x for x in settings if x.key in ("--job.config_file", "--job.config-file")), None)
    if settings.kind != "shell" or named is None or not isinstance(named.value, str):
        return settings
    path = beside(settings.source.name, named.value)
    if path is None:
        return settings
    own = {setting.key.removeprefix("--").replace("-", "_"): setting for setting in settings}
    return replace(settings, given={**texts.read(read_path(path)).given, **own})


def _command(case: Case, plan: Plan) -> str | None:
    """Return the command that verifies the schedule, or the reason why there is no command; None without a pipeline.

    order from      a CSV            the trainer's code   the library          torch only
    command         verify a.csv …   verify megatron:…    verify interleaved   verify torch:LoopedBFS
    """
    if plan.off:
        return None
    p, v, m = plan.ranks, plan.chunks, plan.microbatches
    if p is None:
        return "its p is unknown"
    if m is None:
        return "its m is unknown"
    if plan.csv:
        stages = f" --stages {plan.stages}" if plan.stages else ""
        file = beside(case.settings.source.name, str(plan.csv.value)) or str(plan.csv.value)
        return f"pipesched verify {shlex.quote(file)} --p {p} --m {m}{stages} --torch-version {case.torch}"
    if v is None:
        return "its v is unknown"
    sizes = f"--p {p} --v {v} --m {m}" if v != 1 else f"--p {p} --m {m}"
    if plan.options:
        return " -D ".join((f"pipesched verify megatron:interleaved {sizes}", *plan.options))
    row = torch_name(plan.name)
    name = row.order if row else plan.name
    if name is not None and _in_library(name, p, m, torch=row is not None):
        return f"pipesched verify {name} {sizes if name.startswith('interleaved') else f'--p {p} --m {m}'}"
    return f"pipesched verify torch:{row.name} {sizes}" if row else "its order is not in the library"


def _in_library(name: str, p: int, m: int, *, torch: bool) -> bool:
    """Return True if the library's schedule of this name has the trainer's order at these sizes."""
    fits = {
        "interleaved": not torch or not m % p,
        "interleaved_overlap": not m % p,
        "dualpipev": not torch or m >= 2 * p,
    }
    return fits.get(name, True)
