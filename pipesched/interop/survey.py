"""What a framework's schedules do at many sizes and options: who ends under which model, and who takes what for what.

    size   p, v, m; m may be a multiple of p
    way    settings that belong together, which the framework's row names; or every combination of what -D gives

One process records all of them. Each program is examined as `verify` does; what a framework refuses is counted, and
sizes that a schedule does not have are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import product
from typing import Any

from pipesched.analysis.communication import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT
from pipesched.command.sizes import Sizes
from pipesched.compile import examine
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.examine import Options
from pipesched.formats.readers import answered
from pipesched.interop.frameworks import host
from pipesched.interop.frameworks.frameworks import FRAMEWORKS, Call
from pipesched.model.numbers import require_counts
from pipesched.report.tables import grouped, short, table
from pipesched.support.foreign import Foreign, foreign

MOST = 20_000
MODELS = tuple(map(str, (STRICT, ONE_STREAM, PAIR_STREAM, ASYNC)))


@dataclass(frozen=True)
class Configuration:
    """One of the grid. times: m as it was asked for. way: its options by a name."""

    schedule: str
    sizes: Mapping[str, int]
    times: str
    way: str
    options: Mapping[str, object]

    def command(self, model: str) -> str:
        """How it is looked at alone."""
        sizes = " ".join(f"--{name} {size}" for name, size in self.sizes.items())
        given = "".join(f" -D {name}={str(x).lower()}" for name, x in self.options.items())
        return f"pipesched verify {self.schedule} {sizes}{given} --comm {model}"


@dataclass(frozen=True)
class Surveyed:
    """What was found of one. refused: what the framework said. fails: the models under which a rank waits for ever.

    capacity: the least number of buffered messages a channel, None where none is enough. codes: other errors.
    """

    configuration: Configuration
    refused: str | None = None
    fails: tuple[str, ...] = ()
    capacity: int | None = None
    codes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        made = self.configuration
        head = {"schedule": made.schedule, **made.sizes, "way": made.way, "options": dict(made.options)}
        if self.refused is not None:
            return {**head, "refused": self.refused}
        holds = [model for model in MODELS if model not in self.fails]
        found = {"holds": holds, "fails": list(self.fails), "least_capacity": self.capacity}
        return {**head, **found, "codes": list(self.codes)}


@dataclass(frozen=True)
class Hazard:
    """What is wrong in some configurations of a way. models: under which it is, from strict to lax."""

    way: str
    code: str
    models: tuple[str, ...]
    at: tuple[Surveyed, ...]
    of: int

    def text(self) -> str:
        under = f" under {', '.join(self.models)}" if self.code == Code.DEADLOCK else ""
        return f"{self.way}: {self.code}{under} in {len(self.at)} of {self.of}: {_where(self.at)}"

    @property
    def command(self) -> str:
        """How the first of them is looked at."""
        return self.at[0].configuration.command(self.models[-1])


@dataclass(frozen=True)
class Survey:
    """All of them, way by way."""

    framework: str
    version: Foreign
    notes: tuple[Foreign, ...]
    found: tuple[Surveyed, ...]
    absent: int = 0
    exit_status: int = field(default=0, init=False)

    def __str__(self) -> str:
        return self.text()

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """By way: errors but deadlocks, then where a rank waits for ever, by the models under which it does."""
        return tuple(hazard for way, rows in self._ways().items() for hazard in _hazards(way, rows))

    def _ways(self) -> dict[str, list[Surveyed]]:
        return grouped((one.configuration.way, one) for one in self.found)

    @property
    def headers(self) -> tuple[str, ...]:
        return ("options", "recorded", "refused", "other\nerrors", *(f"waits for ever:\n{x}" for x in MODELS), "buffer")

    def cells(self) -> Iterator[tuple[str, ...]]:
        """A row for each way: how many configurations fail by what, and the least buffer that is enough for all."""
        for way, rows in self._ways().items():
            run = [one for one in rows if one.refused is None]
            fails = [sum(model in one.fails for one in run) for model in MODELS]
            buffers = [one.capacity for one in run]
            most = "none" if None in buffers else short(max((x for x in buffers if x is not None), default=None))
            wrong = sum(bool(one.codes) for one in run)
            yield way, str(len(run)), str(len(rows) - len(run)), str(wrong), *map(str, fails), most

    @property
    def title(self) -> str:
        """The framework with its version, or the one schedule of it, and how many configurations there are."""
        schedules = {one.configuration.schedule for one in self.found}
        name = self.framework if len(schedules) != 1 else schedules.pop()
        return f"{f'{name} {self.version}'.strip()}: {len(self.found)} configurations"

    def text(self) -> str:
        """The table, the hazards with a command that shows each, and what was refused."""
        lines = [self.title, ""]
        lines += [table(self.headers, self.cells()), ""]
        for hazard in self.hazards:
            lines += [hazard.text(), f"    {hazard.command}"]
        if not self.hazards:
            lines.append("no hazards" if any(one.refused is None for one in self.found) else "nothing was recorded")
        return "\n".join([*lines, *self._remarks()])

    def _remarks(self) -> Iterator[str]:
        refused = [one for one in self.found if one.refused is not None]
        for said, rows in grouped((f"{one.refused} ({one.configuration.way})", one) for one in refused).items():
            yield f"refused, {len(rows)}: {said}: {_where(rows)}"
        if self.absent:
            yield f"left out: {self.absent} of sizes that a schedule does not have"
        yield "buffer: the least number of messages a channel must hold for all to end where a send blocks"
        yield from self.notes

    def to_json(self) -> dict[str, object]:
        """The published form, see ``emit/README.md``."""
        hazards = [
            {"way": x.way, "code": x.code, "models": list(x.models), "count": len(x.at), "of": x.of, "first": x.command}
            for x in self.hazards
        ]
        head = {"ok": True, "framework": self.framework, "version": self.version, "notes": list(self.notes)}
        return {**head, "hazards": hazards, "configurations": [one.to_json() for one in self.found]}

    def html(self) -> str:
        """A page that loads nothing."""
        head = "".join(f"<th>{escape(x)}</th>" for x in self.headers)
        body = "".join(f"<tr>{''.join(f'<td>{escape(x)}</td>' for x in row)}</tr>\n" for row in self.cells())
        listed = "".join(f"<li>{escape(x.text())}<br><code>{escape(x.command)}</code></li>\n" for x in self.hazards)
        remarks = "".join(f"<p>{escape(x)}</p>\n" for x in self._remarks())
        return _PAGE.format(
            title=escape(self.title), head=head, body=body, hazards=listed or "<li>none</li>\n", remarks=remarks
        )


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }}
table {{ border-collapse: collapse }} th {{ white-space: pre-line; vertical-align: bottom }}
th, td {{ padding: .3em .8em; text-align: right; border-bottom: 1px solid #ccc }}
th:first-child, td:first-child {{ text-align: left }} li {{ margin: .6em 0 }}
</style></head><body>
<h1>{title}</h1>
<table><tr>{head}</tr>
{body}</table>
<h2>Hazards</h2><ul>
{hazards}</ul>
{remarks}</body></html>
"""


def _hazards(way: str, rows: Sequence[Surveyed]) -> Iterator[Hazard]:
    run = [one for one in rows if one.refused is None]
    for code in sorted({code for one in run for code in one.codes}):
        yield Hazard(way, code, MODELS, tuple(one for one in run if code in one.codes), len(run))
    for models in sorted({one.fails for one in run if one.fails}, key=len, reverse=True):
        yield Hazard(way, str(Code.DEADLOCK), models, tuple(one for one in run if one.fails == models), len(run))


def _where(rows: Iterable[Surveyed]) -> str:
    """Their sizes: the ranks for which the same v and m are in question are together."""
    by_rank: dict[int, dict[str, None]] = {}
    for one in rows:
        made = one.configuration
        rest = "".join(f" {name}={size}" for name, size in made.sizes.items() if name not in ("p", "m"))
        by_rank.setdefault(made.sizes.get("p", 0), {})[f"{rest} m={made.times}"] = None
    alike = grouped((_short(sizes), rank) for rank, sizes in by_rank.items())
    return "; ".join(f"p={','.join(map(str, ranks))}{'; '.join(sizes)}" for sizes, ranks in alike.items())


def _short(sizes: Iterable[str]) -> tuple[str, ...]:
    """`` v=2 m=p`` and `` v=2 m=2p`` as `` v=2 m=p,2p``; likewise v, where the m are the same."""
    by_first = grouped((one.rpartition(" m=")[0], one.rpartition(" m=")[2]) for one in sizes)
    by_last = grouped((",".join(many), first) for first, many in by_first.items())
    return tuple(
        f"{first[0]}{''.join(',' + other.rpartition('=')[2] for other in first[1:])} m={last}"
        for last, first in by_last.items()
    )


def request(given: Mapping[str, Any]) -> dict[str, Any]:
    """The grid of the options of a command."""
    options = {
        name: tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
        for name, value in given["definitions"]
    }
    return {
        "ranks": given["p"] or Sizes(((2, 4),)),
        "chunks": given["v"],
        "microbatches": given["m"] or ((1, "p"), (2, "p")),
        "options": options,
    }


def configurations(
    target: str,
    *,
    ranks: Iterable[int],
    chunks: Iterable[int] | None,
    microbatches: Sequence[tuple[int, str]],
    options: Mapping[str, Sequence[object]],
) -> list[Configuration]:
    """The grid: every schedule at every size in every way.

    Raises:
        PipeschedError: PS225, no framework of that name, or too many.
    """
    name, _, schedule = str(target).partition(":")
    if name not in FRAMEWORKS:
        raise fail(Code.USAGE, f"no framework is called {name!r}", help=f"frameworks are {', '.join(FRAMEWORKS)}")
    row = FRAMEWORKS[name]
    schedules = [schedule] if schedule else [x for x in row.names if x.isidentifier() or x[0].isdigit()]
    if not schedules:
        raise fail(Code.USAGE, f"a survey of {name} needs a schedule", help=f"`pipesched survey {name}:{row.names[0]}`")
    given = {key for way in row.ways.values() for key in way} & options.keys()
    ways = {"as it is": {}} if given or not row.ways else row.ways
    sizes = [
        (
            {"p": p, **({} if v is None else {"v": v}), "m": m * p if unit else m},
            unit if unit and m == 1 else f"{m}{unit}",
        )
        for p, v, (m, unit) in product(ranks, (None,) if chunks is None else tuple(chunks), microbatches)
    ]
    require_counts(one for made, _ in sizes for one in made.items())
    combined = [dict(zip(options, values, strict=True)) for values in product(*options.values())]
    if (count := len(schedules) * len(ways) * len(combined) * len(sizes)) > MOST:
        raise fail(Code.USAGE, f"{count:,} configurations; at most {MOST:,}", help="give fewer sizes or options")
    return [
        Configuration(f"{name}:{schedule}", size, times, _named(way, more), {**settings, **more})
        for (way, settings), more, schedule, (size, times) in product(ways.items(), combined, schedules, sizes)
    ]


def _named(way: str, more: Mapping[str, object]) -> str:
    said = [f"{name}={str(x).lower()}" for name, x in more.items()]
    return " ".join([*([] if way == "as it is" and said else [way]), *said])


def survey(grid: Sequence[Configuration], asked: Options, tell: Callable[[str], None] = lambda line: None) -> Survey:
    """All of a grid. tell: is told the progress.

    Raises:
        PipeschedError: PS850 the framework is not there, PS852 its code took too long.
    """
    calls = [(Call(one.schedule, one.schedule), {**one.sizes, **one.options, "max-ops": asked.max_ops}) for one in grid]
    answers = host.record_all(calls, path=asked.framework_path, limit=asked.framework_time)
    found, absent, version, notes = list[Surveyed](), 0, foreign(""), dict[Foreign, None]()
    for number, (one, (call, _), answer) in enumerate(zip(grid, calls, answers, strict=True)):
        tell(f"{number:,} of {len(grid):,} configurations examined")
        if isinstance(answer, PipeschedError):
            first = answer.diagnostics[0]
            if first.code is Code.FRAMEWORK:
                raise answer
            if first.code is Code.FRAMEWORK_NAME and "; v is " in first.message:
                absent += 1
            else:
                found.append(Surveyed(one, first.message.removeprefix(f"{one.schedule} raised ")))
            continue
        version = answer.version
        notes |= dict.fromkeys(note for note in answer.notes if not note.startswith("executed: "))
        found.append(_examined(one, call, answer, asked))
    return Survey(grid[0].schedule.partition(":")[0] if grid else "", version, tuple(notes), tuple(found), absent)


def _examined(one: Configuration, call: Call, answer: host.Answer, asked: Options) -> Surveyed:
    """The verdict on what was recorded."""
    try:
        loaded = answered(call, answer, one.sizes, asked.max_ops)
        made = examine(loaded, Options(comm=str(ASYNC), max_ops=asked.max_ops))
    except PipeschedError as error:
        return Surveyed(one, codes=tuple(dict.fromkeys(str(x.code) for x in error.diagnostics)))
    errors = dict.fromkeys(str(x.code) for x in made.report.diagnostics if x.severity == "error")
    codes = tuple(code for code in errors if code != Code.DEADLOCK)
    said = made.analysis.verdicts
    fails = [*map(str, said.fails)] if said else []
    return Surveyed(one, None, tuple(x for x in MODELS if x in fails), said.capacity if said else None, codes)
