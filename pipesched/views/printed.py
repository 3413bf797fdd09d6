"""A figure as PDF or PNG: the SVG document as cairosvg paints it, in the colours for light paper.

The same document gives the same bytes: a PDF bears no date of its own.
"""

from __future__ import annotations

from typing import Any

from pipesched.diagnostics import Code, fail
from pipesched.views.svg import size

FORMATS = ("pdf", "png")
_SCALE = 2  # pixels of a PNG for one of the figure, so that it is sharp on paper
_LARGEST = 32_000  # pixels of a side; cairo has no more


def printed(document: str, format: str) -> bytes:
    """The document, an SVG of ours, as ``pdf`` or ``png``.

    Raises:
        PipeschedError: PS820, cairosvg or the library cairo is not installed; PS815, too large for a PNG.
    """
    cairo = _cairo(format)
    if format == "pdf":
        return bytes(_undated(cairo).convert(bytestring=document.encode()))
    side = max(size(document))
    if side > _LARGEST:
        message = f"a figure of {side:,} pixels makes no PNG; {_LARGEST:,} are drawn"
        raise fail(Code.TOO_LARGE, message, help="write it as .svg or .pdf, or draw a part with --from and --to")
    return bytes(cairo.svg2png(bytestring=document.encode(), scale=min(_SCALE, _LARGEST / side)))


def _cairo(format: str) -> Any:
    """The module cairosvg, which loads the library cairo."""
    wanted = f"a {format.upper()} needs cairosvg"
    try:
        import cairosvg  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        help = "pip install cairosvg, or write the figure as .svg"
        raise fail(Code.NEEDS, f"{wanted}, which is not installed", help=help) from None
    except OSError:
        help = "apt-get install libcairo2, or brew install cairo; or write the figure as .svg"
        raise fail(Code.NEEDS, f"{wanted}, which does not find the library cairo", help=help) from None
    return cairosvg


def _undated(cairo: Any) -> Any:
    """Its surface for PDF, with a fixed date."""
    from cairocffi import PDF_METADATA_CREATE_DATE  # type: ignore[import-not-found, import-untyped, unused-ignore]

    class Undated(cairo.surface.PDFSurface):  # type: ignore[misc, unused-ignore]
        def finish(self) -> None:
            self.cairo.set_metadata(PDF_METADATA_CREATE_DATE, "1970-01-01T00:00:00Z")
            super().finish()

    return Undated
