"""Weight versions: what a STEP inside an order takes, which version is read, and how many are alive."""
