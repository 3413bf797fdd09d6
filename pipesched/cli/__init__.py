"""The commands: a thin skin over `verbs`, one file a command, of the same name.

    app        the group, and how a mistake on the command line is reported
    flags      the table of options as options of click; sizes and files that a command line names
    terminal   where text is written: streams, files, colour, encodings
    progress   how far a search is

Modules here import click and nothing heavy at the top, so that `--help` is there at once.
"""
