"""Writes the files of the page: `index.html`, and the orders of each built-in schedule as `orders/NAME.json`.

The page draws with the code of `show -o FILE.html`, which it loads into a frame for each schedule, and plays orders
with `page/model.js`, which tests compare with the analysis.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipesched.model.ops import COMPUTES
from pipesched.playground.gallery import Played
from pipesched.views import html
from pipesched.views.palette import style

_FOLDER = Path(__file__).with_name("page")


def pages(played: Sequence[Played]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file; the same schedules give the same bytes."""
    for one in played:
        if not one.refused:
            yield f"orders/{one.name}.json", json.dumps(one.to_json(), ensure_ascii=True, separators=(",", ":")) + "\n"
    yield "index.html", _index(played)


def _index(played: Sequence[Played]) -> str:
    look = style("default")
    data = {
        "catalogue": [
            {"name": x.name, "title": x.title, "documentation": x.documentation, "refused": x.refused} for x in played
        ],
        "look": {
            "fill": {op.name: look.colour(op) for op in COMPUTES},
            "words": {op.name: look.words(op) for op in COMPUTES},
            "lighten": look.lighten,
            "takes": [op.takes for op in COMPUTES],
        },
        "frame": html.page("pipesched"),
    }
    model, playground = (_text(name).removeprefix('"use strict";\n') for name in ("model.js", "playground.js"))
    return html.filled(
        _text("index.html"),
        style=_text("style.css"),
        data=f'<script type="application/json" id="gallery">{html.as_json(data)}</script>',
        script=f'"use strict";\n(() => {{\n{model}{playground}}})();\n',
    )


def _text(name: str) -> str:
    return _FOLDER.joinpath(name).read_text("utf-8")
