"""The line that `verify` adds for a library schedule: the theorem that the certificate next to its file proves.

    proved for every size with p >= 1 and m >= 1: complete, no deadlock, 4 of 4 claims at uniform costs: see `prove`

`tests/prover/test_shipped.py` checks the certificates; here a certificate's text is only compared with the verified
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipesched.examine import Examination, Options
from pipesched.library.assets import asset
from pipesched.model.numbers import Value
from pipesched.report.report import Report
from pipesched.support.foreign import json_of, real
from pipesched.support.source import Source

FOLDER = "proofs"  # of the schedules
_ORDER = ("complete", "no deadlock")


@dataclass(frozen=True)
class Proved(Report):
    """A verdict on a library schedule with a certificate. theorem: the result that the certificate proves, as
    one line.
    """

    theorem: str = ""

    def text(self, *, color: bool = False, verbose: bool = False) -> str:
        """Return the verdict, and the theorem below it."""
        return f"{super().text(color=color, verbose=verbose)}\n    {self.theorem}"


def theorem(report: Report, made: Examination | None, source: Source | None, options: Options) -> Report:
    """Return the report, extended by the theorem for every size if there is a built-in certificate for this text."""
    if source is None or type(report) is not Report or not report.ok:
        return report
    path = certificate(Path(source.name).stem)
    if not source.name.endswith(".ps") or not path.is_file():
        return report
    entries = _entries(path)
    if real(entries["schedule"]["text"]) != source.text:
        return report
    line = proved(entries["answers"], report.parameters, options.parameters.keys() - {"p", "m"})
    return Proved(**{x.name: getattr(report, x.name) for x in fields(Report)}, theorem=line) if line else report


@lru_cache(maxsize=64)
def _entries(path: Path) -> Any:
    """Return the entries of a certificate; they are cached, since every size of a sweep reads them."""
    return json_of(path.read_text("utf-8"))


def certificate(name: str) -> Path:
    """Return the path of a library schedule's certificate, which may not exist."""
    return asset("schedules", FOLDER, f"{name}.json")


def proved(answers: list[dict[str, object]], parameters: Mapping[str, Value], asked: Set[str] = frozenset()) -> str:
    """Return the theorem for these parameters, as one line; empty if no answer proves the order.

    The theorem covers the sizes of the first answer, or of the last answer if that proves more. asked: the parameters
    other than sizes that the user gave; an answer covers their defaults unless it names other values.
    """
    sizes, claims, held = "", dict[str, None](), set[str]()
    for answer in answers:
        given, found = answer["given"], answer["findings"]
        assert isinstance(given, dict) and isinstance(found, list)
        outcomes = {x["property"]: x["outcome"] == "proved" for x in found}
        ours = asked <= given.keys() and given.items() <= parameters.items()
        if ours and all(outcomes.pop(name, False) for name in _ORDER):
            more = {name for name, holds in outcomes.items() if holds} - held
            if more or not sizes:
                sizes = ", ".join([*(f"{name} = {value}" for name, value in given.items()), str(answer["domain"])])
            claims, held = claims | dict.fromkeys(outcomes), held | more
    counted = f", {len(held)} of {len(claims)} claims at uniform costs" if claims else ""
    return f"proved for {sizes}: {', '.join(_ORDER)}{counted}: see `prove`" if sizes else ""
