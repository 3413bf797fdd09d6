"""When code that posts its own messages is traced on tokens, the recorded operations, pairs and messages are those that
the code requests.

The traced schedules (``generators/posted``) are small ones in the calling styles of DualPipe, Colossal-AI and forks of
Megatron-LM; the expected orders are written here by their rules.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pipesched
from tests.readers.typed import typed

POSTED = Path(__file__).parents[1] / "generators" / "posted"


def paired(p: int, m: int, r: int) -> Iterator[str]:
    late = 2 * p - 1 - r
    yield from (f"F{r}.{i}" for i in range(m))
    yield from (f"F{late}.{i}" for i in range(r + 1))
    yield from (f"F{late}.{i}+B{late}.{i - r - 1}" for i in range(r + 1, m))
    yield from (f"B{late}.{i}" for i in range(m - r - 1, m))
    yield from (f"I{r}.{i}" for i in range(m))
    yield from (f"W{r}.{i}" for i in range(m))


def vee(p: int, m: int, r: int) -> Iterator[str]:
    late = 2 * p - 1 - r
    first = "B" if r == 0 else "I"  # the first stage has no input that wants a gradient, so it has no I
    yield from (f"F{stage}.{i}" for stage in (r, late) for i in range(m))
    yield from (f"I{late}.{i}" for i in range(m))
    yield from (f"I{r}.{i}" for i in range(m) if first == "I")
    yield from (f"W{late}.{i}" for i in range(m))
    yield from (f"{'W' if first == 'I' else 'B'}{r}.{i}" for i in range(m))


def fork(p: int, m: int, r: int) -> Iterator[str]:
    warm = min(p - 1 - r, m)
    yield from (f"F{r}.{i}" for i in range(warm))
    for i in range(m - warm):
        yield from (f"F{r}.{warm + i}", f"B{r}.{i}")
    yield from (f"B{r}.{i}" for i in range(m - warm, m))


@pytest.mark.parametrize("order", [paired, vee, fork])
@pytest.mark.parametrize(("p", "m"), [(2, 4), pytest.param(3, 5, marks=pytest.mark.nightly)])
def test_the_order_is_that_of_the_code(order: Callable[[int, int, int], Iterator[str]], p: int, m: int) -> None:
    """Every rank has the computes of the rule, and its messages pass all checks."""
    name = f"python:{POSTED / 'traced.py'}:{order.__name__}"
    told = typed("emit", name, f"--p={p}", f"--m={m}", "--target=order", f"--framework-path={POSTED}")
    assert told.out.decode().splitlines() == [f"rank {r}: {' '.join(order(p, m, r))}" for r in range(p)], told.err
    report = pipesched.verify(name, p=p, m=m, framework_path=str(POSTED))
    assert report.ok and report.messages == 2 * m * (p - 1) * (1 if order is fork else 2), report


def edited(folder: Path, file: str, *change: str) -> pipesched.Report:
    """Return the verdict on the code with one change."""
    shutil.copytree(POSTED, folder, dirs_exist_ok=True)
    text = (folder / f"{file}.py").read_text()
    assert text.count(change[0]) == 1
    (folder / f"{file}.py").write_text(text.replace(*change))
    name = "fork" if file == "traced" else file
    return pipesched.verify(f"python:{folder / 'traced.py'}:{name}", p=3, m=4, framework_path=str(folder))


ALONE = """        for post in posts:
            torch.distributed.batch_isend_irecv([post])[0].wait()
"""
BATCH = """        for request in torch.distributed.batch_isend_irecv(posts):
            request.wait()
"""


@pytest.mark.parametrize(
    ("file", "before", "after", "code"),
    [
        ("fork", BATCH, ALONE, "PS401"),  # neighbours send to each other before they receive
        ("fork", "kept.pop(0), grad)\n        given", "kept.pop(-1), grad)\n        given", "PS403"),
        ("vee", "if table:", "if torch.isnan(made):", "PS851"),  # the value of a tensor
    ],
    ids=["alone", "another", "value"],
)
def test_a_mistake_of_the_code_is_found(file: str, before: str, after: str, code: str, tmp_path: Path) -> None:
    """A deadlock, a gradient for another microbatch, and a decision by a value are reported."""
    report = edited(tmp_path, file, before, after)
    assert code in [str(found.code) for found in report.diagnostics], report


def test_a_package_that_is_not_there(tmp_path: Path) -> None:
    """A package that cannot be found is named."""
    report = edited(tmp_path, "traced", 'p, "fork")', 'p, "forc")')
    assert "package forc does not exist" in str(report)


def test_one_module_of_a_package_runs_as_it_is(tmp_path: Path) -> None:
    """A module within a package is named with its dots; the rest of the package is not executed."""
    inner = tmp_path / "outer" / "inner"
    shutil.copytree(POSTED, inner)
    (tmp_path / "outer" / "__init__.py").write_text("raise ImportError\n")
    text = (inner / "traced.py").read_text().replace("from fork", "from outer.inner.fork")
    (tmp_path / "traced.py").write_text(text.replace('p, "fork")', 'p, "outer.inner.fork")'))
    told = [
        typed(
            "emit", f"python:{path / 'traced.py'}:fork", "--p=3", "--m=4", "--target=order", f"--framework-path={path}"
        )
        for path in (tmp_path, POSTED)
    ]
    assert told[0].out == told[1].out and told[0].status == 0, told[0].err


def test_trees_of_tensors(tmp_path: Path) -> None:
    """Trees are mapped, flattened and filled again, as Colossal-AI's code does with what it sends."""
    before = "        torch.cuda.synchronize()\n    return made"
    after = """        from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
        leaves, form = tree_flatten({"hidden": [made, (1,)]})
        made = tree_map(lambda x: x, tree_unflatten(leaves, form))["hidden"][0]
        torch.cuda.synchronize()
    return made"""
    assert edited(tmp_path, "fork", before, after).ok
