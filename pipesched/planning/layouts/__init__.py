"""Choices that train a transformer on a cluster: which fit, and which is fastest."""
