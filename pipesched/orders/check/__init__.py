"""The checks of instructions that a file gives itself; those of a lowering are right by construction."""
