"""Orders that a rule determines: support for `greedy { … }` in a file, in place of a list of operations."""
