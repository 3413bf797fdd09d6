"""File formats. READERS (`readers`): a reader for each kind of text; TARGETS (`targets`): the forms that are written.

stream_write   the published form
numbered       writes many lines, which differ only in a number, together
"""
