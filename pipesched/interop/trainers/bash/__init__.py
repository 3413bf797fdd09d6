"""Interpreter for the part of bash that training scripts use: text, statements, words, commands."""
