"""Writes a schedule for a trainer that has a form of its own."""
