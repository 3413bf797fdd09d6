"""Orders that are not programs in the language: streams and torch's CSV are read, words are read and written.

reading                   the kinds of text, each known by its first line
stream_read, _strict      the published form: quickly where it is laid out as ours is, else against the contract
torch_csv                 torch's compute_only and compute_comms files, read strictly, and written
order_text, order_write   the notation ``rank 0: F0.0 B0.0``
implied                   what rows imply: the placement, and whether a file agrees with given sizes
words                     many words that differ in their numbers, read at once; where each of them is
"""
