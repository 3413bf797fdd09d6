"""The verbs of the core: for each verb, a module for its work without a terminal, and one for its command."""
