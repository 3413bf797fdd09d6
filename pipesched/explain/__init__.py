"""Explains mistakes: syntax errors, texts of another kind, codes and words."""
