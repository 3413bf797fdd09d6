"""Other people's schedules: frameworks, trainers, recorded runs."""

from pipesched.extension import Later, Lazy, Listing, Names, Target, Verb

ROWS = (
    Target(
        "torch-csv",
        "the computes, as torchtitan and NeMo AutoModel load them; their settings go to stderr",
        ".csv",
        Lazy("interop.torch.target:COMPUTES"),
        messages=False,
        torch=True,
        place=10,
    ),
    Target(
        "torch-comms",
        "torch's sends, receives, sharding and reductions too, for --torch-version",
        ".csv",
        Lazy("interop.torch.target:COMMS"),
        messages=True,
        torch=True,
        place=20,
    ),
    Target(
        "deepspeed",
        "a Python module that makes DeepSpeed's pipeline engine run it, of one stage a rank",
        ".py",
        Lazy("interop.targets.deepspeed_write:DEEPSPEED"),
        messages=True,
        blocks=True,
        place=30,
    ),
    Later(("recorded",), Lazy("interop.recorded.judged:judged"), place=10),
    Listing(
        "frameworks",
        Lazy("interop.frameworks.frameworks:entries"),
        Lazy("interop.frameworks.frameworks:lines"),
        place=10,
    ),
    Names(
        "framework",
        Lazy("interop.frameworks.frameworks:call"),
        Lazy("interop.frameworks.frameworks:meant"),
        Lazy("interop.frameworks.frameworks:names"),
        Lazy("interop.frameworks.loaded:read"),
        ("parameters", "settings", "max_ops", "framework_path", "framework_time"),
    ),
    Verb(
        "check",
        "Other people's",
        "Check a trainer's configuration: schedule, sizes, CSV.",
        Lazy("interop.check_command:check"),
        place=30,
    ),
)
