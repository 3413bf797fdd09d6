"""Runs pipeline code that posts its own messages, once per rank, on tokens and with a fake process group.

    def order(p: int, m: int):
        def step(at):                                    called once per rank; imports the traced code
            from dualpipe import DualPipeV
            DualPipeV((at.module(at.rank), at.module(2 * p - 1 - at.rank))).step(at.batch, num_chunks=m, …)
        return traced(step, p, "dualpipe")               the packages that run unchanged

Within `step`, torch is replaced: a tensor is a token without values; `isend`, `irecv`, `P2POp` and `batch_isend_irecv`
record their arguments; a module records F, and `backward`, `autograd.backward` or the engine of autograd record B; or
I, and later W, if a store of weight gradients is enabled or `inputs` names the wanted gradients. All other modules are
Fakes, and code that needs the value of a Fake is refused. A received token is named by the operation that uses it, so
`verify` finds a receive that is used for a different microbatch from the one sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Protocol

from pipesched.common.functions import Unknown
from pipesched.interop.frameworks.fakes import Fake, Finder, Undecided
from pipesched.interop.frameworks.megatron_rank import (
    PIPELINE,
    Event,
    Group,
    Rank,
    Token,
    waits_later,
    words,
)
from pipesched.interop.frameworks.recording import FOLDERS, Recorded


class Store(Protocol):
    """A store of weight gradients: while it is enabled, a backward puts the work for its weight gradients there."""

    enabled: bool

    def put(self, work: Callable[[], object]) -> object: ...


class Tensor(Token):
    """A stand-in for a tensor. made: the module that made it, and that module's input. weight: True for a parameter."""

    made: tuple[Module, Tensor | None] | None = None
    requires_grad = True
    weight = False
    data = Fake("the data of a tensor")  # type: ignore[assignment]

    def detach(self) -> Tensor:
        """Return a token with the same label, at which a backward stops."""
        return Tensor(self.label)

    def _itself(self, *given: object, **named: object) -> Tensor:
        return self

    requires_grad_ = detach_ = contiguous = clone = to = cuda = view = __truediv__ = __add__ = _itself

    def tensor_split(self, parts: int, dim: int = 0) -> list[Tensor]:
        """Return a new token for each of the parts."""
        return [Tensor() for _ in range(parts)]

    chunk = split = tensor_split

    def backward(self, gradient: object = None, **named: object) -> None:
        """Record the backward of the module that made this token."""
        backward([self], None if gradient is None else [gradient])


class Base:
    """A replacement for torch.nn.Module as the base of other people's classes: it only holds attributes."""

    def __init__(self, *given: object, **named: object) -> None:
        self.training = True

    def __call__(self, *given: object, **named: object) -> object:
        return self.forward(*given, **named)  # type: ignore[attr-defined]

    def parameters(self) -> Iterator[Tensor]:
        """Yield one parameter."""
        made = Tensor()
        made.weight = True
        yield made

    def train(self, mode: bool = True) -> Base:
        """Do nothing."""
        return self


class Module(Base):
    """A stage of the model. first: the microbatch of its first forward; weights: the store of weight gradients."""

    def __init__(self, rank: Rank, stage: int, first: int, weights: Store | None) -> None:
        super().__init__()
        self.rank, self.stage, self.next, self.weights = rank, stage, first, weights
        self.input: object = None
        self.halves: set[int] = set()  # microbatches with an I

    def set_input_tensor(self, tensor: object) -> None:
        """Set the input of the next forward, as Megatron's models do."""
        self.input = tensor[0] if isinstance(tensor, list | tuple) and tensor else tensor

    def forward(self, *inputs: object) -> Tensor:
        """Record the forward of the next microbatch."""
        made = self._begun(inputs)
        assert made.label is not None
        self.rank.compute(made.label)
        return made

    def _begun(self, inputs: Sequence[object]) -> Tensor:
        given = next((x for x in (*inputs, self.input) if isinstance(x, Tensor)), None)
        microbatch, self.next = self.next, self.next + 1
        if self.stage:
            self.rank.take(given, ("F", self.stage - 1, microbatch))
        made = Tensor(("F", self.stage, microbatch))
        made.made = (self, given)
        return made

    @staticmethod
    def overlapped_forward_backward(
        module0: Module,
        inputs0: Sequence[object],
        criterion0: Callable[..., object] | None,
        labels0: Sequence[object],
        module1: Module,
        loss1: Tensor | None,
        outputs1: Sequence[object],
        gradients1: Sequence[object],
    ) -> tuple[list[Tensor], object]:
        """Record a forward and a backward as an overlap; the signature is DualPipe's."""
        made = module0._begun(inputs0)
        ended = module1.ended([loss1] if loss1 is not None else outputs1, gradients1)
        assert made.label is not None
        module0.rank.compute(made.label, ended)
        return [made], criterion0(made, *labels0) if criterion0 is not None else None

    def half(self, wanted: Sequence[Tensor], stage: int, microbatch: int) -> None:
        """Record a backward, or the half that computes the wanted gradients."""
        store = self.weights if self.weights is not None and self.weights.enabled else None
        if wanted and all(x.weight for x in wanted):
            self.rank.compute(("W" if microbatch in self.halves else "B", stage, microbatch))
            return
        if not wanted and store is None:
            self.rank.compute(("B", stage, microbatch))
            return
        self.halves.add(microbatch)
        self.rank.compute(("I", stage, microbatch))
        if store is not None:
            store.put(lambda: self.rank.compute(("W", stage, microbatch)))

    def ended(self, outputs: Sequence[object], gradients: Sequence[object]) -> tuple[str, int, int]:
        """Take the gradient of an output, set the gradient of the input, and return the label of the backward."""
        output = outputs[0]
        assert isinstance(output, Tensor) and output.label is not None and output.made is not None
        _, stage, microbatch = output.label
        if gradients:
            self.rank.take(gradients[0], ("B", stage + 1, microbatch))
        if output.made[1] is not None:
            output.made[1].grad = Tensor(("B", stage, microbatch))
        return "B", stage, microbatch


def backward(
    tensors: object, grad_tensors: object = None, *given: object, inputs: object = None, **named: object
) -> None:
    """Record the backward of the module that made these tokens. inputs: the tensors for which gradients are wanted."""
    outputs = [x for x in _listed(tensors) if isinstance(x, Tensor)]
    if not outputs or outputs[0].made is None or outputs[0].label is None:
        raise Undecided("the start of a backward")
    module, (_, stage, microbatch) = outputs[0].made[0], outputs[0].label
    module.ended(outputs, [x for x in _listed(grad_tensors) if x is not None])
    module.half([x for x in _listed(inputs) if isinstance(x, Tensor)], stage, microbatch)


def _listed(tensors: object) -> Sequence[object]:
    return tensors if isinstance(tensors, list | tuple) else [] if tensors is None else [tensors]


class At:
    """The rank for which code is traced, one of p. batch: a token for all inputs of a step, or for all labels."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.ranks, self.batch, self._recorded = rank.here, rank.ranks, Tensor(), rank
        self.stages: list[int] = []

    def module(self, stage: int, *, first: int = 0, weights: Store | None = None) -> Module:
        """Return a stage of the model. first: its first microbatch; weights: a store with `enabled` and `put`."""
        self.stages.append(stage)
        return Module(self._recorded, stage, first, weights)

    def loss(self, output: object, *labels: object) -> object:
        """Return the loss of an output; the backward of the loss runs the backward of the stage."""
        return output


def traced(step: Callable[[At], object], p: int, *packages: str) -> Recorded:
    """Run a step for p ranks, one after another, and return the order of all ranks. packages: packages and single
    modules that run unchanged.

    A reduction after the step is assumed for every stage.

    Raises:
        Unknown: if there is no such package, or Python is older than 3.10.
        Undecided, Nonsense: if the code needs a value, or uses a token as a different message.
    """
    if not hasattr(sys, "stdlib_module_names"):
        raise Unknown("tracing messages requires Python 3.10 or later")
    files = _files(packages)
    rows, later = [], False
    for here in range(p):
        rank = Rank(_root(files), p, here)
        with Finder(files, _torch(rank), ("torch.distributed",)):
            step(at := At(rank))
        rank.events += [Event("reduce", stage=stage) for stage in dict.fromkeys(at.stages)]
        rows.append(words(rank))
        later = later or waits_later(rank)
    return Recorded.of(rows, later=later)


def _root(files: Mapping[str, Path]) -> str:
    """Return the top folder of the first package."""
    first = next(iter(files), "").partition(".")[0]
    folders = [path.parent for name, path in files.items() if name.partition(".")[0] == first]
    return str(min(folders, key=lambda path: len(path.parts), default=Path("/")))


def _files(packages: Iterable[str]) -> dict[str, Path]:
    """Return the files of packages and modules, by the names with which they are imported."""
    found: dict[str, Path] = {}
    for name in packages:
        *above, last = name.split(".")
        spec = PathFinder.find_spec(last, [str(Path(folder, *above)) for folder in (*FOLDERS, *sys.path)])
        if spec is None or spec.origin is None:
            raise Unknown(f"package {name} does not exist", "name its folder with --framework-path")
        origin = Path(spec.origin)
        found[name] = origin
        for path in origin.parent.rglob("*.py") if origin.name == "__init__.py" else ():
            parts = path.relative_to(origin.parent).with_suffix("").parts
            found[".".join((name, *(part for part in parts if part != "__init__")))] = path
    return found


def _torch(rank: Rank) -> dict[str, ModuleType]:
    """Return the replacements for torch and its modules, for one rank."""
    torch, network, autograd = Fake("torch"), Fake("torch.nn"), Fake("torch.autograd")
    distributed, group = Fake("torch.distributed", inert=False), Group(PIPELINE, rank.ranks, rank.here)
    engine = SimpleNamespace(run_backward=backward)
    vars(autograd).update(backward=backward, Variable=SimpleNamespace(_execution_engine=engine))
    vars(network).update(Module=Base, ModuleList=list)
    c10d = SimpleNamespace(_get_default_group=lambda: group, get_global_rank=lambda group, rank: rank)
    vars(c10d).update(_rank_not_in_group=lambda group: False)
    vars(distributed).update(
        ProcessGroup=Group,
        distributed_c10d=c10d,
        get_global_rank=c10d.get_global_rank,
        is_initialized=lambda: True,
        isend=rank.isend,
        irecv=rank.irecv,
        P2POp=rank.p2p_op,
        batch_isend_irecv=rank.batch_isend_irecv,
        get_world_size=lambda group=None: rank.ranks,
        get_rank=lambda group=None: rank.here,
    )
    vars(torch).update(Tensor=Tensor, distributed=distributed, nn=network, autograd=autograd, int=int)
    vars(torch).update(dict.fromkeys(("empty", "empty_like", "zeros", "ones_like"), _token))
    vars(torch).update(device=lambda *given: None, is_grad_enabled=lambda: True, tensor=_token)
    vars(torch.cuda).update(synchronize=rank.synchronize, current_device=lambda: 0)
    tree = Fake("torch.utils._pytree")
    vars(tree).update(tree_map=_mapped, tree_flatten=_flat, tree_unflatten=_filled)
    vars(torch).update(__version__="2.13.0")
    made = {
        "torch.utils._pytree": tree,
        "torch": torch,
        "torch.nn": network,
        "torch.autograd": autograd,
        "torch.distributed": distributed,
    }
    return {**made, "torch.cuda": torch.cuda}


def _mapped(call: Callable[[object], object], tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _mapped(call, part) for key, part in tree.items()}
    return type(tree)(_mapped(call, part) for part in tree) if isinstance(tree, list | tuple) else call(tree)


def _flat(tree: object) -> tuple[list[object], object]:
    """Return the leaves of a tree, and the tree itself as its structure."""
    leaves = list[object]()
    _mapped(leaves.append, tree)
    return leaves, tree


def _filled(leaves: Iterable[object], form: object) -> object:
    left = iter(leaves)
    return _mapped(lambda _: next(left), form)


def _token(*given: object, **named: object) -> Tensor:
    return Tensor()
