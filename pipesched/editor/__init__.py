"""Serves editors: a language server for `.ps` files, torch's CSV, orders and streams."""
