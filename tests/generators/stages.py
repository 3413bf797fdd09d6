"""A small transformer, one layer per stage, for `pipesched run --rank`."""

import torch
from torch import nn

TOKENS, WIDTH, WORDS = 32, 64, 101


def stage(stage, stages):
    """Return the module of a stage, and one microbatch of two sequences as its input."""
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
    if stage == 0:
        return nn.Sequential(nn.Embedding(WORDS, WIDTH), layer), torch.randint(WORDS, (2, TOKENS))
    return layer, torch.randn(2, TOKENS, WIDTH)
