"""A file of another shape than its reader wants: the one thing that is wrong with all of it, instead of every cell.

    ,0,1,2,3              line 1 is a header, and column 1 an index
    0,0F0,0F1,0B0,0B1
    0F0;0F1;0B0;0B1       commas separate cells
    rank 0: 0F0 0F1       an order names a forward F0.1

What is supposed is done to the text, alone or together with others, and the text is read again. It is said only if
nothing is wrong with the reading then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import TypeAlias

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError
from pipesched.formats.order_text import HELP
from pipesched.formats.torch_cells import SHAPE
from pipesched.model.ops import KIND
from pipesched.model.schedule import Program, Schedule
from pipesched.source import Source, Span

Reader: TypeAlias = Callable[[Source], Schedule | Program]
LONGEST = 300_000  # characters of a file for which shapes are tried
_READ = 1_500_000  # characters of all readings of it
MOST = 3  # shapes at once

_ACTION = r"\d+(?:F|I|W|B|SEND_[FB]|RECV_[FB]|REDUCE_GRAD|UNSHARD|RESHARD)\d*"
_PANDAS = "a row is a rank, and there is nothing else: to_csv(header=False, index=False)"


@dataclass(frozen=True)
class Shape:
    """What may be wrong: `said` of the file, what to do, and the text as it is meant."""

    said: str
    help: str
    meant: Callable[[str], str]
    place: Callable[[str], tuple[int, int]] | None = None


def _lines(change: Callable[[int, str], str]) -> Callable[[str], str]:
    """A change of every line, by its number from 0."""

    def meant(text: str) -> str:
        return "".join(change(i, line) for i, line in enumerate(text.splitlines(keepends=True)))

    return meant


def _sub(pattern: str, new: str | Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    """KIND in a pattern is the letter of a compute."""
    compiled = re.compile(pattern.replace("KIND", KIND))
    return lambda text: compiled.sub(new, text)


def _upper(found: re.Match[str]) -> str:
    return found[0].upper()


def _headless(text: str) -> str:
    first, end, rest = text.partition("\n")
    return rest if end and not re.search(rf"(?:^|[,;\t |(]){_ACTION}\b", first) and re.search(_ACTION, rest) else text


def _first_line(text: str) -> tuple[int, int]:
    return 0, len(text.partition("\n")[0])


_INDEX = re.compile(r"\"?(?:rank|stage|device|unnamed:)?[ _]?\d{0,9}:?\"?[ \t]{0,9}[,;\t:]", re.IGNORECASE)


def _index(text: str) -> str:
    """The text without the first cell of every line, where that counts the lines."""
    rows = [line.strip() for line in text.splitlines()]
    found = [(row, _INDEX.match(row)) for row in rows]
    whole = all(match and not re.match(_ACTION, match[0]) for row, match in found if row)
    return "".join(row[match.end() if match else 0 :] + "\n" for row, match in found) if whole else text


def _staged(behind: str, new: str) -> Callable[[str], str]:
    """Operations without a stage with that of their line; behind: what may not follow one."""
    found = re.compile(rf"(?<![\w.])({KIND})(\d+)(?![{behind}])")
    return _lines(lambda i, line: found.sub(new.format(i), line))


def _apart(text: str) -> str:
    """Commas for other separators, where there are none."""
    if "," in re.sub(r"\([^)]*\)", "", text):
        return text
    return re.sub(r"(\([^()\n]*\))|[;|\t ]+", lambda found: found[1] or ",", text)


def _transposed(text: str) -> str:
    rows = [line.split(",") for line in text.splitlines()]
    width = max(map(len, rows), default=0)
    return "\n".join(",".join(row[i] if i < len(row) else "" for row in rows).rstrip(",") for i in range(width)) + "\n"


def _order(text: str) -> str:
    """The cells of a file of which every line begins as ``rank 0:``."""
    rows = [line for line in text.splitlines() if line.strip()]
    if not all(re.match(r"\s*rank\s*\d+\s*:", row) for row in rows):
        return text
    cells = [re.sub(rf"({KIND})(\d+)\.(\d+)", r"\2\1\3", row.partition(":")[2]).split() for row in rows]
    return "".join(",".join(row) + "\n" for row in cells)


_EMPTY = r"(?:NaN|nan|NAN|None|none|NULL|null|NA|N/A|<NA>|[-_.*]+|idle|IDLE|bubble|noop|NOOP)"
_TORCH = "torch writes stage, letter, microbatch"

CSV = (
    Shape(
        "the lines are those of an order",
        "name the file .txt; `pipesched emit --target torch-csv` makes a CSV of it",
        _order,
    ),
    Shape("there are comments", "torch takes a line for a rank: leave comments out", _sub(r"(?m)^#[^\n]*\n", "")),
    Shape("line 1 is a header", _PANDAS, _headless, _first_line),
    Shape("column 1 is an index", _PANDAS, _index),
    Shape(
        "a bubble has a word of its own",
        'an empty cell is a bubble: to_csv(na_rep="")',
        _sub(rf"(?m)(^|,)[ \t]*\"?{_EMPTY}\"?[ \t]*(?=,|$)", r"\1"),
    ),
    Shape("cells are separated by other marks than commas", 'put a comma between actions: to_csv(sep=",")', _apart),
    Shape(
        "there are brackets or quotes",
        "write the cells alone, as in 0F0,0F1,0B0,0B1",
        _lines(lambda _, line: re.sub(r"['\[\]]", "", line.strip().strip("[], \t")) + "\n"),
    ),
    Shape("the letters are lower case", "torch's letters are upper case: 0F0", _sub(r"\b\d+[a-z_]+\d*\b", _upper)),
    Shape("the cells are those of an order", f"{_TORCH}: 0F1 for F0.1", _sub(r"\b(KIND)(\d+)\.(\d+)\b", r"\2\1\3")),
    Shape("the cells name no stage", f"{_TORCH}: 0F1 for F1 on rank 0", _staged(r"\w.", r"{}\1\2")),
)

_HEAD = re.compile(r"(?:rank|stage|device|gpu|r)?[ _]?(\d+)[ ]?:", re.IGNORECASE)


def _headed(text: str) -> str:
    """Every line with its rank: `rank 0:`, from 0 on."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    heads = [_HEAD.match(line) for line in lines]
    words = (line[head.end() :] if head else line for line, head in zip(lines, heads, strict=True))
    return "".join(f"rank {i}: {rest.strip()}\n" for i, rest in enumerate(words))


_RANKS = "a line begins with its rank, from 0 on: rank 0: F0.0 F0.1 B0.0 B0.1"

ORDER = (
    Shape("the lines do not begin with their ranks", _RANKS, _headed),
    Shape(
        "the letters are lower case",
        "operations have upper case letters, as in F0.1",
        _sub(r"\b[fiwb](?=\d|\()", _upper),
    ),
    Shape(
        "there are marks between the words", "words are separated by blanks", _sub(r"(?m)[,;|](?=[ \t]|$|KIND)", " ")
    ),
    Shape(
        "the words are torch's",
        "write F0.1 for 0F1, or name a torch CSV .csv",
        _sub(r"\b(\d+)(KIND)(\d+)\b", r"\2\1.\3"),
    ),
    Shape(
        "the words have brackets",
        "write F0.1 for stage 0, microbatch 1",
        _sub(r"\b(KIND)[(\[]?(\d+)[\])]?[(,:_][ \t]?(\d+)[)\]]?", r"\1\2.\3"),
    ),
    Shape("the words name no stage", "write F0.1 for F1 on rank 0", _staged(r"\w.(", r"\g<1>{}.\2")),
)


def reading(source: Source, kind: str, read: Reader) -> Schedule | Program:
    """What the reader makes of a text of rows; where the shape of all of it is wrong, that is the one finding.

    Raises:
        PipeschedError: what the reader raises, or PS801 in its place.
    """
    try:
        made = read(source)
    except PipeschedError as error:
        found = _meant(source, kind, read, error.diagnostics)
        raise PipeschedError([found] if found else error.diagnostics) from None
    found = _turned(source, made, read) if kind == "torch-csv" and isinstance(made, Schedule) else None
    if found is not None:
        raise PipeschedError([found])
    return made


def _meant(source: Source, kind: str, read: Reader, found: Sequence[Diagnostic]) -> Diagnostic | None:
    """PS801 for the least set of shapes with which a text that is wrong can be read; None if there is none.

    found: what is wrong with it as it is; one finding with a remedy of its own is left to itself.
    """
    alone = len(found) == 1 and found[0].help not in (SHAPE, HELP)
    if len(source.text) > LONGEST or alone:
        return None
    left = _READ // max(1, len(source.text))
    changing = [shape for shape in SHAPES[kind] if shape.meant(source.text) != source.text]
    every = (chosen for count in range(1, MOST + 1) for chosen in combinations(changing, count))
    return next((_finding(source, chosen) for chosen in islice(every, left) if _reads(source, chosen, read)), None)


SHAPES = {"torch-csv": CSV, "order": ORDER}


def _reads(source: Source, chosen: tuple[Shape, ...], read: Reader) -> bool:
    text = source.text
    for shape in chosen:
        text = shape.meant(text)
    try:
        read(Source(source.name, text))
    except PipeschedError:
        return False
    return True


def _finding(source: Source, chosen: tuple[Shape, ...]) -> Diagnostic:
    said = " and ".join(shape.said for shape in chosen)
    labels = tuple(Label(_place(source, shape), shape.said) for shape in chosen)
    return Diagnostic(Code.CELL, said, labels, (), "; ".join(dict.fromkeys(shape.help for shape in chosen)))


def _place(source: Source, shape: Shape) -> Span:
    """Where the shape begins: the cell or word in which the text first differs from what is meant."""
    if shape.place is not None:
        return source.span(*shape.place(source.text))
    text = shape.meant(source.text)
    at = next((i for i, (a, b) in enumerate(zip(source.text, text, strict=False)) if a != b), len(text))
    begin = max(source.text.rfind(mark, 0, at) for mark in ",\n ") + 1
    word = re.compile(r"[^,\n ]*").match(source.text, begin)
    return source.span(begin, max(word.end() if word else begin, begin))


def _turned(source: Source, schedule: Schedule, read: Reader) -> Diagnostic | None:
    """PS801 for a file whose columns are ranks: only so have an F and its backward one rank, and every stage too."""
    if schedule.placement.routes == 1:
        return None
    torn = bool((schedule.placement.table[schedule.stage, schedule.microbatch] != schedule.rank).any())
    try:
        made = None if len(source.text) > LONGEST or not torn else read(Source(source.name, _transposed(source.text)))
    except PipeschedError:
        return None
    if not isinstance(made, Schedule) or made.placement.routes > 1 or made.placement.rank_of.min() < 0:
        return None
    here = Label(source.span(*_first_line(source.text)), "a row is a step here")
    help = "write a row for each rank: df.T.to_csv(header=False, index=False)"
    return Diagnostic(Code.CELL, "the file is turned: its columns are ranks, and its rows are steps", (here,), (), help)


def not_a_schedule(source: Source) -> Iterator[Diagnostic]:
    """PS842 for a text that is none of our inputs, but of another kind that is known."""
    for kind, pattern in _KINDS:
        if re.search(pattern, f"{source.name.lower()}\n{source.text[:4000]}"):
            start = len(source.text) - len(source.text.lstrip())
            end = min(len(source.text), start + len(source.text[start:].partition("\n")[0]))
            here = Label(source.span(start, end), f"this is {kind}")
            help = "give a .ps file, a torch CSV, an order, a stream, or a name of `pipesched list`"
            yield Diagnostic(Code.NO_SCHEDULE, f"{source.name} is {kind}, not a schedule", (here,), (), help)
            return


_NOT_PS = r"\A(?![^\n]*\.ps\n)[^\n]*\n"
_KINDS = (
    (
        "Markdown",
        rf"\A\S*\.(?:md|markdown|rst)\n|{_NOT_PS}\s*#{{1,3}} [^\n]+\n(?:.*\n)*?(?:```|#{{2,}} |\[[^\]\n]+\]\()",
    ),
    ("HTML", rf"\A\S*\.(?:html?|svg|xml)\n|{_NOT_PS}\s*<(?:!DOCTYPE|html|\?xml|svg)"),
    ("Python", rf"\A\S*\.(?:py|ipynb)\n|{_NOT_PS}\s*#!.*python"),
    ("TOML", rf"\A\S*\.(?:toml|ini|cfg)\n|{_NOT_PS}\s*\[[\w.]+\]\s*\n"),
    ("YAML", r"\A\S*\.ya?ml\n"),
    ("a shell script", rf"\A\S*\.sh\n|{_NOT_PS}#!/"),
)
