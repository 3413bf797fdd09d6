"""A Megatron setting is reported as an error, at its line, for exactly the releases that refuse it.

CASES were each given to Megatron-LM's own parser at the two releases beside them (`tests/trainers/megatron.py`). The
random fields are given to the Megatron-core that is installed: its TransformerConfig, its groups of ranks, its layers
of every stage and the first lines of its schedules decide what is refused.
"""

from __future__ import annotations

import ast
import builtins
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.interop.trainers import deepspeed, torchtitan
from pipesched.interop.trainers.deepspeed import Batch
from pipesched.interop.trainers.megatron_sizes import TABLES, Sizes
from pipesched.interop.trainers.tables import Facts, Tables
from pipesched.interop.trainers.torchtitan import Titan
from tests.depth import deep

TOP = Path(__file__).parents[2]
RELEASES = TABLES.releases
BASE = {
    "num-layers": "12",
    "hidden-size": "64",
    "num-attention-heads": "8",
    "max-position-embeddings": "64",
    "seq-length": "64",
    "micro-batch-size": "4",
    "global-batch-size": "32",
    "pipeline-model-parallel-size": "4",
    "position-embedding-type": "rope",
    "bf16": "true",
}
FILLED = re.compile(r"\{([^{}]+)\}")
EXPERTS = "num-experts 8, expert-model-parallel-size 2, moe-token-dispatcher-type alltoall"
COMBINED = f"{EXPERTS}, overlap-moe-expert-parallel-comm true, num-virtual-stages-per-pipeline-rank 3"
PARAMS = "use-distributed-optimizer true, overlap-grad-reduce true, overlap-param-gather true"
STEP = f"{PARAMS}, overlap-param-gather-with-optimizer-step true, ckpt-format torch"

CASES = (  # options laid over BASE; the first release that refuses, the first that takes them again; the code
    ("pipeline-model-parallel-size 1, decoder-last-pipeline-num-layers 4", "0.16", "", "PS877"),
    (
        "pipeline-model-parallel-size 2, decoder-first-pipeline-num-layers 6, decoder-last-pipeline-num-layers 6",
        "0.11",
        "0.13",
        "PS877",
    ),
    ("pipeline-model-parallel-size 1, num-layers-per-virtual-pipeline-stage 4", "0.9", "", "PS879"),
    ("pipeline-model-parallel-size 5, num-layers 10", "0.9", "", "PS876"),
    ("num-layers 14", "0.9", "", "PS877"),
    ("num-layers-per-virtual-pipeline-stage 2", "0.9", "", "PS877"),
    ("num-layers-per-virtual-pipeline-stage 1, decoder-first-pipeline-num-layers 3", "0.9", "", "PS879"),
    ("num-virtual-stages-per-pipeline-rank 2", "0.11", "", "PS877"),
    ("pipeline-model-parallel-layout E|(t|)*12L, account-for-loss-in-pipeline-split true", "0.13", "", "PS879"),
    ("hybrid-layer-pattern MM*-|MM*-", "0.17", "", "PS877"),
    ("hybrid-layer-pattern MM*|MM*|M|M, num-virtual-stages-per-pipeline-rank 2", "0.17", "", "PS879"),
    ("hybrid-layer-pattern MM*-MM", "0.17", "", "PS877"),
    ("hybrid-layer-pattern M|M|M|M, hybrid-override-pattern M|M|M|M", "0.17", "", "PS879"),
    (f"{COMBINED.replace('num-virtual-stages-per-pipeline-rank 3', 'recompute-modules mlp')}", "0.14", "", "PS879"),
    (f"{COMBINED}, expert-model-parallel-size 1", "0.14", "", "PS879"),
    (f"{COMBINED}, moe-token-dispatcher-type allgather", "0.14", "", "PS879"),
    (f"{COMBINED}, recompute-granularity full, recompute-method block, recompute-num-layers 1", "0.14", "", "PS879"),
    (f"{COMBINED}, bf16 false", "0.14", "", "PS879"),
    (f"{COMBINED}, mtp-num-layers 2", "0.14", "", "PS879"),
    ("delay-wgrad-compute true", "0.14", "", "PS879"),
    ("ep-overlap-early-attn-memory-release true", "0.16", "", "PS879"),
    (f"{COMBINED}, overlap-dispatch-backward-with-experts-wgrad true", "0.18", "", "PS879"),
    ("pipeline-model-parallel-size 1, defer-embedding-wgrad-compute true", "0.9", "", "PS879"),
    ("overlap-param-gather true", "0.9", "", "PS879"),
    ("overlap-param-gather true, use-distributed-optimizer true", "0.9", "", "PS879"),
    (STEP, "0.9", "", "PS879"),
    (f"{STEP}, num-layers-per-virtual-pipeline-stage 3, ckpt-format torch_dist", "0.9", "", "PS879"),
    ("use-torch-fsdp2 true", "0.10", "", "PS879"),
    ("tp-comm-overlap true", "0.9", "", "PS879"),
    ("recompute-granularity full", "0.9", "", "PS879"),
    ("recompute-granularity full, recompute-method uniform", "0.9", "", "PS879"),
    ("recompute-activations true, recompute-method uniform", "0.9", "", "PS879"),
    ("recompute-activations true, recompute-num-layers 2", "0.9", "", "PS879"),
    ("recompute-granularity some", "0.9", "", "PS874"),
    ("recompute-granularity selective, recompute-modules attn", "0.12", "", "PS879"),
    ("recompute-granularity selective, recompute-modules mla_up_proj", "0.12", "", "PS879"),
    ("distribute-saved-activations true", "0.9", "", "PS879"),
    ("mtp-num-layers 1, position-embedding-type learned_absolute", "0.12", "", "PS879"),
    (
        "microbatch-group-size-per-virtual-pipeline-stage 3, num-layers-per-virtual-pipeline-stage 1",
        "0.10",
        "",
        "PS876",
    ),
    ("global-batch-size 40, num-layers-per-virtual-pipeline-stage 1, processes 4", "0.9", "", "PS876"),
    ("overlap-p2p-communication-warmup-flush true", "0.10", "", "PS879"),
    (
        "tensor-model-parallel-size 2, sequence-parallel true, tp-comm-overlap true, deterministic-mode true",
        "0.19",
        "",
        "PS879",
    ),
    ("delay-wgrad-compute true, overlap-grad-reduce true", "0.13", "", "PS879"),
    ("encoder-num-layers 12", "0.9", "", "PS879"),
    ("ckpt-format torch_dcp", "0.12", "", "PS879"),
)


def told(release: str, options: str) -> pipesched.Checked:
    """Return the result for BASE with some options."""
    given = BASE | dict(option.split(" ", 1) for option in options.split(", ") if option)
    world = int(given.pop("processes", "8"))
    text = "MODEL_ARGS:\n" + "".join(f"  --{key}: '{value}'\n" for key, value in given.items() if value != "false")
    source = pipesched.Source("model_config.yaml", text.replace("'true'", "true"))
    return pipesched.check(source, trainer=f"megatron=={release}", processes=world)


def codes(made: pipesched.Checked) -> list[str]:
    """Return the codes of the findings."""
    return [str(found.code) for found in made.diagnostics]


def test_what_the_cases_are_laid_over_is_right() -> None:
    """Options that are valid in every release, so that a case is refused for its own options."""
    for release in RELEASES:
        made = told(release, "")
        assert (made.ok, made.plan.ranks, made.plan.chunks, made.plan.microbatches) == (True, 4, 1, 4), str(made)


@pytest.mark.parametrize(("options", "since", "until", "code"), CASES, ids=[case[0] for case in CASES])
def test_a_refusal_is_told_for_the_releases_that_have_it(options: str, since: str, until: str, code: str) -> None:
    """The first release that refuses, and the newest, have an error of the code; neighbouring releases do not."""
    at = RELEASES.index(since)
    last = RELEASES.index(until) - 1 if until else len(RELEASES) - 1
    for release in (RELEASES[at], RELEASES[last]):
        assert code in codes(told(release, options)), release
    for index in {at - 1, last + 1} & {*range(len(RELEASES))}:
        found = codes(told(RELEASES[index], options))
        assert code not in found or "PS873" in found, RELEASES[index]


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ("", ""),
        ("no-overlap-p2p-communication true", ""),
        ("pipeline-model-parallel-size 2", ""),
        ("pipeline-model-parallel-size 2, no-overlap-p2p-communication true", "overlap_p2p_comm=false"),
        ("microbatch-group-size-per-virtual-pipeline-stage 4", ""),
        ("microbatch-group-size-per-virtual-pipeline-stage 5, global-batch-size 64", "overlap_p2p_comm=true"),
        ("global-batch-size 48", "overlap_p2p_comm=true"),
    ],
)
def test_what_the_library_has_not_is_asked_of_megatron_itself(options: str, own: str) -> None:
    """The library has the interleaved order in whole groups of p microbatches; with two ranks only if messages overlap
    with compute, since each rank is both the one before and the one behind."""
    plan = told("0.16", f"num-virtual-stages-per-pipeline-rank 3, {options}".rstrip(", ")).plan
    assert (plan.options[0] if plan.options else "") == own


def test_layers_that_are_lost_are_told() -> None:
    """Releases that silently build another number of layers are listed with their own counts, by parser."""
    options = "pipeline-model-parallel-size 1, decoder-last-pipeline-num-layers 4"
    made = told("0.15", options)
    assert codes(made) == ["PS880"] and "gets only 4 of its 12 layers" in made.diagnostics[0].message
    assert codes(told("0.9", "num-layers 14")) == ["PS877"]


def test_a_combined_schedule_is_that_of_the_library() -> None:
    """Experts that overlap with the pipeline use the combined 1F1B; alone they are not judged by another order."""
    made = told("0.19", COMBINED)
    assert made.command == "pipesched verify interleaved_overlap --p 4 --v 3 --m 4", str(made)
    made = told("0.19", f"{COMBINED}, microbatch-group-size-per-virtual-pipeline-stage 5, global-batch-size 80")
    assert made.ok and "verify" not in (made.command or "")


@pytest.mark.parametrize("option", ["hybrid-layer-pattern", "hybrid-override-pattern"])
def test_the_segments_of_a_hybrid_pattern_are_stages(option: str) -> None:
    """Since 0.17 the number of segments gives v, and their letters the layers, regardless of --num-layers."""
    made = told("0.19", f"{option} M|*-|M|*/M*/M*, pipeline-model-parallel-size 2")
    assert made.ok and (made.plan.ranks, made.plan.chunks) == (2, 2), str(made)
    made = told("0.19", f"{option} M*-M, pipeline-model-parallel-size 2")
    assert made.ok and (made.plan.ranks, made.plan.chunks) == (2, 1), str(made)


def test_what_a_script_leaves_to_its_caller_is_not_refused() -> None:
    """A missing required flag may come from outside, if the options do not end with the text."""
    words = "--num-layers 12 --hidden-size 64 --pipeline-model-parallel-size 2 --overlap-param-gather"
    for end, refused in ((" --lr 1\n", True), (" $MORE_ARGS\n", False), (' "$@"\n', False)):
        source = pipesched.Source("a.sh", f"torchrun pretrain_gpt.py {words}{end}")
        assert ("PS879" in codes(pipesched.check(source, trainer="megatron==0.19"))) is refused, end


@pytest.mark.parametrize(("tables", "facts"), [(TABLES, Sizes), (torchtitan.TABLES, Titan), (deepspeed.TABLES, Batch)])
def test_every_rule_names_settings_of_the_tables(tables: Tables, facts: type[Facts]) -> None:
    """A rule is placed at keys that are read, of releases that there are, and in the order of releases; every name in
    its condition and in its texts is a key or a fact; it has a text.
    """
    known = {*tables.keys(), *tables.facts, *dir(facts), "case", *dir(builtins)}
    expressions = [code.co_filename for code in tables.facts.values()]
    for rule in (rule for group in tables.groups for rule in group):
        texts = [rule.row[x] for x in ("says", "notes", "help", "source") if x in rule.row]
        expressions += [rule.when.co_filename, *(one for text in texts for one in FILLED.findall(text))]
        assert {"says", "notes"} & {*rule.row}
        assert {*rule.at} <= {*tables.keys(), "cut", "less", "degrees"}
        assert (rule.at and "source" in rule.row) or "says" not in rule.row or "fact" in rule.row
        assert tables.releases.index(rule.since) <= tables.releases.index(rule.until)
    trees = (ast.parse(f"({one})", mode="eval") for one in expressions)
    named = [x for tree in trees for x in ast.walk(tree) if isinstance(x, ast.Name)]
    local = {x.id for x in named if isinstance(x.ctx, ast.Store)}
    assert {x.id for x in named} - local <= known, {x.id for x in named} - known


FIELDS: Mapping[str, tuple[object, ...]] = {
    "num_layers": (8, 12, 7),
    "pipeline_model_parallel_size": (1, 2, 4),
    "virtual_pipeline_model_parallel_size": (None, None, 2, 3),
    "num_layers_in_first_pipeline_stage": (None, None, None, 2, 4),
    "num_layers_in_last_pipeline_stage": (None, None, None, 2, 3),
    "account_for_embedding_in_pipeline_split": (False, False, False, True),
    "account_for_loss_in_pipeline_split": (False, False, False, True),
    "pipeline_model_parallel_layout": (None, None, None, None, "E|(t|)*6ttL", "Ett|tt|tt|ttL", "Etttt|tt|tt|L"),
    "overlap_p2p_comm": (False, False, True),
    "batch_p2p_comm": (True, False),
    "overlap_p2p_comm_warmup_flush": (False, False, False, True),
    "microbatch_group_size_per_vp_stage": (None, None, None, 2, 4, 5),
    "expert_model_parallel_size": (1, 2),
    "moe_token_dispatcher_type": ("alltoall", "allgather"),
    "overlap_moe_expert_parallel_comm": (False, False, False, True),
    "delay_wgrad_compute": (False, False, False, True),
    "moe_shared_expert_overlap": (False, False, False, True),
    "bf16": (True, False),
    "fp16": (False,),
    "recompute_granularity": (None, None, None, "full", "selective"),
    "recompute_method": (None, None, None, "uniform", "block"),
    "recompute_num_layers": (None, None, None, 1),
    "recompute_modules": (None, None, ["core_attn"], ["layernorm"], ["moe_act"], ["mla_up_proj"], ["attn"]),
    "moe_grouped_gemm": (False,),
    "multi_latent_attention": (False,),
    "distribute_saved_activations": (False, False, False, True),
    "sequence_parallel": (False, True),
    "tensor_model_parallel_size": (2,),
    "cpu_offloading": (False, False, False, True),
    "defer_embedding_wgrad_compute": (False, False, False, True),
    "gradient_accumulation_fusion": (True, False),
    "mtp_num_layers": (None, None, None, 1, 2),
}
USUAL = {name: values[0] for name, values in FIELDS.items()} | {"pipeline_model_parallel_size": 4}


def edited(random_: random.Random) -> dict[str, object]:
    """Return a right configuration with one to four changed fields."""
    names = random_.sample([*FIELDS], random_.choice((1, 2, 2, 3, 4)))
    return USUAL | {
        name: random_.choice([x for x in FIELDS[name] if x != USUAL[name]] or FIELDS[name]) for name in names
    }


def answers(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answer of the installed Megatron-core for the fields."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    command = [sys.executable, "-W", "ignore", "-m", "tests.trainers.megatron_parser"]
    ran = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=TOP, timeout=500, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")][1:]


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("megatron") is None, reason="needs megatron-core")
@pytest.mark.skipif(find_spec("yaml") is None, reason="needs PyYAML")
def test_what_the_core_refuses_is_an_error_and_nothing_else_is() -> None:
    """Random fields are refused by both or by neither; silently wrong ones are reported, and accepted by the core."""
    random_ = random.Random(22)
    cases = [{"fields": edited(random_), "m": 8, "world": 16} for _ in range(deep(40))]
    found: Counter[str] = Counter()
    for case, theirs in zip(cases, answers(cases), strict=True):
        given = {key: value for key, value in case["fields"].items() if value is not None}
        lines = [f"  {key}: {json.dumps(value)}\n" for key, value in case["fields"].items()]
        text = "".join(
            ["model:\n", *lines, "  micro_batch_size: 1\n", f"  global_batch_size: {8 * _replicas(given)}\n"]
        )
        made = pipesched.check(pipesched.Source("a.yaml", text), trainer="megatron==0.16", processes=16)
        if codes(made) and {*codes(made)} == {"PS880"}:
            found["silent"] += 1
            assert theirs["taken"], (given, theirs)
            continue
        assert made.ok is theirs["taken"], (given, theirs, str(made))
        found["taken" if made.ok else "refused"] += 1
        if made.ok and theirs["p"] > 1:
            assert (made.plan.ranks, made.plan.chunks, made.plan.microbatches) == (theirs["p"], theirs["v"], 8)
    assert min(found["taken"], found["refused"]) >= deep(7), found


def _replicas(fields: Mapping[str, object]) -> int:
    return 16 // (2 * int(str(fields["pipeline_model_parallel_size"])))
