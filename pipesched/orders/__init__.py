"""Orders that are not programs in the language: streams and torch's CSV are read, words are read and written."""
