"""The schedule language: text to tree to schedule, and back to text.

ast the syntax tree
parser              text -> tree; tokens: the words of any text
printer             tree or text -> canonical text (`pipesched fmt`); layout: blanks within lines, columns across them
typecheck           names and types; translate, statements: -> Python bytecode that carries the places of the .ps file
evaluate            tree + parameters -> Schedule: placement_lines, rank_programs and the operations they run
greedy              orders that follow from a rule: all ranks on one clock
claims the claims of a file, checked exactly
"""
