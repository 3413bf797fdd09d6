"""Converters of option values: a model, its device, amounts and caps in bytes, from text or a Python value."""

from __future__ import annotations

import re
from fractions import Fraction
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, TypeAlias

from pipesched.command import values
from pipesched.command.values import Not, short
from pipesched.diagnostics import Code, fail
from pipesched.planning.byte_counts import Bytes, cap_help, in_bytes
from pipesched.planning.codes import PlanningCode

if TYPE_CHECKING:
    from pipesched.planning.transformer.config import Trained
    from pipesched.planning.transformer.devices import Device

ModelLike: TypeAlias = "str | PathLike[str] | Trained | None"
DeviceLike: TypeAlias = "str | PathLike[str] | Device | None"


def model(value: object) -> Trained:
    """Return a model: from the path of a TOML file, the name of a built-in model, or a result of `read`.

    Raises:
        PipeschedError: PS230 to PS237 or PS809 if the model cannot be read.
    """
    from pipesched.planning.transformer.config import Training, Transformer
    from pipesched.planning.transformer.model_file import read

    match value:
        case (Transformer() as transformer, Training() as training):
            return transformer, training
        case str() | PathLike():
            return read(fsdecode(value))
    raise Not(value, "a model: the path of a TOML file, or a name")


def named_model(value: object) -> tuple[str, Trained]:
    """Return a model and its name."""
    found = model(value)
    return fsdecode(value) if isinstance(value, str | PathLike) else found[0].name, found


def caps(value: object) -> tuple[Fraction, ...]:
    """Parse caps on activations, or on bytes such as 80GB."""
    return values.caps(value, _cap)


def _cap(value: object) -> Fraction:
    """Parse a cap; raise PipeschedError with PS225 for an unknown unit or a percentage, otherwise ValueError."""
    if isinstance(value, Bytes):
        return value
    if isinstance(value, str):
        if (found := in_bytes(value)) is not None:
            return found
        if help := cap_help(value):
            raise fail(Code.USAGE, f"{short(value)} is not a number of activations", help=help)
    return values.cap(value)


def byte_cap(value: object) -> Fraction:
    """Parse ``80GB``, or a number of bytes."""
    found = in_bytes(value) if isinstance(value, str) else None
    if found is None and isinstance(value, int | Fraction) and not isinstance(value, bool):
        found = Bytes(value)
    if not found or found < 1:
        raise Not(value, "a number of bytes such as 80GB")
    return found


def amount(value: object) -> int:
    """Parse a number that may end in K, M, B or T, for 10^3 to 10^12: ``300B``."""
    given = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMBT]?)\s*", str(value))
    found = 0 if given is None else int(Fraction(given[1]) * 1000 ** " KMBT".index(given[2] or " "))
    if not found:
        raise Not(value, "a number such as 300B")
    return found


def device(value: object) -> Device:
    """Return a device, from its name or the path of a TOML file.

    Raises:
        PipeschedError: as for `devices.read`.
    """
    from pipesched.planning.transformer.devices import Device, read

    match value:
        case Device():
            return value
        case str() | PathLike():
            return read(fsdecode(value))
    raise Not(value, "a device: the path of a TOML file, or a name")


def one_device(value: object) -> Device | None:
    """Return the only device of a cluster, or None if no device is given.

    Raises:
        PipeschedError: PS252 if there are two kinds of devices; other errors as for `devices.read`.
    """
    several = value if isinstance(value, list | tuple) else () if value is None else (value,)
    found = {one.name: one for one in map(device, several)}
    if len(found) > 1:
        message = f"a cluster of {' and '.join(found)} is not supported: all GPUs must be alike"
        raise fail(PlanningCode.TWO_DEVICES, message, help="plan each kind separately, with one --device")
    return next(iter(found.values()), None)


def fraction(value: object) -> Fraction:
    """Parse a share from 0 to 1, or a percentage: ``50%``."""
    if isinstance(value, str) and value.strip().endswith("%"):
        found = values.exact(value.strip().removesuffix("%")) / 100
    else:
        found = values.exact(value)
    if found > 1:
        raise Not(value, "a share from 0 to 1")
    return found
