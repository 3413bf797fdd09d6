"""Sizes and costs at which the built-in schedules are tested."""

from __future__ import annotations

from collections.abc import Callable

import pipesched
from pipesched.report.report import Report

COSTS = (
    "F=1",
    "F=2,I=3,W=1,M=5/3",
    "F=13,I=10,W=7,FB=30",
    "F=10,I=13,W=7,FB=25",
    "F=3,I=2,W=1,FB=9",
    "F=1,B=2,FB=1",
    "F=1/3,I=1/4,W=1/5",
    "F=3,I=2,W=2,C=1/2",
    "F=0,I=0,W=0",
)
SIZES: dict[str, list[dict[str, int]]] = {
    "gpipe": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 2, 5, 16)],
    "1f1b": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 2, 5, 16)],
    "pipedream": [{"p": p, "m": m, "k": k} for p in (1, 2, 5, 8) for m in (12, 24) for k in (1, 2, 3)],
    "pipedream_2bw": [{"p": p, "m": n * p} for p in range(1, 9) for n in (1, 2, 5)],
    "pipemare": [{"p": p, "m": m, "k": k} for p in (1, 2, 5, 8) for m in (12, 24) for k in (1, 2, 3)],
    "chimera_n": [{"p": p, "m": k * p, "n": n} for p in (4, 8, 12, 16) for k in (1, 2, 3, 5) for n in (1, 2)],
    "helix": [{"p": p, "m": k * p} for p in range(2, 9) for k in (1, 2, 3)],
    "recycle": [{"p": p, "n": n, "lost": r} for p in (2, 3, 4, 8) for n in (2, 3, 4) for r in (0, 1, 2 * p - 1)],
    "skippipe": [{"p": p, "m": k * (p - 2)} for p in range(4, 9) for k in (1, 2, 3, 5)],
    "vertical_sync": [{"p": p, "m": n * p} for p in range(1, 9) for n in (1, 2, 5)],
    "interleaved": [{"p": p, "v": v, "m": k * p} for p in (1, 2, 3, 6) for v in (1, 2, 4) for k in (1, 3)],
    "zb_h1": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 4, 8, 17)],
    "zb_h2": [{"p": p, "m": 2 * p - 1 + more} for p in (1, 2, 3, 5, 8) for more in (0, 1, 4, 9)],
    "zb_v": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 4, 9, 15, 18)],
    "dualpipe": [{"p": p, "m": 2 * p + more} for p in (2, 4, 6, 8, 12) for more in (0, 2, 6, 12)],
    "naive": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 2, 5, 16)],
    "gpipe_reversed": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 2, 5, 16)],
    "eager_1f1b": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 2, 5, 16)],
    "looped_bfs": [{"p": p, "v": v, "m": m} for p in (1, 2, 3, 6) for v in (1, 2, 4) for m in (1, 8)],
    "interleaved_n": [
        {"p": p, "v": v, "m": m, "n": n}
        for p, m, n in ((1, 3, 1), (2, 2, 2), (2, 5, 3), (3, 2, 2), (3, 7, 4), (4, 8, 4), (4, 9, 5), (4, 12, 6))
        for v in (1, 2, 4)
    ],
    "interleaved_overlap": [{"p": p, "v": v, "m": k * p} for p in (1, 2, 3, 6) for v in (1, 2, 4) for k in (1, 3)],
    "interleaved_zb": [
        {"p": p, "v": v, "m": m} for p, v in ((1, 3), (2, 2), (2, 3), (3, 1), (3, 4), (6, 1), (6, 2)) for m in (1, 4, 8)
    ],
    "1f1b_v": [{"p": p, "m": m} for p in (1, 2, 3, 4, 6) for m in (1, 2 * p, 2 * p + 1, 3 * p + 2)],
    "v1f1b": [{"p": p, "m": m} for p in (1, 2, 3, 4, 6) for m in (1, 2 * p, 2 * p + 1, 3 * p + 2)],
    "v_half": [{"p": p, "m": m} for p in (1, 2, 3, 4, 6) for m in (1, 2 * p, 2 * p + 1, 3 * p + 2)],
    "v_min": [{"p": p, "m": m} for p in (2, 3, 4, 5, 6) for m in (1, 2 * p, 2 * p + 1, 3 * p + 2)],
    "v_zb": [{"p": p, "m": m} for p in (1, 2, 3, 4, 6) for m in (1, 2 * p, 2 * p + 1, 3 * p + 2)],
    "seq1f1b": [{"p": p, "q": q, "m": q * k} for p in (1, 2, 3, 5) for q in (1, 2, 3) for k in (1, 7)],
    "terapipe": [{"p": p, "q": q, "m": q * k} for p in (1, 2, 3, 5) for q in (1, 2, 3) for k in (1, 7)],
    "seq1f1b_i": [
        {"p": p, "v": v, "q": q, "m": p * k}
        for p, q in ((1, 1), (2, 1), (2, 2), (3, 3), (6, 2))
        for v in (1, 2, 3)
        for k in (1, 4)
    ],
    "grouped_interleaved": [
        {"p": p, "v": v, "n": n, "m": n * k}
        for p, n in ((1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (5, 4), (6, 5), (6, 6))
        for v in (1, 2, 3)
        for k in (1, 3)
    ],
    "pipeoffload": [
        {"p": p, "v": v, "m": k * p, "h": h} for p in (1, 2, 3, 4) for v, h in ((2, 1), (3, 1), (3, 2)) for k in (1, 3)
    ],
    "mario": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, p, p + 1, 16)],
    "frozen_encoder": [{"p": p, "m": m, "e": e} for p in (2, 3, 5) for m in (1, 4, 9) for e in (0, 1, p - 1)],
    "unet": [{"p": p, "m": m} for p in (1, 2, 3, 4, 7) for m in (1, 2, 5, 9)],
    "packed": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 2, 5, 16)],
    "forward_only": [{"p": p, "m": m} for p in (1, 2, 3, 5, 8) for m in (1, 2, 5, 16)],
    "capped": [
        {"p": p, "k": k, "m": k * q + rest}
        for p, k in ((2, 2), (3, 2), (4, 3), (5, 4), (6, 3), (7, 5), (8, 4), (11, 8))
        for q, rest in ((1, 1), (2, 2), (3, 1), (2, k))
    ],
    "chimera": [{"p": p, "m": m} for p in (2, 4, 6, 8, 10) for m in (p // 2, p - 1, p, 2 * p, 5 * p)],
    "bitpipe": [{"p": p, "m": k * p} for p in (2, 4, 6, 8, 10) for k in (1, 2, 3, 4)],
    "hanayo": [{"p": p, "v": v, "m": k * p} for p in (1, 2, 3, 5, 6) for v in (2, 4) for k in (1, 3)],
    "dualpipev": [{"p": p, "m": 2 * p + more} for p in (1, 2, 3, 5, 8) for more in (0, 1, 6, 11)],
}


def sized(name: str, sizes: dict[str, int], costs: str = "F=1") -> Report:
    verify: Callable[..., Report] = pipesched.verify
    return verify(name, costs=costs, **sizes)
