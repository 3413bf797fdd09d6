"""The rows of interop: targets, checks, listings and verbs for frameworks, trainers and recorded runs."""

from pipesched.common.rows import Listing, Service
from pipesched.extension import Check, Codes, Later, Lazy, Names, Needs, Option, Row, Target, Verb, flag

_READING = ("verify", "show", "emit", "why", "compare", "diff", "run")
_RUN = Lazy[type]("interop.values:Run")
_FRAMEWORK = Lazy[type]("interop.frameworks.loaded:Framework")

ROWS: tuple[Row, ...] = (
    Codes(Lazy("interop.codes:InteropCode")),
    Target(
        "torch-csv",
        "compute operations, in the form that torchtitan and NeMo AutoModel load; trainer settings go to stderr",
        ".csv",
        Lazy("interop.torch.target:COMPUTES"),
        messages=False,
        torch=True,
        place=10,
    ),
    Target(
        "torch-comms",
        "compute operations with torch's sends, receives, sharding and reductions, for --torch-version",
        ".csv",
        Lazy("interop.torch.target:COMMS"),
        messages=True,
        torch=True,
        place=20,
    ),
    Target(
        "deepspeed",
        "a Python module with which DeepSpeed's pipeline engine runs the program, one stage per rank",
        ".py",
        Lazy("interop.targets.deepspeed_write:DEEPSPEED"),
        messages=True,
        blocks=True,
        place=30,
    ),
    Check(
        "a buffer of a framework holds one microbatch at a time",
        ("PS865",),
        Lazy("interop.frameworks.kept:check"),
        place=80,
        owner=Lazy("interop.frameworks.kept:Keeping"),
    ),
    Check(
        "torch: each stage is on one rank and has backwards, full ones after frozen stages; the last stage's "
        "forwards are in order",
        ("PS804", "PS806", "PS814", "PS819", "PS901", "PS903"),
        Lazy("interop.torch.torch_order:check_torch_order"),
        Needs.TORCH,
        place=90,
    ),
    Check(
        "torch: stages compute between UNSHARD and RESHARD; torch's version has all actions; all waits are right",
        ("PS805", "PS807", "PS808"),
        Lazy("interop.torch.torch_program:check_torch_program"),
        Needs.TORCH | Needs.OWN,
        place=100,
    ),
    Option(
        "framework_path",
        Lazy("command.values:text"),
        "Where a framework is installed: a folder of packages, or an environment.",
        "DIR",
        on=_READING,
        after="frozen",
        into=_FRAMEWORK,
    ),
    Option(
        "framework_time",
        Lazy("command.values:seconds"),
        "Time limit for the framework's code in seconds.",
        "SECONDS",
        60,
        on=_READING,
        after="framework_path",
        into=_FRAMEWORK,
    ),
    Option(
        "fsdp",
        flag,
        "Require UNSHARD and RESHARD in a torch CSV.",
        default=False,
        on=("verify",),
        after="framework_time",
        into=Lazy("interop.torch.torch_program:Sharding"),
    ),
    Option(
        "recorded",
        Lazy("interop.values:folder"),
        "Folder with the records of a real run, to compare with the schedule or with each other.",
        "DIR",
        on=("verify",),
        after="proof",
        into=_RUN,
    ),
    Later(Lazy("interop.recorded.judged:judged"), place=10, owner=_RUN),
    Listing(
        "frameworks",
        Lazy("interop.frameworks.frameworks:entries"),
        Lazy("interop.frameworks.frameworks:lines"),
        place=10,
    ),
    Service("launcher", Lazy("interop.launch.launchers:launcher")),
    Names(
        "framework",
        Lazy("interop.frameworks.frameworks:call"),
        Lazy("interop.frameworks.frameworks:meant"),
        Lazy("interop.frameworks.frameworks:names"),
        Lazy("interop.frameworks.loaded:read"),
        ("parameters", "settings", "max_ops", "owned"),
    ),
    Verb(
        "check",
        "Other people's",
        "Check a trainer's configuration: its schedule, sizes and CSV.",
        Lazy("interop.check_command:check"),
        Lazy("interop.options:CHECK"),
        place=30,
    ),
)
