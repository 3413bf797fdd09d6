"""The schedule language: text to tree to schedule, and back to text.

ast        what was written
parser     text -> tree, with every syntax error of a file in one run; build makes the nodes
recover    why a text is not in the language: tokens, brackets, table (the walk), expected (the words)
printer    a file's tokens -> canonical text (`pipesched fmt`); spacing within lines, columns across them
translate  expressions and statements -> Python bytecode that carries the positions of the .ps file
evaluate   tree + parameters -> Schedule
claims     what a file says about itself, checked exactly
"""
