"""Every supported Python gives the same answer for a file, although its libraries differ between releases.

The words and places are from Lib/json/decoder.py of CPython 3.13.
"""

from __future__ import annotations

import json

import pytest

from pipesched.support.foreign import json_of

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ('{"a": 1,\n}', "Illegal trailing comma before end of object", 7),
        ('{"a": 1 , }', "Illegal trailing comma before end of object", 8),
        ("[1, 2,\t]", "Illegal trailing comma before end of array", 5),
        ('{"é\\n": [{"b": 1,}]}', "Illegal trailing comma before end of object", 16),
        ('{"a": 1,]', "Expecting property name enclosed in double quotes", 8),
        ("[1,}", "Expecting value", 3),
        ("[,]", "Expecting value", 1),
        ("[", "Expecting value", 1),
        ('{"a": ]', "Expecting value", 6),
        ("{'a': 1}", "Expecting property name enclosed in double quotes", 1),
    ],
)
def test_broken_json_has_one_message(text: str, message: str, at: int) -> None:
    """The message names the fault and its place, under any Python."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json_of(text)
    assert (caught.value.msg, caught.value.pos) == (message, at)
