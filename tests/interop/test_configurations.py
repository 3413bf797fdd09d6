"""Configurations that trainers run pass `pipesched check`, and configurations that they refuse fail at the line of
the fault."""

from __future__ import annotations

import json
import random
import re
import shlex
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import Code, PipeschedError
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.keys import Key
from pipesched.interop.trainers.scripts import LARGEST
from pipesched.interop.trainers.settings import Settings
from pipesched.interop.trainers.texts import commands
from pipesched.interop.trainers.trainers import TRAINERS
from pipesched.planning.transformer.megatron_layout import faults, stages_of
from tests.depth import deep
from tests.makers.configurations import EXAMPLES, MISTAKES, Row, megatron, new, titan

if TYPE_CHECKING:
    from pipesched import Checked

LETTERS = "abcdefghijklmn"


def readable(rows: tuple[Row, ...]) -> list[object]:
    """Return the rows, rows in YAML only if PyYAML is installed."""
    absent = find_spec("yaml") is None
    marks = {True: [pytest.mark.skip("needs PyYAML")], False: []}
    return [pytest.param(row, id=row.name, marks=marks[absent and row.ending.startswith("y")]) for row in rows]


def checked(row: Row, folder: Path) -> Checked:
    """Return the result of a row, from its file."""
    file = folder / f"trainer.{row.ending}"
    file.write_text(row.text, "utf-8")
    given: dict[str, Any] = {"p": None, "processes": None, "trainer": None, "torch_version": None}
    for option, value in zip(row.options[::2], row.options[1::2], strict=True):
        given[option.removeprefix("--").replace("-", "_")] = value
    return pipesched.check(file, **given)


def codes(made: Checked) -> list[str]:
    """Return the codes of the findings."""
    return [str(found.code) for found in made.diagnostics]


@pytest.mark.parametrize("row", readable(EXAMPLES + MISTAKES))
def test_a_configuration_is_told_what_it_must_be(row: Row, tmp_path: Path) -> None:
    """The command reports exactly the listed codes at their lines, the last line, and the source of each finding; its
    status is 0 without findings, 4 if not judged, else 1.
    """
    made = checked(row, tmp_path)
    said = tuple((str(x.code), x.where.line if x.where else 0) for x in made.diagnostics)
    open = {code for code, _ in row.said} <= {"PS871", "PS882"}
    assert (said, made.exit_status) == (row.said, 4 if row.said and open else int(bool(row.said))), str(made)
    assert row.last in str(made).split("\n")[-1]
    for found in made.diagnostics:
        assert found.code in (
            InteropCode.CONFIG_SYNTAX,
            InteropCode.CONFIG_UNKNOWN,
            InteropCode.CONFIG_UNREAD,
        ) or found.notes[0].startswith("source: ")


@pytest.mark.parametrize("row", readable(EXAMPLES))
def test_the_command_that_it_ends_with_holds(row: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`pipesched verify …` in the last line is right at p, v and m of the configuration."""
    made = checked(row, tmp_path)
    plan = made.plan
    words = shlex.split(made.command or "")
    if words[:2] == ["pipesched", "verify"] and ":" not in words[2] and (plan.microbatches or 0) < 100:
        assert main([*words[1:], "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["ranks"], report["stages"]) == (plan.ranks, plan.stages)
        assert report["microbatches"] == plan.microbatches


def test_a_csv_is_verified_with_the_sizes_of_its_trainer(tmp_path: Path) -> None:
    """One size holds; other p, m and placements, messages, and an error of the file itself are reported."""
    more = 'pipeline_parallel_schedule_csv = "order.csv"\n'

    def found(text: str, csv: str, ending: str = "toml") -> list[str]:
        (tmp_path / "order.csv").write_text(csv, "utf-8")
        return codes(checked(Row("", ending, text), tmp_path))

    looped = pipesched.emit("interleaved", "torch-csv", p=2, v=2, m=8)
    two = titan(2, "PipelineScheduleMulti", more=more)
    assert found(two, looped) == []
    assert found(titan(2, "1F1B", more=more), looped) == ["PS878"]
    assert found(titan(4, "PipelineScheduleMulti", more=more), looped) == ["PS878"]
    assert found(two.replace("size = 8", "size = 16"), looped) == ["PS878"]
    assert found(titan(2, "ZBVZeroBubble", more=more), looped) == ["PS878"]
    assert found(titan(2, "ZBVZeroBubble", more=more), pipesched.emit("zb_v", "torch-csv", p=2, m=8)) == []
    assert found(two, pipesched.emit("interleaved", "torch-comms", p=2, v=2, m=8)) == ["PS878"]
    assert "PS301" in found(two, looped.replace("3B7", "3B6"))
    assert found(two, looped.replace("3B7", "3X7")) == ["PS801"]
    swapped = looped.replace("3F0", "x").replace("3F1", "3F0").replace("x", "3F1")
    assert "PS804" in found(two, swapped), "the last stage runs microbatch 1 before 0"
    line = new("PipelineScheduleMulti").rstrip() + " --parallelism.pipeline_parallel_schedule_csv order.csv\n"
    assert found(line, re.sub(r"(\d)B(\d)", r"\1I\2,\1W\2", looped), "sh") == ["PS880"]


def test_an_order_that_the_library_has_not_is_executed() -> None:
    """The command names the trainer's own code, with the options that its messages depend on."""
    made = pipesched.check(pipesched.Source("a.toml", titan(4, "InterleavedZeroBubble")))
    assert made.command == "pipesched verify torch:InterleavedZeroBubble --p 4 --v 2 --m 8"
    text = "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 12 --pipeline-model-parallel-size 4 "
    text += "--num-layers-per-virtual-pipeline-stage 1 --micro-batch-size 1 --global-batch-size 5 "
    text += "--microbatch-group-size-per-virtual-pipeline-stage 5 --overlap-p2p-communication-warmup-flush"
    options = "overlap_p2p_comm=true", "batch_p2p_comm=false", "overlap_p2p_comm_warmup_flush=true"
    words = " ".join(f"-D {option}" for option in (*options, "microbatch_group_size_per_vp_stage=5"))
    made = pipesched.check(pipesched.Source("a.sh", text))
    assert made.command == f"pipesched verify megatron:interleaved --p 4 --v 3 --m 5 {words}"


def test_options_are_laid_over_the_file_that_they_name(tmp_path: Path) -> None:
    """In torchtitan 0.2.2, the command line wins over the TOML file."""
    (tmp_path / "debug.toml").write_text(titan(1), "utf-8")
    line = "torchrun -m torchtitan.train --job.config_file debug.toml --parallelism.pipeline-parallel-degree=4\n"
    made = checked(Row("", "sh", line), tmp_path)
    assert made.ok and made.command == "pipesched verify interleaved --p 4 --v 2 --m 8"


def test_what_is_assumed_and_what_is_open_is_said(tmp_path: Path) -> None:
    """The release, torch, variables that a script does not set, settings that are repeated or not judged."""
    made = checked(Row("", "toml", titan()), tmp_path)
    assert made.assumed == ("release", "torch") and str(made).count("(assumed)") == 2
    options = ("--trainer", "torchtitan==0.2.2", "--torch-version", "2.12")
    made = checked(Row("", "toml", titan(), options=options), tmp_path)
    assert made.assumed == () and (made.release, made.torch) == ("0.2.2", "2.12")
    script = (
        "run --use-mcore-models --num-layers 12 --num-layers 24 --pipeline-model-parallel-size $PP --lr 1 --seed 1\n"
    )
    said = str(checked(Row("", "sh", script), tmp_path))
    assert "$PP, which the file does not set" in said and "given again later" in said and "--lr, --seed" in said
    row = Row("", "json", '{"train_micro_batch_size_per_gpu": 1}')
    assert "give --p N" in str(checked(row, tmp_path))
    assert pipesched.check(tmp_path / "trainer.json", p=4).plan.ranks == 4


def test_mistakes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown trainers and releases, a p that contradicts the file, and invalid files end with status 2."""
    file = tmp_path / "a.toml"
    file.write_text(titan(), "utf-8")
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\x00\xff\x00")
    (tmp_path / "large.json").write_text("{" + " " * LARGEST + "}", "utf-8")
    for arguments, said in (
        ((str(file), "--trainer", "torchtitn"), "did you mean torchtitan?"),
        ((str(file), "--trainer", "torchtitan==0.1.0"), "it has rules for 0.2.0, 0.2.1, 0.2.2, 0.3.0, main"),
        ((str(file), "--p", "2"), "has 4 ranks, but 2 were given"),
        ((str(file), "--processes", "x"), "not a whole number"),
        ((str(file), "--processes", "0"), "--processes is 0, not a positive whole number"),
        ((str(file), "--trainer", "torchtitan=="), "pipesched has no rules for torchtitan ''"),
        ((str(file), "-D", "PP=4"), "-D sets a variable of a script"),
        ((str(file), "--p", "-1"), "--p is -1, not a positive whole number"),
        ((str(binary),), "is not text"),
        ((str(tmp_path / "large.json"),), "too large for a configuration"),
        ((str(tmp_path / "none.toml"),), "no such file"),
        ((str(tmp_path),), "directory"),
    ):
        assert main(["check", *arguments]) == 2, arguments
        assert said in capsys.readouterr().err, arguments
    with pytest.raises(PipeschedError) as raised:
        pipesched.check(file, trainer="nobody")
    assert raised.value.diagnostics[0].code is Code.USAGE
    assert main(["check", str(file), "--trainer", "deepspeed"]) == 4
    assert "DeepSpeed is read from json" in capsys.readouterr().out


def test_every_form_of_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings are lines for editors, annotations or an object; `check_config` returns the same object."""
    file = tmp_path / "a.toml"
    file.write_text(titan(name="x"), "utf-8")
    assert main(["check", str(file), "--format", "concise"]) == 1
    assert re.fullmatch(rf"{re.escape(str(file))}:8:1: error\[PS875\]: [^\n]+\n", capsys.readouterr().out)
    assert main(["check", str(file), "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith(f"::error file={file},line=8,col=1,title=PS875::")
    assert main(["check", str(file), "--json"]) == 1
    made = pipesched.check(file)
    assert json.loads(capsys.readouterr().out) == made.to_json() and made.exit_status == 1
    assert main(["check", str(file)]) == 1 and capsys.readouterr().out == f"{made}\n"


def unrolled(layout: str) -> list[str]:
    """Return an oracle of the layout string: read from left to right with a stack."""
    stack: list[str] = [""]
    last, at = "", 0
    while at < len(layout):
        sign = layout[at]
        if sign == "(":
            stack[-1] += last
            stack.append("")
            last = ""
        elif sign == ")":
            last = stack.pop() + last
        elif sign == "*":
            digits = re.match(r"\d+", layout[at + 1 :])
            assert digits
            last *= int(digits[0])
            at += len(digits[0])
        else:
            stack[-1] += last
            last = sign
        at += 1
    return (stack[0] + last).split("|")


def test_a_layout_is_unrolled() -> None:
    """Groups and single letters repeat; stages and layers equal the oracle's."""
    assert stages_of("Et|(tt|)*6mL") == unrolled("Et|(tt|)*6mL") == ["Et", *["tt"] * 6, "mL"]
    assert not [*faults(["Et", *["tt"] * 6, "mL"], 2, 13, 1)]
    chance = random.Random(5)
    for _ in range(deep(50)):
        parts = []
        for _ in range(chance.randint(1, 5)):
            letters = "".join(chance.choice("t|m") for _ in range(chance.randint(1, 3)))
            parts.append(
                chance.choice([letters, f"({letters})*{chance.randint(1, 4)}", f"{letters}*{chance.randint(1, 4)}"])
            )
        layout = f"E{','.join(parts)}L"
        assert stages_of(layout) == unrolled(layout.replace(",", "")), layout
    assert stages_of("Ex|L") == "has 'x', which is not one of E, t, m, L"
    assert stages_of("(tttttttttt|)*9999L") == "is longer than any model"


FOR = {"nothing.yaml": "megatron", "towers.yaml": "megatron", "list.toml": "torchtitan"}
SHELL = "torchrun pretrain_gpt.py --use-mcore-models --num-layers 12 --global-batch-size 16 --micro-batch-size 2"
WRITTEN: list[tuple[str, str, list[tuple[str, int]], str]] = [  # name, text, codes at their lines, what else is said
    (
        "strings.sh",
        "A=' --num-layers 12 \\\n --pipeline-model-parallel-size 5'\npython a.py --rotary-base 1 $A",
        [("PS877", 1)],
        "",
    ),
    (
        "more.sh",
        'A="--num-layers 5"\nA="$A --pipeline-model-parallel-size 5"\npython a.py --rotary-base 1 $A',
        [],
        "5 on 5 ranks",
    ),
    ("said.sh", f"echo 'use --pipeline-model-parallel-size 5'; {SHELL}", [], "no pipeline"),
    (
        "two.sh",
        f"{SHELL} --pipeline-model-parallel-size 5 && {SHELL} --pipeline-model-parallel-size 1",
        [("PS877", 1)],
        "command 2 of 2\nok ",
    ),
    (
        "nodes.sh",
        f"torchrun --nproc_per_node 4 {SHELL[7:]} --pipeline-model-parallel-size 4",
        [],
        "one node, since nnodes",
    ),
    (
        "many.sh",
        f"torchrun --nnodes 2 --nproc_per_node 4 {SHELL[7:]} --pipeline-model-parallel-size 4",
        [],
        "8, from nproc_per_node and nnodes",
    ),
    (
        "slurm.sh",
        f"srun -N 2 --ntasks-per-node 4 python {SHELL[9:]} --pipeline-model-parallel-size 4",
        [],
        "8, from ntasks_per_node and N",
    ),
    (
        "array.sh",
        f"A=(\n --pipeline-model-parallel-size 5 # of 12\n)\n{SHELL} ${{A[@]}} --pipeline-model-parallel-size 4",
        [],
        "4 on 4 ranks",
    ),
    (
        "branch.sh",
        f"P=4\nif $X; then\n P=5\nfi\n{SHELL} --pipeline-model-parallel-size $P",
        [("PS882", 5)],
        "in different ways",
    ),
    (
        "perhaps.sh",
        f'P=4\n[ -z "$P" ] && P=5\n{SHELL} --pipeline-model-parallel-size $P',
        [],
        "p=4",
    ),
    ("nothing.yaml", "pipeline_model_parallel_size: !!int\nnum_layers: !!bool 3", [("PS874", 1), ("PS874", 2)], ""),
    (
        "space.sh",
        f"{SHELL} \\ # all\n  --pipeline-model-parallel-size 4",
        [("PS870", 1)],
        "end the line with the backslash",
    ),
    ("comment.sh", f"{SHELL} \\\n  # ranks\n  --pipeline-model-parallel-size 4", [("PS870", 1)], "without a comment"),
    (
        "blank.sh",
        f"{SHELL} \\\n\n  --pipeline-model-parallel-size 4",
        [("PS870", 1)],
        "end the line with the backslash",
    ),
    (
        "no_file.sh",
        "train --job.config_file=no.toml --parallelism.pipeline_parallel_degree=2",
        [],
        "file no.toml does not exist",
    ),
    (
        "ranks.sh",
        f"{SHELL} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3"
        " --no-overlap-p2p-communication",
        [("PS879", 1)],
        "help: omit --no-overlap-p2p-communication",
    ),
    (
        "flag.sh",
        "train --config x --parallelism.pipeline_parallel_degree=2 --training.no-disable-cuda-graphs",
        [("PS879", 1)],
        "disable_cuda_graphs is false",
    ),
    ("list.toml", "[[parallelism]]\npipeline_parallel_degree = 2\n[training]\nsteps = 1", [("PS874", 1)], ""),
    ("text.json", '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4, "pipeline": "no"}', [("PS874", 1)], ""),
    ("null.json", '{"train_batch_size": null, "train_micro_batch_size_per_gpu": 4}', [], "1 of 4 samples"),
    (
        "twice.json",
        '{"train_batch_size": 4, "zero_optimization": {}, "zero_optimization": {}}',
        [("PS872", 1)],
        "zero_optimization is given a second time",
    ),
    (
        "template.json",
        '{"train_batch_size": BATCH_1st,\n "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": ZERO}}',
        [],
        "m=?, microbatches of 4",
    ),
    ("one.json", '{"train_batch_size": 32, "zero_optimization": {"stage": 1}}', [], "m=1: "),
    ("python.json", '{"train_batch_size": 32,\n "fp16": {"enabled": True}}', [("PS870", 2)], "cannot be read as JSON"),
    (
        "no_template.json",
        '{"train_batch_size": CONFIG_BATCH,\n "zero_optimization": [}',
        [("PS870", 1)],
        "cannot be read as JSON",
    ),
    (
        "merged.yaml",
        "a: &a {--pipeline-model-parallel-size: 1}\nARGS:\n  --pipeline-model-parallel-size: 2\n  <<: *a",
        [],
        "p=2",
    ),
    (
        "merges.yaml",
        "a: &a {--pipeline-model-parallel-size: 2}\nb: &b {--pipeline-model-parallel-size: 1}\n"
        "ARGS: {<<: [*a, *b], --num-layers: 3}",
        [("PS877", 3)],
        "3 layers cannot be divided evenly among 2 ranks",
    ),
    (
        "quoted.yaml",
        "ARGS:\n  --num-layers: 12\n  --pipeline-model-parallel-size: '4'\n",
        [],
        "4 on 4 ranks",
    ),
    (
        "towers.yaml",
        "model: {num_layers: 12, pipeline_model_parallel_size: 4}\nvision: {num_layers: 5}",
        [],
        "of 12 layers",
    ),
]


@pytest.mark.parametrize(("name", "text", "said", "more"), WRITTEN, ids=[row[0] for row in WRITTEN])
def test_a_text_is_read_as_its_trainer_reads_it(
    name: str, text: str, said: list[tuple[str, int]], more: str, tmp_path: Path
) -> None:
    """The texts are scripts with several commands, branches, options in strings and broken lines; sections that are
    values, `null`, merged mappings, names in several sections.
    """
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    file = tmp_path / name
    file.write_text(text, "utf-8")
    made = pipesched.check(file, trainer=FOR.get(name))
    assert [(str(x.code), x.where.line if x.where else 0) for x in made.diagnostics] == said, str(made)
    assert more in str(made)


def test_the_tables_are_whole() -> None:
    """Releases of a key are known, in order; a default is a valid value; no name is in two rows."""
    for row in TRAINERS:
        for kind in ("cli", "yaml"):
            keys = row.keys(Settings(pipesched.Source("", ""), kind, {}))
            for name, key in keys.items():
                assert isinstance(key, Key) and {key.first, key.last} <= {None, *row.releases}, name
                if key.first and key.last:
                    assert row.releases.index(key.first) <= row.releases.index(key.last), name
                assert key.default in (None, "") or key.kind.holds(key.default), name
                assert row.canonical(name) == name
    assert len({row.typed for row in TRAINERS}) == len(TRAINERS)


def mutants(text: str, chance: random.Random) -> list[str]:
    """Return a text with a line dropped, doubled or cut, a character changed, two lines swapped."""
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    position = chance.randrange(len(text))
    other = lines.copy()
    other[at], other[-1] = other[-1], other[at]
    return [
        "".join(lines[:at] + lines[at + 1 :]),
        "".join(lines[: at + 1] + lines[at:]),
        text[:position],
        text[:position] + chance.choice("\"'{}[]()=:,#\\$-*&!\t\n0é") + text[position + chance.randint(0, 1) :],
        "".join(other),
        text.replace(" 4", chance.choice([" -4", " 0", " 4.5", " ''", " null", " " + "9" * 40, " [[]]", " true"]), 1),
    ]


def test_no_text_ends_in_a_traceback() -> None:
    """Changed configurations are judged or refused by a code, without an exception, and soon."""
    chance = random.Random(11)
    rows = [row for row in EXAMPLES + MISTAKES if row.text and (find_spec("yaml") or not row.ending.startswith("y"))]
    for _ in range(deep(1)):
        for row in rows:
            for text in chance.sample(mutants(row.text, chance), deep(2)):
                made = pipesched.check(pipesched.Source(f"a.{row.ending}", text), processes=8)
                assert made.exit_status in (0, 1, 2, 4) and made.text() and json.dumps(made.to_json())


NASTY = {
    "deep.json": '{"a":\n' * 30_000,
    "deep.toml": "a = " + "[" * 15_000,
    "deep.yaml": "[\n" * 5_000,
    "long.toml": "a = " + "[" * 25_000,
    "digits.json": '{"train_batch_size": ' + "1" * 5_000 + "}",
    "digits.toml": "[parallelism]\npipeline_parallel_degree = " + "1" * 5_000,
    "digits.yaml": "distributed:\n  pp_size: " + "1" * 5_000,
    "list.json": "[1, 2]",
    "list.yaml": "- 1\n- 2\n",
    "laughs.yaml": "a: &a [x, x]\n"
    + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in pairwise(LETTERS)),
    "tables.yaml": "a: &a {x: 1, y: 2}\n"
    + "".join(f"{b}: &{b} {{p: *{a}, q: *{a}, r: *{a}, s: *{a}}}\n" for a, b in pairwise(LETTERS)),
    "itself.yaml": "a: &a\n  b: *a\n",
    "tags.yaml": "a: !!python/object/apply:os.system ['true']\ndistributed: {pp_size: !x 4}\n",
    "dates.yaml": "distributed:\n  pp_size: 2001-99-99\n",
    "wide.json": "{" + ",\n".join(f'"k{i}": 1' for i in range(12_000)) + "}",
    "doubled.sh": "A=xx\n" + "A=$A$A\n" * 400 + "--num-layers $A\n",
    "bomb.sh": "A='$A$A'\nB=$A$A\n--pipeline-model-parallel-layout '" + "(t*9999)*9999" * 9 + "'\n",
    "quotes.sh": "--num-layers '12\n--pipeline-model-parallel-size \"4",
    "blank.yaml": "\n\n",
    "ways.sh": "A=--x\n" + 'if $u; then A="$A -a 1"; else A="$A -c"; fi\n' * 60 + "python a.py $A\n",
    "recursion.sh": "f() { f; f; }\nf\npython a.py --num-layers 4\n",
    "loops.sh": "for a in 1 2 3 4 5 6 7 8; do\n" * 12 + "python a.py --num-layers $a\n" + "done\n" * 12,
    "brackets.sh": "(" * 3000 + "true" + ")" * 3000,
    "outputs.sh": "$(" * 3000,
    "quoted.sh": '"$(echo "' * 500,
    "eval.sh": "A='eval \"$A$A\"'\neval \"$A\"\n",
    "shells.sh": "export X='bash -c \"$X\"'\nbash -c \"$X\"\n",
    "heredocs.sh": "cat <<A <<B <<C\n" * 3000,
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.nightly if x in ("eval.sh", "loops.sh", "ways.sh") else ()) for x in NASTY],
)
def test_texts_that_are_made_to_hurt(name: str) -> None:
    """Deep, wide, or long YAML, and YAML with many digits, aliases or tags, is judged or refused at once."""
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    made = pipesched.check(pipesched.Source(name, NASTY[name]))
    assert made.exit_status in (0, 1, 2, 4) and len(made.text()) < 100_000


def test_yaml_without_its_reader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PS820 is reported, with the command that installs the reader."""
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    made = pipesched.check(pipesched.Source("a.yaml", "distributed:\n  pp_size: 2\n"))
    assert [x.code for x in made.diagnostics] == [Code.NEEDS] and made.exit_status == 2


def test_places_are_those_of_the_keys() -> None:
    """The place of a setting is the place of its key, in TOML, YAML, JSON and on a command line."""
    texts = [("toml", titan()), ("sh", new("1F1B")), ("json", '{"a": {"b": [1, {"c": 2}], "d": 3}, "e": 4}')]
    if find_spec("yaml"):
        texts += [("yaml", megatron("num-layers: 4"))]
    for ending, text in texts:
        for setting in commands(pipesched.Source(f"a.{ending}", text))[0]:
            assert setting.at is not None
            assert setting.at.text.strip("\"'").split(":")[0] == setting.key.rpartition(".")[2] or ending == "sh"
