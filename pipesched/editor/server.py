"""The language server: requests of the Language Server Protocol, answered by `editor.features`.

Positions of the protocol are lines and UTF-16 columns from 0; positions in a `Source` are offsets in characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.editor import features
from pipesched.lift.printer import format_source
from pipesched.model.numbers import Value
from pipesched.support.source import Source, Span

SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "unjudged": lsp.DiagnosticSeverity.Information,
}
KINDS = {"word": lsp.CompletionItemKind.Keyword, "operation": lsp.CompletionItemKind.Operator}
KINDS |= {"function": lsp.CompletionItemKind.Function, "in claims": lsp.CompletionItemKind.Constant}

AtPlace: TypeAlias = (
    lsp.HoverParams | lsp.CompletionParams | lsp.DefinitionParams | lsp.ReferenceParams | lsp.RenameParams
)


class Server(LanguageServer):
    """The server of one editor. given: the sizes on the command line."""

    def __init__(self, given: Mapping[str, Value]) -> None:
        super().__init__("pipesched", "1", text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.given = given

    def source(self, uri: str) -> Source:
        document = self.workspace.get_text_document(uri)
        return Source(document.filename or uri, document.source)

    def at(self, params: AtPlace) -> tuple[Source, int]:
        """Return the text and the offset of a request."""
        document = self.workspace.get_text_document(params.text_document.uri)
        return self.source(document.uri), document.offset_at_position(params.position)

    def range(self, uri: str, span: Span) -> lsp.Range:
        document = self.workspace.get_text_document(uri)
        return lsp.Range(_position(document, span, span.start), _position(document, span, span.end))

    def edit(self, uri: str, edits: list[tuple[Span, str]]) -> lsp.WorkspaceEdit:
        return lsp.WorkspaceEdit({uri: [lsp.TextEdit(self.range(uri, span), text) for span, text in edits]})

    def shown(self, uri: str, found: Diagnostic) -> lsp.Diagnostic:
        """Return a finding for the editor; one without a place is shown at the first line."""
        source, where = self.source(uri), found.where
        place = where if where is not None and where.source.text == source.text else source.span(0, 0)
        labels = [label for label in found.labels if label.span is not None and label.span.source.text == source.text]
        more = [
            lsp.DiagnosticRelatedInformation(lsp.Location(uri, self.range(uri, x.span)), x.message)
            for x in labels
            if x.span
        ]
        notes = [*found.notes, *([f"help: {found.help}"] if found.help else [])]
        return lsp.Diagnostic(
            self.range(uri, place),
            "\n".join([found.message, *notes]),
            severity=SEVERITIES[found.severity],
            code=str(found.code),
            source="pipesched",
            related_information=more,
        )


def _position(document: TextDocument, span: Span, offset: int) -> lsp.Position:
    line, column = span.source.position(offset)
    units = span.source.line(line)[: column - 1].encode("utf-16-le", "surrogatepass")
    return lsp.Position(line - 1, len(units) // 2)


def made(given: Mapping[str, Value]) -> Server:
    """Return a server with all its features."""
    server = Server(given)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidOpenTextDocumentParams | lsp.DidChangeTextDocumentParams) -> None:
        document = server.workspace.get_text_document(params.text_document.uri)
        found = features.findings(server.source(document.uri), given)
        shown = [server.shown(document.uri, one) for one in found]
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, shown, document.version))

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        said = features.meaning(*server.at(params), given)
        return None if said is None else lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, said))

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION)
    def completion(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        found = features.completions(*server.at(params))
        return [
            lsp.CompletionItem(x, kind=KINDS.get(of, lsp.CompletionItemKind.Variable), detail=of) for x, of in found
        ]

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        span, uri = features.defined_at(*server.at(params)), params.text_document.uri
        return None if span is None else lsp.Location(uri, server.range(uri, span))

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        return [lsp.Location(uri, server.range(uri, span)) for span in features.places(*server.at(params))]

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        spans = features.places(*server.at(params))
        return server.edit(params.text_document.uri, [(span, params.new_name) for span in spans])

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        source = server.source(params.text_document.uri)
        try:
            text = format_source(source)
        except PipeschedError:
            return []
        whole = server.range(params.text_document.uri, source.span(0, len(source.text)))
        return [lsp.TextEdit(whole, text)] if text != source.text else []

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        return [
            lsp.CodeAction(
                one.title,
                kind=lsp.CodeActionKind.QuickFix,
                diagnostics=[server.shown(uri, one.found)],
                edit=server.edit(uri, list(one.edits)),
            )
            for one in features.repairs(server.source(uri), given)
        ]

    return server


def serve(given: Mapping[str, Value]) -> None:
    """Serve until the editor ends the session."""
    made(given).start_io()
