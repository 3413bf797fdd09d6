"""What is read and written. READERS (`readers`): which reader reads a text; TARGETS (`targets`): what is written.

stream_write   the published form
numbered       many lines that differ in one number each, written at once
"""
