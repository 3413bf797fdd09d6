"""Plans training steps over a cluster: transformers, bytes, layouts."""
