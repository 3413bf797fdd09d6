"""Explain mistakes (syntax errors, files of another kind), codes and words."""
