"""How the habits of other languages look in a text: a row each, with what is meant.

A pattern is looked for in the text without its comments and what its strings hold. What is written instead is a
template of the match, or a function of it that may decline. Rows are tried from top to bottom: what hides other things
comes first. A row may be wide, for nothing is said that was not tried (`slips`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pipesched.model.ops import KIND


class Edit(NamedTuple):
    """A text that is written in the place of a range, which may be empty."""

    start: int
    end: int
    text: str


Meant: TypeAlias = str | Callable[[re.Match[str]], str | None]
Finder: TypeAlias = Callable[[str, str], Iterator[Edit]]


@dataclass(frozen=True)
class Habit:
    """A habit. why: what the language has in its place. find: its edits, from the text and the text masked."""

    why: str
    find: Finder

    def edits(self, text: str) -> Iterator[Edit]:
        return self.find(text, _masked(text))


_UNSAID = re.compile(r'(?<=\))\s*"[^"]*"(?=\s*(?:#|\w|$))|#[^\r\n]*|"[^"\n]*"?', re.MULTILINE)


def _masked(text: str) -> str:
    """The text with blanks for comments and for the contents of strings, so that places stay."""
    return _UNSAID.sub(lambda found: re.sub(r'[^\n"]', " ", found[0]), text)


def _of_kinds(pattern: str) -> str:
    return pattern.replace("KIND", KIND).replace("kind", KIND.lower())


def _row(why: str, pattern: str, meant: Meant, group: int | str = 0, *, raw: bool = False) -> Habit:
    """A habit that one pattern finds; what is replaced is the whole match or a group of it. raw: in strings too.

    KIND in a pattern is the letter of a compute, kind the same in lower case.
    """
    compiled = re.compile(_of_kinds(pattern), re.MULTILINE)

    def find(text: str, masked: str) -> Iterator[Edit]:
        for found in compiled.finditer(text if raw else masked):
            written = found.expand(meant) if isinstance(meant, str) else meant(found)
            if written is not None and written != found[group]:
                yield Edit(*found.span(group), written)

    return Habit(why, find)


# Operations under other names

_WORDS = {
    "F": r"forward(?:_step|_pass|_compute|_microbatch)?|fwd|fprop|FORWARD|FWD|Forward|fw",
    "I": r"backward_(?:input|b|dgrad)|bwd_(?:input|b)|b_input|dgrad|BACKWARD_INPUT|input_backward",
    "W": r"backward_(?:weights?|w|wgrad)|bwd_(?:weights?|w)|b_weight|wgrad|BACKWARD_WEIGHT|weight_backward|weights?",
    "B": r"(?:full_)?backward(?:_step|_pass|_compute|_microbatch)?|bwd|bprop|FULL_BACKWARD|BACKWARD|BWD|Backward|bw",
}
_OPERATION = re.compile("|".join(rf"(?P<{letter}>{words})" for letter, words in _WORDS.items()))


def _letter(found: re.Match[str]) -> str | None:
    operation = _OPERATION.fullmatch(found[1])
    return str(operation.lastgroup) if operation else None


def _counted(found: re.Match[str]) -> str:
    """``1F1B`` and ``3F``: what every count and letter says."""
    return " ".join(
        letter if int(count) == 1 else f"repeat {int(count)} {{ {letter} }}"
        for count, letter in re.findall(rf"(\d{{1,9}})\s*[x*×]?\s*({KIND})", found[0])
    )


# Blocks by indentation

_HEADER = re.compile(
    r"[ \t]*(?:\}[ \t]*)?(?:for|if|elif|else|while|repeat|rank|loop)\b[^{}\n:]*?(?:(:)[ \t]*([^:\n]*?))?[ \t]*"
)


def _indented(text: str, masked: str) -> Iterator[Edit]:
    """`{` behind every header, and `}` where its block ends; ranges and `elif` in these headers too."""
    opened: list[int] = []
    at = end = 0
    lines = masked.splitlines(keepends=True)
    indents = [len(line) - len(line.lstrip()) if line.strip() else None for line in lines]
    below = [0] * len(lines)  # the indent of the next line that is not blank
    for number in range(len(lines) - 2, -1, -1):
        following = indents[number + 1]
        below[number] = below[number + 1] if following is None else following
    for number, line in enumerate(lines):
        content, indent = line.rstrip(), indents[number]
        if indent is not None:
            while opened and indent <= opened[-1]:
                opened.pop()
                yield Edit(end, end, "}")
            header = _HEADER.fullmatch(content)
            end = at + len(content)
            if header and (header[2] or below[number] > indent):
                yield from _python(content, at)
                colon = (at + header.start(1), at + header.end(1)) if header[1] else (end, end)
                yield Edit(*colon, "{")
                opened += [] if header[2] else [indent]
                if header[2]:
                    yield Edit(end, end, "}")
        at += len(line)
    for _ in opened:
        yield Edit(end, end, "}")


def _python(line: str, at: int) -> Iterator[Edit]:
    for edit in (*_RANGE.find(line, line), *_ELIF.find(line, line)):
        yield Edit(at + edit.start, at + edit.end, edit.text)


def _to_range(found: re.Match[str]) -> str:
    low, high = (found[1], found[2]) if found[2] else ("0", found[1])
    return f"{low.strip()} .. {high.strip()}"


_ARGUMENT = r"((?:[^(),\n]|\([^()\n]*\))+)"
_RANGE = _row(
    "a range is written `low .. high`; it ends before high",
    rf"\brange\s*\({_ARGUMENT}(?:,{_ARGUMENT})?\)",
    _to_range,
)
_ELIF = _row("a further condition is an `else if`", r"\b(?:elif|elsif|elseif)\b", "else if")


# Names and numbers


def _name(found: re.Match[str]) -> str | None:
    name = re.sub(r"\W+", "_", found[1].strip('"')).strip("_")
    return f"s{name}" if name[:1].isdigit() else name or None


def _power(found: re.Match[str]) -> str | None:
    base, exponent = found[1], found[2]
    if base.isdigit() and exponent.isdigit() and int(exponent) * len(base) <= 18:
        return str(int(base) ** int(exponent))
    return " * ".join([base] * int(exponent)) if exponent in ("2", "3", "4") else None


def _product(found: re.Match[str]) -> str | None:
    return f"{found[1]} * {found[2].strip()}"


def _rank(text: str, masked: str) -> Iterator[Edit]:
    """The rank by its own word, inside a program that gives it a name."""
    for program in re.finditer(r"^[ \t]*rank\s+([A-Za-z_]\w*)\s*\{", masked, re.MULTILINE):
        following = re.compile(r"^[ \t]*(?:rank|claim|stage|route|require|costs)\b(?!\s*[-+*/)])", re.MULTILINE)
        after = following.search(masked, program.end())
        inside = re.compile(r"(?:[-+*/%(,=<>]|\b(?:repeat|then|else|and|or|not|if|in)\b)\s*\b(rank)\b")
        for found in inside.finditer(masked, program.end(), after.start() if after else len(masked)):
            yield Edit(*found.span(1), program[1])


def _commas(text: str, masked: str) -> Iterator[Edit]:
    """Marks between operations, but those of an overlap."""
    between = re.compile(
        rf"(?:\b{KIND}|[\])}}])[ \t]*(,|\||&|->|=>|>|-|/)(?=[ \t]*(?:{KIND}\b|repeat\b|overlap\b|for\b|if\b|\}}|$))",
        re.MULTILINE,
    )
    for found in between.finditer(masked):
        line = masked[masked.rfind("\n", 0, found.start()) + 1 : found.start(1)]
        if line.count("(") <= line.count(")"):
            yield Edit(*found.span(1), "")


_OPERATIONS = r"KIND(?:\[[^\]\n]*\])?(?:\([^)\n]*\))?"
_LINE_COMMENT = rf"(?:(?<=[{{}}])|\b{_OPERATIONS}|\boverlap\([^)\n]*\)|^)[ \t]*"
_STATEMENT = r"(?:^|(?<=[{};]))[ \t]*"
_RANKS = r"ranks?|device|gpu|worker|node|process"
_MESSAGES = r"send|recv|receive|wait|irecv|isend|SEND|RECV|step|sync|barrier|allreduce|optimizer_step"

_COMMENT = "a comment begins with `#`"
_SCHEDULE = "a file begins with its schedule and its parameters"
_NAMED = "a name is made of letters, digits and `_`, and begins with no digit"
_PLACED = "the ranks of stages are a formula, `stage s in 0 .. p on rank s`, or a line each, `stage 3 on rank 1`"
_PROGRAM = "a program is for a rank, `rank r { … }`"
_COSTS = "costs are written `costs F = 1, B = 2`"
_LOOP = "a loop is written `for k in low .. high { … }`"
_REPEAT = "what is done several times is written `repeat n { … }`"
_LETTERS = "operations are F (forward), I and W (backward for inputs and for weights) and B (both)"
_MICROBATCH = "a rank knows its stages, and a microbatch is named as in `F(1)`"
_OVERLAP = "two operations in one slot are an overlap"
_LET = "a name is made by `let`, and keeps its value"
_FUNCTION = "a function is written `let f(k) = k + 1`"
_CHOICE = "a value by condition is written `if c then a else b`"
_DIGITS = "numbers are plain digits"
_TIMES = "a product has its `*`"

HABITS: tuple[Habit, ...] = (
    # comments
    _row(_COMMENT, rf"{_LINE_COMMENT}(//+)(?!=)", "#", 1),
    _row(_COMMENT, r"(//+)(?=[ \t]*(?:[A-Za-z']{3,}[ \t]+[A-Za-z]|[A-Za-z']+[ \t]+[A-Za-z']{3,}))", "#", 1),
    _row(_COMMENT, r"^[ \t]*(--+|%+|;+|REM\b)(?=[ \t]*\w)", "#", 1),
    _row(_COMMENT, r"/\*+[^\n]*?\*/(?=[ \t]*$)", lambda x: "#" + x[0][2:-2].rstrip()),
    # the head
    _row("a schedule has its name and its parameters", r"\A\s*schedule[ \t]*(:)", "", 1),
    _row(_NAMED, r"\A(?:\s|#[^\n]*)*schedule\s*(\"[^\"\n]*\"|[\w.\-]+)(?=\s*\()", _name, 1, raw=True),
    _row(_SCHEDULE, r"\A\s*((?:def|fn|func|function|pipeline)\s+(\w+\s*\([^)\n]*\))\s*:?)", r"schedule \2", 1),
    _row(_SCHEDULE, r"\A\s*(schedule\s+\w+)[ \t]*$", r"\1(p, m = 2 * p)", 1),
    _row(
        "a parameter is a whole number, without a type",
        r"(?<=[(,])([ \t]*\w+[ \t]*)(:[ \t]*(?:int|Int|integer|i32|i64|usize)\b)",
        "",
        2,
    ),
    _row("there is nothing to import", r"^[ \t]*((?:from\s+\w[\w.]*\s+)?import\b[^\n]*)", "", 1),
    # placement and programs
    _row(_PLACED, r"(?<=\.\.)[ \t]*((\w+)[ \t]*(?::|->|=>)\s*(?:on\b)?\s*(?:rank\b)?)", r"\2 on rank", 1),
    _row(
        _PLACED,
        r"\bstage\b[^\n]*?\bon\s+rank\s*\[([\d,\s]{1,999})\]",
        lambda x: " ".join(f"stage {s} on rank {r.strip()}" for s, r in enumerate(x[1].split(","))),
    ),
    _row("a stage is on a rank", r"\bon\s+(device|gpu|worker|node|process|stage)\b", "rank", 1),
    _row(
        _PROGRAM,
        rf"^[ \t]*((?:for\s+|each\s+|every\s+|all\s+)?(?:{_RANKS})\b[ \t]*(\w*)(?:\s+in\s[^{{\n]*?[\w)])?)\s*(?=[{{:])",
        lambda x: f"rank {x[2] or 'r'}",
        1,
    ),
    _row(_COSTS, r"^[ \t]*costs?[ \t]*[({]([^})\n]*)[})]", lambda x: f"costs {x[1].strip().replace(':', ' =')}"),
    _row(_COSTS, r"(?:^[ \t]*costs\b|,)[ \t]*(?:KIND|[CM]|FB)[ \t]*(:)(?=[ \t]*[\d\[])", "=", 1),
    _row("a condition on the sizes is a `require`", r"^[ \t]*(assert)\b", "require", 1),
    # blocks
    Habit("a block is written in braces, as in `for k in 0 .. m { … }`", _indented),
    _row("a block begins with its brace", r"(:)\s*(?=\{)", "", 1),
    _ELIF,
    _RANGE,
    _row(_RANGE.why, r"\bin\s+([\w.]+)(?=\s*\{)", r"0 .. \1", 1),
    _row(_RANGE.why, r"\bin\s+\w+\s*(\bto\b|:|,|\.\.<)\s*(?=[\w(])", " .. ", 1),
    _row(_RANGE.why, r"\.\.\s*=\s*([^{\n]*?)(?=\s*[{\n])", r".. \1 + 1"),
    _row(_RANGE.why, r"\bin\s*()(?=\.\.)", " 0 ", 1),
    _row(
        _LOOP, r"\bfor\s*\(\s*(?:int\s+)?(\w+)\s*=\s*([^;\n]+);\s*\w+\s*<\s*([^;\n]+);[^)\n]*\)", r"for \1 in \2 .. \3"
    ),
    _row(_LOOP, r"\bfor\s*\(\s*(\w+\s+in\s+[^()\n]*(?:\([^)\n]*\)[^()\n]*)?)\)", r"for \1"),
    _row(_LOOP, r"\bfor\s+\w+\s*(=)(?=[^\n{]*\.\.)", "in", 1),
    _row(_REPEAT, rf"{_STATEMENT}(loop|times|do)\b(?=\s*[\w(][^\n]*\{{)", "repeat", 1),
    _row(_REPEAT, r"\brepeat\b[^{\n]*?\b(times|x)(?=\s*\{)", "", 1),
    # operations
    _row(
        "messages follow from the computes, and are not written",
        rf"(?<![\w.])(?:{_MESSAGES})(?:_[A-Za-z]+)?"
        rf"(?:\([^)\n]*\)|[ \t]+{_OPERATIONS}(?=[ \t]*(?:;|$|\}})))?(?=[\s;}}]|$)",
        "",
    ),
    _row(_LETTERS, rf"(?<![\w.])({'|'.join(_WORDS.values())})\b(?:\(\s*\))?(?!\s*=)", _letter),
    _row(
        "operations have upper case letters",
        r"(?:(?<=[{}\])])|(?<=\bKIND)|(?<=\bkind)|^|\bdrain)[ \t]*\b(kind)(?=[\s\[(}]|$)(?!\s*(?:[-+*/]?=|\+\+|--))",
        lambda x: x[1].upper(),
        1,
    ),
    _row("`drain W` runs what weight gradients are pending", r"\bdrain\b(?=[ \t]*(?:$|\}))", "drain W"),
    _row(_MICROBATCH, r"\b(KIND)\d+\.(\d+)\b", r"\1(\2)"),
    _row(_MICROBATCH, r"(?<![\w.])\d+(KIND)(\d+)(?!\w)", r"\1(\2)"),
    _row(_MICROBATCH, r"\b(KIND)\{(\w+)\}", r"\1(\2)"),
    _row(
        "a stage of several is named as in `F[0](1)`",
        r"\b(KIND)(?:\((\w+),\s*(\w+)\)|\[(\w+)\]\[(\w+)\])",
        lambda x: f"{x[1]}[{x[2] or x[4]}]({x[3] or x[5]})",
    ),
    _row(_OVERLAP, rf"\boverlap[ \t]+({_OPERATIONS})[ \t]*,?[ \t]*({_OPERATIONS})", r"overlap(\1, \2)"),
    _row(
        _OVERLAP,
        rf"\boverlap\s*[\[{{(][ \t]*({_OPERATIONS})[ \t]*,?[ \t]*({_OPERATIONS})[ \t]*[\]}})]",
        r"overlap(\1, \2)",
    ),
    _row(_OVERLAP, rf"(?<![\w.])({_OPERATIONS})[ \t]*(?:\+|&&?)[ \t]*({_OPERATIONS})(?!\w)", r"overlap(\1, \2)"),
    _row(_REPEAT, r"(?<![\w.\[(])(?:\d{1,9}\s*[x*×]?\s*KIND)+(?![\w\[(])", _counted),
    _row(_REPEAT, rf"(?<![\w.])({_OPERATIONS})[ \t]*(?:x|X|\*\*?|×|\^)[ \t]*(\w+)", r"repeat \2 { \1 }"),
    _row("a full backward is `B`", r"(?<![\w.])BW(?!\w)", "B"),
    _row("operations are words of their own", r"(?<![\w.])KIND{2,}(?!\w|[ \t]*=)", lambda x: " ".join(x[0])),
    Habit("operations need nothing between them", _commas),
    _row('strings are written in `"`', r"[“”„«»‘’`']", '"'),
    _row("statements need nothing between them", r";", ""),
    # names and values
    _row(_LET, rf"{_STATEMENT}((?:(?:int|var|const|auto|set|val)\s+)?([A-Za-z_]\w*)[ \t]*:?=)(?!=)", r"let \2 =", 1),
    _row(_LET, r"\blet\s+\w+(?:\([^)\n]*\))?[ \t]*(:=|==|:)(?!=)", "=", 1),
    _row("a `let` makes one name", r"\blet\s+\w+\s*=[^\n,(]*(,)(?=[ \t]*\w+[ \t]*=)", " let", 1),
    _row(
        _FUNCTION,
        r"\b(?:let|def|fn|func|function)\s+(\w+\([^)\n]*\))\s*"
        r"(?:\{\s*(?:return\b)?|:\s*return\b|=>|->)[ \t]*([^}\n]*?)[ \t]*(?:\}|$)",
        r"let \1 = \2",
    ),
    Habit("the rank has the name that its program gives it", _rank),
    _row(
        _CHOICE,
        r"(?<==)[ \t]*((?:[^=?\n]|[=!<>]=)+?)[ \t]*\?[ \t]*([^:?\n]+?)[ \t]*:[ \t]*([^\n?]+?)(?=[ \t]*$)",
        r" if \1 then \2 else \3",
    ),
    _row(
        _CHOICE,
        r"(?<==)[ \t]*(?!if\b)([^=\n]+?)[ \t]+if[ \t]+([^\n{]+?)[ \t]+else[ \t]+([^\n{]+?)(?=[ \t]*$)",
        r" if \2 then \1 else \3",
    ),
    _row("there is no power: write the product", r"\b(\w+)[ \t]*(?:\^|\*\*)[ \t]*(\w+)", _power),
    _row(
        "per cent are hundredths",
        r"\b(\d+(?:\.\d+)?)[ \t]*%(?=[ \t]*(?:$|when\b|release\b|and\b|or\b|[),<>=!]))",
        lambda x: "1" if x[1] == "100" else f"{x[1]} / 100",
    ),
    _row(_DIGITS, r"\b\d{1,3}(?:_\d{3})+\b", lambda x: x[0].replace("_", "")),
    _row(_DIGITS, r"\b(\d+)[eE]([1-9])\b", lambda x: x[1] + "0" * int(x[2])),
    _row(_TIMES, r"(?<![\w.])(\d+)([A-Za-z_]\w*|[ \t]*\((?=[^()\n]*\)))", _product),
    _row(_TIMES, r"\)()(?=\()", " * ", 1),
    _row(
        "the remainder is `%`, the quotient `//`",
        r"\b(mod|MOD|div|DIV)\b(?=\s+[\w(])",
        lambda x: "%" if x[1].lower() == "mod" else "//",
    ),
    _row("`min` and `max` take their values apart", r"\b(min|max)\(\[([^\]\n]*)\]\)", r"\1(\2)"),
)
