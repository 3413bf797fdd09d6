"""Reports on a configuration, as text and as JSON; the report on a script has one part for each command."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipesched import render
from pipesched.diagnostics import NOT_JUDGED, Diagnostic, Judged
from pipesched.interop.trainers.case import Fact, Plan, samples
from pipesched.interop.trainers.worlds import Possible

_SHOWN = 6  # most shown settings that no rule knows


@dataclass(frozen=True)
class Checked(Judged):
    """The report on a configuration. assumed: which of the versions ``release`` and ``torch`` are assumed.

    not_judged: settings that no rule covers. possible: errors in only some of the possible releases. command: the
    command that verifies the schedule, or the reason why there is no command. commands: for a script with several
    commands, the report on each; `diagnostics` then lists the findings on all commands, and other fields are empty.
    """

    source: str
    trainer: str | None = None
    release: str | None = None
    torch: str | None = None
    assumed: tuple[str, ...] = ()
    plan: Plan = field(default_factory=Plan)
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    possible: tuple[Possible, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    command: str | None = None
    commands: tuple[Checked, ...] = ()

    def __repr__(self) -> str:
        return f"<Checked {self.verdict} {self._head()}>"

    def __str__(self) -> str:
        return self.text()

    @property
    def verdict(self) -> str:
        """``ok``, ``fail``, or ``not judged`` if there is no error but a part was unread or unknown."""
        return "ok" if self.ok else "not judged" if self.exit_status == NOT_JUDGED else "fail"

    def text(self, *, color: bool = False) -> str:
        """Return the report as text: the diagnostics, one line per fact, and the schedule on the last line."""
        if self.commands:
            count = len(self.commands)
            texts = [f"command {n} of {count}\n{x.text(color=color)}" for n, x in enumerate(self.commands, 1)]
            return "\n\n".join(texts)
        parts = [render.text(found, color=color) for found in self.diagnostics]
        if self.trainer is None and self.plan == Plan():
            return "\n\n".join(parts)
        head = render.paint(self.verdict, {"ok": "ok", "fail": "error"}.get(self.verdict, "unjudged"), color)
        width = max((len(fact.about) for fact in self.facts), default=0)
        lines = [f"{head}  {self._head()}"]
        lines += [render.clean(f"    {fact.about:<{width}}  {fact.text}") for fact in self.facts]
        lines += [render.clean(f"    note: {note}") for note in self._noted()]
        return "\n\n".join([*parts, "\n".join([*lines, self._last()])])

    def _noted(self) -> list[str]:
        """Return the texts of the notes, the possible errors, and the settings that no rule covers."""
        possible = [f"possible, in {x.where}: {_placed(x.found)} [{x.found.code}]" for x in self.possible]
        names = [name[:60] for name in self.not_judged[:_SHOWN]]
        names += [f"{len(self.not_judged) - _SHOWN} more"] if len(self.not_judged) > _SHOWN else []
        aside = (
            [f"not judged: {', '.join(names)} (no rule knows {'it' if len(names) == 1 else 'them'})"] if names else []
        )
        return [*self.notes, *possible, *aside]

    def line(self) -> str:
        """Return the verdict as one line."""
        return f"{self.verdict}  {self._head()}"

    def _head(self) -> str:
        parts = [f"{self.trainer} {self.release}" + " (assumed)" * ("release" in self.assumed)] if self.trainer else []
        if self.torch is not None:
            parts.append(f"torch {self.torch}" + " (assumed)" * ("torch" in self.assumed))
        counted = render.tally(self.diagnostics)
        return render.clean("   ".join(filter(None, [self.source, ", ".join(parts), counted])))

    def _last(self) -> str:
        """Return the last line: the schedule, and the command that verifies it."""
        plan = self.plan
        if plan.off:
            return render.clean(f"    no pipeline: {plan.off}")
        sizes = {"p": plan.ranks, "v": plan.chunks, "m": plan.microbatches}
        said = " ".join(f"{name}={'?' if count is None else count}" for name, count in sizes.items())
        size = "" if plan.microbatch_size is None else f", microbatches of {samples(plan.microbatch_size)}"
        ranks = "" if plan.ranks is None else f", {plan.ranks} ranks"
        return render.clean(f"    {plan.name or 'schedule unknown'}  {said}{size}{ranks}: {self.command}")

    def to_json(self) -> dict[str, object]:
        """Return the report as the published JSON object; see ``emit/README.md``."""
        plan = self.plan
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "source": self.source,
            "trainer": self.trainer,
            "release": self.release,
            "torch": self.torch,
            "assumed": list(self.assumed),
            "schedule": {
                "name": plan.name,
                "p": plan.ranks,
                "v": plan.chunks,
                "m": plan.microbatches,
                "microbatch_size": plan.microbatch_size,
                "csv": None if plan.csv is None else str(plan.csv.value),
                "off": plan.off,
            },
            "facts": [{"about": fact.about, "text": fact.text} for fact in self.facts],
            "notes": list(self.notes),
            "not_judged": list(self.not_judged),
            "possible": [{**render.as_json(x.found), "in": x.where} for x in self.possible],
            "command": self.command,
            "commands": [x.to_json() for x in self.commands],
            "diagnostics": [render.as_json(found) for found in self.diagnostics],
        }


def _placed(found: Diagnostic) -> str:
    """Return the message of a diagnostic, preceded by its line number if known."""
    return f"line {found.where.line}: {found.message}" if found.where else found.message


def several(source: str, commands: list[Checked]) -> Checked:
    """Combine the reports on a script's commands into one; a single report is returned unchanged."""
    if len(commands) == 1:
        return commands[0]
    found = dict.fromkeys(x for made in commands for x in made.diagnostics)
    return Checked(source, diagnostics=tuple(found), commands=tuple(commands))
