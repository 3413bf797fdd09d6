"""The verbs of the core: for each verb, its work without a terminal, and its command."""
