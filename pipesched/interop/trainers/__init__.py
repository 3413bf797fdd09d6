"""Is a trainer's configuration right: what each trainer's settings mean for its pipeline, a file a trainer.

    text ──texts──> Settings ──a trainer──> Plan, and what is said of it: facts, notes, diagnostics

    settings     a configuration as keys with values and places
    texts        TOML, YAML, JSON and command lines as settings
    keys         the table of a trainer's keys: which releases have them, what their values are
    case         a configuration, the release that it is for, and what is said of it
    torch_names  the schedules of torch by name, which several trainers take
    trainers     TRAINERS, a row each

Every rule names its source: project, release and file. What a file does not say is not guessed: it is named.
"""
