"""The sends and receives of published runtimes for each rank, in the notation of `communication_notation.py`.

p ranks, m microbatches, stage r on rank r. Everything in brackets is one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    """The words of rank r of p; empty without a neighbour."""

    r: int
    p: int

    def f(self, i: int) -> str:
        return f"{self.r}F{i}"

    def b(self, i: int) -> str:
        return f"{self.r}B{i}"

    def receive_f(self, i: int) -> str:
        return f"{self.r}RECV_F{i}<{self.r - 1}" if self.r > 0 else ""

    def send_f(self, i: int) -> str:
        return f"{self.r}SEND_F{i}>{self.r + 1}" if self.r < self.p - 1 else ""

    def receive_b(self, i: int) -> str:
        return f"{self.r}RECV_B{i}<{self.r + 1}" if self.r < self.p - 1 else ""

    def send_b(self, i: int) -> str:
        return f"{self.r}SEND_B{i}>{self.r - 1}" if self.r > 0 else ""

    def forward(self, i: int) -> list[str]:
        return [self.receive_f(i), self.f(i), self.send_f(i)]

    def backward(self, i: int) -> list[str]:
        return [self.receive_b(i), self.b(i), self.send_b(i)]


def batch(*words: str) -> str:
    there = " ".join(filter(None, words))
    return f"[{there}]" if there else ""


def _ranks(p: int, order: Callable[[Rank], list[str]]) -> tuple[str, ...]:
    return tuple(" ".join(filter(None, order(Rank(r, p)))) for r in range(p))


def gpipe(p: int, m: int) -> tuple[str, ...]:
    """Return all forwards, then all backwards, each with a lone receive before and a lone send after it."""

    def order(rank: Rank) -> list[str]:
        return [w for i in range(m) for w in rank.forward(i)] + [w for i in range(m) for w in rank.backward(i)]

    return _ranks(p, order)


def naive_1f1b(p: int, m: int) -> tuple[str, ...]:
    """Return 1F1B with every send and receive alone, in the place where its tensor is made or used."""

    def order(rank: Rank) -> list[str]:
        warmup = min(p - 1 - rank.r, m)
        words = [w for i in range(warmup) for w in rank.forward(i)]
        words += [w for i in range(m - warmup) for w in rank.forward(warmup + i) + rank.backward(i)]
        return words + [w for i in range(m - warmup, m) for w in rank.backward(i)]

    return _ranks(p, order)


def fused_1f1b(p: int, m: int) -> tuple[str, ...]:
    """Return 1F1B as Megatron-LM runs it: send_forward_recv_backward and send_backward_recv_forward are batches."""

    def order(rank: Rank) -> list[str]:
        warmup = min(p - 1 - rank.r, m)
        words = [w for i in range(warmup) for w in rank.forward(i)]
        words += [rank.receive_f(warmup)] if warmup < m else []
        for i in range(m - warmup):
            j = warmup + i
            words += [rank.f(j), batch(rank.send_f(j), rank.receive_b(i)), rank.b(i)]
            words += [batch(rank.send_b(i), rank.receive_f(j + 1)) if j + 1 < m else rank.send_b(i)]
        return words + [w for i in range(m - warmup, m) for w in rank.backward(i)]

    return _ranks(p, order)


def deepspeed_1f1b(p: int, m: int, gradient_first: bool) -> tuple[str, ...]:
    """Return DeepSpeed's TrainSchedule: blocking sends and receives, whose order comes from the parity of step and
    stage.

    At step t stage r forwards microbatch (t - r)/2 if t + r is even, else it backwards (t + r + 1)/2 - p. Before that
    it exchanges the latest results with one neighbour. `gradient_first`: the newer of the two orders.
    """

    def order(rank: Rank) -> list[str]:
        words: list[str] = []
        before = -1
        for t in range(2 * (m + p - 1)):
            forward = (t + rank.r) % 2 == 0
            i = (t - rank.r) // 2 if forward else (t + rank.r + 1) // 2 - p
            activation, gradient = (
                (rank.receive_f(i) if 0 <= i < m else "", rank.send_b(before) if 0 <= before < m else "")
                if forward
                else (rank.send_f(before) if 0 <= before < m else "", rank.receive_b(i) if 0 <= i < m else "")
            )
            words += [gradient, activation] if gradient_first else [activation, gradient]
            words += [rank.f(i) if forward else rank.b(i)] if 0 <= i < m else []
            before = i
        return words

    return _ranks(p, order)


def torch_1f1b(p: int, m: int, lazy: bool) -> tuple[str, ...]:
    """Return torch's Schedule1F1B: a batch of sends and receives is fused and uses the group's communicator.

    Alone they use the communicator of the two ranks if communicators are made lazily (no `device_id`), otherwise the
    group's.
    """

    def alone(word: str, rank: Rank) -> str:
        pair = rank.r if word.endswith((f">{rank.r + 1}", f"<{rank.r + 1}")) else rank.r - 1
        return f"{word}@{pair + 1}" if word and lazy else word

    def posted(rank: Rank, *words: str) -> str:
        there = [w for w in words if w]
        return batch(*there) if len(there) == 2 else " ".join(alone(w, rank) for w in there)

    def order(rank: Rank) -> list[str]:
        warmup = min(m, p - rank.r)
        words: list[str] = []
        for i in range(warmup):
            words += [posted(rank, rank.receive_f(i)), rank.f(i)]
            words += [f"{rank.r}WAIT_SEND_F{i - 1}"] if i else []
            words += [posted(rank, rank.send_f(i))] if i < warmup - 1 else []
        for i in range(m):
            j = warmup - 1 + i
            if j < m:
                words += [posted(rank, rank.send_f(j), rank.receive_b(i)), f"{rank.r}WAIT_SEND_F{j}", rank.b(i)]
                words += [posted(rank, rank.send_b(i), rank.receive_f(j + 1))] if j + 1 < m else []
                words += [f"{rank.r}WAIT_SEND_B{i}", rank.f(j + 1)] if j + 1 < m else [posted(rank, rank.send_b(i))]
            else:
                words += [posted(rank, rank.receive_b(i)), rank.b(i)]
                words += [f"{rank.r}WAIT_SEND_B{i - 1}", posted(rank, rank.send_b(i))]
        return words

    return _ranks(p, order)
