"""Starts ten random plans for torchtitan on gloo; each one trains two steps of the debug model on a CPU.

    python -m tests.trainers.torchtitan_plans       in a Python that has the extra `torchtitan`; `.ci/run --trainers`

What runs is what `plan --trainer torchtitan==0.2` writes; data, tokenizer and steps are of the page
(emit/torchtitan.md), and so is the script that answers for a device. gloo has no operation that scales while it
reduces, so the script also makes FSDP scale before it sums. Plans with the same batch train the same model: their
first losses differ only by what is drawn on other ranks.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from pathlib import Path

from pipesched.planning.launch import launcher
from pipesched.planning.layouts.space import Choice, Space, refuses
from pipesched.planning.transformer.config import Training, Transformer
from tests.trainers.processes import finished
from tests.trainers.torchtitan import scripts

PLANS, LIMIT = 10, 600.0
TRAINER = "torchtitan==0.2.2"
DEBUG = Transformer(
    layers=6,
    hidden=256,
    heads=16,
    feed_forward=768,
    vocabulary=2048,
    sequence=128,
    gated=True,
    learned_positions=False,
    biases=False,
    dropout=False,
    norm="rms",
    dtype="fp32",
    name="debugmodel",
)
SCALED = """\
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives

factors = collectives._get_gradient_divide_factors
collectives._get_gradient_divide_factors = lambda *given, **named: factors(
    *given[:5], **{**named, "force_sum_reduction_for_comms": True}
)

from torchtitan.train import"""
MORE = (
    "--model.hf_assets_path tokenizer --training.dataset c4_test --training.dataset_path corpus --training.steps 2 "
    "--lr_scheduler.warmup_steps 1 --metrics.log_freq 1 --metrics.disable_color_printing --debug.seed 42"
)
STEP = re.compile(r"step: +2 +loss: +([0-9.]+) +grad_norm: +([0-9.]+)")


def plans() -> list[tuple[Space, Choice]]:
    """Return different random choices with a pipeline, on two and on four processes."""
    dice, found, seen = random.Random(5), list[tuple[Space, Choice]](), set[tuple[object, ...]]()
    trainer = launcher(TRAINER)
    while len(found) < PLANS:
        gpus = dice.choice((2, 2, 4))
        training = trainer.training(Training(batch=gpus * dice.choice((4, 8))))
        space = Space(DEBUG, training, gpus, gpus, {"c": (1,), "b": (dice.choice((1, 2)),)}, TRAINER)
        choice = dice.choice([x for x in space if x.p > 1 and not refuses(space, x)])
        sort = (choice.schedule, choice.p, choice.training.tensor, choice.training.data, choice.split)
        if sort not in seen:
            seen.add(sort)
            found.append((space, choice))
    return found


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script, text in scripts().items():
            (folder / script).write_text(text.replace("from torchtitan.train import", SCALED), "utf-8")
        finished([sys.executable, "made.py"], folder, LIMIT)
        for space, choice in plans():
            for file, text in launcher(TRAINER).launch(space, choice).files.items():
                (folder / file).write_text(text, "utf-8")
            run = f"-m torch.distributed.run --nproc_per_node {space.gpus} cpu.py --job.config_file plan.toml {MORE}"
            quiet = {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
            said = finished([sys.executable, *run.split()], folder, LIMIT, **quiet)
            step = STEP.search(said)
            failed += step is None
            print(choice, *(step.groups() if step else ["does not train", said[-2000:]]), sep="  ", flush=True)
    print(f"{PLANS - failed} of {PLANS} plans train")
    return failed


if __name__ == "__main__":
    sys.exit(main())
