"""Random files for the prover, whose loops and conditions are affine in p, m and the rank.

Several placements (linear, reversed, loop, V, two routes), lets and functions, `min`, `max`, `abs`, quotients and rests
by numbers, loops in each other, choices by parity and by rank, `drain`, overlaps, microbatches by name. An order may
lack operations; none is run past the end, since each loop is cut to what is left of the operations that it runs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

PLACEMENTS = {
    "stage s in 0 .. p on rank s": 1,
    "stage s in 0 .. p on rank p - 1 - s": 1,
    "stage s in 0 .. 2 * p on rank if s < p then s else s - p": 2,
    "stage s in 0 .. 2 * p on rank s % p": 2,
    "stage s in 0 .. 2 * p on rank min(s, 2 * p - 1 - s)": 2,
    "stage s in 0 .. 3 * p on rank if s // p == 1 then 2 * p - 1 - s else s % p": 3,
    "route down: stage s in 0 .. p on rank s for microbatch 0 .. m // 2\n"
    "route up: stage s in 0 .. p on rank p - 1 - s for microbatch m // 2 .. m": 2,
}


@dataclass
class Maker:
    """The program of a rank. left: by chunk and letter, an expression of how many may still be run."""

    rng: random.Random
    chunks: int
    ends: tuple[str, ...]
    lines: list[str] = field(default_factory=list)
    lets: int = 0
    names: list[str] = field(default_factory=list)
    left: dict[tuple[int, str], str] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    bare: bool = True

    def __post_init__(self) -> None:
        self.bare = self.rng.random() < 0.5
        self.left = {(chunk, letter): self.ends[chunk] for chunk in range(self.chunks) for letter in "FG"}

    def number(self, deep: int = 1) -> str:
        """Return an affine expression by cases."""
        rng = self.rng
        if not deep or rng.random() < 0.5:
            plain = ("p", "m", "r", "p - 1 - r", "m - r", "m - p", "2 * (p - 1 - r)", str(rng.randint(0, 3)))
            return rng.choice([*plain, *self.names[-2:]])
        a, b = self.number(deep - 1), self.number(deep - 1)
        return rng.choice(
            (
                f"min({a}, {b})",
                f"max({a}, {b})",
                f"({a} + {rng.randint(0, 2)})",
                f"({a}) // 2",
                f"({a}) % {rng.randint(2, 3)}",
                f"abs({a} - {rng.randint(1, 3)})",
                f"(if {self.truth(deep - 1)} then {a} else {b})",
                f"half({a})",
            )
        )

    def truth(self, deep: int = 1, variable: str = "") -> str:
        """Return a condition on sizes, the rank, or a loop."""
        rng = self.rng
        of = variable or rng.choice(("r", "p", "m"))
        plain = f"{of} % 2 == {rng.randint(0, 1)}", f"{of} {rng.choice(('<', '<=', '>=', '>'))} {self.number(0)}"
        if deep and rng.random() < 0.3:
            joined = rng.choice((" and ", " or "))
            return joined.join(self.truth(deep - 1, variable) for _ in range(2))
        return rng.choice((*plain, f"not ({plain[0]})"))

    def let(self, value: str) -> str:
        """Return a new name for a value."""
        self.lets += 1
        self.lines.append(f"  let a{self.lets} = {value}")
        return f"a{self.lets}"

    def passes(self, used: list[tuple[int, str]], times: int = 1) -> str:
        """Return the number of passes of a loop that runs these operations once per pass, in another loop this many
        times; remove them."""
        limits = [f"({self.left[x]}) // {times}" if times > 1 else self.left[x] for x in dict.fromkeys(used)]
        name = self.let(f"max(0, min({', '.join([self.number(), *limits])}))")
        for x in dict.fromkeys(used):
            self.left[x] = f"{self.left[x]} - {f'{times} * ' if times > 1 else ''}{name}"
        self.names.append(name)
        return name

    def words(self) -> tuple[list[str], list[tuple[int, str]]]:
        """Return one to three operations of different classes, and the lines that they need."""
        rng = self.rng
        kinds = [(chunk, letter) for chunk in range(self.chunks) for letter in "FG"]
        chosen = rng.sample(kinds, rng.randint(1, min(3, len(kinds))))
        made = []
        for chunk, letter in chosen:
            at = f"[{chunk}]" if self.chunks > 1 else ""
            w = "W" if self.bare else f"W{at}"
            word = f"F{at}" if letter == "F" else rng.choice((f"I{at}", f"I{at} {w}", f"B{at}", f"B{at}"))
            self.pending |= {chunk} if word.startswith("I") else set()
            made.append(word)
        return made, chosen

    def item(self) -> None:
        """Write a loop, a loop in a loop, a choice in a loop, a choice of loops, an overlap, or a drain."""
        rng = self.rng
        words, used = self.words()
        body = "  ".join(words)
        match rng.randrange(8):
            case 0 | 1:
                self.lines.append(f"  repeat {self.passes(used)} {{ {body} }}")
            case 2:
                times = rng.randint(2, 3)
                n = self.passes(used, times)
                inside = f"repeat {times} {{ {body} }}", f"repeat {n} {{ {body} }}"
                outer = (n, str(times)) if rng.random() < 0.5 else (str(times), n)
                self.lines.append(f"  repeat {outer[0]} {{ {inside[0] if outer[0] == n else inside[1]} }}")
            case 3 | 4:
                n, low = self.passes(used), rng.choice(("0", "r", "1"))
                choice = f"if {self.truth(1, 'i')} {{ {words[0]} }}" + "".join(f"  {x}" for x in words[1:])
                if len(words) > 1 and rng.random() < 0.5:
                    inner = f"if {self.truth(0, 'i')} {{ {words[1]} }}"
                    choice = f"if {self.truth(1, 'i')} {{ {words[0]} {inner} }} else {{ {' '.join(words)} }}"
                self.lines.append(f"  for i in {low} .. {low} + {n} {{ {choice} }}")
            case 5:
                n = self.passes(used)
                other = "  ".join(reversed(words))
                self.lines.append(
                    f"  if {self.truth()} {{ repeat {n} {{ {body} }} }} else {{ repeat {n} {{ {other} }} }}"
                )
            case 6:
                f, g = self.rng.randrange(self.chunks), self.rng.randrange(self.chunks)
                n = self.passes([(f, "F"), (g, "G")])
                at = (f"[{f}]", f"[{g}]") if self.chunks > 1 else ("", "")
                self.lines.append(f"  repeat {n} {{ overlap(F{at[0]}, B{at[1]}) }}")
            case 7:
                self.drain()

    def drain(self) -> None:
        """Run every W that is pending, where there may be one."""
        if self.bare or self.chunks == 1:
            self.lines += ["  drain W"] if self.pending else []
        else:
            self.lines += [f"  drain W[{chunk}]" for chunk in sorted(self.pending)]


def program(seed: int) -> str:
    """Return a random file."""
    rng = random.Random(seed)
    placement = rng.choice([*PLACEMENTS])
    routes = placement.startswith("route")
    maker = Maker(rng, PLACEMENTS[placement], ("m // 2", "m - m // 2") if routes else ("m",) * PLACEMENTS[placement])
    for _ in range(rng.randint(1, 5)):
        maker.item()
    if not routes and rng.random() < 0.15:
        maker = Maker(rng, maker.chunks, maker.ends)
        way = rng.choice(("i", "m - 1 - i"))
        for letter in "FB":
            for chunk in range(maker.chunks):
                at = f"[{chunk}]" if maker.chunks > 1 else ""
                maker.lines.append(f"  for i in 0 .. m {{ {letter}{at}({way if letter == 'B' else 'i'}) }}")
    needs = rng.choice(("m >= 1", "m >= p", "m % 2 == 0", "m >= 2 * p - 1", "p >= 2 or m >= 3"))
    maker.drain()
    head = ["schedule random(p, m)", f"require {needs}", *placement.splitlines(), "let half(x) = (x + 1) // 2"]
    return "\n".join([*head, "rank r {", *maker.lines, "}", ""])
