"""File formats. READERS (`readers`): the reader of each kind of text; TARGETS (`targets`): the forms that are written.

stream_write   the published form
numbered       many lines that differ in one number each, written at once
"""
