"""A refutation that others can check: the clauses, and a DRAT proof that they have no model.

    PATH.cnf    DIMACS; its comments say what was asked and what every variable means
    PATH.drat   each line a clause that follows from those before it, or `d` and one no longer used; the last is empty

Any DRAT checker reads the two files. What it confirms is that the clauses cannot hold; that they say what they should
is the comments, `cnf` and `counters`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipesched import files
from pipesched.model.ops import Op
from pipesched.optimizer.encoding.variables import Encoding
from pipesched.optimizer.question import Question


def write(question: Question, made: Encoding, lines: Iterable[str]) -> None:
    """PATH.cnf and PATH.drat; each is complete or not there.

    Raises:
        OSError: the files cannot be written.
    """
    assert question.proof is not None
    clauses = (*_comments(question, made), *made.clauses.dimacs())
    files.replace(f"{question.proof}.cnf", (piece.encode("ascii") for piece in clauses))
    files.replace(f"{question.proof}.drat", (line.strip().encode("ascii") + b"\n" for line in lines))


def _comments(question: Question, made: Encoding) -> Iterator[str]:
    problem = made.problem
    about = "all ranks" if question.ranks is None else "ranks " + ", ".join(map(str, question.ranks)) + " alone"
    bound = problem.time(question.bound)
    yield f"c Is there a schedule of {about} with {problem.objective} at most {bound} ({question.bound} ticks)?\n"
    yield f"c caps by rank, in parts of {problem.part}: {' '.join(map(str, problem.cap.tolist()))}\n"
    if question.window is not None:
        yield "c periodic from {} to {}: {} microbatches every {} ticks\n".format(*question.window)
    yield "c Variable a + k is true if the operation has started by tick t + k; the others are auxiliary.\n"
    if made.joins:
        yield "c The W of a rank with several stages are counted together: microbatch n is the n-th W of the rank.\n"
    yield "c   operation route stage microbatch rank: starts t .. u, takes duration; variables a .. b\n"
    columns = (problem.sequence, problem.index, made.low, made.high, made.base)
    for q, i, low, high, base in zip(*(column.tolist() for column in columns), strict=True):
        what = f"{Op(problem.op[q]).name} {problem.route[q]} {problem.stage[q]} {i} {problem.rank[q]}"
        last = base + high - low - 1
        yield f"c   {what}: starts {low} .. {high}, takes {problem.duration[q]}; variables {base} .. {last}\n"
