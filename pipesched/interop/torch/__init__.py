"""Rules of torch's pipeline runtime for an order and its messages, by version."""
