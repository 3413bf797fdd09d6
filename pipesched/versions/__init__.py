"""Weight versions: gradients that a STEP inside an order takes, versions that are read, how many are alive."""
