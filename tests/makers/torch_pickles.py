"""Pickles as torch's C++ code writes them for the flight recorder's dumps, in which only repeated strings are
references."""

from __future__ import annotations

import struct


def dumps(value: object) -> bytes:
    """Return the pickle of tables, lists, tuples of two, texts, numbers, truth values and None."""
    out, memo = bytearray(b"\x80\x02"), dict[str, int]()
    _add(value, out, memo)
    return bytes(out + _put(len(memo)) + b".")


def _put(at: int) -> bytes:
    return b"q" + bytes([at]) if at < 256 else b"r" + struct.pack("<I", at)


def _text(value: str, out: bytearray, memo: dict[str, int]) -> None:
    if value in memo:
        at = memo[value]
        out += b"h" + bytes([at]) if at < 256 else b"j" + struct.pack("<I", at)
        return
    data, at = value.encode(), len(memo)
    memo[value] = at
    out += b"X" + struct.pack("<I", len(data)) + data + _put(at)


def _number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _add(value: object, out: bytearray, memo: dict[str, int]) -> None:
    if value is None or isinstance(value, bool):
        out += b"N" if value is None else b"\x88" if value else b"\x89"
    elif isinstance(value, float):
        out += b"G" + struct.pack(">d", value)
    elif isinstance(value, int):
        out += _number(value)
    elif isinstance(value, str):
        _text(value, out, memo)
    elif isinstance(value, tuple):
        for part in value:
            _add(part, out, memo)
        out += b"\x86"
    elif isinstance(value, list):
        out += b"]("
        for part in value:
            _add(part, out, memo)
        out += b"e"
    else:
        assert isinstance(value, dict)
        out += b"}("
        for key, part in value.items():
            _text(key, out, memo)
            _add(part, out, memo)
        out += b"u"
