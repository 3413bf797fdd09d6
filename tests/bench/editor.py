"""Measure how long an editor waits for the findings of `pipesched lsp` after each keystroke in the library's files.

python -m tests.bench.editor --edits 40
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from tests.editor.test_lsp import LIBRARY, Client


def main() -> None:
    """Print the median, the ninth decile and the worst of the waits, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=40)
    asked, rng, client = parser.parse_args(), random.Random(1), Client()
    waits = []
    for number in range(asked.edits):
        file = LIBRARY[number % len(LIBRARY)]
        text = file.read_text("utf-8")
        at = rng.randrange(text.index("rank "), len(text))
        for edited in (text, text[:at] + rng.choice(["F", "x", "(", "0", " "]) + text[at:], text):
            begun = time.perf_counter()
            client.type(f"file:///{file.name}", edited)
            waits.append((1000 * (time.perf_counter() - begun), file.stem))
    client.close()
    waits.sort()
    times = [x for x, _ in waits]
    print(f"{len(times)} changes: median {statistics.median(times):.0f} ms, 90 % {times[9 * len(times) // 10]:.0f} ms")
    print("worst:", ", ".join(f"{name} {x:.0f} ms" for x, name in waits[:-9:-1]))


if __name__ == "__main__":
    main()
