"""Right and wrong configurations of trainers, with the expected findings; the values are from the projects' examples.

    Row(name, ending, text, said, last, options)     said: (code, line) of every finding; last: of the last line

Only the settings of the pipeline are here, typed anew; `source` names their origin. MISTAKES are those of a
person in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

Said = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Row:
    """A configuration. said: code and line of each finding, in order. last: part of the last line."""

    name: str
    ending: str
    text: str
    said: Said = ()
    last: str = ""
    options: tuple[str, ...] = ()
    source: str = ""


TITAN = """\
[model]
name = "llama3"
flavor = "debugmodel"
[training]
local_batch_size = 8
[parallelism]
pipeline_parallel_degree = {p}
pipeline_parallel_schedule = "{name}"
[activation_checkpoint]
mode = "{mode}"
"""
TITAN_TESTS = "torchtitan v0.2.2, models/llama3/train_configs/debug_model.toml with tests/integration_tests/features.py"


def titan(p: int = 4, name: str = "Interleaved1F1B", mode: str = "selective", more: str = "") -> str:
    """Return its debug model, with additional lines in the section of the pipeline."""
    return TITAN.format(p=p, name=name, mode=mode).replace("[activation", f"{more}[activation")


NEW = """\
torchrun --nproc_per_node=2 -m torchtitan.train --module llama3 --config {config} {words} \\
    --training.local_batch_size 8 \\
    --parallelism.pipeline_parallel_degree 2 \\
    --parallelism.pipeline_parallel_schedule {name}
"""
NEW_SOURCE = "torchtitan 0.3.0, models/llama3/config_registry.py"
NO_GRAPHS = "--training.disable_cuda_graphs"


def new(name: str, words: str = NO_GRAPHS, config: str = "llama3_debugmodel") -> str:
    """Return a command line of 0.3.0."""
    return NEW.format(name=name, words=words, config=config)


def megatron(*lines: str) -> str:
    """Return the arguments as Megatron's functional tests have them."""
    return "".join(["ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n", *(f"  --{line}\n" for line in lines)])


REGISTRY = "torchtitan b5bcd76, models/qwen3_5/config_registry.py: qwen35_debugmodel_moe"


def registry(p: str, m: str) -> str:
    """Return a configuration in Python, of the main of 2026-08."""
    return f"""\
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer
def mine() -> Trainer.Config:
    config = Trainer.Config(
        training=TrainingConfig(disable_cuda_graphs=True),
        parallelism=ParallelismConfig(pipeline_parallel_degree={p}, num_pp_microbatches={m}),
        activation_checkpoint=None,
    )
    assert config.parallelism is not None
    return config
"""


MLM = "Megatron-LM core_v0.19.0, tests/functional_tests/test_cases/"
BATCH = ("micro-batch-size: 4", "global-batch-size: 32")
EIGHT = ("--processes", "8")


BRIDGE = "model:\n  pipeline_model_parallel_size: {p}\n  virtual_pipeline_model_parallel_size: {v}\n  overlap_p2p_comm: {o}\n  batch_p2p_comm: {b}\n"
GPT3 = """\
GPUS_PER_NODE=8
NUM_NODES=16
MODEL_ARGS=(
    --num-layers {layers} # of GPT-3
    --micro-batch-size 1
    --global-batch-size 1536{more}
)
PARALLEL_ARGS=(
\t--tensor-model-parallel-size 8
\t--pipeline-model-parallel-size ${{PP:-16}}
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py --attention-backend auto "${{MODEL_ARGS[@]}}" "${{PARALLEL_ARGS[@]}}"
"""

EXAMPLES = (
    Row("titan p=1", "toml", titan(1), last="no pipeline", source=TITAN_TESTS),
    Row("titan looped", "toml", titan(), last="p=4 v=2 m=8, microbatches of 1 sample", source=TITAN_TESTS),
    Row(
        "titan a layer each",
        "toml",
        titan(more="pipeline_parallel_layers_per_stage = 1\n"),
        last="verify interleaved --p 4 --v 2 --m 8",
        source=TITAN_TESTS,
    ),
    Row(
        "titan four layers each",
        "toml",
        titan(2, "1F1B", more="pipeline_parallel_layers_per_stage = 4\n"),
        last="verify 1f1b --p 2 --m 8",
        source=TITAN_TESTS,
    ),
    Row("titan zero bubble", "toml", titan(4, "InterleavedZeroBubble"), last="p=4 v=2 m=8", source=TITAN_TESTS),
    Row("titan V", "toml", titan(2, "ZBVZeroBubble"), last="verify zb_v --p 2 --m 8", source=TITAN_TESTS),
    Row("titan gpipe", "toml", titan(2, "GPipe"), last="verify gpipe --p 2 --m 8", source=TITAN_TESTS),
    Row(
        "titan llama4 17bx128e",
        "toml",
        '[model]\nname = "llama4"\nflavor = "17bx128e"\n[training]\nlocal_batch_size = 1\n[parallelism]\n'
        "tensor_parallel_degree = 8\npipeline_parallel_degree = 4\n",
        (("PS876", 5),),
        "1F1B  p=4 v=1 m=1",
        options=("--torch-version", "2.13"),
        source="torchtitan v0.2.2, models/llama4/train_configs/llama4_17bx128e.toml: no schedule named, so 1F1B",
    ),
    Row(
        "titan 0.1 split points",
        "toml",
        titan(more='pipeline_parallel_split_points = ["layers.2"]\n'),
        (("PS871", 9),),
        source="torchtitan v0.1.0, config_manager.py",
    ),
    Row(
        "titan DualPipeV with experts",
        "toml",
        titan(2, "DualPipeV", more="expert_parallel_degree = 2\n"),
        (("PS879", 11),),
        "verify dualpipev --p 2 --m 8",
        options=("--trainer", "torchtitan==0.2.2"),
        source="torchtitan v0.2.2, distributed/dual_pipe_v.py",
    ),
    Row(
        "titan replicated",
        "toml",
        titan(2, "1F1B", more="data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 1\n"),
        (("PS879", 9),),
        options=("--processes", "4"),
        source="torchtitan v0.2.2, models/llama3/infra/parallelize.py",
    ),
    Row("titan 0.3", "sh", new("Interleaved1F1B"), last="verify interleaved --p 2 --v 2 --m 8", source=NEW_SOURCE),
    Row("titan 0.3 with graphs", "sh", new("1F1B", ""), (("PS879", 3),), source="torchtitan 0.3.0, trainer.py"),
    Row(
        "titan 0.3 split backward",
        "sh",
        new("ZBVZeroBubble"),
        (("PS880", 4), ("PS879", 4)),
        "verify zb_v --p 2 --m 8",
        source=NEW_SOURCE,
    ),
    Row(
        "titan 0.3 split backward, repaired",
        "sh",
        new("ZBVZeroBubble", f"{NO_GRAPHS} activation_checkpoint:none", "llama3_debugmodel_ce_loss"),
        source=NEW_SOURCE,
    ),
    Row(
        "titan main",
        "sh",
        new("1F1B", f"{NO_GRAPHS} --parallelism.num_pp_microbatches 8").replace("--training.local_batch_size 8", ""),
        last="1F1B  p=2 v=1 m=8, 2 ranks: pipesched verify 1f1b --p 2 --m 8",
        source="torchtitan b5bcd76, config/configs.py",
    ),
    Row(
        "titan python",
        "py",
        registry("2 * 2", "8"),
        last="1F1B  p=4 v=1 m=8, 4 ranks: pipesched verify 1f1b",
        source=REGISTRY,
    ),
    Row(
        "titan python changed",
        "py",
        registry("2", "8").replace(
            "return config", "config.parallelism.pipeline_parallel_degree = 8\n    return config"
        ),
        last="p=8 v=1 m=8",
        source=REGISTRY,
    ),
    Row(
        "titan python handed on",
        "py",
        registry("2", "8").replace("    return config", "    changed_elsewhere(config)\n    return config"),
        (("PS882", 10),),
        last="p=? v=? m=?",
        source=REGISTRY,
    ),
    Row(
        "titan python with graphs",
        "py",
        registry("2", "8").replace("disable_cuda_graphs=True", "steps=20"),
        (("PS879", 6),),
        source="torchtitan b5bcd76, trainer.py: _validate_cuda_graphs",
    ),
    Row(
        "titan a configuration of another file",
        "sh",
        "torchrun --nproc_per_node 4 -m torchtitan.train --module mine --config mine --parallelism.num_pp_microbatches 4\n",
        last="p=? v=? m=4",
        source="torchtitan b5bcd76, config/manager.py: what --config names sets the defaults",
    ),
    Row(
        "megatron overlap in warm-up",
        "yaml",
        megatron(
            "num-layers: 12",
            "micro-batch-size: 4",
            "global-batch-size: 40",
            "pipeline-model-parallel-size: 4",
            "num-layers-per-virtual-pipeline-stage: 1",
            "overlap-p2p-communication-warmup-flush: true",
            "microbatch-group-size-per-virtual-pipeline-stage: 5",
        ),
        last="interleaved  p=4 v=3 m=5, microbatches of 4 samples",
        options=EIGHT,
        source=f"{MLM}gpt/gpt3_mcore_te_tp1_pp4_vp1_tunable_overlap",
    ),
    Row(
        "megatron encoder on ranks of its own",
        "yaml",
        megatron(
            "num-layers: 12",
            *BATCH,
            "tensor-model-parallel-size: 2",
            "pipeline-model-parallel-size: 3",
            "encoder-pipeline-model-parallel-size: 1",
        ),
        last="1f1b  p=4 v=1 m=8, microbatches of 4 samples",
        options=EIGHT,
        source="Megatron-LM core_v0.11.0, megatron/core/parallel_state.py: 2 x 1 ranks of the encoder, 2 x 3 of the rest",
    ),
    Row(
        "megatron encoder before one rank",
        "yaml",
        megatron("num-layers: 12", *BATCH, "encoder-pipeline-model-parallel-size: 1"),
        last="1f1b  p=2 v=1 m=?",
        source="Megatron-LM core_v0.11.0, megatron/core/parallel_state.py",
    ),
    Row(
        "megatron uneven",
        "yaml",
        megatron(
            "num-layers: 12",
            *BATCH,
            "pipeline-model-parallel-size: 4",
            "decoder-first-pipeline-num-layers: 2",
            "decoder-last-pipeline-num-layers: 2",
        ),
        last="verify 1f1b --p 4 --m 4",
        options=EIGHT,
        source=f"{MLM}gpt/gpt3_mcore_te_tp1_pp4_vp1_uneven_pipeline",
    ),
    Row(
        "megatron embedding and loss",
        "yaml",
        megatron(
            "num-layers: 6",
            *BATCH,
            "pipeline-model-parallel-size: 4",
            "num-virtual-stages-per-pipeline-rank: 2",
            "account-for-embedding-in-pipeline-split: true",
            "account-for-loss-in-pipeline-split: true",
        ),
        last="verify interleaved --p 4 --v 2 --m 4",
        options=EIGHT,
        source=f"{MLM}gpt/gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split",
    ),
    Row(
        "megatron layout",
        "yaml",
        megatron(
            "num-layers: 13",
            "mtp-num-layers: 1",
            "micro-batch-size: 2",
            "global-batch-size: 32",
            "tensor-model-parallel-size: 4",
            "expert-model-parallel-size: 2",
            "pipeline-model-parallel-size: 2",
            "pipeline-model-parallel-layout: Et|(tt|)*6mL",
        ),
        last="verify interleaved --p 2 --v 4 --m 16",
        options=EIGHT,
        source=f"{MLM}moe/gpt3_moe_mcore_te_tp4_ep2_etp2_pp2_scoped_cudagraph",
    ),
    Row(
        "megatron two ranks",
        "yaml",
        megatron(
            "num-layers: 16",
            *BATCH,
            "tensor-model-parallel-size: 2",
            "pipeline-model-parallel-size: 2",
            "num-virtual-stages-per-pipeline-rank: 4",
        ),
        last="verify interleaved --p 2 --v 4 --m 4",
        options=EIGHT,
        source=f"{MLM}moe/gpt3_mcore_te_tp2_pp2_ep4_etp1_memory_speed",
    ),
    Row(
        "megatron two ranks in batches",
        "yaml",
        megatron(
            "num-layers: 16",
            *BATCH,
            "pipeline-model-parallel-size: 2",
            "num-virtual-stages-per-pipeline-rank: 4",
            "no-overlap-p2p-communication: true",
        ),
        (("PS879", 7),),
        source="Megatron-LM core_v0.19.0, megatron/training/arguments.py",
    ),
    Row(
        "megatron bert 340m",
        "sh",
        GPT3.format(layers=24, more=""),
        (("PS877", 4),),
        source="Megatron-LM of 2026-08-22 (d98e8a6), examples/bert/train_bert_340m_distributed.sh: 24 layers on 16 ranks",
    ),
    Row(
        "megatron gpt3 175b",
        "sh",
        GPT3.format(layers=96, more='\n    --step-batch-size-schedule "0:16 2.4B:320"'),
        (("PS879", 7),),
        source="Megatron-LM core_v0.18.0 on, examples/gpt3/train_gpt3_175b_distributed.sh: the batch is given twice",
    ),
    Row(
        "megatron gpt3 175b of 0.17",
        "sh",
        GPT3.format(layers=96, more=""),
        last="verify 1f1b --p 16 --m 1536",
        options=("--processes", "128", "--trainer", "megatron==0.17.0"),
        source="Megatron-LM core_v0.17.0, examples/gpt3/train_gpt3_175b_distributed.sh",
    ),
    Row(
        "bridge qwen3",
        "yaml",
        BRIDGE.format(p=4, v=2, o="true", b="false"),
        last="interleaved  p=4 v=2 m=?",
        options=("--trainer", "megatron"),
        source="Megatron-Bridge, perf_recipes/qwen/b200/qwen3_moe.py",
    ),
    Row(
        "bridge nemotron",
        "yaml",
        BRIDGE.format(p=2, v="null", o="false", b="true"),
        last="1f1b  p=2 v=1 m=?",
        options=("--trainer", "megatron"),
        source="Megatron-Bridge, recipes/nemotronh/h100/nemotron_3_super.py",
    ),
    Row(
        "core, two ranks in batches",
        "yaml",
        BRIDGE.format(p=2, v=2, o="false", b="true"),
        (("PS880", 2),),
        "",
        ("--trainer", "megatron"),
    ),
    Row(
        "automodel",
        "yaml",
        "distributed:\n  pp_size: 2\n  pipeline:\n    pp_schedule: 1f1b\n",
        (("PS871", 2),),
        source="NeMo AutoModel 0.7.0: its rules are not here",
    ),
    Row("neox", "yml", '{\n  "pipe-parallel-size": 1,\n  "train_micro_batch_size_per_gpu": 4,\n}\n', (("PS871", 2),)),
    Row(
        "nanotron",
        "yaml",
        "parallelism:\n  dp: 2\n  pp: 2\n  pp_engine: 1f1b\ntokens:\n  micro_batch_size: 2\n",
        (("PS871", 2),),
    ),
    Row(
        "deepspeed pipeline",
        "json",
        '{\n  "train_batch_size" : 256,\n  "train_micro_batch_size_per_gpu" : 8,\n  "steps_per_print" : 10\n}\n',
        last="verify 1f1b --p 2 --m 8",
        options=("--p", "2", "--processes", "8"),
        source="DeepSpeedExamples, training/pipeline_parallelism/ds_config.json",
    ),
    Row(
        "deepspeed zero 3",
        "json",
        '{\n  "train_batch_size": 16,\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {\n    "stage": 3\n  }\n}\n',
        (("PS879", 5),),
        options=("--p", "2", "--processes", "4"),
        source="Megatron-DeepSpeed, examples_deepspeed, with ZeRO 3",
    ),
)

_GPT = GPT3.format(layers=96, more="")
MISTAKES = (
    Row("a typo in a key", "toml", titan().replace("_schedule", "_shedule"), (("PS872", 8),)),
    Row("a typo in a section", "toml", titan().replace("[parallelism]", "[paralelism]"), (("PS872", 7), ("PS872", 8))),
    Row("a typo in a name", "toml", titan(name="Interleavd1F1B"), (("PS875", 8),)),
    Row("our name", "toml", titan(2, "zb_v"), (("PS875", 8),)),
    Row("the name in torchtitan's help", "toml", titan(2, "_PipelineScheduleRuntime"), (("PS875", 8),)),
    Row("no order", "toml", titan(2, "PipelineScheduleMulti"), (("PS879", 8),)),
    Row("p = 0", "toml", titan(0), (("PS874", 7),)),
    Row("a negative count", "toml", titan().replace("size = 8", "size = -8"), (("PS874", 5),)),
    Row("a text for a number", "toml", titan().replace("degree = 4", 'degree = "4"'), (("PS874", 7),)),
    Row("m below p", "toml", titan(4, "1F1B").replace("size = 8", "size = 2"), (("PS876", 8),), "", ("--torch-version", "2.13")),
    Row("m below p of an unknown torch", "toml", titan(4, "1F1B").replace("size = 8", "size = 2"), (), "p=4 v=1 m=2"),
    Row("a batch not divided", "toml", titan(more="pipeline_parallel_microbatch_size = 3\n"), (("PS876", 5),)),
    Row("unequal rounds", "toml", titan(2).replace("size = 8", "size = 7"), (("PS876", 8),)),
    Row("more stages than layers", "toml", titan(8), (("PS877", 7),)),
    Row("three stages on two ranks", "toml", titan(2, more="pipeline_parallel_layers_per_stage = 3\n"), (("PS877", 9),)),
    Row(
        "parts of the model",
        "toml",
        titan(2, more='module_fqns_per_model_part = [["tok_embeddings"], ["layers.0"], ["output"]]\n'),
        (("PS877", 9),),
    ),
    Row("no CSV there", "toml", titan(more='pipeline_parallel_schedule_csv = "none.csv"\n'), (("PS878", 9),)),
    Row("broken TOML", "toml", titan().replace('"1F1B', '"').replace('"selective"', "selective"), (("PS870", 10),)),
    Row("TOML for 0.3", "toml", titan(), (("PS873", 2),), "", ("--trainer", "torchtitan==0.3.0")),
    Row("an empty file", "toml", "", (("PS871", 0),)),
    Row("another file", "toml", '[project]\nname = "x"\n', (("PS871", 0),)),
    Row("an option misspelt", "sh", _GPT.replace("--pipeline-model", "--pipline-model"), (("PS872", 10), ("PS882", 10))),
    Row("an option of another release", "sh", _GPT.replace("micro", "num-virtual-stages-per-pipeline-rank 2\n --micro"), (("PS873", 5),), "", ("--trainer", "megatron==0.10")),
    Row("processes not divided", "sh", _GPT, (("PS876", 10),), "", ("--processes", "100")),
    Row("layers not divided", "sh", _GPT.replace("96", "95"), (("PS877", 4),)),
    Row("m not in groups", "sh", _GPT.replace("1536", "1530 --num-virtual-stages-per-pipeline-rank 2"), (("PS876", 10),), "", ("--processes", "128")),
    Row("v given twice", "sh", _GPT.replace("1536", "1536 --num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 3"), (("PS879", 6),)),
    Row("a layout with another model", "sh", _GPT.replace("1536", "1536 --pipeline-model-parallel-layout 'Et*2|(t*3|)*30tL'"), (("PS877", 6),)),
    Row("broken YAML", "yaml", megatron("num-layers: 4").replace("MODEL_ARGS:", "MODEL_ARGS: ["), (("PS870", 5),)),
    Row("a key of another release", "toml", titan(more='pipeline_parallel_split_points = ["layers.2"]\n'), (("PS873", 9),), "", ("--trainer", "torchtitan==0.2.2")),
    Row("broken JSON", "json", '{\n  "train_batch_size": 16,\n}\n', (("PS870", 2),)),
    Row("a key twice", "json", '{\n  "train_micro_batch_size_per_gpu": 1,\n  "train_micro_batch_size_per_gpu": 2\n}\n', (("PS872", 3),)),
    Row("no batch", "json", '{\n  "zero_optimization": {"stage": 1}\n}\n', (("PS881", 0),), "", ("--p", "2")),
    Row("no batch, of a program that may give one", "json", '{\n  "zero_optimization": {"stage": 1}\n}\n'),
    Row("a product that is none", "json", '{\n  "train_batch_size": 10,\n  "train_micro_batch_size_per_gpu": 4\n}\n', (("PS876", 2),)),
    Row("a field of the pipeline", "json", '{\n  "train_micro_batch_size_per_gpu": 4,\n  "pipeline": {"stage": 4}\n}\n', (("PS872", 3),)),
)  # fmt: skip
