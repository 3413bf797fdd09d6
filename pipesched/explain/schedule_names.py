"""Suggestions for a schedule or a file whose name was mistyped."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

from pipesched.command.values import short
from pipesched.common.aliases import ROWS, is_in, known_as, plain
from pipesched.diagnostics import Code, Diagnostic
from pipesched.extension import Names, rows
from pipesched.library.assets import built_in
from pipesched.support.foreign import foreign

_SIZES = {  # other names of p, v and m
    "p": ("p", "pp", "np", "n", "ranks", "num-ranks", "devices", "gpus", "world-size", "pp-size", "pp-degree"),
    "v": ("v", "vpp", "chunks", "num-chunks", "model-chunks", "virtual-stages"),
    "m": ("m", "mb", "microbatches", "num-microbatches", "n-microbatches", "micro-batches"),
}
_LOOKED_AT = 10_000  # most names of a folder that are compared
_OLD = "schedules without a flush are `pipedream`, `pipedream_2bw`, `pipemare` and `vertical_sync`"
_SEARCH = "`pipesched optimize --mem-cap K` searches for a provably optimal order under a cap"
NEAR = {
    **dict.fromkeys(("async", "asynchronous"), _OLD),
    **dict.fromkeys(("auto", "adaptive", "zbauto", "tessel"), _SEARCH),
    **dict.fromkeys(
        ("deepseek", "deepseekv3", "bidirectional"),
        "dualpipe, chimera and bitpipe have two routes; dualpipev is dualpipe cut in half, with one route",
    ),
    **dict.fromkeys(
        ("vee", "vshape"), "schedules that go down the ranks and up again: zb_v, v_half, v_min, v_zb, 1f1b_v, v1f1b"
    ),
    **dict.fromkeys(("mepipe", "slimpipe"), "it is not in the library; `seq1f1b` and `seq1f1b_i` have slices"),
    **dict.fromkeys(("sppo", "optpipe", "offload"), "`pipeoffload` keeps activations in host memory"),
    "zerobubble": "zero bubble is zb_h1, zb_h2 or zb_v",
    "zb": "zero bubble is zb_h1, zb_h2 or zb_v",
    "zbvgreedy": "`pipesched optimize --placement vee --mem-cap K` finds orders under a cap",
    "zerobubbleheuristic": "`pipesched optimize --mem-cap K` finds orders under a cap; zb_h1 and zb_h2 are handcrafted",
    "paci": "`pipemare` with k > 1 has the same order and the same weight versions",
    "torchgpipe": "torchgpipe recomputes activations, in the order of `gpipe_reversed`; `unet` has its skip "
    "connections",
    "dynapipe": "DynaPipe also chooses microbatches and their order; `packed` has uneven microbatches, in the order of "
    "1F1B",
    "cornstarch": "Cornstarch also splits the model; `frozen_encoder` has frozen stages, in the order of 1F1B",
    **dict.fromkeys(("recompute", "ripipe"), "`mario` recomputes activations in the bubble"),
    "nanopipe": "NanoPipe delays weight gradients, like `zb_h1` and `interleaved_zb`",
    "bpipe": "BPipe sends activations to another rank, which no file can express; `pipeoffload` sends them to the host",
    "weipipe": "WeiPipe sends weights instead of activations, which no file can express",
    "adapipe": "AdaPipe chooses the recomputed forwards, in the order of `1f1b`; `mario` also recomputes",
    "chronospipe": "ChronosPipe recomputes chunks; `mario` recomputes in the order of 1F1B",
    "gems": "GEMS has the placement of `chimera`, and one microbatch in each direction",
    "graphpipe": "GraphPipe has a graph of stages; `reads` in a file describes one, as in `unet`",
    "vocabularyparallelism": "vocabulary parallelism distributes the vocabulary over all ranks, which no file can "
    "express",
    "1f1bplus": "nnScaler's 1f1b_plus puts stages on all ranks, which no file can express; otherwise it is `1f1b`",
    "pipelineschedulesingle": "torch's class for one stage per rank: `1f1b`, `gpipe`",
    "pipelineschedulemulti": "torch's class for several stages per rank: `interleaved`, `looped_bfs`, `zb_v` and more",
    "varuna": "Varuna decides its order at run time; `greedy` in a file states such a rule, and `mario` also "
    "recomputes",
    "chimeradirect": "`chimera` has the same placement; nnScaler's table covers only four ranks",
    "megatron": "its orders are `1f1b` and `interleaved`; `megatron:interleaved` executes its code",
    "deepspeed": "its order is `1f1b`; `deepspeed:TrainSchedule` executes its code",
    "circular": "`interleaved` and `looped_bfs` have the circular placement: stage s on rank s % p",
    "half": "`v_half` is the V schedule with half the memory of 1F1B",
    "min": "`v_min` is the V schedule with a third of the memory of 1F1B",
}
"""Names of several orders, or of an order without a file, with a suggestion for each."""


def schedule(found: Sequence[Diagnostic], target: str) -> Sequence[Diagnostic]:
    """Suggest the intended schedule or file."""
    return [replace(found[0], help=_meant(target) or found[0].help)]


def path(found: Sequence[Diagnostic], path: str) -> Sequence[Diagnostic]:
    """Suggest the intended file, or the library schedule with that name."""
    return [replace(found[0], help=_beside(path))]


def _named(target: str) -> str | None:
    """Return the remedy for a name with a colon that resembles a name from an extension."""
    said = (row.meant.load()(target) for row in rows(Names) if ":" in target)
    return next((help for help in said if help), None)


def _near(name: str) -> str | None:
    """Return the remedy for a name that stands for several orders, or for an order without a file."""
    row = next((row for row in ROWS if is_in(name, row)), ())
    return next((NEAR[asked] for asked in map(plain, (name, *row)) if asked in NEAR), None)


def _beside(path: str) -> str:
    """Suggest the file in the same folder with a similar name, or the library schedule with that name."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):
        if near := get_close_matches(name, sorted(os.listdir(folder or "."))[:_LOOKED_AT], 1, 0.7):
            return f"did you mean `{os.path.join(folder, foreign(near[0]))}`?"
    if Path(name).suffix == ".ps" and (known := known_as(Path(name).stem)):
        return f"did you mean `{known}`, the built-in schedule?"
    return f"{folder or 'this folder'} does not contain a file with this name"


def _meant(target: str) -> str | None:
    if said := _near(target[:60]):
        return said
    if said := _named(target):
        return said
    parts = target.split(",")
    if parts[1:] and all(os.path.exists(part) or known_as(part) for part in parts):
        return f"give them one by one: `{' '.join(parts)}`"
    if Path(target).suffix:
        beside = _beside(target)
        return f"{beside}{'' if beside[-1] == '?' else ';'} `pipesched list` shows the built-in schedules"
    asked = plain(target)[:60]
    own = {plain(name): name for name in built_in()}
    named = {plain(name): name for name in filter(known_as, chain.from_iterable(ROWS))} | own
    close = [named[x] for x in get_close_matches(asked, named, 1, 0.7) or get_close_matches(asked, own, 1, 0.5)]
    if not close:
        return None
    known = known_as(close[0])
    return f"did you mean `{close[0]}`" + ("?" if close[0] == known else f", which is `{known}` here?")


def target(found: Sequence[Diagnostic], text: str) -> Sequence[Diagnostic]:
    """Suggest the option for a size that was given where a file is expected."""
    size = re.fullmatch(r"([A-Za-z_]\w*)\s*(?:=\s*([\w.,]*)|:\s*([0-9][0-9.,]*)?)", text)
    if size is not None and size[1].lower() != "c" and _named(text) is None:  # a drive of Windows
        help = f"write `{as_option(size[1], size[2] or size[3] or '')}`"
        return [Diagnostic(Code.USAGE, f"{short(text)} is a size, not a file", help=help)]
    if re.fullmatch(r"[0-9]+", text) or text in ("p", "v", "m"):
        return [Diagnostic(Code.USAGE, f"{short(text)} is not a file", help="sizes are options: `--p 4`, `--m 8`")]
    return found


def as_option(name: str, value: str) -> str:
    """Return the option for a size: ``--p 4``, ``-D depth=2``."""
    own = next((own for own, others in _SIZES.items() if name.lower().replace("_", "-") in others), None)
    return f"--{own} {value or 'N'}" if own else f"-D {name.replace('-', '_')}={value or 'N'}"
