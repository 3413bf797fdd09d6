"""Rules of torch's pipeline runtime for orders and messages, by version."""
