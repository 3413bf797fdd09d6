"""The documentation site, made by Sphinx: the README files of the repository, the pages of the codes, the API.

    pip install '.[site]'
    python -m sphinx -W -c .github/site . site

Pages stay where they are, so that their links work on GitHub as well as here. A link to a file that is no page becomes
a copy of the file.
"""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text
from sphinx.application import Sphinx

import pipesched

TOP = Path(__file__).resolve().parents[2]

project = "pipesched"
author = "the authors of pipesched"
version = release = re.findall(r'^version = "(.+)"$', (TOP / "pyproject.toml").read_text("utf-8"), re.MULTILINE)[0]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
html_theme = "alabaster"
html_theme_options = {
    "description": "pipeline schedules: compiled, verified, proved, optimized",
    "fixed_sidebar": True,
    "page_width": "1180px",
    "sidebar_width": "240px",
    "show_powered_by": False,
}
html_title = f"pipesched {version}"
html_show_copyright = False
html_copy_source = False
include_patterns = [
    "README.md",
    "grammars/README.md",
    "schedules/README.md",
    "schedules/models/README.md",
    "schedules/found/*.md",
    "emit/README.md",
    "emit/v2/README.md",
    "emit/torchtitan.md",
    "pipesched/README.md",
    "pipesched/*/README.md",
    "pipesched/interop/frameworks/README.md",
    "pipesched/explain/pages/*.md",
    "tests/README.md",
    ".github/*.md",
    ".github/site/*.md",
]
suppress_warnings = [
    "misc.highlighting_failure",  # blocks of the pages of codes name what they are read as
    "toc.not_included",  # those pages are listed by one of the pages that are made
]
myst_heading_anchors = 6
myst_links_external_new_tab = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"

PARTS = {
    "Begin": ("grammars/README", "schedules/README", ".github/site/play"),
    "Use": ("pipesched/README", "pipesched/runtime/README", "pipesched/planning/README", "schedules/models/README"),
    "Exchange": ("emit/README", "emit/v2/README", "emit/torchtitan", "pipesched/interop/frameworks/README"),
    "Look up": (".github/site/api", ".github/site/codes", "schedules/found/README"),
    "Take part": (".github/CONTRIBUTING", "tests/README", ".github/CHANGELOG"),
}


class Language(RegexLexer):
    """The words of `.ps` files, by kind."""

    name, aliases = "pipesched", ["ps"]
    tokens = {  # noqa: RUF012
        "root": [
            (r"#.*", Comment),
            (r'"[^"\n]*"', String),
            (r"\d+", Number),
            (
                words(
                    (
                        "schedule",
                        "stage",
                        "rank",
                        "route",
                        "require",
                        "claim",
                        "costs",
                        "let",
                        "for",
                        "repeat",
                        "if",
                        "else",
                        "then",
                        "in",
                        "on",
                        "when",
                        "drain",
                        "overlap",
                        "pending",
                        "microbatch",
                        "and",
                        "or",
                        "not",
                    ),
                    suffix=r"\b",
                ),
                Keyword,
            ),
            (r"\b[FIWBROL]\b", Name.Builtin),
            (r"[A-Za-z_]\w*", Name),
            (r"[^\w\s]", Operator),
            (r"\s+", Text),
        ]
    }


def _toctree(caption: str, names: tuple[str, ...]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *(f"/{x}" for x in names), "```", ""])


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the table of contents to the first page, and to lists of pages."""
    if name == root_doc:
        source[0] += "".join(_toctree(caption, names) for caption, names in PARTS.items())
    if name == "grammars/README":
        head = "## The reference\n"
        assert source[0].count(head) == 1
        source[0] = source[0].replace(head, _TUTORIAL + head)
    if name == "schedules/found/README":
        pages = sorted(x for x in app.env.found_docs if x.startswith("schedules/found/") and x != name)
        source[0] += _toctree("Found", tuple(pages))


def _escaped(title: str) -> str:
    return re.sub(r"([\[\]`*_<>])", r"\\\1", title)


def _pages() -> None:
    """Write the pages that are made: the Python API, the codes, the page that plays schedules."""
    here = Path(__file__).parent
    names = [x for x in pipesched.__all__ if not x.startswith("_")]
    functions = [x for x in names if inspect.isfunction(getattr(pipesched, x))]
    values = [x for x in names if inspect.isclass(getattr(pipesched, x))]
    made = ["# Python API\n", f"{(inspect.getdoc(pipesched) or '').splitlines()[0]}\n"]
    for heading, some, kind in (("Functions", functions, "autofunction"), ("Values", values, "autoclass")):
        made.append(f"\n## {heading}\n")
        for name in some:
            lines = ["", "```{eval-rst}", f".. {kind}:: pipesched.{name}"]
            made += [*lines, *(["   :members:", "   :undoc-members:"] if kind == "autoclass" else []), "```"]
    here.joinpath("api.md").write_text("\n".join(made) + "\n", "utf-8")
    codes = sorted((TOP / "pipesched/explain/pages").glob("*.md"))
    titles = {page.stem: page.read_text("utf-8").splitlines()[0].removeprefix("# ") for page in codes}
    listed = [f"- [{_escaped(title)}](/pipesched/explain/pages/{name}.md)" for name, title in titles.items()]
    head = "# Codes\n\nEach finding has a code; `pipesched explain PS401` prints its page.\n\n"
    here.joinpath("codes.md").write_text(head + "\n".join(listed) + "\n", "utf-8")
    here.joinpath("play.md").write_text(_PLAY, "utf-8")


_TUTORIAL = """**Look at its neighbours**: ZB-V, which turns once, above interleaved 1F1B, which does not. Change sizes
and costs, or drop the CSV that `pipesched emit wave.ps --p 3 --target torch-csv -o wave.csv` writes.

```{raw} html
<iframe src="../play/index.html#a=zb_v,4,,8&amp;b=interleaved,4,2,8" title="schedules, played"
style="width: 100%; height: 900px; border: 0"></iframe>
```

"""
_PLAY = """# Schedules, played

The built-in schedules at sizes and costs of your choice; drop a CSV of computes on a schedule to see where it hangs.

```{raw} html
<iframe src="../../play/index.html" title="schedules, played" style="width: 100%; height: 900px; border: 0"></iframe>
```
"""


def _docstring(_app: Sphinx, _of: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Let each field of a docstring be lines of one paragraph; what is raised stays a list."""
    inside = False
    for at, line in enumerate(lines):
        inside = line.startswith("Raises:") or (inside and bool(line.strip()))
        if not inside:
            lines[at] = line.removeprefix("    ")


def _finished(app: Sphinx, failed: Exception | None) -> None:
    """Add the page that plays schedules, and an index that is the first page."""
    if failed is not None:
        return
    from pipesched.playground.gallery import RANKS, gallery
    from pipesched.playground.pages import pages

    out = Path(app.outdir)
    shutil.copy(out / "README.html", out / "index.html")
    ranks = [int(x) for x in app.config.played_ranks.split(",")] if app.config.played_ranks else RANKS
    for name, text in pages(list(gallery(ranks))):
        path = out / "play" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def setup(app: Sphinx) -> None:
    """Register what is above."""
    _pages()
    app.add_config_value("played_ranks", "", "")
    app.add_lexer("ps", Language)
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("build-finished", _finished)
