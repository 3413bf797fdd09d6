"""A wrong model file gets its code, at the line of the mistake, and no traceback."""

from __future__ import annotations

import pytest

from pipesched.diagnostics import PipeschedError
from pipesched.library.assets import asset
from pipesched.planning.transformer.model_file import KEYS, of_source, read
from pipesched.planning.transformer.rules import layers_of
from pipesched.support.source import Source

GOOD = """\
[model]
layers = 8
hidden = 256
heads = 8
kv_heads = 4
feed_forward = 1024
vocabulary = 1000
sequence = 128
dtype = "bf16"
[model.experts]
count = 4
per_token = 2
size = 512
[training]
batch = 64
microbatch = 2
tensor = 2
context = 2
data = 4
expert = 2
zero = 1
recompute = "none"
attention = "flash"
gradient_bytes = 4
layout = [1, 2, 2, 3]
"""
CASES = [  # a text of the file, its replacement, the code, and the line
    ("layers = 8", "layers = 8 8", "PS230", 2),
    ("[model]", "[model", "PS230", 1),
    ("layers = 8", "layers = 8\nlayers = 9", "PS230", 3),
    ("layers = 8", "layer = 8", "PS231", 2),
    ("tensor = 2", "tensor_parallel = 2", "PS231", 17),
    ("[training]", "[trainings]", "PS231", 15),
    ("layers = 8\n", "", "PS232", 1),
    ("vocabulary = 1000\n", "", "PS232", 1),
    ("size = 512\n", "", "PS232", 10),
    ("heads = 8\n", "heads = 8\ngated = true\n", None, 0),
    ("layers = 8", "layers = -8", "PS233", 2),
    ("layers = 8", "layers = 0", "PS233", 2),
    ("layers = 8", "layers = 8.5", "PS233", 2),
    ("layers = 8", 'layers = "8"', "PS233", 2),
    ("layers = 8", "layers = true", "PS233", 2),
    ("layers = 8", "layers = 100001", "PS233", 2),
    ("vocabulary = 1000", "vocabulary = 99999999999999999", "PS233", 7),
    ('"bf16"', '"bf17"', "PS233", 9),
    ("zero = 1", "zero = 4", "PS233", 21),
    ('"none"', '"some"', "PS233", 22),
    ('"flash"', "1", "PS233", 23),
    ("gradient_bytes = 4", 'gradient_bytes = "4 bits"', "PS233", 24),
    ("gradient_bytes = 4", "gradient_bytes = -4", "PS233", 24),
    *(("gradient_bytes = 4", f"gradient_bytes = {x}", "PS233", 24) for x in ("nan", "-inf", "1e999999999")),
    ("gradient_bytes = 4", "gradient_bytes = 0e999999999", None, 0),
    ("gradient_bytes = 4", "gradient_bytes = 1e-999999999", None, 0),
    ("layers = 8", f"layers = {'9' * 5000}", "PS843", 2),
    ("layers = 8", f"layers = {'[' * 3000}", "PS843", None),
    ("layers = 8", f"layers{'.a' * 3000} = 8", "PS843", 2),
    ("tensor = 2", "tensor = 2\nexpert = 1", "PS230", 21),
    ("expert = 2", "expert = 1", None, 0),
    ("size = 512", "size = 511\nshared = 1", "PS236", 18),
    ("[1, 2, 2, 3]", "[1, 2, 2, -3]", "PS233", 25),
    ("[1, 2, 2, 3]", "8", "PS233", 25),
    ("[1, 2, 2, 3]", '"t|tt|tt|tttL"', "PS233", 25),
    ("[1, 2, 2, 3]", '"Et|tt|tt|tttmL"', "PS233", 25),
    ("[1, 2, 2, 3]", '"Et|tt|tt|ttL"', "PS235", 25),
    ("[1, 2, 2, 3]", '"Et|(tt|)*2tttL"', None, 0),
    ("hidden = 256", "hidden = 250", "PS234", 4),
    ("kv_heads = 4", "kv_heads = 3", "PS234", 5),
    ("per_token = 2", "per_token = 5", "PS234", 12),
    ("size = 512", "size = 512\ndense_layers = 9", "PS234", 14),
    ("[1, 2, 2, 3]", "[1, 2, 2, 2]", "PS235", 25),
    ("tensor = 2", "tensor = 16", "PS236", 17),
    ("tensor = 2", "tensor = 3", "PS236", 17),
    ("feed_forward = 1024", "feed_forward = 1023", "PS236", 17),
    ("context = 2", "context = 3", "PS236", 18),
    ("data = 4", "data = 64", "PS236", 19),
    ("data = 4", "data = 3", "PS236", 15),
    ("expert = 2", "expert = 3", "PS236", 20),
    ("[model.experts]\ncount = 4\nper_token = 2\nsize = 512\n", "", "PS236", 16),
]


@pytest.mark.parametrize(("old", "new", "code", "line"), CASES, ids=[f"{new}"[:40] for _, new, *_ in CASES])
def test_a_bad_file_gets_its_code_at_its_line(old: str, new: str, code: str | None, line: int | None) -> None:
    """The first finding has the code and the line; the file without the change is right."""
    source = Source("model.toml", GOOD.replace(old, new, 1))
    assert source.text != GOOD
    if code is None:
        of_source(source)
        return
    with pytest.raises(PipeschedError) as raised:
        of_source(source)
    first = raised.value.diagnostics[0]
    assert (str(first.code), first.where.line if first.where else None) == (code, line), str(raised.value)


def test_the_file_without_a_slip_is_read() -> None:
    """The layout of the file counts too."""
    assert [len(layers) for layers in layers_of(*of_source(Source("model.toml", GOOD)), 4)] == [1, 2, 2, 3]


def test_a_layout_of_megatron_is_read() -> None:
    """Stages between bars, with repeats; the embedding may be a stage alone."""
    text = GOOD.replace("[1, 2, 2, 3]", '"E|t*3|(tt|)*2tL"')
    assert [len(layers) for layers in layers_of(*of_source(Source("model.toml", text)), 5)] == [0, 3, 2, 2, 1]


@pytest.mark.parametrize(("stages", "line"), [(9, 2), (5, 0)])
def test_fewer_layers_than_stages_is_told_at_the_line(stages: int, line: int) -> None:
    """A layout with another number of stages is reported too."""
    text = GOOD.replace("layout = [1, 2, 2, 3]\n", "") if line else GOOD
    with pytest.raises(PipeschedError) as raised:
        layers_of(*of_source(Source("model.toml", text)), stages)
    first = raised.value.diagnostics[0]
    assert str(first.code) == "PS235" and first.where is not None and first.where.line == (line or 25)


def test_an_unknown_name_is_nearly_a_known_one() -> None:
    """The help names the nearest one."""
    with pytest.raises(PipeschedError) as raised:
        read("llama3-404b")
    help = raised.value.diagnostics[0].help
    assert help is not None and help.startswith("did you mean `llama3-405b`?") and "a .toml file" in help


def test_the_page_has_every_key() -> None:
    """Every key is in exactly one table of the page."""
    page = asset("schedules", "models", "README.md").read_text("utf-8").partition("## A model of your own")[2]
    cells = " ".join(line for line in page.splitlines() if line.startswith("|"))
    for key in KEYS:
        assert f"`{key.rpartition('.')[2]}`" in cells, key
