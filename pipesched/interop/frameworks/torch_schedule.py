"""Records the schedule classes of the installed torch, with stages that do not compute.

    Interleaved1F1B, ZBVZeroBubble, …    `pipeline_order_with_comms`: the class's order as torch lowers it to actions;
                                         with ``-D lowered=false`` only its compute order, `pipeline_order`
    1F1B, GPipe                          the class's own loop, which is run for every rank and whose posts are recorded

The class is constructed as in a trainer, with its own options (such as `defer_pp_recv`), but without devices, processes
and process groups: it reads only numbers from its stages. Each action records the line that created it; a receive that
was moved records the line of the pass that moved it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from difflib import get_close_matches
from types import FunctionType, ModuleType, SimpleNamespace

from pipesched.common.functions import Unknown
from pipesched.interop.frameworks.recording import Nonsense, Options, Place, Recorded, needed, shown

_GIVEN = {"stage", "stages", "n_microbatches", "loss_fn"}


def record(name: str, options: Options) -> Recorded:
    """Record the order of a class of `torch.distributed.pipelining.schedules`."""
    import torch
    from torch.distributed.pipelining import schedules

    kind = _class(schedules, name)
    p, m = needed(options, "p", "m")
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    v = int(options.get("v", 1 if single else 2))
    own, version = _own(kind, options, torch.__version__), torch.__version__.partition("+")[0]
    if p * v * m > int(options["max-ops"]):
        message = f"{p * v * m:,} forwards exceed the limit of {options['max-ops']:,}"
        raise Nonsense(message, "--max-ops raises it")
    lowered = bool(options.get("lowered", True))
    if not single:
        return _lowered(schedules, kind, (p, v, m), own, version, lowered=lowered)
    if v != 1:
        raise Unknown(f"{kind.__name__} has one stage per rank; v is {v}")
    return (_looped if lowered else _computed)(schedules, kind, (p, m), own, version)


def _computed(schedules: ModuleType, kind: type, sizes: tuple[int, int], own: Options, version: str) -> Recorded:
    """Record the compute order of a schedule class with its own loop."""
    p, m = sizes
    order = kind(stage=_Stage(0, 0, p, p), n_microbatches=m, loss_fn=print, **own).pipeline_order
    cells = [[str(action or "") for action in order[rank]] for rank in range(p)]
    return Recorded([[x for x in row if not x.endswith("REDUCE_GRAD")] for row in cells], (), version)


def _looped(schedules: ModuleType, kind: type, sizes: tuple[int, int], own: Options, version: str) -> Recorded:
    """Record the compute operations and messages of a schedule class with its own loop."""
    logs = [_run(schedules, kind, rank, sizes, own) for rank in range(sizes[0])]
    return Recorded.of(logs, version, later=any(_waits_later([word for word, _ in log]) for log in logs))


def _own(kind: type, options: Options, version: str) -> Options:
    """Return the options for the constructor of the class.

    Raises:
        Unknown: if the class has no option of this name and type.
    """
    given = inspect.signature(kind).parameters
    takes = {key: x.default for key, x in given.items() if key not in _GIVEN and "_spec" not in key}
    own = {key: x for key, x in options.items() if key not in ("p", "m", "v", "max-ops", "lowered")}
    if strangers := [key for key in own if key not in takes]:
        message = f"{kind.__name__} of torch {version} has no option {', '.join(strangers)}"
        raise Unknown(message, f"it has {', '.join(takes)}; lowered=false returns only its compute order")
    for key, kept in {**takes, "lowered": True}.items():
        if isinstance(kept, bool) and options.get(key, kept) not in (True, False):
            raise Unknown(f"option {key} must be true or false, not {options[key]}")
    return own


def _class(schedules: ModuleType, name: str) -> type:
    """Return the schedule class with a name; the prefix `Schedule` is optional, and case does not matter."""
    base = schedules._PipelineSchedule
    classes = [x for x in vars(schedules).values() if inspect.isclass(x) and issubclass(x, base)]
    known = {x.__name__.removeprefix("Schedule"): x for x in classes if x.__name__.startswith("Schedule")}
    plain = {key.lower(): key for key in known}
    asked = name.removeprefix("Schedule").lower()
    if asked not in plain:
        near = get_close_matches(asked, plain, 1)
        raise Unknown(
            f"torch has no schedule class {name}",
            f"did you mean `torch:{plain[near[0]]}`?" if near else f"it has {', '.join(known)}",
        )
    return known[plain[asked]]


class _Stage:
    """A stand-in for a stage, with the attributes that the constructor of a schedule reads."""

    def __init__(self, index: int, rank: int, ranks: int, stages: int) -> None:
        import torch

        self.stage_index, self.num_stages = index, stages
        self.group_rank, self.group_size = rank, ranks
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.submod = torch.nn.Identity()
        self.stage_index_to_group_rank: dict[int, int] = {}


# Classes that are lowered


def _lowered(
    schedules: ModuleType, kind: type, sizes: tuple[int, int, int], own: Options, version: str, *, lowered: bool
) -> Recorded:
    p, v, m = sizes
    if schedules._Action.__module__ != __name__:
        vars(schedules)["_Action"] = _tracing(schedules._Action)
        if moves := getattr(schedules, "_defer_recv_ops", None):
            vars(schedules)["_defer_recv_ops"] = _moved(moves)
    stages = [_Stage(chunk * p, 0, p, p * v) for chunk in range(v)]
    schedule = kind(stages=stages, n_microbatches=m, loss_fn=print, **own)
    order = schedule.pipeline_order_with_comms if lowered else schedule.pipeline_order
    places = [[getattr(action, "made_at", None) for action in order[rank]] for rank in range(p)]
    rows = [[str(action or "") for action in order[rank]] for rank in range(p)]
    return Recorded(rows, places, version, later=lowered)  # torch's runtime waits for a message at its use


def _tracing(action: type) -> type:
    """Return a subclass of `action` whose instances store the line that created them."""

    def new(cls: type, *args: object, **kwargs: object) -> object:
        made, frame = action.__new__(cls, *args, **kwargs), sys._getframe(1)
        _remember(made, frame.f_code.co_filename, frame.f_lineno)
        return made

    return type("Action", (action,), {"__new__": new, "__hash__": action.__hash__, "__module__": __name__})


def _remember(action: object, file: str, line: int) -> None:
    vars(action)["made_at"] = _line(file, line)


_SHOWN: dict[str, str] = {}


def _line(file: str, line: int) -> Place:
    if file not in _SHOWN:
        _SHOWN[file] = shown(file)
    return _SHOWN[file], line


def _moved(moves: FunctionType) -> Callable[..., object]:
    """Wrap a pass that moves receives, so that each receive that it returns is attributed to a line of the pass."""

    def passed(*args: object, **kwargs: object) -> object:
        result = moves(*args, **kwargs)
        for action in (x for row in result.values() for x in row if "RECV" in str(x.computation_type)):
            _remember(action, moves.__code__.co_filename, moves.__code__.co_firstlineno)
        return result

    return passed


# Classes with their own loop, which is run on tokens


class _Loop(_Stage):
    """A stage that computes nothing and records the calls of the loop."""

    has_backward = True

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__(rank, rank, ranks, ranks)
        self.log: list[tuple[str, Place]] = []

    def note(self, word: str) -> None:
        """Record a word, with the line of the loop that caused it."""
        frame = sys._getframe(1)
        while frame.f_back is not None and not frame.f_code.co_name.startswith("_step"):
            frame = frame.f_back
        self.log.append((word, _line(frame.f_code.co_filename, frame.f_lineno)))

    def forward_one_chunk(self, microbatch: int, *args: object, **kwargs: object) -> None:
        self.note(f"F{self.stage_index}.{microbatch}")

    def backward_one_chunk(self, microbatch: int, *args: object, **kwargs: object) -> None:
        self.note(f"B{self.stage_index}.{microbatch}")

    def perform_reduce_grad(self, *args: object) -> None:
        self.note(f"reduce:{self.stage_index}")

    def release_fwd_send_outputs(self, *args: object) -> None:
        """Do nothing: in torch 2.15 and later the method frees memory, and this stage has none."""

    def get_fwd_send_ops(self, microbatch: int) -> list[_Message]:
        return [] if self.is_last else [_Message(self, "send", "F", self.stage_index, microbatch, 1)]

    def get_fwd_recv_ops(self, microbatch: int) -> list[_Message]:
        return [] if self.is_first else [_Message(self, "recv", "F", self.stage_index - 1, microbatch, -1)]

    def get_bwd_send_ops(self, microbatch: int) -> list[_Message]:
        return [] if self.is_first else [_Message(self, "send", "B", self.stage_index, microbatch, -1)]

    def get_bwd_recv_ops(self, microbatch: int) -> list[_Message]:
        return [] if self.is_last else [_Message(self, "recv", "B", self.stage_index + 1, microbatch, 1)]


class _Message:
    """An end of a message (send or receive), which serves as the P2POp, as its tensor, and as the Work to wait for."""

    group = SimpleNamespace(group_name="pp")
    tag = 0

    def __init__(self, stage: _Loop, verb: str, kind: str, made: int, microbatch: int, step: int) -> None:
        self.stage, self.tensor, self.peer = stage, self, stage.group_rank + step
        self.group_peer = self.peer
        self.label, self.sends = f"{kind}{made}.{microbatch}", verb == "send"
        self.op = _isend if self.sends else _irecv
        self.word = f"{verb}:{self.label}{'>' if self.sends else '<'}{self.peer}"
        self.alone = True

    def wait(self, *args: object) -> None:
        """Record the wait for a single send; the loop waits for a receive or a batch right after the post."""
        if self.sends and self.alone:
            self.stage.note(f"wait:{self.label}")


def _isend(message: _Message, *args: object, **kwargs: object) -> _Message:
    message.stage.note(message.word)
    return message


_irecv = lambda message, *args, **kwargs: _isend(message)  # noqa: E731  # another function: the two are distinguished


def _batch(messages: list[_Message]) -> list[_Message]:
    stage = messages[0].stage
    stage.note("(")
    for message in messages:
        message.alone = False
        stage.note(message.word)
    stage.note(")")
    return messages


def _waits_later(row: list[str]) -> bool:
    """Return True if the rank computes between a send and its wait."""
    posted: dict[str, int] = {}
    for number, word in enumerate(row):
        what, _, message = word.partition(":")
        if what == "send":
            posted[message.partition(">")[0]] = number
        elif what == "wait" and any(":" not in x and x not in "()" for x in row[posted[message] : number]):
            return True
    return False


class _Distributed:
    """`torch.distributed` for the loop: its posts are recorded."""

    isend, irecv, batch_isend_irecv = staticmethod(_isend), staticmethod(_irecv), staticmethod(_batch)

    def __init__(self, real: ModuleType) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def _run(schedules: ModuleType, kind: type, rank: int, sizes: tuple[int, int], own: Options) -> list[tuple[str, Place]]:
    """Run the loop of one rank for a step; return its words, each with its source line."""
    p, m = sizes
    if not isinstance(schedules.dist, _Distributed):
        vars(schedules)["dist"] = _Distributed(schedules.dist)
    stage = _Loop(rank, p)
    schedule = kind(stage=stage, n_microbatches=m, loss_fn=print, **own)
    for name in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
        setattr(schedule, name, lambda *args, **kwargs: None)
    schedule._step_microbatches([()] * m, [{}] * m, [None] * m)
    return stage.log
