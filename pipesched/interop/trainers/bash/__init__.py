"""An interpreter of the part of bash that training scripts use: text, statements, words, commands."""
