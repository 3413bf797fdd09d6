"""The core's verbs: the work of each without a terminal, and its command."""
