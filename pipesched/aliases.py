"""What others call the schedules of the library: torch's classes, the papers, Megatron-LM, and how people type them.

A name is looked up without case, hyphens, underscores and blanks, and without torch's `Schedule` before it. Only what
is the same order, operation for operation, is an alias; of the others NEAR says what comes closest.
"""

from __future__ import annotations

import re

ALIASES = {
    "1f1b": ("1f1b", "onefoneb", "dapple", "pipedreamflush", "1f1bflush", "noninterleaved1f1b"),
    "gpipe": ("gpipe", "fillanddrain", "filldrain", "fthenb", "afab", "allforwardallbackward"),
    "interleaved": (
        "interleaved1f1b",
        "1f1bi",
        "i1f1b",
        "1f1binterleaved",
        "interleavedpipeline",
        "megatroninterleaved",
    ),
    "zb_h1": ("zbh1", "zb1p", "zerobubbleh1", "interleavedzerobubble"),
    "zb_h2": ("zbh2", "zb2p", "zerobubbleh2"),
    "zb_v": ("zbv", "zbvzerobubble", "zerobubblev"),
    "dualpipe": ("dualpipe",),
    "dualpipev": ("dualpipev", "dualpipecutinhalf"),
}
_SAID = {  # what is said of aliases whose name does not show what they are taken for
    "interleavedzerobubble": "its order for one stage of each rank; with several it is not in the library",
}
NEAR = {
    "zerobubble": "zero bubble is zb_h1, zb_h2 or zb_v",
    "zb": "zero bubble is zb_h1, zb_h2 or zb_v",
    "loopedbfs": "`interleaved` has its placement, and is depth first; `pipesched optimize interleaved` finds others",
    "breadthfirst": "`interleaved` has its placement, and is depth first",
    "pipedream": "PipeDream without a flush trains on old weights; with a flush it is `1f1b`",
    "pipedream2bw": "PipeDream-2BW trains on old weights; with a flush its order is `1f1b`",
    "chimera": "`dualpipe` has its placement: two routes, each with a copy of every stage",
    "hanayo": "`zb_v` has a placement that turns back too; `pipesched optimize --placement vee` finds others",
    "vhalf": "`pipesched optimize --placement vee --mem-cap K` finds orders under a cap",
    "vmin": "`pipesched optimize --placement vee --mem-cap K` finds orders under a cap",
}


def plain(name: str) -> str:
    """The name without what people write differently."""
    return re.sub(r"[-_ .]", "", name.lower()).removeprefix("schedule")


def known_as(name: str) -> str | None:
    """The schedule of the library that is meant by a name which is none of its own."""
    asked = plain(name)
    return next((own for own, others in ALIASES.items() if asked == plain(own) or asked in others), None)


def taken_for(name: str) -> str | None:
    """What is to be said of an alias: nothing where its name is that of the schedule but for its marks."""
    own = known_as(name)
    if own is None or plain(own) == plain(name):
        return None
    more = _SAID.get(plain(name))
    return f"{name} is {own} here" + (f": {more}" if more else "")
