"""Executes an instruction stream on torch.distributed; depends only on the stream, not on the compiler."""
