"""Judgements: one property per file, which yields its findings; `checks` lists them, and `examine` runs them."""
