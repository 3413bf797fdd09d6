"""The part of bash that scripts which start a training use: text, statements, words, commands; all else is open."""
