"""Checks a trainer's configuration by the trainer's rules on its pipeline settings; one file per trainer.

    text ──texts──> Settings ──a trainer──> Plan, and findings: facts, notes, diagnostics

    settings     a configuration as keys with values and positions
    texts        TOML, YAML, JSON and command lines as settings
    tables       the TOML file of a trainer: its keys and its rules
    keys         the table of a trainer's keys: their releases and allowed values
    case         a configuration, the release that it is for, and the findings
    torch_names  the names of torch's schedules, which several trainers accept
    trainers     TRAINERS, one row per trainer

Every rule names its source: project, release and file. Values missing in the file are reported, never guessed.
"""
