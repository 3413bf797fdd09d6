"""Layouts that train a transformer on a cluster: the ones that fit, and the fastest."""
