"""On gloo processes DeepSpeed's real pipeline engine trains with our modules exactly as with its own schedule.

    python -m tests.trainers.deepspeed      in a Python that has the extra `deepspeed`; two minutes on two cores

The losses of three steps and the weights of every stage are compared: of 1F1B, of GPipe, and of an order in which a
stage gets gradients before it takes them. An order whose backwards come in another order adds up gradients in another
order, and is compared to six digits. TrainSchedule with a buffer fewer, and GPipe without `Keep` and `Take`, do not
train that, and `verify deepspeed:…` refuses them (PS865).
"""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import os
import re
import socket
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pipesched

MICROBATCHES, WIDTH, STEPS = 8, 16, 3
LIMIT = 180.0
"""The seconds for all that a number of stages trains; it takes 15 to 30."""
ROUNDED = 1e-6

FEWER = """
from deepspeed.runtime.pipe.schedule import TrainSchedule

class Schedule(TrainSchedule):
    def num_pipe_buffers(self):
        return super().num_pipe_buffers() - 1

def use(engine):
    engine._train_schedule = lambda: Schedule(engine.micro_batches, engine.num_stages, engine.stage_id)
"""

Figures = tuple[list[float], str]
"""The losses, and a hash of the weights of all stages."""


def early(p: int) -> str:
    """Return the gPipe on all stages but the last, which runs each backward at once: gradients arrive early."""
    rows = [" ".join(f"{kind}{s}.{i}" for kind in "FB" for i in range(MICROBATCHES)) for s in range(p - 1)]
    rows.append(" ".join(f"F{p - 1}.{i} B{p - 1}.{i}" for i in range(MICROBATCHES)))
    return "".join(f"rank {s}: {row}\n" for s, row in enumerate(rows))


def turned(p: int) -> str:
    """Return the forwards in pairs, the later one first, and backwards from the last microbatch to the first."""
    forward = [i ^ 1 for i in range(MICROBATCHES)]
    words = [("F", i) for i in forward] + [("B", i) for i in reversed(range(MICROBATCHES))]
    return "".join(f"rank {s}: {' '.join(f'{kind}{s}.{i}' for kind, i in words)}\n" for s in range(p))


def modules(p: int) -> dict[str, str]:
    """Return the names of the orders, and their emitted modules; none for DeepSpeed's own."""
    made = {name: pipesched.emit(name, to="deepspeed", p=p, m=MICROBATCHES) for name in ("1f1b", "gpipe")}
    for name, text in (("early", early(p)), ("turned", turned(p))):
        made[name] = pipesched.emit(pipesched.Source(f"{name}.txt", text), to="deepspeed")
    return {"TrainSchedule": "", **made}


def stage(rank: int, size: int, port: int, folder: str, names: list[str], answers: Connection) -> None:
    """Train with each module in turn in one process, and return the results."""
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({name: str(value) for name, value in environment.items()}, MASTER_PORT=str(port))
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    with open(Path(folder, f"{rank}.txt"), "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    import deepspeed  # type: ignore[import-not-found]
    import torch
    from deepspeed.ops import __compatible_ops__ as operators  # type: ignore[import-not-found]

    operators["deepspeed_shm_comm"] = False  # else it compiles for more than a minute
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    for name in names:
        answers.send((name, trained(deepspeed, torch, Path(folder, f"{name}.py"), size)))
    answers.send(("", f"DeepSpeed {deepspeed.__version__}, torch {torch.__version__}"))


def trained(deepspeed: Any, torch: Any, module: Path, size: int) -> Figures:
    """Return the losses and weights of one stage."""
    from deepspeed.pipe import LayerSpec, PipelineModule  # type: ignore[import-not-found]

    layers = [
        LayerSpec(kind, *sizes)
        for _ in range(size)
        for kind, *sizes in ((torch.nn.Linear, WIDTH, WIDTH), (torch.nn.Tanh,))
    ]
    loss = torch.nn.functional.mse_loss
    model = PipelineModule(layers, num_stages=size, loss_fn=loss, seed_layers=True, partition_method="uniform")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": MICROBATCHES,
        "steps_per_print": 10**9,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if module.stat().st_size:
        spec = importlib.util.spec_from_file_location(module.stem, module)
        assert spec and spec.loader
        emitted = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(emitted)
        emitted.use(engine)
    random = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(STEPS):
        batches = [[torch.randn(2, WIDTH, generator=random) for _ in range(2)] for _ in range(MICROBATCHES)]
        losses.append(float(engine.train_batch(iter(batches))))
    weights = b"".join(x.detach().numpy().tobytes() for x in model.parameters())
    return losses, hashlib.sha256(weights).hexdigest()


def run(p: int, made: dict[str, str]) -> tuple[dict[str, Figures], str]:
    """Return the results of all modules on p processes; and the versions, or the last lines of a failure."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        for name, text in made.items():
            Path(folder, f"{name}.py").write_text(text, "utf-8")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe(duplex=False) for _ in range(p)]
        ranks = [
            context.Process(target=stage, args=(rank, p, port, folder, [*made], pipe[1]), daemon=True)
            for rank, pipe in enumerate(pipes)
        ]
        for rank in ranks:
            rank.start()
        found: dict[str, dict[int, Any]] = {}
        until = time.monotonic() + LIMIT
        while time.monotonic() < until and len(found.get("", ())) < p and not any(rank.exitcode for rank in ranks):
            for number, (answers, _) in enumerate(pipes):
                while answers.poll(0.02):
                    name, figures = answers.recv()
                    found.setdefault(name, {})[number] = figures
        failed = next((number for number, rank in enumerate(ranks) if rank.exitcode), 0)
        for rank in ranks:
            rank.kill()
            rank.join()
        said = Path(folder, f"{failed}.txt").read_text("utf-8", "replace").splitlines()[-20:]
    whole = {
        name: (x[0][0], " ".join(x[rank][1] for rank in range(p))) for name, x in found.items() if name and len(x) == p
    }
    return whole, found[""][0] if "" in found else "\n".join(said)


def refused(text: str) -> set[str]:
    """Return the codes of the faults of a module of 4 stages."""
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "broken.py")
        module.write_text(text, "utf-8")
        package = str(Path(str(importlib.util.find_spec("deepspeed").origin)).parents[1])  # type: ignore[union-attr]
        report = pipesched.verify(f"deepspeed:{module}:Schedule", p=4, m=MICROBATCHES, framework_path=package)
        return {str(found.code) for found in report.diagnostics}


def main() -> int:
    wrong = []
    for p in (2, 4):
        made = modules(p)
        found, versions = run(p, made)
        own = found.get("TrainSchedule", ([], ""))
        print(f"{p} stages, {versions}")
        for name in made:
            losses, weights = found.get(name, ([], ""))
            print(f"    {name:<14}", *(x.hex() for x in losses), hashlib.sha256(weights.encode()).hexdigest()[:12])
            close = len(losses) == STEPS and all(abs(x / y - 1) < ROUNDED for x, y in zip(losses, own[0], strict=True))
            if not (close if name == "turned" else losses and (losses, weights) == own):
                wrong.append(f"{name} with {p} stages does not train what DeepSpeed's own schedule trains")
    head, mark, rows = made["gpipe"].partition("STAGES = ")
    bare = head + mark + re.sub(r"(Keep|Take)\(\d+\), ?", "", rows)
    for name, text in (("GPipe without Keep and Take", bare), ("TrainSchedule with a buffer fewer", FEWER)):
        found, said = run(4, {"broken": text})
        print(f"{name}: {'other figures' if found else said.splitlines()[-1]}")
        if found.get("broken") == own or "PS865" not in refused(text):
            wrong.append(f"{name} trains what it should, or is not refused")
    print(*wrong or ["all train what DeepSpeed's own schedule trains"], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
