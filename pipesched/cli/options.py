"""The values that options take, and the options that several commands share.

--p 4        --p 4,8,16        --p 2..8 (both ends)        -D name=value, likewise
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipesched.cli.terminal import Output
from pipesched.diagnostics import Code, PipeschedError, fail, of_the_caller
from pipesched.model.torch_versions import DEFAULT, NEWEST, OLDEST, TorchVersion, parse_version

if TYPE_CHECKING:
    from pipesched.compile import Options
    from pipesched.model.costs import Costs
    from pipesched.source import Source

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
FORMATS = ("text", "concise", "json", "github")
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9}|/[1-9][0-9]{0,8})?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZES = {  # what people call p, v and m
    "p": ("p", "pp", "np", "n", "ranks", "num-ranks", "devices", "gpus", "world-size", "pp-size", "pp-degree"),
    "v": ("v", "vpp", "chunks", "num-chunks", "model-chunks", "virtual-stages"),
    "m": ("m", "mb", "microbatches", "num-microbatches", "n-microbatches", "micro-batches"),
}


def target(text: str) -> str:
    """A file or a schedule; of an alias that does not tell it, what it is taken for is said on stderr.

    Raises:
        PipeschedError: PS225, a size where a file belongs.
    """
    from pipesched.aliases import taken_for

    size = re.fullmatch(r"([A-Za-z_]\w*)\s*[=:]\s*([\w.,]*)", text)
    if os.path.exists(text):
        return text
    if size is not None and not size[1].lower() == "c":  # a drive
        raise fail(Code.USAGE, f"{_short(text)} is a size, not a file", help=f"write `{as_option(size[1], size[2])}`")
    if re.fullmatch(r"[0-9]+", text) or text in ("p", "v", "m"):
        raise fail(Code.USAGE, f"{_short(text)} is no file", help="sizes are options: `--p 4`, `--m 8`")
    if said := taken_for(text):
        click.echo(said, err=True)
    return text


def as_option(name: str, value: str) -> str:
    """How a size is given: ``--p 4``, ``-D depth=2``."""
    own = next((own for own, others in _SIZES.items() if name.lower().replace("_", "-") in others), None)
    return f"--{own} {value or 'N'}" if own else f"-D {name.replace('-', '_')}={value or 'N'}"


def whole(text: object) -> int:
    """An integer of at most 30 digits, so that arithmetic with it stays cheap."""
    if not _WHOLE.fullmatch(str(text)):
        raise click.BadParameter(f"{_short(text)} is not a whole number of at most 30 digits")
    return int(str(text))


def significant(text: str) -> int:
    """A number of digits: 1 to 15, which is as many as a double has."""
    digits = whole(text)
    if not 1 <= digits <= 15:
        raise click.BadParameter(f"{_short(text)} significant digits; 1 to 15 can be given")
    return digits


@dataclass(frozen=True)
class Sizes:
    """Some integers, as ranges with both ends, so that a huge range is counted before it is walked."""

    ranges: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)


def sizes(text: str) -> Sizes:
    """``8``, ``8,16`` or ``2..8``, and any mix of them."""
    return Sizes(tuple(_range(part.strip()) for part in text.split(",")))


def _range(text: str) -> tuple[int, int]:
    low, dots, high = (part.strip() for part in text.partition(".."))
    if not _WHOLE.fullmatch(low) or (dots and not _WHOLE.fullmatch(high)):
        raise click.BadParameter(f"{_short(text)} is not a whole number, a list such as 8,16 or a range such as 2..8")
    ends = int(low), int(high if dots else low)
    if ends[0] > ends[1]:
        raise click.BadParameter(f"the range {text} is empty; write {high}..{low}")
    return ends


def definition(text: str) -> tuple[str, Sizes]:
    """``name=value``, the value as for a size."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not _NAME.fullmatch(name):
        raise click.BadParameter(f"{_short(text)} is not name=value")
    return name, sizes(value)


def cap(text: str) -> tuple[Fraction, ...]:
    """``K``, or ``K0,K1,…`` by rank: numbers such as 4, 5.5 or 11/2."""
    from pipesched.model.numbers import cap_help

    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if help := cap_help(part):
            raise fail(Code.USAGE, f"{_short(part)} is no number of activations", help=help)
        if not _NUMBER.fullmatch(part):
            raise click.BadParameter(f"{_short(part)} is not a number from 0 up, such as 4, 5.5 or 11/2")
    return tuple(map(Fraction, parts))


def placement(text: str) -> tuple[int, ...]:
    """The rank of each stage: ``0,1,1,0``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise click.BadParameter(f"{_short(text)} is not a list of ranks such as 0,1,1,0")
    return tuple(map(int, parts))


def version(text: str) -> TorchVersion:
    """A torch version that we know the rules of; a patch number is dropped."""
    try:
        return parse_version(text)
    except PipeschedError as error:
        raise click.BadParameter(error.diagnostics[0].message) from None


def _short(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def stack(*decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Several options as one decorator, shown in this order."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


size_options = stack(
    click.option("--p", type=sizes, metavar="N|A,B|A..B", help="Ranks."),
    click.option("--v", type=sizes, metavar="N|A,B|A..B", help="Stages of each rank."),
    click.option("--m", type=sizes, metavar="N|A,B|A..B", help="Microbatches."),
    click.option("definitions", "-D", type=definition, multiple=True, metavar="NAME=N", help="Any other parameter."),
    click.option(
        "--max-ops", type=whole, default=2_000_000, metavar="N", help="Refuse more operations [default: 2 million]."
    ),
)
check_options = stack(
    click.option(
        "--cost",
        metavar="F=1,...",
        help="Costs of F, I, W, B, C, FB; M: memory [default: 1, B 2, C 0; some given: I = W = B / 2, and so on].",
    ),
    click.option("--costs", metavar="FILE.toml", help="Costs from a file, a number or a list by stage each."),
    click.option("--release", default="W", show_default=True, metavar="RULE", help="W, I, split:x, torch or I=a,W=b."),
    click.option(
        "--mem-cap",
        type=cap,
        metavar="K|K0,K1,...",
        help="Most activations that a rank may hold; buffers and parameters are not counted.",
    ),
    click.option(
        "--comm", default="strict", show_default=True, metavar="MODEL", help="The model whose failure counts."
    ),
)
torch_options = stack(
    click.option(
        "--torch-version",
        type=version,
        metavar=f"{OLDEST}..{NEWEST}",
        help=f"Rules for a torch CSV [default: {DEFAULT}].",
    ),
    click.option("--stages", type=whole, metavar="N", help="Stages of a torch CSV, checked against the file."),
    click.option("--placement", type=placement, metavar="R0,R1,...", help="Ranks of its stages, checked likewise."),
)


def output_options_with(*more: str) -> Callable[[Decorated], Decorated]:
    """The options of results, with formats that only this command has."""
    return stack(
        click.option("format", "--format", type=click.Choice((*FORMATS, *more)), default="text", show_default=True),
        click.option("json", "--json", is_flag=True, help="--format json; its shape is emit/v1/report.schema.json."),
        click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True),
        click.option("output", "-o", metavar="FILE", help="Write to FILE instead of stdout."),
    )


output_options = output_options_with()
digits_option = click.option(
    "--digits", type=significant, metavar="N", help="Significant digits of per cent [default: one decimal]."
)


def output_of(given: Mapping[str, Any]) -> Output:
    """Where the results of a command go."""
    return Output("json" if given["json"] else given["format"], given["color"], given["output"], given.get("digits"))


def grid(given: Mapping[str, Any]) -> dict[str, Sizes]:
    """The parameters that were given, each with its values.

    Raises:
        PipeschedError: PS225, one was given twice, or there is none of what it counts.
    """
    from pipesched.model.numbers import require_counts

    values = {name: given[name] for name in ("p", "v", "m") if given[name] is not None}
    for name, size in given["definitions"]:
        if name in values:
            raise fail(Code.USAGE, f"parameter {name} is given twice")
        values[name] = size
    require_counts((name, low) for name, size in values.items() for low, _ in size.ranges)
    return values


def count(values: Mapping[str, Sizes]) -> int:
    """How many combinations a grid has."""
    return math.prod(size.count for size in values.values())


def combinations(values: Mapping[str, Sizes]) -> Iterator[dict[str, int]]:
    """Every combination, the last parameter fastest."""
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def compile_options(given: Mapping[str, Any], parameters: Mapping[str, int]) -> Options:
    """What `compile` is told.

    Raises:
        PipeschedError: PS225 or PS809, costs or a release rule that cannot be read.
    """
    from pipesched.compile import Options

    chosen: dict[str, Any] = {
        "parameters": dict(parameters),
        "max_ops": given["max_ops"],
        "torch_version": given["torch_version"],
        "stages": given["stages"],
        "microbatches": parameters.get("m"),
        "placement": given["placement"],
    }
    for name in ("mem_cap", "comm", "fsdp", "require_proof"):
        if name in given:
            chosen[name] = given[name]
    if "release" in given:
        from pipesched.model.release import Release

        try:
            chosen |= {"costs": read_costs(given["cost"], given["costs"]), "release": Release.parse(given["release"])}
        except PipeschedError as error:
            raise of_the_caller(error) from None
    return Options(**chosen)


def read_costs(text: str | None, path: str | None) -> Costs | None:
    """The costs of ``--cost`` over those of ``--costs``, or None."""
    if text is None and path is None:
        return None
    from pipesched.model.costs import Costs

    base = Costs() if path is None else Costs.from_toml(read_path(path).text)
    return base if text is None else Costs.parse(text).over(base)


def read_path(path: str) -> Source:
    """The file that is named by a path; no built-in name counts.

    Raises:
        PipeschedError: PS809, missing or not text.
    """
    from pipesched.compile import read

    if path != "-" and not os.path.exists(path):
        raise fail(Code.UNREADABLE, f"no such file: {path}")
    return read(path)
