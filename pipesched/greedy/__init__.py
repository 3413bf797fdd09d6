"""Orders by a rule: Support for `greedy { … }` in a file, in place of a list of operations."""
