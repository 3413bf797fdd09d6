"""Plans of a training step over a cluster: transformers, bytes, layouts."""
