"""File formats. READERS (`readers`): the reader of each kind of text; TARGETS (`targets`): the forms that are written.

stream_write   the published form
numbered       writes many lines that differ in one number each at once
"""
