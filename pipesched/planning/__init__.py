"""Planning of training steps on a cluster: transformers, memory in bytes, layouts."""
