"""Files of other software, read and written. READERS (`readers`) says which reader reads a text; TARGETS, what is
written.

torch_csv                 torch's compute_only and compute_comms files, read strictly, and written
order_text, order_write   the notation ``rank 0: F0.0 B0.0``
stream_*                  the published form: read quickly where it is laid out as ours is, else strictly; and written
in_memory                 orders that are values of Python, as texts
rows                      what readers of rows share: the placement, and whether a file agrees with what was said of it
words                     many words that differ in their numbers, read at once; where each of them is
numbered                  many lines that differ in one number each, written at once
"""
