"""Limits, foreign text, files and processes: what everything else rests on."""
