"""Knows what torch's pipeline runtime asks of an order and of its messages, by version."""
