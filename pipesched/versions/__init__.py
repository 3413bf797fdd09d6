"""Weight versions: which gradients a STEP inside an order takes, which versions are read, and how many are alive."""
