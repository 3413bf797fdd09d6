"""A transformer and its training, and the parameters and bytes that follow from them."""
