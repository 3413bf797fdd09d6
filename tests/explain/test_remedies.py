"""A remedy that is followed to the letter leads to a correct file or to the next mistake in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.support.source import Source


def helps(text: str, name: str = "mine.ps", **sizes: int) -> list[str | None]:
    """Return the remedies of all findings of a file."""
    return [found.help for found in pipesched.verify(Source(name, text), **sizes).diagnostics]


def test_a_range_that_leaves_out_the_last_rank() -> None:
    """PS902 is reported for `0 .. p - 1`: a smaller p has the same fault; a range that ends at p has none."""
    text = "schedule a(p, m = p)\nstage s in 0 .. p - 1 on rank s\nrank r { repeat m { F } repeat m { B } }\n"
    for p in (4, 3):
        (help,) = helps(text, p=p)
        assert help is not None and "a range excludes its end, so `0 .. p` means p ranks" in help
    assert helps(text.replace("0 .. p - 1", "0 .. p"), p=4) == []


def test_json_that_ends_too_early_and_json_that_is_broken() -> None:
    """PS811 tells the two cases apart: a truncated file must be written again, another one repaired at its place."""
    (cut,) = helps('{"version": 2,', "a.json")
    (broken,) = helps('{"version": 2, nope}', "a.json")
    assert (
        cut == "the file ends too early: write it again" and broken is not None and "correct the JSON there" in broken
    )


def test_a_claim_that_fails_at_several_sizes_has_its_numbers_on_every_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPipe holds m; a claim of m - 1 is off by one at every size, and each line shows both sides."""
    file = tmp_path / "c.ps"
    file.write_text(
        "schedule c(p, m = 2 * p)\nstage s in 0 .. p on rank s\nrank r { repeat m { F } repeat m { B } }\n"
        "claim peak(r) == m - 1\n"
    )
    assert main(["verify", str(file), "--p", "2..4"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fail")]
    assert [line.rpartition("does not hold: ")[2] for line in lines] == [
        f"r = 0: peak(r) is {2 * p}, m - 1 is {2 * p - 1}" for p in (2, 3, 4)
    ]


def test_copies_are_told_of_the_stages_that_have_them() -> None:
    """Two opposite routes through three ranks meet on the middle one, which holds its stage once."""
    text = (
        "schedule both(p = 3, m = 2)\nroute down: stage s in 0 .. p on rank s for microbatch 0 .. 1\n"
        "route up: stage s in 0 .. p on rank p - 1 - s for microbatch 1 .. 2\n"
        "rank 0 { F[0] F[1] B[1] B[0] }\nrank 1 { F[0] F[1] B[0] B[1] }\nrank 2 { F[1] F[0] B[0] B[1] }\n"
    )
    report = pipesched.verify(Source("both.ps", text))
    notes = report.parts.memory.notes if report.parts.memory else ()
    assert any(note.startswith("2 copies of stages 0, 2: ") for note in notes), notes


@pytest.mark.parametrize(("name", "said"), [("dualpipe", "route up"), ("interleaved", "later chunks")])
def test_the_legend_names_what_is_paler(name: str, said: str) -> None:
    """The second chunk of a rank is its stage of the other route in DualPipe, and a later chunk with one route."""
    svg, page = (str(pipesched.show(name, p=4, m=8, format=form)) for form in ("svg", "html"))
    assert f"lighter: {said}" in svg and f'"later":"{said}"' in page.replace('": "', '":"')
    text = str(pipesched.show(name, p=4, m=8))
    assert ("route up in lower case" if name == "dualpipe" else "odd chunks of a rank in lower case") in text


HEAD = "schedule a(p, m = 2 * p)\nstage s in 0 .. p on rank s\n"
RANK = "rank r {\n  repeat m { F }\n  repeat m { B }\n}\n"
PS = "verify mine.ps --p 4"
CSV = "verify mine.csv"
Edit = tuple[str, str]
Slip = tuple[str, str, str, str | Edit, str]
"""The text of `mine`, a command, words of its remedy, what one does who follows them, and the code that comes then."""

SLIPS: dict[str, Slip] = {
    # the language
    "colon": (HEAD + RANK.replace("{ F }", ": F"), PS, "a block is written in braces", (": F", "{ F }"), "ok"),
    "range": (HEAD.replace("0 .. p", "0 .. p - 1") + RANK, PS, "`0 .. p` means p ranks", ("p - 1", "p"), "ok"),
    "dots": (HEAD.replace("..", "...") + RANK, PS, "write `..`", ("...", ".."), "ok"),
    "a step misspelt": (HEAD + RANK.replace("B", "B STPE"), PS, "did you mean `STEP`?", ("STPE", "STEP"), "PS611"),
    "a step in lower case": (HEAD + RANK.replace("B", "B step"), PS, "did you mean `STEP`?", ("step", "STEP"), "PS611"),
    "lower case": (HEAD + RANK.replace("F", "f"), PS, "did you mean `F`?", ("f }", "F }"), "ok"),
    "unknown name": (HEAD + RANK.replace("m", "n", 1), PS, "names here are abs, m,", ("repeat n", "repeat m"), "ok"),
    "keyword": (HEAD + RANK.replace("repeat", "repat", 1), PS, "did you mean `repeat`?", ("repat ", "repeat "), "ok"),
    "rnk": (HEAD.replace("rank", "rnk") + RANK, PS, "did you mean `rank`?", ("rnk", "rank"), "ok"),
    "one equals": (HEAD + RANK + "claim peak(r) = m\n", PS, "write `==`", (") = m", ") == m"), "ok"),
    "assignment": (HEAD + "w = p\n" + RANK, PS, "write `let w =`", ("w =", "let w ="), "ok"),
    "claim": (HEAD + RANK + "claim peek(r) == m\n", PS, "did you mean `peak`?", ("peek", "peak"), "ok"),
    "formula": (HEAD + RANK + "claim peak(r) == p\n", PS, "correct the formula", ("== p", "== m"), "ok"),
    "brace": (HEAD + "rank r {\n  repeat m { F\n  repeat m { B }\n}\n", PS, "", ("{ F", "{ F }"), "ok"),
    "parenthesis": (HEAD + RANK.replace("m {", "(m {", 1), PS, "", ("(m", "(m)"), "ok"),
    "one B short": (
        "schedule a(p = 1, m = 2)\nstage s in 0 .. p on rank s\nrank r { F F B }\n",
        "verify mine.ps",
        "add the B of stage 0, microbatch 1, on rank 0",
        ("B }", "B B }"),
        "ok",
    ),
    "one F over": (HEAD + RANK.replace("m {", "m + 1 {", 1), PS, "the bounds of the loops", ("m + 1", "m"), "ok"),
    "B first": (
        "schedule a(p = 1, m = 1)\nstage s in 0 .. p on rank s\nrank r { B F }\n",
        "verify mine.ps",
        "put F0.0 before B0.0",
        ("B F", "F B"),
        "ok",
    ),
    "B W": (HEAD + RANK.replace("{ B }", "{ B W }"), PS, "write `I` for `B`", ("B W", "I W"), "ok"),
    "require": (HEAD + 'require m % 3 == 0, "threes"\n' + RANK, PS, "--m 6", "verify mine.ps --p 4 --m 6", "ok"),
    "chunk": (
        HEAD.replace("p on rank s", "2 * p on rank s % p") + RANK,
        PS,
        "write F[0]",
        ("{ F }", "{ F[0] }"),
        "PS217",
    ),
    "no chunk": (HEAD + RANK.replace("F", "F[1]"), PS, "write `F`", ("F[1]", "F"), "ok"),
    "ranks from 1": (HEAD.replace("rank s", "rank s + 1") + RANK, PS, "write `s`", ("s + 1", "s"), "ok"),
    "division": (HEAD + "let w = p / 2\n" + RANK, PS, "write `p // 2`", ("p / 2", "p // 2"), "ok"),
    "power": (
        HEAD + "let w = p ** 2\n" + RANK,
        PS,
        "there is no power operator: write the product",
        ("p ** 2", "p * p"),
        "ok",
    ),
    "and": (
        HEAD + RANK.replace("repeat m {", "if m > 0 && p > 0 { repeat m {", 1),
        PS,
        "write `and`",
        ("&&", "and"),
        "PS101",
    ),
    "range()": (
        HEAD + RANK.replace("repeat m", "for i in range(m)", 1),
        PS,
        "write `0 .. m`",
        ("range(m)", "0 .. m"),
        "ok",
    ),
    "semicolon": (HEAD + RANK.replace("F }", "F; }"), PS, "remove it", (";", ""), "ok"),
    "comment": (HEAD + "// mine\n" + RANK, PS, "write `#`", ("//", "#"), "ok"),
    "cost": (HEAD + "costs F = 1, X = 2\n" + RANK, PS, "costs are F, I, W, B", ("X", "B"), "ok"),
    "placed twice": (
        HEAD + HEAD.splitlines()[1] + "\n" + RANK,
        PS,
        "keep one",
        (
            HEAD.splitlines()[1] + "\n",
            "",
        ),
        "ok",
    ),
    "no p": (HEAD + RANK, "verify mine.ps", "add --p N", "verify mine.ps --p 4", "ok"),
    # torch's CSV, orders, streams
    "no reduction": (
        "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n",
        CSV,
        "add 0REDUCE_GRAD after 0B0",
        ("0B0\n", "0B0,0REDUCE_GRAD\n"),
        "ok",
    ),
    "semicolons": ("0F0;0B0\n1F0;1B0\n", CSV, "put a comma between actions", (";", ","), "ok"),
    "header": ("rank0,x\n0F0,0B0\n1F0,1B0\n", CSV, "header=False", ("rank0,x\n", ""), "ok"),
    "index": ("0,0F0,0B0\n1,1F0,1B0\n", CSV, "index=False", ("0,0F0", "0F0"), "PS801"),
    "lower": ("0f0,0B0\n1F0,1B0\n", CSV, "upper case: 0F0", ("0f0", "0F0"), "ok"),
    "no B": (
        "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n",
        CSV,
        "add the B of stage 0, microbatch 1,",
        ("0B0\n", "0B0,0B1\n"),
        "ok",
    ),
    "twice": ("0F0,0F0,0B0\n1F0,1B0\n", CSV, "keep one", ("0F0,0F0", "0F0"), "ok"),
    "last stage": ("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", CSV, "in the order 0, 1", ("1F1,1F0", "1F0,1F1"), "ok"),
    "deadlock": (
        "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n",
        CSV,
        "give only the compute order",
        (
            "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n",
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
        ),
        "ok",
    ),
    "swapped": (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
        "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD\n",
        CSV,
        "receive on each channel in the order of the sends",
        ("1RECV_F1,1RECV_F0", "1RECV_F0,1RECV_F1"),
        "ok",
    ),
    "cut stream": (
        '{"version": 2,',
        "verify mine.json",
        "write it again",
        ('{"version": 2,', '{"version": 2}'),
        "PS811",
    ),
    # the command line
    "size as a file": (HEAD + RANK, "verify mine.ps p=4", "write `--p 4`", "verify mine.ps --p 4", "ok"),
    "file first": (HEAD + RANK, "mine.ps --p 4", "`pipesched verify mine.ps`", "verify mine.ps --p 4", "ok"),
    "help": ("", "help verify", "write `pipesched verify --help`", "verify --help", "ok"),
    "explain": ("", "help PS401", "write `pipesched explain PS401`", "explain PS401", "ok"),
    "name": ("", "verify 1fb1 --p 4", "did you mean `1f1b`?", "verify 1f1b --p 4", "ok"),
    "names in one": ("", "verify 1f1b,gpipe --p 4", "one by one: `1f1b gpipe`", "verify 1f1b gpipe --p 4", "ok"),
    "file beside": (HEAD + RANK, "verify mime.ps --p 4", "did you mean `mine.ps`?", PS, "ok"),
    "fmt beside": (HEAD + RANK, "fmt --check mime.ps", "did you mean `mine.ps`?", "fmt --check mine.ps", "formatted"),
    "built-in .ps": ("", "verify gpipe.ps --p 4", "did you mean `gpipe`", "verify gpipe --p 4", "ok"),
    "framework": (
        "",
        "verify torhc:GPipe --p 2 --m 2",
        "did you mean `torch:GPipe`?",
        "verify torch:GPipe --p 2 --m 2",
        "ok",
    ),
    "option": ("", "verify 1f1b --p 4 --mem-cpa 9", "did you mean --mem-cap?", "verify 1f1b --p 4 --mem-cap 9", "ok"),
    "own size": ("", "verify seq1f1b --p 4 --q 2", "write `-D q=2`", "verify seq1f1b --p 4 -D q=2", "ok"),
    "other size": ("", "verify 1f1b --pp 4", "write `--p 4`", "verify 1f1b --p 4", "ok"),
    "no value": ("", "verify 1f1b --p", "write `--p X`", "verify 1f1b --p 4", "ok"),
    "target": (
        "",
        "emit 1f1b --p 2 --target torch",
        "did you mean `torch-csv`?",
        "emit 1f1b --p 2 --target torch-csv",
        "ok",
    ),
    "refused size": ("", "verify interleaved --p 4 --m 6", "--m 8", "verify interleaved --p 4 --m 8", "ok"),
    "odd ranks": ("", "verify dualpipe --p 3", "--p 4", "verify dualpipe --p 4", "ok"),
    "cap": ("", "verify 1f1b --p 4 --mem-cap 3", "raise the cap", "verify 1f1b --p 4 --mem-cap 4", "ok"),
    "two copies": (
        "",
        "emit dualpipe --p 4 --target torch-csv",
        "`--target stream`",
        "emit dualpipe --p 4 --target stream",
        "ok",
    ),
    "split": ("", "emit zb_h1 --p 4 --target deepspeed", "`--target stream`", "emit zb_h1 --p 4 --target stream", "ok"),
    "model of comm": ("", "verify 1f1b --p 4 --comm nccl", "one-stream", "verify 1f1b --p 4 --comm one-stream", "ok"),
    "no cost": ("", "verify 1f1b --p 4 --cost X=1", "costs are F,", "verify 1f1b --p 4 --cost F=1", "ok"),
    "parameter": ("", "verify 1f1b --p 4 --v 2", "its parameters: p, m", "verify 1f1b --p 4 --m 2", "ok"),
}


def run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command line as a user does."""
    try:
        status = main(command.split())
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capsys.readouterr()
    return int(status or 0), shown.out + shown.err


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name == "framework" else ()) for name in SLIPS]
)
def test_a_remedy_that_is_followed_ends_the_mistake(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Following the help to the letter ends in `ok`, or in the file's next mistake."""
    text, command, said, followed, then = SLIPS[name]
    monkeypatch.chdir(tmp_path)
    suffix = next((Path(word).suffix for word in command.split() if word.startswith("mi")), ".ps")
    file = tmp_path / f"mine{suffix}"
    file.write_text(text)
    status, shown = run(command, capsys)
    found = re.findall(r"(?:error|warning)\[(PS\d+)\]", shown)
    assert found and said in re.sub(r"\s+", " ", shown), shown
    assert "help: " in shown or not said
    if isinstance(followed, str):
        command = followed
    else:
        assert followed[0] in text
        file.write_text(text.replace(*followed, 1 if name in ("chunk", "index", "placed twice") else -1))
    status, shown = run(command, capsys)
    codes = re.findall(r"(?:error|warning)\[(PS\d+)\]", shown)
    if then == "ok":
        assert status == 0 and not codes, shown
    elif then.startswith("PS"):
        assert codes[:1] == [then], shown
