"""Measure `pipesched optimize` on 160 instances of families that trainers use: proofs, gaps, CPU seconds.

    python -m tests.bench.families                       all, with 20 seconds each
    python -m tests.bench.families --limit 6 --every 4   every fourth
    python -m tests.bench.families vee spans             these families
    python -m tests.bench.families --record FILE         one line of JSON for each
    python -m tests.bench.families --seed 77             other instances of the same families

Costs are drawn by a seed, that of this file unless told. The last lines are a table: for each family the number of
instances, of which proved, below 0.5, 2 and 5 % of the bound; median and most CPU seconds of all processes; the
largest gap.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median

SEED = 2605
SKEWS = ("F=2,I=3,W=1", "F=3,I=4,W=2", "F=1,I=2,W=1", "F=14407,I=14380,W=9676")


@dataclass(frozen=True)
class Row:
    """An instance, and its result. gap: as a fraction of the bound."""

    family: str
    line: str
    proved: bool
    gap: float
    cpu: float
    value: str
    bound: str
    found_by: str
    proved_by: str
    engine: str


def spread(rng: random.Random, stages: int, width: float, around: int = 20) -> str:
    """Return costs by stage that differ by up to `width`, the same factor for F, I and W."""
    factors = [rng.uniform(1 - width, 1 + width) for _ in range(stages)]
    rows = {
        key: [max(1, round(around * share * x)) for x in factors] for key, share in (("F", 1), ("I", 1), ("W", 0.6))
    }
    return ",".join(f"{key}=[{','.join(map(str, row))}]" for key, row in rows.items())


def unit(rng: random.Random) -> Iterator[str]:
    for cap in range(1, 16):
        yield f"--p 8 --m 16 --mem-cap {cap}"
    for p, m in ((16, 64), (32, 128), (64, 128), (64, 512)):
        for share in (0.4, 0.65, 1):
            yield f"--p {p} --m {m} --mem-cap {max(2, round(p * share))}"
    for p, m in ((8, 16), (16, 48)):
        for cap in (Fraction(p, 2), Fraction(5 * p, 8), Fraction(3 * p, 4), p):
            yield f"--p {p} --m {m} --placement vee --mem-cap {cap}"
    for v in (2, 3):
        for cap in (3, 4, 5, 6):
            yield f"--p 4 --v {v} --m 12 --placement loop --mem-cap {cap}"


def uneven(rng: random.Random) -> Iterator[str]:
    for p, objective, width in ((p, o, w) for p in (4, 8, 16) for o in ("makespan", "span") for w in (0.1, 0.3, 0.3)):
        cap = rng.randint(p // 2, p)
        sizes = f"--p {p} --m {p * rng.randint(2, 4)} --mem-cap {cap} --objective {objective}"
        yield sizes + f" --cost {spread(rng, p, width)},C={rng.randint(0, 2)}"


def vee(rng: random.Random) -> Iterator[str]:
    for skew in SKEWS:
        for latency in (0, 1, 1):
            p = rng.choice((4, 8))
            cap = Fraction(rng.randint(p + 1, 2 * p), 2)
            more = f"C={1610 * latency if 'F=1' in skew and ',I=14' in skew else latency}"
            yield f"--p {p} --m {p * rng.randint(2, 4)} --placement vee --mem-cap {cap} --cost {skew},{more}"
    for width in (0.1, 0.1, 0.1, 0.3, 0.3, 0.3):
        p = rng.choice((4, 8))
        sizes = f"--p {p} --m {2 * p} --placement vee --mem-cap {rng.randint(p // 2 + 1, p)}"
        yield sizes + f" --cost {spread(rng, 2 * p, width)},C=1"


def skewed(rng: random.Random) -> Iterator[str]:
    for _ in range(13):
        p = rng.choice((4, 8, 16))
        sizes = f"--p {p} --m {p * rng.randint(2, 4)} --mem-cap {rng.randint(p // 2, p)}"
        yield sizes + f" --cost {rng.choice(SKEWS[:3])},C={rng.randint(1, 2)}"


def fused(rng: random.Random) -> Iterator[str]:
    for placement in ("linear", "vee", "vee"):
        for skew in ("F=1,B=2", "F=2,B=4", "F=3,B=6"):
            p = rng.choice((4, 8))
            sizes = f"--p {p} --m {2 * p} --placement {placement} --mem-cap {rng.randint(p // 2 + 1, p)}"
            yield sizes + f" --backward fused --cost {skew},C={rng.randint(0, 1)}"


def by_rank(rng: random.Random) -> Iterator[str]:
    for _ in range(10):
        p, placement = rng.choice((4, 8)), rng.choice(("linear", "vee"))
        caps = ",".join(str(rng.randint(p // 2 + 1, p + 2)) for _ in range(p))
        sizes = f"--p {p} --m {2 * p} --placement {placement} --mem-cap {caps}"
        yield sizes + f" --cost {rng.choice(SKEWS[:3])},C={rng.randint(0, 1)}"


def heavy(rng: random.Random) -> Iterator[str]:
    for p in (4, 4, 8, 8, 8, 16, 16):
        ends = [rng.randint(12, 18), rng.randint(12, 18)]
        row = "[" + ",".join(map(str, [ends[0], *[10] * (p - 2), ends[1]])) + "]"
        yield f"--p {p} --m {3 * p} --mem-cap {p} --cost F={row},I={row},W={row},C=1"


def inbytes(rng: random.Random) -> Iterator[str]:
    for p, cap in ((4, 60), (4, 70), (4, 80), (8, 36), (8, 42), (8, 50), (8, 60)):
        model = f"llama3-70b,tensor=8,zero=1,data=8,batch={16 * p}"
        yield f"--p {p} --m {2 * p} --model {model} --mem-cap {cap}GB"


def measured(rng: random.Random) -> str:
    """Return costs as the zero-bubble papers measured them, in microseconds."""
    f, i, w, c = (rng.randint(*ends) for ends in ((9000, 19000), (9000, 19000), (6000, 10000), (500, 1700)))
    return f"F={f},I={i},W={w},C={c}"


def spans(rng: random.Random) -> Iterator[str]:
    for p, m in ((8, 24), (8, 32), (8, 64), (16, 48), (16, 64), (24, 72), (32, 96)):
        yield f"--p {p} --m {m} --placement vee --mem-cap {p} --objective span --cost {measured(rng)}"
    for times in (1, 2):
        for p, m in ((8, 24), (8, 32), (8, 64), (16, 48), (16, 64), (16, 96), (32, 96)):
            yield f"--p {p} --m {m} --mem-cap {times * p} --objective span --cost {measured(rng)}"


def loop(rng: random.Random) -> Iterator[str]:
    for _ in range(5):
        sizes = f"--p 4 --v 2 --m {4 * rng.randint(2, 3)} --placement loop --mem-cap {rng.randint(3, 5)}"
        yield sizes + f" --cost {rng.choice(SKEWS[:3])},C={rng.randint(0, 1)}"


def releases(rng: random.Random) -> Iterator[str]:
    for release in ("I", "split:1/2", "torch"):
        for placement, p in (("linear", 8), ("vee", 4), ("vee", 8)):
            sizes = f"--p {p} --m {2 * p} --placement {placement} --mem-cap {rng.randint(p // 2 + 1, p + 1)}"
            yield sizes + f" --release {release} --cost {rng.choice(SKEWS[:3])}"


FAMILIES = (unit, uneven, vee, skewed, fused, by_rank, heavy, inbytes, spans, loop, releases)


def run(family: str, line: str, limit: float) -> Row | None:
    """Return the result of one instance; None if the instance is infeasible or not supported."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pipesched", "optimize", *line.split(), "--time-limit", str(limit), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout)
    if told.get("gap") is None:
        print(f"{family:9} {line}: {told.get('verdict') or done.stdout.strip()[:120]}", flush=True)
        return None
    print(f"{family:9} {cpu:6.1f} s  {told['verdict']}  {told['found_by']}  {line}", flush=True)
    engine = (told["certificate"].get("refuted") or told["certificate"].get("bound") or {}).get("engine") or "formula"
    return Row(
        family,
        line,
        proved=told["proved"],
        gap=float(Fraction(str(told["gap"]))),
        cpu=round(cpu, 1),
        value=str(told[told["objective"]]),
        bound=str(told["lower_bound"]),
        found_by=told["found_by"],
        proved_by=told["proved_by"],
        engine=engine,
    )


def table(rows: list[Row]) -> Iterator[str]:
    yield f"{'family':9}  runs  proved  < 0.5 %  < 2 %  < 5 %  CPU median, most  worst gap"
    for name in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == name]
        below = [sum(row.gap < share for row in own) for share in (0.005, 0.02, 0.05)]
        seconds = f"{median(row.cpu for row in own):.1f}, {max(row.cpu for row in own):.1f}"
        proved, worst = sum(row.proved for row in own), max(row.gap for row in own)
        near = f"{below[0]:7}  {below[1]:5}  {below[2]:5}"
        yield f"{name:9}  {len(own):4}  {proved:6}  {near}  {seconds:>16}  {worst:9.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    rows: list[Row] = []
    for family in FAMILIES:
        lines = list(family(random.Random(f"{asked.seed} {family.__name__}")))
        if not asked.families or family.__name__ in asked.families:
            for line in lines[:: asked.every]:
                if (row := run(family.__name__, line, asked.limit)) is not None:
                    rows.append(row)
                    if asked.record:
                        with asked.record.open("a") as record:
                            record.write(json.dumps(asdict(row)) + "\n")
    print(*table(rows), sep="\n")


if __name__ == "__main__":
    main()
