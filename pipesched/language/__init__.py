"""The schedule language: text to tree to schedule, and back to text.

ast        what was written
parser     text -> tree, with every syntax error of a file in one run
printer    tree's tokens -> canonical text (`pipesched fmt`)
translate  expressions and statements -> Python bytecode that carries the positions of the .ps file
evaluate   tree + parameters -> Schedule
claims     what a file says about itself, checked exactly
"""
