"""The bytes of a rank agree with a walk over the program, one instruction at a time, with sizes from the papers."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction as Q

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import pipesched
from pipesched.__main__ import main
from pipesched.library.assets import asset
from pipesched.model.schedule import Schedule
from pipesched.planning.footprint import CHANGING, Footprint, footprint
from pipesched.planning.transformer.config import Trained, Training, Transformer
from pipesched.planning.transformer.model_file import read
from pipesched.planning.workload import Workload
from pipesched.schedule_analysis import Analysis

S, B, H, A, V, LAYERS = 64, 2, 48, 4, 96, 8
SBH = S * B * H
GPT = Transformer(layers=LAYERS, hidden=H, heads=A, vocabulary=V, sequence=S)
PLAIN = Training(microbatch=B)
OF_A_LAYER = 12 * H * H + 13 * H


def walk(schedule: object, layers: list[int]) -> list[int]:
    """Peak bytes of each rank, of everything that changes.

    A GPT with flash attention and nothing split: 34 s b h a layer, s b h for the mask of the embedding, 4 s b h
    (1 + V / h) for the head; 22 s b h a layer from I to W, and on the last stage 2 s b h (1 + V / h) in the place of
    its logits, 4 s b V; 2 s b h a message. Gradients inside a layer: 16 s b h of the feed-forward part and 2 that
    arrive in a B, 8 of them in an I, 2 in a W, and of the first stage all in W. On the last stage a B has freed the
    head's by then, and before that makes 2 s b V of the loss; an I has the logits until its end. Bytes that B and W
    free count until the next operation begins, together with messages posted after them.
    """
    program = Analysis(schedule).program  # type: ignore[arg-type]
    assert program is not None
    last = len(layers) - 1
    found = []
    for rank in range(program.ranks):
        kept: dict[tuple[int, int], int] = {}
        stored: dict[tuple[int, int], int] = {}
        hand: set[tuple[str, int, int]] = set()
        most, inside, ran, freed = 0, 0, False, list[tuple[int, int]]()
        for x in program.instructions(rank):
            name, key = x.op.name, (x.stage, x.microbatch)
            own = 34 * SBH * layers[x.stage] if x.stage >= 0 else 0
            own += (SBH if x.stage == 0 else 0) + (4 * SBH + 4 * S * B * V if x.stage == last else 0)
            after = x.stage + (1 if name == "F" else -1)
            away = 0 <= after <= last and after % program.ranks != rank
            if name.startswith("RECV"):
                hand.add((name[-1] + "in", *key))
            elif name.startswith("SEND"):
                hand.discard((name[-1] + "out", *key))
            elif name in "FIWB":
                ran = True
                for old in freed:
                    del kept[old]
                    stored.pop(old, 0)
                freed = [key] if name in "BW" else []
                sbv, ends = S * B * V, x.stage == last
                whole = max(18 * SBH - 4 * SBH - 4 * sbv, 2 * sbv) if ends else 18 * SBH
                part = (8 * SBH + 4 * sbv * ends) * (x.stage > 0)
                inside = {"F": 0, "B": whole, "I": part, "W": 2 * SBH if x.stage else whole}[name]
                hand.discard(("Fin" if name == "F" else "Bin", *key))
                if away and name != "W":
                    hand.add(("Fout" if name == "F" else "Bout", *key))
                if name == "F":
                    kept[key] = own
                elif name == "I":
                    stored[key] = 22 * SBH * layers[x.stage] * (x.stage > 0) + (2 * SBH - 2 * sbv) * ends
            if ran:
                most = max(most, sum(kept.values()) + sum(stored.values()) + 2 * SBH * len(hand) + inside)
        found.append(most)
    return found


def counted(schedule: Schedule, trained: Trained) -> Footprint | None:
    """Count the bytes of a schedule for a model."""
    return Analysis(schedule, owned=(Workload(trained),)).fact(footprint)


@pytest.mark.parametrize("layout", [(2, 2, 2, 2), (1, 2, 2, 3)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1"])
def test_the_bytes_of_a_schedule_are_those_of_its_lists(name: str, layout: tuple[int, ...]) -> None:
    """The bytes have parameters, gradients and optimizer too, at 18 bytes per parameter; with an uneven layout each
    rank has its own.
    """
    schedule = pipesched.load(name, p=4, m=6)
    used = counted(schedule, (GPT, replace(PLAIN, layout=layout)))
    assert used is not None
    for rank, most in enumerate(walk(schedule, list(layout))):
        peak = used.peaks[rank]
        count = OF_A_LAYER * layout[rank] + (V + S) * H * (rank == 0) + (V + 2) * H * (rank == 3)
        assert [peak["parameters"], peak["gradients"], peak["optimizer"]] == [2 * count, 4 * count, 12 * count]
        assert sum(peak[kind] for kind in CHANGING) == most


def test_interleaved_stages_add_up() -> None:
    """The bytes of two stages per rank add up."""
    schedule = pipesched.load("interleaved", p=2, v=2, m=4)
    used = counted(schedule, (GPT, PLAIN))
    assert used is not None
    for rank, most in enumerate(walk(schedule, [2] * 4)):
        assert sum(used.peaks[rank][kind] for kind in CHANGING) == most


def test_what_zero_divides_is_whole_in_one_layer() -> None:
    """4 bytes per parameter of a layer in B under ZeRO 2, 2 more under ZeRO 3, which F has too; over one rank, none.
    The head of the last stage, with its norm, is larger than a layer.
    """
    schedule, head = pipesched.load("gpipe", p=2, m=2), (400 + 2) * H
    for zero, data, least, most in ((1, 2, 0, 0), (2, 2, 0, 4), (3, 2, 2, 6), (3, 1, 0, 0)):
        way, model = replace(PLAIN, zero=zero, data=data), replace(GPT, vocabulary=400)
        found, alone = (counted(schedule, (model, one)) for one in (way, replace(way, zero=0)))
        assert found is not None and alone is not None
        more = (found.held["working"] - alone.held["working"]).tolist()
        first = max(OF_A_LAYER, (400 + S) * H)
        assert (
            more
            == [first * least] * 2
            + [first * most] * 2
            + [max(OF_A_LAYER, head) * least] * 2
            + [max(OF_A_LAYER, head) * most] * 2
        )


def test_both_copies_of_a_bidirectional_schedule_count() -> None:
    """DualPipe holds two stages of each rank, so twice the parameters of the model over all ranks."""
    used = counted(pipesched.load("dualpipe", p=4, m=8), (GPT, PLAIN))
    once = counted(pipesched.load("1f1b", p=4, m=8), (GPT, PLAIN))
    assert used is not None and once is not None
    assert sum(x.parameters for x in used.states) == 2 * sum(x.parameters for x in once.states)


def test_recomputation_keeps_inputs_and_works_on_one_layer() -> None:
    """2 s b h per layer, and while a backward runs the other 32 of one layer, and its gradients."""
    used = counted(pipesched.load("1f1b", p=4, m=8), (GPT, replace(PLAIN, recompute="full")))
    assert used is not None
    middle = used.peaks[1]
    assert (middle["activations"], middle["working"]) == (3 * 2 * 2 * SBH, (32 + 18) * SBH)
    assert str(used.schedule[used.peak_at[1]])[0] == "B"


def test_a_forward_that_is_run_again_keeps_the_input_of_its_stage() -> None:
    """With R in the schedule, the rank keeps 2 s b h from F to R, and everything from R to B."""
    text = "schedule again(p, m = 4)\nstage s in 0 .. p on rank s\nrank r { repeat m { F }  repeat m { R  B } }\n"
    used = counted(pipesched.load(pipesched.Source("again.ps", text), p=2), (GPT, PLAIN))
    assert used is not None
    peak = used.held["activations"][used.schedule.rank == 1].max()
    assert peak == 4 * 34 * SBH + 4 * SBH + 4 * S * B * V + 3 * 2 * SBH


LLAMA = [  # Dubey et al. 2024, table 4: tokens, batch of a copy, t, c, p, d
    (8192, 32, 8, 1, 16, 64),
    (8192, 16, 8, 1, 16, 128),
    (131072, 16, 8, 16, 16, 8),
]


@pytest.mark.parametrize(("tokens", "batch", "t", "c", "p", "d"), LLAMA)
def test_the_rows_of_llama_3_fit_80_gb(tokens: int, batch: int, t: int, c: int, p: int, d: int) -> None:
    """Microbatches of one sequence fit; without context parallelism 131,072 tokens do not fit."""
    model, training = read("llama3-405b")
    model = replace(model, sequence=tokens)
    training = replace(training, tensor=t, context=c, data=d, batch=batch * d)
    report = pipesched.verify("1f1b", p=p, m=batch, model=(model, training), mem_cap="80GB")
    assert report.ok, str(report)
    if c > 1:
        alone = pipesched.verify("1f1b", p=p, m=batch, model=(model, replace(training, context=1)), mem_cap="80GB")
        assert str(alone.fault.code if alone.fault else "") == "PS502"


def test_the_verdict_has_the_place_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A rank over its cap gives PS502 at the first operation over it, exit status 1, and the bytes under the published
    schema."""
    command = ["verify", "1f1b", "--p", "4", "--m", "8", "--model", "megatron-7.5b", "--mem-cap", "10GB"]
    assert main([*command, "--json"]) == 1
    made = json.loads(capsys.readouterr().out)
    schema = json.loads(asset("emit", "report.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(made)
    for rank in made["bytes"]["ranks"]:
        kinds = ("parameters", "gradients", "optimizer", "activations", "for_W", "messages", "working")
        assert rank["total"] == sum(rank[kind] for kind in kinds)
        assert rank["cap"] == 10**10 and rank["room"] == rank["cap"] - rank["total"]
    codes = [one["code"] for one in made["diagnostics"]]
    assert "PS502" in codes and made["diagnostics"][0]["labels"][0]["line"] is not None


def test_the_rank_furthest_over_its_cap_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    """All microbatches of GPipe are alive on every rank: the last, which makes the logits, needs the most bytes."""
    assert (
        main(["verify", "gpipe", "--p", "4", "--m", "8", "--model", "llama3-70b", "--mem-cap", "60GB", "--json"]) == 1
    )
    made = json.loads(capsys.readouterr().out)
    totals = [rank["total"] for rank in made["bytes"]["ranks"]]
    named = [int(one["message"].split()[1]) for one in made["diagnostics"] if one["code"] == "PS502"]
    assert max(totals) == totals[3] > totals[0] and named == sorted(range(4), key=lambda rank: -totals[rank])[:3]


@pytest.mark.parametrize(
    ("cap", "said"),
    [("80GB", "not a number of activations"), ("80Gb", "units are"), ("50%", "give a number, such as half of m")],
)
def test_bytes_without_a_model_mean_nothing(cap: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """PS225 is reported, with a remedy; for an unknown unit too."""
    assert main(["verify", "1f1b", "--p", "4", "--mem-cap", cap]) == 2
    assert said in capsys.readouterr().err


def test_a_plain_number_stays_a_number_of_activations() -> None:
    """A plain number is a number of activations, also with a model."""
    report = pipesched.verify("1f1b", p=4, m=8, model="megatron-1.7b", mem_cap=3)
    assert report.fault is not None and str(report.fault.code) == "PS501"


BUBBLES = [  # Narayanan et al., SC 2021: (p, v, m) of the larger rows, per cent as overhead (p - 1) / (v m)
    (2, 3, 48, "0.7"),
    (4, 5, 56, "1.1"),
    (8, 5, 96, "1.4"),
    (16, 6, 144, "1.7"),
    (35, 3, 280, "3.9"),
    (64, 2, 512, "5.8"),
]


@pytest.mark.parametrize(("p", "v", "m", "printed"), BUBBLES)
def test_the_bubbles_of_megatron(p: int, v: int, m: int, printed: str) -> None:
    """The bubbles agree with the timeline of the interleaved schedule."""
    made = Analysis(pipesched.load("interleaved", p=p, v=v, m=m)).idle
    assert made is not None
    assert f"{float(made.bubble) * 100:.1f}" == printed
    assert made.bubble == Q(p - 1, v * m + p - 1)


def test_what_is_offloaded_is_in_host_memory() -> None:
    """From its O to its L an activation is in host memory with all bytes that its F has taken; meanwhile the rank is
    without them."""
    schedule = pipesched.load("pipeoffload", p=4, m=8)
    made = Analysis(schedule, owned=(Workload((GPT, PLAIN)),))
    used, counted = made.fact(footprint), made.memory.host
    assert used is not None and used.host is not None and counted is not None
    stages = schedule.stages  # in a rank's peak a stage counts as ranks / stages
    middle = [
        rank for rank in range(4) if not {0, schedule.stages - 1} & {s for _, s in schedule.placement.chunks(rank)}
    ]
    for rank in middle:
        assert used.host[rank] == counted[rank] * stages / 4 * 34 * SBH * LAYERS / stages


def test_more_than_any_machine_has_is_refused() -> None:
    """PS233 is reported, without an overflow."""
    report = pipesched.verify("1f1b", p=2, m=4, model=(replace(GPT, hidden=2**38, heads=1, head_size=1), PLAIN))
    assert report.fault is not None and str(report.fault.code) == "PS233"


def most(schedule: object, trained: object = (GPT, PLAIN)) -> tuple[list[int], str]:
    """Return the most activations by rank, and the assumptions."""
    used = counted(schedule, trained)  # type: ignore[arg-type]
    assert used is not None
    found = [int(used.held["activations"][used.schedule.rank == rank].max()) for rank in range(used.schedule.ranks)]
    return found, " ".join(used.assumed)


OF_HEAD = 4 * SBH + 4 * S * B * V


def test_mario_keeps_the_inputs_of_the_forwards_that_wait() -> None:
    """In Liu et al. 2025, rank r keeps min(p - r, m) - 1 inputs of 2 s b h and all of one microbatch. Tokens that enter
    the first stage are not counted. The two kinds of recomputation are distinguished.
    """
    found, said = most(pipesched.load("mario", p=4, m=8))
    one = 2 * 34 * SBH
    assert found == [one + SBH, one + 2 * 2 * SBH, one + 2 * SBH, one + OF_HEAD]
    assert "recomputation inside a backward: none" in said and "recomputes 24 forwards of whole stages" in said
    report = str(pipesched.verify("mario", p=4, m=8, model=(GPT, PLAIN)))
    assert "in bytes, it keeps the input of its stage" in report and "which is assumed" not in report


@pytest.mark.parametrize("attention", ["flash", "standard"])
def test_a_slice_has_its_share_of_a_sequence(attention: str) -> None:
    """In Sun et al. 2024, a rank holds min(p - 1 - r + q, m) slices of s / q tokens each, which attend to all s;
    messages have their share too."""
    q, way = 2, replace(PLAIN, attention=attention)
    found, said = most(pipesched.load("seq1f1b", p=4, m=16, q=q), (GPT, way))
    scores = 5 * A * S * S * B if attention == "standard" else 0
    layer, extra = 34 * SBH + scores, [SBH, 0, 0, OF_HEAD]
    assert found == [(3 - r + q) * (2 * layer + extra[r]) // q for r in range(4)]
    assert "one of 2 slices of a sequence, 32 tokens" in said
    whole, cut = (counted(pipesched.load("seq1f1b", p=2, m=4, q=n), (GPT, PLAIN)) for n in (1, 2))
    assert whole is not None and cut is not None
    assert whole.held["messages"].max() == 2 * cut.held["messages"].max() > 0


def test_a_batch_of_slices_is_counted_in_slices() -> None:
    """16 sequences of 2 slices are 32 microbatches of the schedule: PS909 at 16, but not at 32."""
    model = (GPT, replace(PLAIN, microbatch=1, batch=16))
    warned = [pipesched.verify("seq1f1b", p=4, m=m, q=2, model=model).diagnostics for m in (16, 32)]
    assert [[str(one.code) for one in found] for found in warned] == [["PS909"], []]
    assert "but the model's batch implies 32" in warned[0][0].message


def test_without_a_backward_a_layer_is_held_at_once() -> None:
    """At most one layer is held at once, with a note; on the last stage the head makes more."""
    found, said = most(pipesched.load("forward_only", p=4, m=8))
    assert 34 * SBH > OF_HEAD
    assert found == [34 * SBH] * 4 and "without a backward an F keeps nothing: while it runs, it holds at most" in said
    wide = replace(GPT, vocabulary=50 * H)
    assert most(pipesched.load("forward_only", p=4, m=8), (wide, PLAIN))[0][3] == 4 * SBH + 4 * S * B * 50 * H


def test_a_frozen_stage_before_all_others_keeps_nothing() -> None:
    """The frozen stage holds one layer at once, no gradients and no optimizer; later stages equal the stages of
    1F1B."""
    schedule = pipesched.load("frozen_encoder", p=4, m=8, e=1)
    found, said = most(schedule)
    one = 2 * 34 * SBH
    assert found == [34 * SBH, 3 * one, 2 * one, one + OF_HEAD] and "an F of stage 0 keeps nothing" in said
    used = counted(schedule, (GPT, PLAIN))
    assert used is not None and (used.states[0].gradients, used.states[0].optimizer) == (0, 0)


def test_a_length_multiplies_and_an_m_of_stages_gives_way() -> None:
    """1F1B on rank 0 of 2 holds microbatches i and i + 1; M of a stage is the model's own."""
    lengths, one = (3, 1, 2, 2), 4 * 34 * SBH
    loaded = pipesched.load("packed", p=2, m=4, length=lengths)
    report = pipesched.verify("packed", p=2, m=4, length=lengths, model=(GPT, PLAIN))
    assert report.ok
    said = " ".join(report.bytes.assumed)
    assert "takes M times the bytes" in said and loaded.microbatches == 4
    peaks = [rank["activations"] for rank in report.bytes.ranks]
    assert peaks == [4 * (one + SBH), 3 * (one + OF_HEAD)]
    given, plain = (
        pipesched.verify("1f1b", p=2, m=4, model=(GPT, PLAIN), costs=cost) for cost in ({"M": [3, 1]}, {"F": 1})
    )
    assert given.bytes.ranks == plain.bytes.ranks
    assert "M of each stage comes from the model" in " ".join(given.bytes.assumed)


def test_both_routes_of_chimera_are_counted() -> None:
    """Rank r has stages r and 3 - r, with the optimizer state of each."""
    schedule = pipesched.load("chimera", p=4, m=4)
    used = counted(schedule, (GPT, PLAIN))
    assert used is not None
    count = [2 * OF_A_LAYER + (V + S) * H * (s == 0) + (V + 2) * H * (s == 3) for s in range(4)]
    for rank in range(4):
        assert used.states[rank].optimizer == 12 * (count[rank] + count[3 - rank])


def test_four_copies_are_counted() -> None:
    """In Chimera with two pairs at p=4, every rank has every stage, and so the states of the whole model."""
    used = counted(pipesched.load("chimera2", p=4, m=8), (GPT, PLAIN))
    assert used is not None
    whole = 8 * OF_A_LAYER + (V + S) * H + (V + 2) * H
    assert [one.optimizer for one in used.states] == [12 * whole] * 4


def test_a_u_net_keeps_every_microbatch() -> None:
    """In GPipe order every rank keeps all m microbatches; skips are separate messages."""
    found, _ = most(pipesched.load("unet", p=4, m=8))
    assert found == [8 * (2 * 34 * SBH + extra) for extra in (SBH, 0, 0, OF_HEAD)]


def test_a_frozen_stage_behind_a_trained_one_is_counted_from_above() -> None:
    """The stage has neither gradients nor optimizer; its activations are counted as in 1F1B, an upper bound, with a
    note."""
    text = """schedule middle(p = 4, m = 8)
stage s in 0 .. p on rank s
frozen s in 1 .. 2
rank r { repeat p - 1 - r { F }  repeat m - p + 1 + r { F  B }  repeat p - 1 - r { B } }
"""
    schedule = pipesched.load(pipesched.Source("middle.ps", text))
    found, said = most(schedule)
    one = 2 * 34 * SBH
    assert (
        found == [4 * (one + SBH), 3 * one, 2 * one, one + OF_HEAD]
        and "frozen stage 1: until its I, an F is counted as on a trained stage" in said
    )
    used = counted(schedule, (GPT, PLAIN))
    assert used is not None and (used.states[1].gradients, used.states[1].optimizer) == (0, 0)
