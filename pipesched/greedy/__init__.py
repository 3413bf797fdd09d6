"""Orders by a rule: `greedy { … }` in a file instead of a list."""
