"""Options, values, sizes and files of a command line, and where its results are written."""
