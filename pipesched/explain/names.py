"""Suggest intended names, and sizes that a file accepts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from pipesched.common.library import takes
from pipesched.diagnostics import Diagnostic
from pipesched.language.typecheck import Checked
from pipesched.model.numbers import Value
from pipesched.model.placement import Placement

_LONG, _MANY = 60, 5_000  # limits of a search: letters of a name, number of names
_LISTED = 12  # most names that a remedy lists
_FAR = 129  # distance up to which other sizes are tried
_ALIASES = {  # other names, by the name in most files
    "m": "num_microbatches n_microbatches num_mb n_mb nmb mb microbatches micro_batches M",
    "p": "world_size num_stages n_stages num_ranks n_ranks pp_size pp num_devices devices P",
    "v": "num_chunks n_chunks num_model_chunks vpp vpp_size virtual_stages V",
    "r": "rank rank_id pp_rank stage_id stage_index device device_id my_rank R",
}
_NO_SUCH = {
    "True": "write `true`",
    "False": "write `false`",
    "None": "there is no null value: every value is a number, true or false",
    "len": "only parameters can be lists; the declaration states the length, such as m",
    "range": "a range is written `low .. high`, and only after `in`",
    "held": "it can be used only in the conditions of `greedy`",
    "pending": "it can be used only in the programs of ranks",
    **dict.fromkeys(("sum", "floor", "ceil", "int", "round"), "use min, max, abs, `//` and `%`"),
}

_NCCL = (
    "NCCL keeps the order of the messages that a rank posts on one communicator:\n"
    "one-stream if all ranks share one (`device_id`, or batched sends),\n"
    "pair-stream if each pair of ranks has its own (torch without `device_id`);\n"
    "a program that completes under strict also completes under both, even if NCCL does not buffer"
)
_GLOO = "gloo keeps the order only within a channel: use async for posted messages, strict for blocking sends"
_MPI = "MPI_Ssend is strict, MPI_Bsend is buffered(k), and MPI_Send may be either"
_MEETING = "use strict for sends and receives that wait for each other"
_EAGER = "buffered(k) buffers up to k messages per channel, buffered(inf) buffers all messages"
_POSTED = "use one-stream, pair-stream or async for sends and receives that are only posted"
_USED_BY = {  # names that people use in place of a communication model, and the models that they mean
    **dict.fromkeys(("nccl", "rccl", "hccl", "xccl", "cuda"), _NCCL),
    **dict.fromkeys(("gloo", "cpu"), _GLOO),
    **dict.fromkeys(("mpi", "ucc"), _MPI),
    **dict.fromkeys(("rendezvous", "blocking", "sync", "synchronous", "ssend"), _MEETING),
    **dict.fromkeys(("eager", "buffer", "bsend"), _EAGER),
    **dict.fromkeys(("asynchronous", "nonblocking", "non-blocking", "isend"), _POSTED),
    **{name: f"did you mean {name.replace('_', '-')}?" for name in ("one_stream", "pair_stream")},
}


def name(found: Sequence[Diagnostic], visible: Iterable[str], there: str) -> Sequence[Diagnostic]:
    """Suggest the nearest name, or list the known names. there: in a claim, the names that it may use, as text."""
    where = found[0].where
    assert where is not None
    known = sorted({x for x in visible if len(x) <= _LONG})[:_MANY] if len(where.text) <= _LONG else []
    meant = [own for own, others in _ALIASES.items() if where.text in others.split() and own in known]
    close = meant or difflib.get_close_matches(where.text, known, 1, 0.6)
    here = f"names here are {', '.join(known[:_LISTED])}; {found[0].help}" if known else found[0].help
    help = _NO_SUCH.get(where.text) or (f"did you mean `{close[0]}`?" if close else there or here)
    if close and there:
        help = f"{help} {there}"
    if where.source.line(where.line).lstrip().startswith("//"):
        help = "a comment begins with `#`, and `//` divides: write `#`"
    return [replace(found[0], help=help)]


def model(found: Sequence[Diagnostic], typed: str) -> Sequence[Diagnostic]:
    """Name the communication models that correspond to the given word."""
    return [replace(found[0], help=f"{_USED_BY[typed]}\n{found[0].help}")] if typed in _USED_BY else found


def parameter(found: Sequence[Diagnostic], typed: str, known: Collection[str]) -> Sequence[Diagnostic]:
    """Suggest the nearest parameter."""
    close = difflib.get_close_matches(typed[:_LONG], [*known][:_MANY], 1, 0.5)
    return [replace(found[0], help=f"did you mean `{close[0]}`?")] if close else found


def sizes(
    found: Sequence[Diagnostic], checked: Checked, given: Mapping[str, Value], now: Mapping[str, Value]
) -> Sequence[Diagnostic]:
    """Suggest the accepted sizes nearest to the refused ones. now: the value of each parameter."""
    if near := _near(checked, now, given):
        return [replace(found[0], help=f"it takes {near}")]
    alone = _near(checked, now, {})
    return [replace(found[0], help=f"it accepts {alone} if the other parameters are omitted")] if alone else found


def _near(checked: Checked, now: Mapping[str, Value], given: Mapping[str, Value]) -> str:
    """Return the nearest accepted values on both sides, changing one parameter at a time: m first and p last."""
    found = list[str]()
    for name in sorted(checked.parameters, key=lambda x: (x == "p", x != "m")):
        if isinstance(value := now[name], int):
            least, flag = (1, f"--{name} ") if name in ("p", "v", "m") else (0, f"-D {name}=")
            for way in (range(value - 1, max(least - 1, value - _FAR), -1), range(max(least, value + 1), value + _FAR)):
                fits = (x for x in way if takes(checked, {**given, name: x}))
                found += [f"{flag}{x}" for x in islice(fits, 1)]
    return " or ".join(filter(None, [", ".join(found[:4][:-1]), *found[:4][-1:]]))


def ranks(found: Sequence[Diagnostic], placement: Placement, expression: str) -> Sequence[Diagnostic]:
    """Suggest ranks that count from 0, if no stage is on rank 0."""
    first = int(placement.rank_of.min())
    return [replace(found[0], help=f"ranks count from 0: write `{_lowered(expression, first)}`")] if first else found


def _lowered(expression: str, by: int) -> str:
    """Subtract a number from an expression: ``s + 1`` minus 1 is ``s``."""
    plain = re.fullmatch(rf"(.+?)\s*\+\s*{by}|{by}\s*\+\s*(.+)", expression, re.DOTALL)
    return f"{expression} - {by}" if plain is None else plain[1] or plain[2]
