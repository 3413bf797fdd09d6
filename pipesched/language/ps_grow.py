"""The order of a rank with a window (`model.window`), folded: prefix, window ..., suffix.

    F F F | F I W | F I W I W I W        prefix ends with the window, which may be repeated; the suffix goes on with it
    F F F  ( F I W )^(2 + copies)  I W I W

The window's shortest root u spells the letters around the seam too, as far as they go on with its period; all of them
join the one loop. Where the loop begins within the period is free: the cheapest way to write the rest decides.
"""

from __future__ import annotations

from pipesched.language.ps_fold import Count, Folder, Loop, Tree, Word, root


def grown(folder: Folder, prefix: Word, window: Word, suffix: Word) -> Tree:
    """A short tree that spells prefix window^copies suffix for any number of copies."""
    if not window:
        return folder.fold(prefix + suffix)
    u = root(window)
    q, growth = len(u), len(window) // len(u)
    left = _length(tuple(reversed(prefix)), tuple(reversed(u)))
    right = _length(suffix, u)
    around = prefix[len(prefix) - left :] + suffix[:right]
    least: tuple[int, Tree] | None = None
    for offset in range(min(q, len(around) + 1)):
        times = (len(around) - offset) // q
        turn = (offset - left) % q
        head = folder.folded(prefix[: len(prefix) - left] + around[:offset])
        body = folder.folded(u[turn:] + u[:turn])
        tail = folder.folded(around[offset + times * q :] + suffix[right:])
        rotated = body[1] != () and min(u[i:] + u[:i] for i in range(q)) != u[turn:] + u[:turn]
        cost = head[0] + body[0] + tail[0] + rotated
        if least is None or cost < least[0]:
            least = cost, (*head[1], Loop(Count(times, 0, growth), body[1]), *tail[1])
    assert least is not None
    return least[1]


def _length(word: Word, u: Word) -> int:
    """How many letters of the word are those of u u u …."""
    return next((i for i, letter in enumerate(word) if letter != u[i % len(u)]), len(word))
