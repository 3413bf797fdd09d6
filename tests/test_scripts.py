"""`check` of a script: what bash makes of it, or that it is not read; no default where its option stands unread."""

from __future__ import annotations

import pytest

import pipesched

COMMAND = "torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models --num-layers 24 --micro-batch-size 1"
UNREAD = {  # scripts with 4 ranks, of which a reader of texts need not know: that it does not is said with its line
    "a variable that another file reads": ("PP_SIZE=4\nexport PP_SIZE\nsource rest.sh\n" + COMMAND + " $REST\n", 1),
    "an option that a program writes": (COMMAND + " $(echo --pipeline-model-parallel-size=4)\n", 1),
    "another spelling": (COMMAND + ' $(printf "%s%s" --pipeline_model_parallel_size =4)\n', 1),
}


@pytest.mark.parametrize("name", UNREAD)
def test_no_default_is_told_of_what_stands_unread(name: str) -> None:
    """The status is 4, the line is named, and nothing is said of p: neither a number nor that there is no pipeline."""
    text, line = UNREAD[name]
    made = pipesched.check(pipesched.Source("a.sh", text))
    assert made.exit_status == 4 and not made.ok and made.plan.off is None and made.plan.ranks is None, str(made)
    assert line in {x.where.line for x in made.diagnostics if str(x.code) == "PS882" and x.where}, str(made)
    assert "no pipeline" not in str(made) and "pipesched check -- " in str(made)
