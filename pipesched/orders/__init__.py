"""Orders outside the language: streams and torch's CSV are read, order text is read and written.

reading                   the kinds of text, each recognized by its first line
stream_read, _strict      the published form: fast if laid out as we write it, else strictly
torch_csv                 torch's compute_only and compute_comms files, read strictly, and written
order_text, order_write   the notation ``rank 0: F0.0 B0.0``
implied                   the placement that rows imply, and whether a file agrees with given sizes
words                     many words that differ only in their numbers, read at once, with places
"""
