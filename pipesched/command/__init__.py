"""Options, values, sizes and files of a command line, and the output of results."""
