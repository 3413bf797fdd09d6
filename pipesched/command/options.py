"""Every option of every command, declared once: its name, how its value is read, its default, its help.

    Option("mem_cap", caps, "Most activations that …", "K|K0,K1,...")     --mem-cap 4,4,3,3      mem_cap=[4, 4, 3, 3]

The command line makes its options of these rows (`command.flags`); the keyword arguments of `shell.api`, written out
there for readers and type checkers, have the same names and defaults, and their values are read by the same rows. Both
end in the same requests. What only a terminal needs (files to write, colour, the form of the output) is no keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pipesched.chart.views import taking, views
from pipesched.command import sizes, values
from pipesched.command.values import Choice, Not, flag, short, text, whole
from pipesched.diagnostics import Code, fail
from pipesched.formats.targets import targets
from pipesched.model.torch_versions import DEFAULT, NEWEST, OLDEST

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pipesched.compile import Options
    from pipesched.model.costs import Costs
    from pipesched.model.numbers import Value

Raw = TypeVar("Raw")
Made = TypeVar("Made")
Asked = TypeVar("Asked", bound="DataclassInstance")
Given: TypeAlias = Mapping[str, Any]
"""Values of options by name, each of the type that its row in `COMMANDS` reads."""
MAX_OPS = 2_000_000


@dataclass(frozen=True)
class Option:
    """An option. read: from a value of Python, and from a text of the command line where `typed` does not say other.

    flags: on the command line, where that is not the name. terminal: it is no keyword of a function; sizes are, as
    parameters of the schedule.
    """

    name: str
    read: Callable[[str], object] = text
    help: str | None = None
    metavar: str | None = None
    default: object = None
    flags: tuple[str, ...] = ()
    typed: Callable[[str], object] | None = None
    terminal: bool = False

    @property
    def many(self) -> bool:
        """Whether it may be given several times."""
        return self.default == ()


_P, _V, _M, _D = SIZES = (
    Option("p", sizes.read, "Ranks.", "N|A,B|A..B", terminal=True),
    Option("v", sizes.read, "Stages of each rank.", "N|A,B|A..B", terminal=True),
    Option("m", sizes.read, "Microbatches.", "N|A,B|A..B", terminal=True),
    Option(
        "definitions",
        sizes.definition,
        "Any other parameter; a list as 4,3,7.",
        "NAME=N|@FILE",
        (),
        ("-D",),
        terminal=True,
    ),
)
_LIMIT = Option("max_ops", whole, "Refuse more operations [default: 2 million].", "N", MAX_OPS)
_ONE_EACH = (
    "Costs of F, I, W, B, R, O, L, C, FB; M, K: memory [default: 1, B 2, C 0; some given: I = W = B / 2, and so on]."
)
_COST = Option("cost", values.costs, _ONE_EACH, "F=1,...", terminal=True)
_BY_STAGE = "Costs from a file, a number or a list by stage each."
_COSTS = Option("costs", values.costs, _BY_STAGE, "FILE.toml", typed=values.costs_file)
_RELEASE = Option("release", values.release, "W, I, split:x, torch or I=a,W=b.", "RULE", "W")
_HELD = "Most activations that a rank may hold, without buffers and parameters; in bytes, as 80GB, with --model."
_MODEL = Option("model", values.model, "A transformer and its training, for memory in bytes.", "FILE.toml|NAME")
_CAP = Option("mem_cap", values.caps, _HELD, "K|K0,K1,...")
_DEVICE = Option("device", values.device, "With --model, costs in ms on a100, h100, h200, ...", "NAME|FILE.toml")
_EFFICIENCY = Option("efficiency", values.fraction, "Share of its peak that it reaches [default: 1/2].", "X")
_TIMED = (replace(_MODEL, help="With --device, what the costs are of."), _DEVICE, _EFFICIENCY)
_BYTES = replace(_MODEL, help="For memory in bytes; with --device, the costs too.")
_COMM = Option("comm", text, "The model whose failure counts [default: strict].", "MODEL")
_CHECKS = (_COST, _COSTS, _RELEASE, _CAP, _COMM)
_VERSION = f"Rules for a torch CSV [default: {DEFAULT}; check: by the trainer]."
_TORCH = (
    Option("torch_version", values.version, _VERSION, f"{OLDEST}..{NEWEST}"),
    Option("stages", whole, "Stages of a torch CSV, checked against the file.", "N"),
    Option("placement", values.ranks, "Ranks of its stages, checked likewise.", "R0,R1,..."),
    Option("frozen", sizes.stages, "Stages of a CSV, order or stream that are not trained; both ends.", "S|A,B|A..B"),
)
_FRAMEWORK = (
    Option("framework_path", text, "Where a framework is installed: a folder of packages, an environment.", "DIR"),
    Option("framework_time", values.seconds, "Seconds that its code may take.", "SECONDS", 60),
)
_ALL, _READ = (*SIZES, _LIMIT, *_CHECKS, *_TORCH, *_FRAMEWORK), (_LIMIT, *_TORCH, *_FRAMEWORK)

FORMATS = ("text", "concise", "json", "github")
_PER_CENT = "Significant digits of per cent [default: one decimal]."
_DIGITS = Option("digits", values.significant, _PER_CENT, "N", terminal=True)
_FORMAT = Option("format", Choice(*FORMATS), default="text", terminal=True)
_JSON = Option("json", flag, "--format json; its shape is emit/report.schema.json.", terminal=True)
_COLOR = Option("color", Choice("auto", "always", "never"), default="auto", terminal=True)
_VERBOSE = Option("verbose", flag, "All that is assumed of the model and its device.", terminal=True)
_FILE = Option("output", text, "Write to FILE instead of stdout.", "FILE", flags=("-o", "--output"), terminal=True)
_OUTPUT = (_FORMAT, _JSON, _COLOR, _FILE)
_RESULTS = (_DIGITS, *_OUTPUT)
_SHARE = "Costs are those of 1/p of the model, or of one stage."
_INSTANTS = "Write when each instruction began and ended, for Perfetto and `calibrate`."


def _for(option: str) -> str:
    """The views for which an option of `show` means something."""
    return f"{', '.join(taking(option))}: "


def _every(help: str) -> Option:
    return Option("every", flag, help, flags=("--all",), terminal=True)


COMMANDS: Mapping[str, tuple[Option, ...]] = {
    "verify": (
        *_ALL,
        _MODEL,
        *_TIMED[1:],
        Option("fsdp", flag, "Ask for UNSHARD and RESHARD in a torch CSV.", default=False),
        Option("require_proof", flag, "Fail unless it is an answer that is proved optimal.", default=False),
        Option("proof", text, "Write its clauses to PATH.cnf, their refutation to PATH.lrat.", "PATH"),
        Option("recorded", values.folder, "What the ranks of a real run posted, held against the schedule.", "DIR"),
        _VERBOSE,
        *_RESULTS,
    ),
    "optimize": (
        replace(_P, help="Ranks [default: 4].", metavar="N", read=whole),
        replace(_V, help="Stages of each rank [default: 1].", metavar="N", read=whole),
        replace(_M, help="Microbatches [default: 2p].", metavar="N", read=whole),
        replace(_D, help="Another parameter."),
        Option("placement", values.placement, "Where the stages are.", "linear|loop|vee|0,1,..|FILE"),
        replace(_CAP, metavar="K|K0,K1,..|A..B[:STEP]", typed=values.caps_or_range),
        replace(_COST, help="Costs of F, I, W, B, C, M [default: 1, B 2, C 0; F and B given: I = W = B / 2]."),
        _COSTS,
        replace(_MODEL, help="What a cap in bytes is of; with --device, the costs too."),
        *_TIMED[1:],
        _RELEASE,
        Option("objective", Choice("makespan", "span"), default="makespan"),
        Option("backward", Choice("split", "fused"), "Split into I and W, or whole [default: split]."),
        Option("all_m", flag, "One schedule for every number of microbatches.", default=False),
        Option("time_limit", values.seconds, None, "SECONDS", 60),
        Option("engine", Choice("auto", "z3", "sat", "cpsat"), default="auto"),
        Option("seed", whole, "Where chance begins.", "N", 0),
        Option("portfolio", flag, "Start without known schedules and heuristics.", None, True, ("--no-portfolio",)),
        Option("certify", flag, "Prove what rests on an engine's word; verify follows the proof.", default=False),
        Option("confirm", flag, "Have Z3 decide it too, also where that takes it long.", default=False),
        Option("proof", text, "Write the refutation to PATH.cnf and PATH.drat; with --certify .lrat.", "PATH"),
        Option("require_proof", flag, "End with 3 if it is optimal on an engine's word alone.", terminal=True),
        Option("plot", text, "Draw bubble against cap, for a range of caps.", "OUT.svg", terminal=True),
        _VERBOSE,
        *_RESULTS,
    ),
    "show": (
        Option("format", Choice(*views()), "[default: by the suffix of -o, else text]"),
        _FILE,
        Option("width", whole, _for("width") + "columns [default: of the terminal, else 80].", "N"),
        Option("begin", values.instant, _for("begin") + "draw from this time on.", "T", flags=("--from",)),
        Option("end", values.end, _for("end") + "draw up to this time; dag: as GraphML.", "T|graphml", flags=("--to",)),
        Option("ascii", flag, _for("ascii") + "no characters beyond ASCII.", default=False),
        Option("style", Choice("default", "zero-bubble", "megatron"), _for("style") + "the look of a paper."),
        Option("messages", flag, _for("messages") + "arrows from sender to receiver.", default=False),
        Option("memory", flag, _for("memory") + "what each rank holds, under it.", default=False),
        Option(
            "measured",
            values.files,
            _for("measured") + "a run of it under the plan; a file a rank.",
            "TRACE",
            typed=text,
            default=(),
        ),
        replace(_MODEL, help=_for("model") + "bytes by kind over time, of a transformer and its training."),
        *_TIMED[1:],
        Option("force", flag, _for("force") + "draw more than 50,000 and 3,000 operations.", default=False),
        *_ALL,
        _DIGITS,
        replace(_JSON, help="One object: format, picture, and what is wrong with the file."),
        _COLOR,
    ),
    "why": (_every("Every rank, all of the critical path, and every gap."), *_ALL, *_TIMED, _VERBOSE, *_RESULTS),
    "compare": (
        Option("library", flag, "Every built-in schedule too.", None, False, ("--all",)),
        Option("cost_per", Choice("rank", "stage"), _SHARE, None, "rank"),
        Option("plot", text, "Draw the bubble against peak memory.", "OUT.svg", terminal=True),
        *_ALL,
        _BYTES,
        *_TIMED[1:],
        _VERBOSE,
        *_RESULTS,
    ),
    "plan": (
        replace(_MODEL, help="The transformer; how it is trained but for what is planned.", read=values.named_model),
        Option("gpus", whole, "GPUs of the cluster.", "N"),
        Option("gpus_per_node", whole, "[default: of the device's row]", "N"),
        Option("device", values.device, "What the GPUs are.", "NAME|FILE.toml"),
        Option("batch", whole, "Sequences of a step [default: the model's].", "B"),
        Option("tokens", values.amount, "Tokens to train on, for the days: 300B, 15T.", "T"),
        Option("mem_cap", values.byte_cap, "Most bytes of a GPU [default: its memory].", "80GB"),
        Option("only", values.texts, "Try these values of p, t, c, d, e, v, b, ...", "t=4,8", (), typed=text),
        Option("explain", text, "Say why such a choice is not the first.", "p=8,t=4,.."),
        Option("top", whole, "Rows.", "N", 5),
        Option("efficiency", values.fraction, "Share of its peak that a GPU reaches [default: 1/2].", "X"),
        Option(
            "overlap",
            values.fraction,
            "Share of data parallelism's messages that may overlap compute [default: 1].",
            "X",
        ),
        Option("executor", text, "Who works.", "processes[:N]|here|dask:ADDRESS", "processes", terminal=True),
        Option("plot", text, "Draw seconds against bytes.", "OUT.svg", terminal=True),
        replace(_VERBOSE, help="All that is assumed of the model and the cluster."),
        replace(_FORMAT, read=Choice("text", "json")),
        replace(_JSON, help="One object: rows, counts, rules, assumed."),
        _COLOR,
        replace(_FILE, help="Write to FILE instead of stdout; FILE.html is a page."),
    ),
    "diff": (_every("Every line, and every operation on it."), *_ALL, _BYTES, *_TIMED[1:], _VERBOSE, *_RESULTS),
    "emit": (
        Option("to", Choice(*targets()), None, None, "stream", ("--target",)),
        Option("per_rank", text, "Write a file for each rank into DIR: rank0.json, ...", "DIR", terminal=True),
        *_ALL,
        *_OUTPUT,
    ),
    "run": (
        Option("net", Choice("mlp", "transformer"), default="mlp"),
        Option("samples", values.counts, "Samples of each microbatch [default: 4 each].", "N0,N1,..."),
        Option("steps", whole, "Training steps.", "N", 3),
        Option("backend", text, "Of torch.distributed: gloo, nccl.", "NAME", "gloo"),
        Option("device", Choice("cpu", "cuda"), default="cpu"),
        Option("engine", Choice("pipesched", "torch"), default="pipesched"),
        Option("timeout", values.real, "Seconds that are a stall.", "S", 30),
        Option("pace", values.real, "Milliseconds of a cost of 1.", "MS", 20),
        replace(_COST, help="Costs of F, I, W, B, FB [default: 1, B 2; F and B given: I = W = B / 2]."),
        _COSTS,
        _COMM,
        Option("trace", flag, _INSTANTS, "FILE", False, typed=text),
        Option(
            "faults",
            values.texts,
            "Break something, to see it reported.",
            "KIND@RANK[:N]",
            (),
            flags=("--fault",),
            typed=text,
        ),
        Option("rank", whole, "Run the list of this rank alone, its neighbours imitated.", "R"),
        Option("factory", text, "With --rank: makes a stage of the model.", "FILE.py:FUNCTION", flags=("--stages",)),
        replace(_MODEL, help="With --rank: what enters a stage, where the function gives modules alone."),
        *SIZES,
        *(option for option in _READ if option.name != "stages"),
        *_RESULTS[:-1],
        replace(_FILE, help="Write to FILE instead of stdout; with --rank, the costs as --costs reads them."),
    ),
    "check": (
        Option("trainer", text, "Trainer, and its release [default: by the file].", "NAME[==RELEASE]"),
        _TORCH[0],
        Option("p", whole, "Ranks, where the file does not say: DeepSpeed.", "N"),
        Option("processes", whole, "All processes: those of every replica.", "N"),
        Option(
            "variables",
            values.variables,
            "A variable of the script.",
            "NAME=VALUE",
            (),
            flags=("-D",),
            typed=values.variable,
        ),
        Option(
            "dry_run_script",
            flag,
            "EXECUTE the file by bash, with torchrun, python, srun, ... replaced by recorders of their arguments.",
            default=False,
        ),
        *_OUTPUT,
    ),
    "calibrate": (
        Option("digits", whole, "Significant digits.", "WHOLE", 3),
        replace(_JSON, help="One object: costs, and what they were fitted from."),
        replace(_FILE, help="Write the costs as --costs reads them; - for stdout.", metavar="COSTS.toml"),
        _COLOR,
    ),
    "fmt": (
        Option("check", flag, "Write nothing; name the files that would change: exit status 1 if any.", terminal=True),
        Option("diff", flag, "Write nothing; show what would change: exit status 1 if anything.", terminal=True),
        *_OUTPUT,
    ),
    "list": _OUTPUT,
    "explain": _OUTPUT,
}


def read(command: str, given: Given) -> Given:
    """Keyword arguments, each as its option reads it; None stays where it is the default.

    Raises:
        PipeschedError: PS225, PS809.
    """
    made = dict(given)
    for option in COMMANDS[command]:
        if option.name in made and not (made[option.name] is None and option.default is None):
            made[option.name] = value(option.name, option.read, made[option.name])
    return made


def value(name: str, reader: Callable[[Raw], Made], given: Raw) -> Made:
    """A value of Python, read.

    Raises:
        PipeschedError: PS225, with the name in the message.
    """
    try:
        return reader(given)
    except Not as error:
        raise fail(Code.USAGE, f"{name} is {short(given)}, not {error.what}") from None
    except ValueError as error:
        raise fail(Code.USAGE, f"{name}: {error}") from None


def request(kind: type[Asked], given: Given, **more: object) -> Asked:
    """A frozen request of the values that go by the names of its fields."""
    names = {field.name for field in fields(kind)} - more.keys()
    return kind(**{name: given[name] for name in names & given.keys()}, **more)


def costs(given: Given) -> Costs | None:
    """The costs of ``--cost`` over those of ``--costs``, or None."""
    base, own = given.get("costs"), given.get("cost")
    return base if own is None else own if base is None else own.over(base)


def compile_options(given: Given, sizes: Mapping[str, Value]) -> Options:
    """How to load and to examine a file at a size.

    Raises:
        PipeschedError: PS225, a size below 1.
    """
    from pipesched.compile import Options

    settings = given.get("settings") or settings_of(given.get("definitions", ()))
    device = given.get("device")
    if isinstance(device, str):  # where torch runs, and no row of devices
        device = None
    return request(Options, given, parameters=dict(sizes), costs=costs(given), settings=settings, device=device)


def settings_of(definitions: Iterable[tuple[str, sizes.Sizes | str | float]]) -> dict[str, str | float]:
    """The definitions that are no sizes."""
    return {name: given for name, given in definitions if not isinstance(given, sizes.Sizes)}
