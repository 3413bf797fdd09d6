"""What each command does, without a terminal: a file a verb, of the same name as its file in `cli/`."""
