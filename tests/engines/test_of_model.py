"""The parts of a model's layers add up to the costs on the device, and only parts of experts communicate."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main

DEVICE = ["--device", "h100", "--efficiency", "40%"]
MIXED = ["--model", "deepseek-v3,batch=64,expert=8,data=8", *DEVICE]
DENSE = ["--model", "llama3-70b,batch=64", *DEVICE]


def costs(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    """Return the JSON of `verify`."""
    main(["verify", *command, "--json"])
    return dict(json.loads(capsys.readouterr().out))


def by_stage(value: object, stages: int) -> list[Fraction]:
    """Return a cost as one number a stage."""
    return [Fraction(x) for x in value] if isinstance(value, list) else [Fraction(str(value))] * stages


@pytest.mark.parametrize("model", [MIXED, DENSE], ids=["experts", "dense"])
@pytest.mark.parametrize("name", ["zb_v", "interleaved_overlap"])
def test_sums_are_the_costs_on_the_device(name: str, model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """F, I, W and C of every stage, to a nanosecond for each part; the makespan is at most the one without parts."""
    size = [name, "--p", "4", "--m", "8", *model]
    whole, made = costs(capsys, *size), costs(capsys, *size, "--parts", "model")
    for key in "FIWC":
        pairs = zip(by_stage(whole["time"]["costs"][key], 8), by_stage(made["time"]["costs"][key], 8), strict=True)
        assert all(abs(x - y) <= Fraction(300, 10**6) for x, y in pairs), key
    assert Fraction(made["time"]["makespan"]) <= Fraction(whole["time"]["makespan"]) + Fraction(1, 100)
    assert (Fraction(made["exposed"]["all"][0]) > 0) == (model is MIXED)


def test_layers_without_experts_do_not_meet(capsys: pytest.CaptureFixture[str]) -> None:
    """Three of the first layers of DeepSeek-V3 are dense: the first stage has less communication than its share."""
    all_of = costs(capsys, "zb_v", "--p", "4", "--m", "8", *MIXED, "--parts", "model")["exposed"]["all"]
    assert Fraction(all_of[0]) < Fraction(all_of[2])


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["--parts", "model"], "PS225", "needs --model"),
        (["--parts", "model", "--model", "llama3-70b,batch=64", "--device", "h100"], "PS225", "needs --efficiency"),
        (["--parts", "deepseek-v3", *DENSE], "PS225", "both determine the costs"),
        (
            ["--parts", "model", "--model", "deepseek-v3,batch=64,expert=8,data=8", "--device", "h100"],
            "PS225",
            "needs --efficiency",
        ),
        (["--parts", "model", "--model", "llama3-70b,batch=64,recompute=full", *DEVICE], "PS264", "recomputation"),
        (["--parts", "model", "--model", "llama3-70b,batch=64,zero=3,data=4", *DEVICE], "PS264", "ZeRO 3"),
    ],
)
def test_what_does_not_follow_is_refused(
    command: list[str], code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused are a missing part, a second source of costs, and training with times that parts do not contain."""
    found = costs(capsys, "1f1b", "--p", "4", "--m", "8", *command)["diagnostics"]
    assert [x["code"] for x in found] == [code] and said in found[0]["message"]


def test_why_says_what_binds() -> None:
    """Exposed time, and the engines on the critical path, which together are as long as the makespan."""
    for name in ("interleaved_overlap", "zb_v", "dualpipe"):
        why = pipesched.why(name, p=4, m=8, parts="deepseek-v3")
        value: Any = why.to_json()
        assert sum(map(Fraction, value["exposed"]["path"].values())) == Fraction(value["makespan"])
        assert "parts on the critical path" in str(why) and "over all ranks " in str(why)
    assert "exposed" not in pipesched.why("zb_v", p=4, m=8).to_json()
