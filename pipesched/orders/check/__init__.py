"""Checks a file's own instructions; the instructions of a lowering are correct by construction."""
