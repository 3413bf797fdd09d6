"""Checks of a file's own instructions; those of a lowering are correct by construction."""
