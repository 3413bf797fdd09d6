"""Orders by a rule: `greedy { … }` in a file, in place of a list."""
