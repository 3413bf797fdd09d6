"""``pipesched lsp``: the language server, on stdin and stdout."""

from __future__ import annotations

import click

from pipesched.command import flags
from pipesched.command.options import SIZES
from pipesched.diagnostics import Code, fail

OPTIONS = SIZES


@click.command
@flags.options("lsp")
def lsp(**given: object) -> int:
    """Serve an editor on stdin and stdout, through the Language Server Protocol.

    \b
    It shows the findings of `verify` at the given sizes; if p or another parameter has no value, it uses the first of
    some small sizes that the file accepts. Configure your editor to run pipesched lsp --p 4 --m 8 for files with the
    extension .ps or .csv.
    """
    try:
        from pipesched.editor.server import serve
    except ImportError:
        raise fail(Code.NEEDS, "`lsp` needs pygls", help="pip install 'pipesched[editor]'") from None
    serve({name: sizes[0] for name, sizes in flags.grid(given).items()})
    return 0
