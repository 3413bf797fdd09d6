"""The beginning of a file determines its reader."""

from __future__ import annotations

import pytest

from pipesched.formats.readers import reader_of
from pipesched.support.source import Source

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.ps", "0F0,0F1\n", "ps"),
        ("a.CSV", "schedule x(p)\n", "torch-csv"),
        ("a.txt", "# note\n\nrank 0: F0.0\n", "order"),
        ("a.txt", "rank 0: \nrank 1: F0.0 B0.0\n", "order"),
        ("a.txt", "rank 0:\nrank 1:\n", "order"),
        ("a.txt", "rnk 0: F0.0 B0.0\n", "order"),
        ("a.txt", "rank one 0: F0.0\n", "order"),
        ("a.json", "schedule x(p)\n", "stream"),
        ("-", '\n {"version": 2}', "stream"),
        ("-", '{"source": "", "certificate": {}}', "answer"),
        ("-", "0F0,0F1\n", "torch-csv"),
        ("-", ",0F0\n", "torch-csv"),
        ("-", "(3F0;3B1)OVERLAP_F_B,3F1\n", "torch-csv"),
        ("-", '"0F0",0F1\n', "torch-csv"),
        ("-", "# a comment\nschedule gpipe(p)\n", "ps"),
        ("-", "", "ps"),
    ],
)
def test_sniff(name: str, text: str, expected: str) -> None:
    """A known file ending determines the reader, otherwise the first meaningful line."""
    assert reader_of(Source(name, text)).name == expected
