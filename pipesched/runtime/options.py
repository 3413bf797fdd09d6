"""Options of `run` and `calibrate`."""

from __future__ import annotations

from dataclasses import replace

from pipesched.command.options import COLOR, COMM, COST, COSTS, FILE, JSON, LIMIT, RESULTS, SIZES, TORCH
from pipesched.command.values import text, whole
from pipesched.common.values import texts
from pipesched.extension import Option, flag
from pipesched.runtime.values import counts, real

_INSTANTS = "Write the start and end of each instruction, for Perfetto and `calibrate`."

RUN = (
    Option("net", choices=("mlp", "transformer"), default="mlp"),
    Option("samples", counts, "Samples per microbatch [default: 4].", "N0,N1,..."),
    Option("steps", whole, "Training steps.", "N", 3),
    Option("backend", text, "Backend of torch.distributed: gloo, nccl.", "NAME", "gloo"),
    Option("device", choices=("cpu", "cuda"), default="cpu"),
    Option("engine", choices=("pipesched", "torch"), default="pipesched"),
    Option("timeout", real, "Seconds without progress that count as a stall.", "S", 30),
    Option("pace", real, "Milliseconds for a cost of 1.", "MS", 20),
    replace(COST, help="Costs of F, I, W, B, FB [default: 1, B 2; F and B given: I = W = B / 2]."),
    COSTS,
    COMM,
    Option("trace", flag, _INSTANTS, "FILE", False, typed=text),
    Option(
        "faults",
        texts,
        "Inject a fault, to demonstrate its report.",
        "KIND@RANK[:N]",
        (),
        flags=("--fault",),
        typed=text,
    ),
    Option("rank", whole, "Run only the instructions of this rank, with imitated neighbours.", "R"),
    Option(
        "factory",
        text,
        "With --rank: the function that creates a stage of the model.",
        "FILE.py:FUNCTION",
        flags=("--stages",),
    ),
    *SIZES,
    LIMIT,
    *(option for option in TORCH if option.name != "stages"),
    *RESULTS[:-1],
    replace(FILE, help="Write to FILE instead of stdout; with --rank, write costs for --costs."),
)
CALIBRATE = (
    Option("digits", whole, "Significant digits.", "WHOLE", 3),
    replace(JSON, help="Print one JSON object: the costs, and the data to which they were fitted."),
    replace(FILE, help="Write the costs in the format of --costs; - for stdout.", metavar="COSTS.toml"),
    COLOR,
)
