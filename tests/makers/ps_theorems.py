"""Random files of complete orders with right and wrong claims, for the prover.

A warm-up of some length, a steady part, and a cool-down; each part in one of several forms; W at once, in the cool-down
or drained; ranks in order, in reverse or by parity of the rank. Claims are those of 1F1B and of GPipe with the warm-up
in them, and the same with another number.
"""

from __future__ import annotations

import random

_WARMUPS = (
    *("m", "0", "p - 1 - r", "p - r", "2 * (p - 1 - r)", "2 * (p - 1 - r) + 1", "p", "p - 1", "r", "(m + 1) // 2"),
    *("p - 1 - r // 2", "m - r", "max(r, p - 1 - r)", "p - 1 - r + r % 2", "p - 1 - r + m % 2", "m // 2 + p - 1 - r"),
)
_LATER = ("0", "1", "r", "p - 1 - r", "p - 1", "2", "r // 2", "r % 2")


def program(seed: int) -> str:
    """Return a random file."""
    rng = random.Random(seed)
    linear = rng.random() < 0.75
    warmup = rng.choice(_WARMUPS)
    warmup = warmup if linear or rng.random() < 0.2 else warmup.replace("p - 1 - r", "r")
    kind = rng.choice(("B", "B", "I W", "late"))
    early = kind if kind in ("B", "I W") else "I"
    steady = rng.choice(
        (
            f"repeat m - w {{ F  {early} }}",
            f"for i in w .. m {{ F  {early} }}",
            f"for i in 0 .. m {{ if i + w < m {{ F  {early} }} }}",
            f"repeat (m - w) // 2 {{ F  {early}  F  {early} }}\n  if (m - w) % 2 == 1 {{ F  {early} }}",
        )
    )
    cool = f"repeat w {{ {early} }}"
    if kind == "late":
        later = rng.choice(_LATER)
        if rng.random() < 0.5:
            body = "if i + w < m { F }  I  if i >= d { W }"
            cool = f"let d = min({later}, m)\n  for i in 0 .. m {{ {body} }}\n  drain W"
            steady = ""
        else:
            cool = f"repeat w {{ I{rng.choice(('', '  W'))} }}\n  drain W"
    rate = "tF + tB" if kind == "B" else rng.choice(("tF + tI + tW", "tF + tI - tW", "tF + tI"))
    number = rng.choice(("", "", "", " + 1", " - 1"))
    start = f"min(max(0, {warmup}), m)"
    peak = f"min({start} + 1, m)" if rng.random() < 0.8 else rng.choice(("p", "m", "min(p, m)", "min(p - r, m)"))
    claims = [f"claim peak(r) {rng.choice(('==', '==', '<=', '>='))} ({peak}{number}) * tM"]
    where = rng.choice(("tC == 0", "tC == 0", "tC == 0 and m >= p", "tC == 0 and tF <= tB", "tC == 0 and m >= 2 * p"))
    time = rng.choice(("idle", "idle", "makespan", "span_idle", "idle(p - 1)", "work(0)"))
    amount = {"makespan": "(m + p - 1)", "work(0)": "m"}.get(time, "(p - 1)")
    off = rng.choice(("", "", "", " + tF", " - tF"))
    claims.append(f"claim {time} {rng.choice(('==', '==', '<=', '>='))} {amount} * ({rate}){off} when {where}")
    claims.append(f"claim {_other(random.Random(~seed), peak, rate)}")
    return "\n".join(
        [
            "schedule random(p, m)",
            f"require {rng.choice(('m >= 1', 'm >= p', 'm >= 2', 'm >= 1 and p >= 2', 'm % 2 == 0'))}",
            f"stage s in 0 .. p on rank {'s' if linear else 'p - 1 - s'}",
            *_frozen(random.Random(-seed - 1)),
            "rank r {",
            f"  let w = {start}",
            "  repeat w { F }",
            *([f"  {steady}"] if steady else []),
            f"  {cool}",
            "}",
            *claims,
            "",
        ]
    )


def _other(rng: random.Random, peak: str, rate: str) -> str:
    """Return a claim on a bubble, on some ranks, on sizes, or a bound on all ranks."""
    number = rng.choice(("", "", " + 1", " - 1"))
    ranks = rng.choice(("r == 0", "r > 0", "r == p - 1", "r % 2 == 0", "r < p - 1 and m >= p", "r > p or r == m"))
    return rng.choice(
        (
            f"bubble == (p - 1{number}) / (m + p - 1) when tC == 0{rng.choice(('', ' and tF + tB > 0'))}",
            f"{rng.choice(('bubble', 'span_bubble'))} == 0 when {rng.choice(('p == 1', 'm > p', 'tC == 0'))}",
            f"peak(r) == ({peak}{number}) * tM when {ranks}",
            f"idle(r) {rng.choice(('<=', '>=', '=='))} (p - 1) * ({rate}) when tC == 0 and {ranks}",
            f"r < p{number} and p <= m + {rng.randrange(3)} when {rng.choice(('tF == 0', 'r > 0', 'm > 2'))}",
            f"peak {rng.choice(('==', '<=', '>='))} {rng.choice(('p', 'm', 'min(p, m)'))}{number}",
            f"makespan >= (m + p - 1) * ({rate}){rng.choice(('', ' + tC', ' - tF', ' + (p - 1) * tC'))}",
            f"idle >= (p - 1) * ({rate})",
            f"makespan {rng.choice(('==', '<=', '>='))} 3 * (m + p - 1){number} when tF == 1 and tB == 2 and tC == 0",
            f"idle <= 3 * (p - 1){number} when tF <= 1 and tB <= 2 and tC == 0",
            f"peak(r) <= 2 * ({peak}{number}) when tM <= 2",
            f"makespan - 3 * m >= tF * (p - 1){number} when tB >= 2 and tF >= 1",
        )
    )


def _frozen(rng: random.Random) -> list[str]:
    """Return a line that freezes the first stages, or none."""
    until = rng.choice((*[""] * 7, "min(1, p - 1)", "p // 2", "min(2, p) when s < p - 1"))
    return [f"frozen s in 0 .. {until}"] if until else []
