"""The commands: a thin skin over `compile`, one file a command.

    app        the group, and how a mistake on the command line is told
    options    the values that options take, and options that several commands share
    terminal   where text goes: streams, files, colour, encodings
    verify, emit, run, order, fmt, list, explain
    rehearsal  what a run measured beside what was predicted

Modules here import click and nothing heavy at the top, so that `--help` is there at once.
"""
