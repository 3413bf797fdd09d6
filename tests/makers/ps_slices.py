"""Random programs of sequences that are cut: as `ps_programs`, and a slice runs only when its sequence has come to it.

Forwards go along a sequence and backwards against it, so what is next is written down here by looking, not by counting:
of the sequences that have a backward left the first, and of that the last slice.
"""

from __future__ import annotations

from tests.makers.ps_programs import Step, Writer, Written


class Sliced(Writer):
    """Writes one of sequences of q slices."""

    def __init__(self, seed: int, *, ranks: int = 4, sequences: int = 2) -> None:
        super().__init__(seed, ranks=ranks, microbatches=sequences)
        self.q = q = self.rng.randint(2, 4)
        self.made.first = [(low * q, high * q) for low, high in self.made.first]

    def possible(self, rank: int) -> list[tuple[int, Step]]:
        """An F or a backward for each chunk, where the rest of its sequence lets it go."""
        found = []
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
        return found


def sliced(seed: int) -> tuple[Written, int]:
    """The program of a seed, and of how many slices its sequences are."""
    writer = Sliced(seed)
    return writer.write(), writer.q
