"""Layouts for training a transformer on a cluster: those that fit, fastest first."""
