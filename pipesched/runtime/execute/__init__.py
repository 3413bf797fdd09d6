"""Executes an instruction stream on torch.distributed; knows only the stream, not the compiler."""
