"""Data exchanged between ranks comes back unchanged, is never executed as code, and is escaped and truncated when
shown."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import pipesched.runtime
from pipesched.runtime.execute.errors import LONGEST, Fault, Place, RunError
from pipesched.runtime.execute.exchange import _value
from pipesched.runtime.execute.fingerprints import Card
from pipesched.runtime.execute.shapes import TensorSpec

HOSTILE = "\x1b[2J\u202eok\r\n::add-mask::x\0"


def test_no_pickle_between_ranks() -> None:
    """No module of the runtime names pickle, or a call of torch that pickles."""
    for file in Path(pipesched.runtime.__file__).parent.glob("*.py"):
        tree = ast.walk(ast.parse(file.read_text("utf-8")))
        names = {getattr(x, key, "") or "" for x in tree for key in ("id", "attr", "name", "module")}
        assert not {x for x in names if x.endswith(("_object", "_object_list")) or "pickle" in x}, file
        assert not names & {"TCPStore", "marshal", "shelve"}, file


@pytest.mark.parametrize("text", [b"", b"\x80\x04N.", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_names_its_sender(text: bytes) -> None:
    with pytest.raises(ValueError, match="rank 3"):
        _value(3, torch.tensor(list(text), dtype=torch.uint8))


def test_a_fault_of_a_stranger_is_fit_to_be_shown() -> None:
    """Every shown character is printable, and their number is bounded."""
    sent = Fault("PS822", HOSTILE * 1000, Place(1, 2, 3, HOSTILE, HOSTILE), (HOSTILE,) * 5000, HOSTILE)
    shown = str(Fault.loads(sent.dumps()))

    assert all(line.isprintable() for line in shown.split("\n"))
    assert len(Fault.loads(sent.dumps()).message) == LONGEST
    assert len(shown) < 100_000


GOOD: dict[str, Any] = {"code": "PS822", "message": "m", "place": None, "notes": [], "help": None}


@pytest.mark.parametrize(
    "change",
    [
        {"code": "PS8222"},
        {"code": "\x1b"},
        {"code": 822},
        {"message": None},
        {"message": ["m"]},
        {"place": {}},
        {"place": {"rank": "1", "step": 0, "instruction": 0, "text": "", "waits": ""}},
        {"place": {"rank": 1, "step": 0.5, "instruction": 0, "text": "", "waits": ""}},
        {"place": 3},
        {"notes": 3},
        {"notes": [None]},
        {"help": {}},
    ],
    ids=str,
)
def test_what_is_no_fault_is_refused(change: dict[str, Any]) -> None:
    assert Fault.loads(json.dumps(GOOD)).message == "m"
    with pytest.raises(ValueError, match="this is not"):
        Fault.loads(json.dumps(GOOD | change))


@pytest.mark.parametrize("sent", [None, [], 3, {}, {"fingerprint": 1, "title": "t", "note": {}}])
def test_what_is_no_card_is_another_version(sent: Any) -> None:
    with pytest.raises(RunError, match=r"PS821.*rank 2 sent"):
        Card.of(2, sent)


def test_specs_come_back() -> None:
    for spec in (TensorSpec((), torch.float64), TensorSpec((2, 0, 3), torch.bfloat16), TensorSpec((4,), torch.int64)):
        assert TensorSpec.of_plain(json.loads(json.dumps(spec.plain()))) == spec
    for sent in ([[2], "load"], [[-1], "float32"], [["2"], "float32"]):
        with pytest.raises(ValueError, match="is not the dtype and shape"):
            TensorSpec.of_plain(sent)
