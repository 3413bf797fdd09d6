"""Layouts for training a transformer on a cluster: all that fit, fastest first."""
