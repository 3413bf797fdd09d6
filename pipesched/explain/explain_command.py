"""``pipesched explain PS401``, ``pipesched explain chunk``: shows the page for a code or the table row for a word,
offline.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from dataclasses import dataclass

import click

from pipesched.check.rows import CheckCode
from pipesched.command import flags
from pipesched.command.terminal import Output, dumps
from pipesched.common.aliases import known_as
from pipesched.diagnostics import AnyCode, Code, fail
from pipesched.extension import Codes, rows


@dataclass(frozen=True)
class Word:
    """A row of ``explain/words.md``: a word, its only meaning in pipesched, and its names elsewhere."""

    word: str
    meaning: str
    elsewhere: tuple[str, ...]


def _completed(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the codes and words that begin with a prefix, for completion in a shell."""
    known = [*map(str, codes()), *(word.word for word in words())]
    return [name for name in known if name.lower().startswith(incomplete.lower()) and " " not in name]


@click.command
@click.argument("word", required=False, metavar="[CODE|WORD]", shell_complete=_completed)
@flags.options("explain")
def explain(word: str | None, **given: object) -> int:
    """Explain a diagnostic code such as PS401, its name such as deadlock, or a word such as chunk; without an argument,
    list all codes and words.
    """
    with flags.output_of(given) as out:
        if word is None:
            _index(out)
        elif isinstance(meant := find(word), Word):
            _row(meant, out)
        else:
            _page(meant, out)
    return 0


def _index(out: Output) -> None:
    titles = {str(code): _title(page(code)) for code in codes()}
    if out.format == "json":
        listed = [{"code": code, "title": title} for code, title in titles.items()]
        out.line(dumps({"ok": True, "codes": listed, "words": [word.word for word in words()]}))
    else:
        out.line("\n".join(f"{code}  {title}" for code, title in titles.items()))
        known = ", ".join(word.word for word in words())
        out.line("\n" + textwrap.fill(f"words: {known}", 100, subsequent_indent="       "))


def _page(code: AnyCode, out: Output) -> None:
    text = page(code)
    if out.format == "json":
        entry = {"code": str(code), "title": _title(text), "status": code.status, "text": text}
        out.line(dumps({"ok": True, **entry}))
    else:
        out.write(text)


def _row(word: Word, out: Output) -> None:
    """Print a word, and the code with the same name, if there is one."""
    code = _codes().get(word.word)
    lines = [f"{word.word}: {word.meaning}", f"    elsewhere: {', '.join(word.elsewhere)}"]
    lines += [f"    {code}: {_title(page(code))}; `pipesched explain {code}`"] if code else []
    text = "\n".join(lines)
    if out.format == "json":
        entry = {"word": word.word, "meaning": word.meaning, "elsewhere": list(word.elsewhere), "code": code}
        out.line(dumps({"ok": True, **entry, "text": text}))
    else:
        out.line(text)


def find(name: str) -> AnyCode | Word:
    """Return the word or code for a name, for a synonym in the literature, or for a number, ignoring case.

    Raises:
        PipeschedError: PS225: there is no such word or code.
    """
    asked = name.strip().lower()
    known: dict[str, AnyCode | Word] = {other.lower(): word for word in words() for other in word.elsewhere}
    known |= _codes() | {word.word.lower(): word for word in words()}
    dashed = re.sub("[_ ]", "-", asked)
    for spelt in (asked, asked.replace("-", " "), dashed, f"ps{asked}"):
        if spelt in known:
            return known[spelt]
    if (own := known_as(asked)) is not None:
        raise fail(Code.USAGE, f"{name!r} is a schedule", help=f"`pipesched list {own}` shows its file")
    near = difflib.get_close_matches(asked, known, n=1) or difflib.get_close_matches(dashed, known, n=1)
    hint = f"did you mean {_called(known[near[0]])}?" if near else "`pipesched explain` lists them"
    raise fail(Code.USAGE, f"{name!r} is neither a code nor a word in the glossary", help=hint)


def _called(meant: AnyCode | Word) -> str:
    return meant.word if isinstance(meant, Word) else f"{meant} ({slug(meant)})"


def codes() -> list[AnyCode]:
    """Return all codes of the core and of extensions, in order of their numbers."""
    owners: list[type[AnyCode]] = [Code, CheckCode, *(row.all.load() for row in rows(Codes))]
    return sorted(code for owner in owners for code in owner)


def _codes() -> dict[str, AnyCode]:
    return {name: code for code in codes() for name in (str(code).lower(), slug(code))}


def slug(code: AnyCode) -> str:
    """Return the name of a code as users type it: ``too-many-operations``."""
    return code.name.lower().replace("_", "-")


def page(code: AnyCode) -> str:
    """Return the page of a code, as Markdown, with the exit status of the code."""
    return f"{_file(f'{code}.md')}\nExit status {code.status}.\n"


def words() -> list[Word]:
    """Return the rows of the table of words in order; the names used elsewhere have no backticks."""
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", _file("words.md"), re.MULTILINE)
    return [Word(word, text, tuple(others.replace("`", "").split(", "))) for word, text, others in rows[1:]]


def _file(name: str) -> str:
    from importlib.resources import files

    return files("pipesched").joinpath("explain", "pages", name).read_text("utf-8")


def _title(text: str) -> str:
    """Return the first heading without its code: ``# PS401: deadlock`` becomes ``deadlock``."""
    return text.split("\n", 1)[0].partition(": ")[2]
