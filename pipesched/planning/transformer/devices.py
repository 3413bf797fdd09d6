"""Devices: their FLOP/s, memory and bandwidth.

    flops       peak of dense 16-bit matrix products in FLOP/s       memory      bytes
    node        bytes/s that one device sends inside its node        network     bytes/s that it sends to other nodes
    node_size   devices of a node                                   host        bytes/s between device and host memory
    hbm         bytes/s of its memory, both directions together      usable      bytes that its driver offers
    multiprocessors  units over which a product's tiles are spread  gemm        the constant for its products

Bandwidths are for one direction, half of the figure that vendors print. The network bandwidth in a row is for the
vendor's own node, with one adapter per device. A file has the same keys:

    [device]
    flops = "400 TFLOP/s"        or 400e12
    memory = "80 GB"             GB is 10^9 bytes, GiB 2^30
    node = "300 GB/s"
    network = "25 GB/s"
    host = "32 GB/s"
    node_size = 8

With `hbm`, `multiprocessors` and `like` (a device of the table that achieves the same share of its peak), times follow
from shapes; without them, matrix products reach a flat share of the peak.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import cast

from pipesched.diagnostics import Diagnostic, Label, PipeschedError, fail
from pipesched.library import inputs
from pipesched.planning import toml
from pipesched.planning.codes import PlanningCode
from pipesched.support.foreign import toml_of
from pipesched.support.source import Source, Span

HALF = Fraction(1, 2)
"""The default fraction of peak FLOP/s that a device achieves in matrix products. Reported: 44 to 52 % on A100 by
Narayanan et al. (SC 2021, table 1), 38 to 43 % on H100 by Dubey et al. (2024, table 4), bubbles included.
"""


@dataclass(frozen=True)
class Device:
    """A device, and the source of its figures."""

    name: str
    flops: Fraction
    memory: Fraction
    node: Fraction
    network: Fraction
    host: Fraction
    node_size: int = 8
    source: str = ""
    hbm: Fraction = Fraction(0)
    multiprocessors: int = 0
    gemm: str = ""
    usable: Fraction = Fraction(0)

    @property
    def offered(self) -> Fraction:
        """The bytes that a process can use: the amount that the driver offers, or the size of the memory."""
        return self.usable or self.memory


_UNITS: Mapping[str, int] = {
    **{f"{prefix}B": 10**power for prefix, power in (("K", 3), ("M", 6), ("G", 9), ("T", 12))},
    **{f"{prefix}iB": 2**power for prefix, power in (("K", 10), ("M", 20), ("G", 30), ("T", 40))},
    **{f"{prefix}FLOP": 10**power for prefix, power in (("G", 9), ("T", 12), ("P", 15))},
    "B": 1,
}
_WRITTEN = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,9})?(?:e[0-9]{1,2})?)\s*([KMGTP]?i?B|[GTP]FLOP)?(/s)?\s*")
MOST = 10**24
_RATES = ("flops", "node", "network", "host", "hbm")


def amount(value: object, *, unit: str = "B", rate: bool = False) -> Fraction | None:
    """Parse a number of bytes or of FLOP, per second if `rate`, such as ``80GB`` or ``300 GB/s``; return None for
    anything else, or for more than any machine has.
    """
    found = _written(value, unit, rate)
    return found if found is not None and 1 <= found <= MOST else None


def _written(value: object, unit: str, rate: bool) -> Fraction | None:
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[2] and not found[2].endswith(unit)) or bool(found[3]) != (rate and bool(found[2])):
        return None
    return Fraction(found[1]) * _UNITS[found[2] or "B"]


def _built_in() -> Iterator[tuple[str, Device]]:
    """Yield the devices of devices.toml by name; the keys in the file are the fields of `Device`."""
    table = toml_of(Path(__file__).with_name("devices.toml").read_text("utf-8"))
    for name, row in cast("dict[str, dict[str, object]]", table).items():
        given = {
            key: _amount_of(key, value) if key in (*_RATES, "memory", "usable") else value for key, value in row.items()
        }
        yield name, _device(name=name, **given)


def _amount_of(key: str, value: object) -> Fraction | None:
    return amount(value, unit="FLOP" if key == "flops" else "B", rate=key in _RATES)


_device: Callable[..., Device] = Device
DEVICES: Mapping[str, Device] = dict(_built_in())
_KINDS = {"flops": "FLOP/s, such as 400e12 or '400 TFLOP/s'", "memory": "bytes, such as '80 GB'"}
_LINK, _NUMBER = "bytes per second, such as '300 GB/s'", "a positive whole number"
_WHAT = {
    **_KINDS,
    "node": _LINK,
    "network": _LINK,
    "host": _LINK,
    "node_size": _NUMBER,
    "hbm": _LINK,
    "multiprocessors": _NUMBER,
    "usable": _KINDS["memory"],
    "like": f"one of {', '.join(DEVICES)}",
}
_NAME, _SYNTAX, _KEY, _VALUE = (
    PlanningCode.NO_DEVICE,
    PlanningCode.DEVICE_SYNTAX,
    PlanningCode.DEVICE_KEY,
    PlanningCode.DEVICE_VALUE,
)
_REQUIRED = ("flops", "memory", "node", "network", "host")


def read(path: str) -> Device:
    """Return the device with a name in DEVICES, or from a TOML file; ``h100,node_size=4`` changes a key.

    Raises:
        PipeschedError: PS240: the device is unknown; PS241 to PS243: the file has errors; PS809.
    """
    name, *others = [path] if os.path.exists(path) else path.split(",")
    found = _named(name)
    if not others:
        return found
    changed: Callable[..., Device] = partial(replace, found)
    given = dict(map(_other, others))
    if "memory" in given:  # the driver's figure was of the other memory
        given.setdefault("usable", Fraction(0))
    return changed(**given, name=path, source=found.source if name.lower() in DEVICES else path)


def _other(text: str) -> tuple[str, Fraction | int | str]:
    key, _, value = (part.strip() for part in text.partition("="))
    if key not in _WHAT:
        raise fail(_KEY, f"a device has no {key[:60]!r}", help=f"its keys are {', '.join(_WHAT)}")
    made = _read(key, int(value) if value.isdecimal() and len(value) < 16 else value)
    if made is None:
        raise fail(_VALUE, f"{key} is {value[:60]!r}, not {_WHAT[key]}")
    return _field(key), made


def _field(key: str) -> str:
    """Return the name of the `Device` field that a key in a file sets."""
    return "gemm" if key == "like" else key


def _named(path: str) -> Device:
    name = path.lower()
    if name in DEVICES:
        return DEVICES[name]
    if path != "-" and "/" not in path and not path.endswith(".toml") and not os.path.exists(path):
        close = get_close_matches(name, DEVICES, 1, 0.5)
        help = f"did you mean `{close[0]}`?" if close else f"give a .toml file, or one of {', '.join(DEVICES)}"
        raise fail(_NAME, f"unknown device {path!r}", help=help)
    return of_source(inputs.read_path(path))


def of_source(source: Source) -> Device:
    """Read a device from TOML text.

    Raises:
        PipeschedError: PS241 to PS243, with all errors in the file.
    """
    values, places = toml.read(source, _SYNTAX, toml.exact)
    if found := list(_faults(source, values, places)):
        raise PipeschedError(found)
    given = {_field(key): _read(key, values[f"device.{key}"]) for key in _WHAT if f"device.{key}" in values}
    title = values.get("device.name", Path(source.name).name.removesuffix(".toml"))
    return _device(**{"name": str(title), **given, "source": source.name})


def _read(key: str, value: object) -> Fraction | int | str | None:
    if key == "like":
        return DEVICES[value].gemm if isinstance(value, str) and value in DEVICES else None
    if key in ("node_size", "multiprocessors"):
        return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**20 else None
    return _amount_of(key, value)


def _faults(source: Source, values: Mapping[str, object], places: Mapping[str, Span]) -> Iterator[Diagnostic]:
    for key, value in values.items():
        last, where = key.removeprefix("device."), toml.place(key, places)
        if key == last or last not in (*_WHAT, *(one.name for one in fields(Device))):
            close = get_close_matches(last, _WHAT, 1, 0.6)
            help = f"did you mean device.{close[0]}?" if close else f"keys of [device] are {', '.join(_WHAT)}"
            yield Diagnostic(_KEY, f"a device has no {key}", (Label(where, "no such key"),), (), help)
        elif last in _WHAT and _read(last, value) is None:
            said = str(value) if isinstance(value, Fraction | int) else repr(value)
            message = f"{last} is {said[:60]}, not {_WHAT[last]}"
            yield Diagnostic(_VALUE, message, (Label(where, f"not {_WHAT[last]}"),))
    for key in _REQUIRED:
        if f"device.{key}" not in values:
            where = places.get("device") or source.span(0, min(1, len(source.text)))
            label, help = Label(where, f"{key} is missing"), f"write {key} = …, {_WHAT[key]}"
            yield Diagnostic(_KEY, f"{source.name} lacks device.{key}", (label,), (), help)
