"""Orders outside the language: streams and torch's CSV are read, order text is read and written.

reading                   the kinds of text, each recognized by its first line
stream_read, _strict      reads the published form: fast if it has our own layout, else strictly
torch_csv                 torch's compute_only and compute_comms files, read strictly, and written
order_text, order_write   the notation ``rank 0: F0.0 B0.0``
implied                   derives the placement from rows, and compares a file with given sizes
words                     reads many words at once if they differ only in their numbers
"""
