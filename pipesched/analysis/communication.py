"""The communication models by name, strictest first.

    strict        SEND and RECV meet (rendezvous); messages of a batch progress independently
    buffered(k)   a SEND blocks only while k messages of its channel are unreceived
    one-stream    posted; the posts of a rank on one communicator complete in posting order
    pair-stream   posted; in order per communicator and pair of ranks
    async         posted; in order only on their channel

A program that is safe under strict is safe under all of them: strict implies every wait of the other models. Strict
also implies that two-rank communicators, which are created at first use, are created in a consistent order, since the
first operations of a pair must then be reached at the same time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.extension import explained


@dataclass(frozen=True, slots=True)
class Model:
    """A communication model. `capacity`: the k of ``buffered(k)``; None means unbounded."""

    kind: str
    capacity: int | None = None

    @property
    def posted(self) -> bool:
        """True if SEND and RECV only post a message and never block their list."""
        return self.queued or self.kind == "async"

    @property
    def queued(self) -> bool:
        """True if posted messages wait in queues."""
        return self.kind in ("one-stream", "pair-stream")

    def __str__(self) -> str:
        if self.kind != "buffered":
            return self.kind
        return f"buffered({'inf' if self.capacity is None else self.capacity})"


STRICT = Model("strict")
ONE_STREAM = Model("one-stream")
PAIR_STREAM = Model("pair-stream")
ASYNC = Model("async")
UNBOUNDED = Model("buffered", None)


def buffered(capacity: int | None) -> Model:
    """Return ``buffered(k)`` for k >= 1, or the unbounded model for None."""
    return Model("buffered", capacity)


_MODELS = "choose strict, buffered(k) with k >= 1 or inf, one-stream, pair-stream or async"


def parse_model(text: str) -> Model:
    """Return the model with this name.

    Raises:
        PipeschedError: PS225: the model is unknown.
    """
    name = text.strip().lower()
    for model in (STRICT, ONE_STREAM, PAIR_STREAM, ASYNC):
        if name == model.kind:
            return model
    match = re.fullmatch(r"buffered(?:\((inf|[1-9]\d{0,8})\))?", name)
    if not match:
        unknown = fail(Code.USAGE, f"no communication model is called {text!r}", help=_MODELS)
        raise PipeschedError(explained("model", unknown.diagnostics, name))
    return buffered(int(match[1]) if match[1] and match[1] != "inf" else None)
