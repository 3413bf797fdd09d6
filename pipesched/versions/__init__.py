"""Weight versions: the gradients that a STEP inside an order takes, the versions read, and the number alive."""
