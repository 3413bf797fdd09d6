"""Random programs with sliced sequences, like those of `ps_programs`, in which a slice runs only after the slices that
it waits for.

Forwards go along a sequence and backwards against it, so the next operation is found here by looking, not by counting:
the last slice of the first sequence that has a backward left. So it is for R and L, of the sequences whose F or O has
had none, in the order of those.
"""

from __future__ import annotations

from tests.makers.ps_programs import Step, Writer, Written


class Sliced(Writer):
    """The writer of a program with sequences of q slices."""

    def __init__(
        self, seed: int, *, ranks: int = 4, sequences: int = 2, recompute: float = 0, offload: float = 0
    ) -> None:
        super().__init__(seed, ranks=ranks, microbatches=sequences, recompute=recompute, offload=offload)
        self.q = q = self.rng.randint(2, 4)
        self.made.first = [(low * q, high * q) for low, high in self.made.first]
        self.away = {
            (s, j) for s, i in self.away for j in range(i * q, i * q + q) if self.tidy or self.rng.random() < 0.7
        }

    def possible(self, rank: int) -> list[tuple[int, Step]]:
        """Return an F or a backward for each chunk, if the rest of its sequence allows it; R, O and L likewise."""
        found = [x for x in super().possible(rank) if x[1][0] in "OL"]
        for chunk, (route, stage) in enumerate(self.made.chunks(rank)):
            low, high = self.made.first[route]
            back = "I" if self.split[route][stage] else "B"
            for letter in ("F", back):
                left = [i for i in range(low, high) if (letter, stage, i) not in self.done]
                if not left:
                    continue
                sequence = [i for i in left if i // self.q == left[0] // self.q]
                step = (letter, stage, sequence[0] if letter == "F" else sequence[-1])
                if self.ready(route, step):
                    found.append((chunk, step))
            if self.again[route][stage] and (waiting := self.waiting(("R", stage, low))):
                found.append((chunk, ("R", stage, self.turn(waiting))))
        return found

    def oldest(self, step: Step) -> int:
        """Return the operation whose turn it is: an L runs in reverse order of its sequence, like R; an O does not."""
        waiting = self.waiting(step)
        return self.turn(waiting) if step[0] == "L" else waiting[0]

    def turn(self, waiting: list[int]) -> int:
        return max(i for i in waiting if i // self.q == waiting[0] // self.q)


def sliced(seed: int, *, recompute: float = 0, offload: float = 0) -> tuple[Written, int]:
    """Return the program of a seed, with sequences of a number of slices."""
    writer = Sliced(seed, recompute=recompute, offload=offload)
    return writer.write(), writer.q
