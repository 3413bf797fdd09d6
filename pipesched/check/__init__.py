"""Judgements: one property, one file, each yields what it finds; `checks` lists them, and `examine` runs them."""
