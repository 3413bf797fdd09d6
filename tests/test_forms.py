"""Lists, costs by stage and microbatch, and slices: what is wrong with them is told where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.makers.chunks import Chunk, check, chunks

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("chunk", chunks(DATA / "forms.ps"), ids=str)
def test_wrong_uses_are_told_where_they_are(chunk: Chunk) -> None:
    """Each line that is wrong has its finding, and no other line has one."""
    check(chunk)
