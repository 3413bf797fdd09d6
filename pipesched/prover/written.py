"""Expressions by cases in the form that certificates use: sums of names in one notation, which isl's parser never
reads.

    {"where": ["m - p >= 0", "i0 - 2*e0 == 0"], "floors": ["1/2*i0"], "value": "3*p + e0 - 3"}

e0 is the floor of the first sum, and may occur in the next sum. Where cases overlap, their values add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from pipesched.prover.presburger import Affine, PwAff, Set, Space, coefficients, isl

CASES, FLOORS, CONDITIONS = 100, 20, 60
_NUMBER = r"[1-9]\d{0,11}(?:/[1-9]\d{0,11})?"
_TERM = rf"(?:{_NUMBER}(?:\*[a-z]\w*)?|[a-z]\w*)"
_SUM = re.compile(rf"0|-?{_TERM}(?: [+-] {_TERM})*", re.ASCII)
_PART = re.compile(rf"(?P<sign>-?)(?:(?P<number>{_NUMBER})(?:\*(?P<of>[a-z]\w*))?|(?P<name>[a-z]\w*))", re.ASCII)
_CONDITION = re.compile(r"(.+) (>=|==) 0")


class Damaged(Exception):
    """Raised if an entry of a certificate is malformed. place: the path of the entry in the certificate."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


def spelled(weights: Sequence[Fraction], names: Sequence[str]) -> str:
    """Write a weighted sum of names as text, as in 2*m - p + 1. weights: the weight of 1, then the weight of
    each name.
    """
    terms = [(weight, name) for weight, name in zip(weights[1:], names, strict=False) if weight]
    terms += [(weights[0], "")] if weights[0] else []
    made = ""
    for weight, name in terms:
        sign = (" - " if made else "-") if weight < 0 else (" + " if made else "")
        size = abs(weight)
        made += sign + ("*".join(filter(None, [str(size), name])) if size != 1 or not name else name)
    return made or "0"


def weights(text: object, names: Sequence[str]) -> list[Fraction]:
    """Return the weights of 1 and of each name in a sum.

    Raises:
        ValueError: the text is not in the form that `spelled` writes.
    """
    if not isinstance(text, str) or _SUM.fullmatch(text) is None:
        raise ValueError
    found = [Fraction(0)] * (1 + len(names))
    for part in _PART.finditer(text.replace(" - ", " -").replace(" + ", " ")) if text != "0" else ():
        name = part["of"] or part["name"]
        at = 1 + names.index(name) if name else 0
        found[at] += Fraction(part["number"] or 1) * (-1 if part["sign"] else 1)
    if spelled(found, names) != text:
        raise ValueError
    return found


def cases(of: PwAff, space: Space) -> list[dict[str, object]]:
    """Return an expression in the form that certificates use."""
    return [*_cases(of, (*space.parameters, *space.dims))]


def conditions(of: Set, space: Space) -> list[dict[str, object]]:
    """Return a set in the form that certificates use: parts, each with its conditions, sorted by text."""
    parts = cases(space.constant(0).intersect_domain(of), space)
    made = [{key: entry for key, entry in part.items() if key != "value"} for part in parts]
    return sorted(made, key=lambda part: (part["where"], part.get("floors", [])))  # isl sorts by address


def _cases(of: PwAff, names: Sequence[str]) -> Iterator[dict[str, object]]:
    kind = isl().dim_type
    for where, value in of.coalesce().get_pieces():
        own, said = _floors(value, names, ())
        for part in where.make_disjoint().compute_divs().get_basic_sets():
            known, floors = _floors(part, own, said)
            at = [known.index(f"e{len(said) + k}") for k in range(part.dim(kind.div))]
            conditions = []
            for each in part.get_constraints():
                given = coefficients(each)
                found = [*given[: len(names) + 1], *[Fraction(0)] * (len(known) - len(names))]
                for k, weight in zip(at, given[len(names) + 1 :], strict=True):
                    found[1 + k] += weight
                conditions.append(f"{spelled(found, known)} {'==' if each.is_equality() else '>='} 0")
            total = coefficients(value)
            made: dict[str, object] = {"where": sorted(conditions)}
            yield made | ({"floors": [*floors]} if floors else {}) | {"value": spelled(total, own)}


def _floors(of: Affine, names: Sequence[str], before: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the given names followed by the names of the floors in a set or an expression, and the sums of these
    floors.
    """
    kind = isl().dim_type
    known, made = [*names], [*before]
    first = len(known)
    width = of.dim(kind.param) + of.dim(kind.set if hasattr(of, "get_basic_sets") else kind.in_)
    for k in range(of.dim(kind.div)):
        div = of.get_div(k)
        given = coefficients(div)
        sums = [*given[: width + 1], *[Fraction(0)] * (len(known) - width)]
        for j in range(k):
            sums[1 + first + j] += given[1 + width + j]
        made.append(spelled(sums, known))
        known.append(f"e{len(made) - 1}")
    return known, made


def expression(entry: object, space: Space, place: str) -> PwAff:
    """Return the expression that an entry contains.

    Raises:
        Damaged: the entry is not an expression.
    """
    if not isinstance(entry, list) or not 0 < len(entry) <= CASES:
        raise Damaged(place, f"the entry is not a list of 1 to {CASES} cases")
    total: PwAff | None = None
    for number, case in enumerate(entry):
        try:
            made = _case(case, space)
        except (ValueError, TypeError, KeyError):
            raise Damaged(f"{place}[{number}]", "the entry is not a case in the notation of `prove --json`") from None
        total = made if total is None else total.union_add(made)
    return total


def _case(case: Mapping[str, object], space: Space) -> PwAff:
    if not isinstance(case, dict) or not {"where", "value"} <= case.keys() <= {"where", "floors", "value"}:
        raise ValueError
    names = [*space.parameters, *space.dims]
    columns = [space.constant(1), *map(space.raw, names)]
    for k, text in enumerate(_texts(case.get("floors", []), FLOORS)):
        columns.append(space.combination(weights(text, names), columns).floor())
        names.append(f"e{k}")
    value = space.combination(weights(case["value"], names), columns)
    for text in _texts(case["where"], CONDITIONS):
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise ValueError
        sums = space.combination(weights(found[1], names), columns)
        value = value.intersect_domain(sums.nonneg_set() if found[2] == ">=" else sums.zero_set())
    return value


def _texts(given: object, most: int) -> list[str]:
    if not isinstance(given, list) or len(given) > most or not all(isinstance(x, str) for x in given):
        raise ValueError
    return given
