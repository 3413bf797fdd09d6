"""With a cap in bytes, the bytes left for activations equal a computation by hand, and no answer exceeds the cap by a
byte."""

from __future__ import annotations

import json
from fractions import Fraction as Q

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import pipesched
from pipesched import PipeschedError
from pipesched.__main__ import main
from pipesched.library.assets import asset
from pipesched.optimizer import optimize_bytes
from pipesched.planning.byte_counts import Bytes
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.support.source import Source

S, B, H, A, V, LAYERS = 64, 2, 48, 4, 96, 8
SBH = S * B * H
MODEL = (Transformer(layers=LAYERS, hidden=H, heads=A, vocabulary=V, sequence=S), Training(microbatch=B))
STATES = [18 * (4 * (12 * H * H + 13 * H) + more) for more in ((V + S) * H, (V + 2) * H)]
"""18 bytes a parameter; the first stage has V h and s h, the last V h and the 2 h of a norm."""
SAVED = [4 * 34 * SBH + SBH, 4 * 34 * SBH + 4 * SBH + 4 * S * B * V]
WHOLE = 18 * SBH
"""Inside a B of one layer, 16 of the feed-forward part and 2 that arrive; the head of the last stage has freed more."""


def cap(rank: int, activations: Q | int) -> Bytes:
    """Return the bytes that a rank needs for a number of microbatches, and for four messages of 2 s b h."""
    return Bytes(STATES[rank] + int(activations * SAVED[rank]) + WHOLE + 4 * 2 * SBH + 1000)


def test_a_cap_in_bytes_is_what_is_left_for_activations() -> None:
    """By hand, two stages hold 3.5 and 2 microbatches; fused, so that nothing is kept for W. M is rounded up
    and the caps down, each by a hundredth at most.
    """
    found = pipesched.optimize(p=2, m=4, backward="fused", model=MODEL, mem_cap=[cap(0, Q(7, 2)), cap(1, 2)])
    assert found.proved and found.instance.caps is not None
    sizes = found.instance.costs.given["M"]
    assert isinstance(sizes, tuple) and min(sizes) == 1
    for rank, count in enumerate((Q(7, 2), Q(2))):
        own = found.instance.caps[rank] / sizes[rank]
        assert count * Q(97, 100) <= own < count + Q(1, 4)
    assert found.makespan == 15 and found.peak[0] == 2 * sizes[0]  # 1F1B: (m + p - 1) (F + B)


@pytest.mark.parametrize("backward", ["split", "fused"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_answer_is_within_the_bytes(count: int, backward: str) -> None:
    """The bytes are counted operation by operation, for the printed file too, under the same flags."""
    caps = [cap(0, count), cap(1, count)]
    found = pipesched.optimize(p=2, m=6, backward=backward, model=MODEL, mem_cap=caps)
    used = found.report.bytes
    assert found.report.ok
    assert all(total <= most for total, most in zip(used.total, caps, strict=True))
    again = pipesched.verify(Source("again.ps", found.source), model=MODEL, mem_cap=caps)
    assert again.ok and again.bytes.total == used.total, str(again)
    assert "the cap is in bytes" in str(found) and "optimizer  activations" in str(found)


def test_messages_beyond_what_is_set_aside_are_set_aside_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing set aside an answer may hold too many; another attempt fits."""
    monkeypatch.setattr(optimize_bytes, "MESSAGES", 0)
    for more in range(0, 12, 2):
        caps = [Bytes(cap(r, 3) - 4 * 2 * SBH + more * SBH) for r in range(2)]
        used = pipesched.optimize(p=2, m=6, backward="fused", model=MODEL, mem_cap=caps).report.bytes
        assert all(total <= most for total, most in zip(used.total, caps, strict=True))


@pytest.mark.parametrize(
    ("caps", "code", "said"),
    [
        ((STATES[0] - 1, cap(1, 2)), "PS503", "rank 0"),
        ((cap(0, 2), STATES[1] - 1), "PS503", "rank 1"),
        ((cap(0, Q(1, 2)), cap(1, 2)), "PS504", "rank 0 must be able to hold"),
        ((cap(0, 2), cap(1, Q(1, 2))), "PS504", "rank 1 must be able to hold"),
    ],
)
def test_what_cannot_fit_is_refused_by_rank(caps: tuple[int, int], code: str, said: str) -> None:
    """The refusal is for parameters and their state alone, or with one microbatch."""
    with pytest.raises(PipeschedError, match=f"{code}.*{said}"):
        pipesched.optimize(p=2, m=4, backward="fused", model=MODEL, mem_cap=[Bytes(one) for one in caps])


def test_what_i_leaves_counts_where_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted on every stage like on the largest, two microbatches give a slower order; both fit."""
    room, caps = optimize_bytes.room, [cap(0, 2), cap(1, 2)]
    found = pipesched.optimize(p=2, m=6, model=MODEL, mem_cap=caps)
    monkeypatch.setattr(optimize_bytes, "room", lambda *way, **rest: room(*way, **{**rest, "until_w": True}))
    safe = pipesched.optimize(p=2, m=6, model=MODEL, mem_cap=caps)
    assert found.makespan < safe.makespan
    for one in (found, safe):
        assert all(total <= most for total, most in zip(one.report.bytes.total, caps, strict=True))


def test_schedules_are_compared_in_bytes() -> None:
    """Each row has the bytes of `verify`, by rank; a row over the cap has that verdict; the bound is for any memory."""
    given = {"p": 4, "m": 8, "model": "llama3-70b", "device": "h100", "mem_cap": "55GB"}
    found = pipesched.compare("1f1b", "zb_h1", **given)
    for row, name in zip(found.rows, ("1f1b", "zb_h1"), strict=True):
        alone = pipesched.verify(name, **given)
        assert row.bytes == alone.bytes.total and row.diagnostics == alone.diagnostics
    assert found.exit_status == 1 and "PS502: rank 3 needs" in str(found) and "fullest rank" in str(found)
    assert found.rows[0].bound == pipesched.compare("1f1b", **{**given, "mem_cap": None}).rows[0].bound


def test_the_command_prints_the_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """The fastest that fits 60 GB, with the bytes by rank, and the direction of rounding; a range
    of bytes is refused.
    """
    command = ["optimize", "--p", "4", "--m", "8", "--model", "llama3-70b", "--device", "h100", "--mem-cap"]
    assert main([*command, "60GB"]) == 0
    told = capsys.readouterr().out
    assert (
        "proved optimal" in told
        and "of cap 60 GB" in told
        and "an order slightly above these caps may still fit" in told
    )
    assert main([*command, "60GB", "--json"]) == 0
    found = json.loads(answer := capsys.readouterr().out)
    assert any("the cap is in bytes" in note for note in found["notes"])
    schema = json.loads(asset("emit", "optimum.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(found)
    given = {"model": "llama3-70b", "device": "h100", "mem_cap": "60GB"}
    assert found["bytes"] == pipesched.verify(Source("found.ps", found["source"]), **given).to_json()["bytes"]
    assert pipesched.verify(Source("found.json", answer)).ok
    assert main([*command, "40GB..60GB"]) == 2
    assert "caps in bytes cannot form a range" in capsys.readouterr().err
