"""The schedule language: text to tree to schedule, and back to text.

ast the syntax tree
parser              text -> tree; tokens: the words of any text
printer             tree or text -> canonical text (`pipesched fmt`); layout: spaces in lines, alignment across lines
typecheck           names and types; translate, statements: -> Python bytecode with the positions of the .ps file
evaluate            tree + parameters -> Schedule: placement_lines, rank_programs and the operations they run
greedy              orders that a rule determines, with one clock for all ranks
claims the claims of a file, checked exactly
"""
