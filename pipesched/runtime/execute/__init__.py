"""Executes an instruction stream on torch.distributed; knows the stream and no compiler."""
