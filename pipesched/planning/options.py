"""Options of `plan`."""

from __future__ import annotations

from dataclasses import replace

from pipesched.command.options import COLOR, FILE, FORMAT, JSON, VERBOSE
from pipesched.command.values import seconds, text, whole
from pipesched.common.values import texts
from pipesched.extension import Option, flag
from pipesched.planning.rows import DEVICE, EFFICIENCY, EXECUTOR, MODEL
from pipesched.planning.values import amount, byte_cap, device, fraction, named_model, one_device

PLAN = (
    replace(MODEL, help="The transformer and its training; the plan decides the rest.", read=named_model),
    Option("gpus", whole, "GPUs of the cluster.", "N"),
    Option("gpus_per_node", whole, "[default: the device's]", "N"),
    replace(DEVICE, help="Type of the GPUs.", read=one_device, typed=device, default=()),
    Option("kept", None, "Factors on the bytes of layers, as `run --rank -o` measures.", "kept.toml"),
    Option("batch", whole, "Sequences per step [default: the model's].", "B"),
    Option("tokens", amount, "Tokens to train on, to predict the days: 300B, 15T.", "T"),
    Option("mem_cap", byte_cap, "Usable bytes per GPU [default: as offered by its driver].", "80GB"),
    Option("only", texts, "Try these values of p, t, c, d, e, v, b, ...", "t=4,8", (), typed=text),
    Option("trainer", text, "Show only choices that this trainer can run, with its configuration.", "NAME[==RELEASE]"),
    Option("config", None, "With --trainer: write the first row's configuration.", "FILE", terminal=True),
    Option("optimize", seconds, "Let the optimizer order the first rows, for SECONDS.", "SECONDS", terminal=True),
    Option("explain", None, "Explain why a choice with these sizes is not the first.", "p=8,t=4,.."),
    Option("top", whole, "Rows.", "N", 5),
    replace(EFFICIENCY, help="Assumed fraction of peak FLOP/s, e.g. 50% [default: by shape]."),
    Option(
        "overlap",
        fraction,
        "Share of data-parallel messages that may overlap compute [default: the trainer's].",
        "X",
    ),
    replace(EXECUTOR, help="Who works.", default="processes"),
    Option("plot", None, "Plot seconds against bytes; with --sweep tokens/s per GPU.", "OUT.svg", terminal=True),
    Option(
        "sweep",
        None,
        "Print the first row for each value; the batch grows with the GPUs.",
        "gpus=64,128|b=1,2,4",
        terminal=True,
    ),
    Option(
        "explain_model",
        flag,
        "Only describe the model: parameters, FLOPs and bytes by part.",
        default=False,
        terminal=True,
    ),
    replace(VERBOSE, help="All assumptions about the model and the cluster."),
    replace(FORMAT, choices=("text", "json")),
    replace(JSON, help="One object: rows, counts, rules, assumed."),
    COLOR,
    replace(FILE, help="Write to FILE instead of stdout; FILE.html is a page."),
)
