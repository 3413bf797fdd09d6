"""Hostile files for every reader that does not read schedules: records, traces, answers, costs, models, settings.

Each is made when it is asked for; ``{folder}`` in an argument is the folder of the files of a case.
"""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache

from tests.makers.hostile_cases import HEAD, MB, Content, Hostile, built_in, csv, forwards, loose, stream
from tests.readers.typed import typed

FOLDER = "{folder}"
PLAN = ("--p", "2", "--m", "2")
NINES = "9" * 5000
LONG = "9" * 4000
"""As many digits as Python reads, but not as many as it writes of a product."""
PRIME = 2**61 - 1
"""All multiples of it have one hash."""


def files(arguments: tuple[str, ...], beside: Mapping[str, Content], command: str = "verify") -> Hostile:
    return Hostile("1f1b", None, arguments, command, beside)


def recorded(content: Content, other: Content = None) -> Hostile:
    """Return a folder of records with the file of rank 0."""
    beside = {"rank_0": content} if other is None else {"rank_0": content, "rank_1": other}
    return files((*PLAN, "--recorded", FOLDER), beside)


def records(**beside: Content) -> Hostile:
    return files((*PLAN, "--recorded", FOLDER), beside)


def measured(content: Content, name: str = "run.json", command: str = "calibrate") -> Hostile:
    """Return a trace of a measured run."""
    if command == "show":
        return files((*PLAN, "--measured", f"{FOLDER}/{name}"), {name: content}, "show")
    return Hostile(name, content, (), "calibrate")


def setting(name: str, content: Content, *arguments: str) -> Hostile:
    """Return a trainer's configuration."""
    return Hostile(name, content, arguments, "check")


def priced(content: Content) -> Hostile:
    return files((*PLAN, "--costs", f"{FOLDER}/c.toml"), {"c.toml": content})


def modelled(content: Content) -> Hostile:
    return files((*PLAN, "--model", f"{FOLDER}/x.toml"), {"x.toml": content})


def device(content: Content) -> Hostile:
    return files((*PLAN, "--model", "llama3-70b", "--device", f"{FOLDER}/x.toml"), {"x.toml": content})


def listed(content: Content) -> Hostile:
    return Hostile(
        "a.ps",
        "schedule s(p, m, list x)\nstage s in 0 .. p on rank s\nrank r { repeat m { F B } }\n",
        (*PLAN, "-D", f"x=@{FOLDER}/x"),
        "verify",
        {"x": content},
    )


def bomb(text: str, times: int) -> Callable[[], bytes]:
    """Return the compress a text many times over, each copy once: a gzip file of as many members."""
    return lambda: gzip.compress(text.encode()) * times


# Pickles, opcode by opcode


def text(word: str) -> bytes:
    data = word.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def dump(entries: bytes) -> bytes:
    """Return a dump whose entries these opcodes make."""
    return b"\x80\x02}" + text("pg_config") + b"}s" + text("entries") + entries + b"s."


def entry(**values: object) -> dict[str, object]:
    """Return an entry of a dump in torch's form."""
    usual = {
        "record_id": 0, "profiling_name": "nccl:send 0->1", "process_group": ("1", "pp"), "p2p_seq_id": 1,
        "is_p2p": True, "state": "completed", "input_sizes": [[1, 512]], "input_dtypes": ["Float"],
    }  # fmt: skip
    return {**usual, **values}


def dumped(*entries: object, **head: object) -> bytes:
    groups = {"1": {"desc": "pp", "ranks": "[0, 1]"}}
    return pickle.dumps({"version": "2.10", "pg_config": groups, **head, "entries": [*entries]}, 2)


def dumped_json(**values: object) -> str:
    groups = {"1": {"desc": "pp", "ranks": "[0, 1]"}}
    return json.dumps({"version": "2.10", "pg_config": groups, "entries": [entry(**values)]})


def doubled(depth: int, of_two: bytes) -> bytes:
    """Return a list or a tuple that holds one twice, which holds one twice, and so on."""
    made, mark = b"]" + memo(b"r", 0), b"" if of_two == b"\x86" else b"]("
    for i in range(1, depth):
        last = memo(b"j", i - 1)
        made += b"0" + mark + last + last + of_two + memo(b"r", i)
    return made


def memo(opcode: bytes, number: int) -> bytes:
    """Put into the memo (``r``) or get (``j``), after the numbers of a dump."""
    return opcode + (1000 + number).to_bytes(4, "little")


def sized(value: bytes) -> bytes:
    """Return a dump whose one entry has these sizes."""
    body = dumped(entry(input_sizes="HERE"))
    at = body.index(b"X\x04\x00\x00\x00HERE")
    end = at + 9
    while body[end : end + 1] in (b"q",):
        end += 2
    return body[:at] + value + body[end:]


def one_hash(key: Callable[[int], bytes]) -> Callable[[], bytes]:
    """Return a table whose keys have equal hashes."""
    return lambda: dump(b"}(" + b"".join(key(i) + b"N" for i in range(150_000)) + b"u")


def long1(number: int, width: int = 12) -> bytes:
    return b"\x8a" + bytes([width]) + number.to_bytes(width, "little", signed=True)


# Answers


@cache
def answer() -> dict[str, object]:
    """Return the answer of `optimize --json` for a small problem, with a proof."""
    done = typed("optimize", "--p", "2", "--m", "3", "--mem-cap", "1", "--certify", "--json")
    made = json.loads(done.out)
    assert isinstance(made, dict)
    return made


def answered(change: Callable[[dict[str, object]], object], *arguments: str) -> Hostile:
    def content() -> str:
        made = json.loads(json.dumps(answer()))
        change(made)
        return json.dumps(made)

    return Hostile("a.json", content, arguments)


def proved(proof: Callable[[], str]) -> Hostile:
    """Return the answer with a different proof."""

    def change(made: dict[str, object]) -> None:
        certificate = made["certificate"]
        assert isinstance(certificate, dict)
        terms = {"value": 11, "engine": "cadical", "ranks": None, "terms": {}}
        refuted = certificate["refuted"] or terms
        packed = lzma.compress(proof().encode(), preset=0)
        refuted["proof"] = {"lrat": b64encode(packed).decode()}
        certificate["refuted"] = refuted

    return answered(change)


def certified(**entries: object) -> Hostile:
    def change(made: dict[str, object]) -> None:
        certificate = made["certificate"]
        assert isinstance(certificate, dict)
        certificate.update(entries)

    return answered(change)


def said(**entries: object) -> Hostile:
    return answered(lambda made: made.update(entries))


def trace(**event: object) -> str:
    """Return a trace of one forward."""
    args = {"op": "F", "stage": 0, "microbatch": 0, "rank": 0}
    given = event.pop("args", {})
    assert isinstance(given, dict)
    return json.dumps({"traceEvents": [{"ph": "X", "args": {**args, **given}, "ts": 0, "dur": 1, **event}]})


def message(**event: object) -> str:
    """Return a trace of one message."""
    args = {"index": 0, "rank": 0, "messages": ["0SEND_F0"]}
    given = event.pop("args", {})
    assert isinstance(given, dict)
    return json.dumps(
        {"traceEvents": [{"ph": "X", "name": "x", "args": {**args, **given}, "ts": 0, "dur": 1, **event}]}
    )


MODEL = """[model]
layers = {layers}
hidden = {hidden}
heads = 4
feed_forward = 256
vocabulary = {vocabulary}
sequence = {sequence}
"""
DEVICE = '[device]\nflops = {flops}\nmemory = "80 GB"\nnode = "300 GB/s"\nnetwork = "25 GB/s"\nhost = "32 GB/s"\n'


def model(**values: object) -> str:
    return MODEL.format(**{"layers": 4, "hidden": 64, "vocabulary": 1000, "sequence": 128, **values})


def titan(value: object) -> str:
    return f'[parallelism]\npipeline_parallel_degree = {value}\npipeline_parallel_schedule = "1F1B"\n[training]\nlocal_batch_size = 8\n'


def nemo(value: object) -> str:
    return f"distributed:\n  pp_size: {value}\n  pipeline:\n    pp_schedule: 1f1b\n"


def megatron(value: object) -> str:
    return f"python pretrain_gpt.py --pipeline-model-parallel-size {value} --num-layers {value} --global-batch-size {value} --micro-batch-size 1\n"


def deepspeed(value: str) -> str:
    return f'{{"train_batch_size": {value}, "gradient_accumulation_steps": {value}, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 1}}, "pipeline": {{"stages": {value}}}}}'


def laughs(depth: int, width: int = 9) -> str:
    """Return the lists that hold the previous one many times."""
    rows = ["a0: &a0 [x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, depth)]
    return "\n".join(rows) + "\n"


def merges(depth: int) -> str:
    """Return the mappings that merge the previous one twice."""
    rows = ["a0: &a0 {pp_size: 2}"]
    rows += [
        f"a{i}: &a{i}\n  <<: [*a{i - 1}, *a{i - 1}]\n  k{i}: 1\n  b: *a{i - 1}\n  c: *a{i - 1}" for i in range(1, depth)
    ]
    return "\n".join(rows) + "\n"


READERS: dict[str, Hostile] = {
    # dumps of the flight recorder
    "pickle of a large memo number": recorded(b"\x80\x02]r\xff\xff\xff\x07."),
    "pickle of the largest memo number": recorded(b"\x80\x02]r\xff\xff\xff\xff."),
    "pickle of a memo number in digits": recorded(b"\x80\x02]p99999999\n."),
    "pickle of a list that doubles": recorded(sized(doubled(40, b"e"))),
    "pickle of a tuple that doubles": recorded(sized(doubled(40, b"\x86"))),
    "pickle of a tuple that doubles for a key": recorded(dump(b"}" + doubled(45, b"\x86").replace(b"]", b")", 1) + b"Ns")),
    "pickle of sizes that double": recorded(sized(doubled(200, b"e"))),
    "pickle of keys of one hash": recorded(one_hash(lambda i: long1(PRIME * (i + 1)))),
    "pickle of a set of one hash": recorded(lambda: b"\x80\x04\x8f(" + b"".join(long1(PRIME * (i + 1)) for i in range(150_000)) + b"\x90."),
    "pickle of a frozen set of one hash": recorded(lambda: b"\x80\x04(" + b"".join(long1(PRIME * (i + 1)) for i in range(150_000)) + b"\x91."),
    "pickle of 9 MB of one number": recorded(lambda: dump(b"\x8b" + (9 * MB).to_bytes(4, "little") + b"\x7f" * 9 * MB)),
    "pickle of a number of 20,000 bits": recorded(sized(b"]]\x8b" + (2500).to_bytes(4, "little") + b"\x7f" * 2500 + b"aa")),
    "pickle of a number of a negative length": recorded(b"\x80\x02\x8b\xff\xff\xff\xff."),
    "pickle of 9 MB of digits": recorded(lambda: b"\x80\x02L" + b"9" * 9 * MB + b"L\n."),
    "pickle of 9 MB of digits without an L": recorded(lambda: b"\x80\x02I" + b"9" * 9 * MB + b"\n."),
    "pickle of 9 MB of a float": recorded(lambda: b"\x80\x02F" + b"9" * 9 * MB + b"\n."),
    "pickle of a text without end": recorded(b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f."),
    "pickle of 8 GB of text": recorded(b"\x80\x04\x8d" + (2**33).to_bytes(8, "little") + b"x."),
    "pickle of 8 GB of bytes": recorded(b"\x80\x05\x8e" + (2**33).to_bytes(8, "little") + b"x."),
    "pickle of 8 GB of a byte array": recorded(b"\x80\x05\x96" + (2**33).to_bytes(8, "little") + b"x."),
    "pickle of a frame of 8 GB": recorded(b"\x80\x04\x95" + (2**33).to_bytes(8, "little") + b"]."),
    "pickle of tuples in tuples": recorded(lambda: dump(b")" + b"\x85" * 9 * MB)),
    "pickle of lists in lists": recorded(lambda: dump(b"]" * 3 * MB + b"a" * (3 * MB - 1))),
    "pickle of marks": recorded(lambda: b"\x80\x02" + b"(" * 10 * MB),
    "pickle of the same, again and again": recorded(lambda: dump(b"](" + b"}" + b"2" * 8 * MB + b"e")),
    "pickle of a memo of everything": recorded(lambda: b"\x80\x04]" + b"\x94" * 9 * MB + b"."),
    "pickle of empty tables": recorded(lambda: dump(b"](" + b"}" * 9 * MB + b"e")),
    "pickle of empty texts": recorded(lambda: dump(b"](" + b"\x8c\x00" * 4 * MB + b"e")),
    "pickle of a list that holds itself": recorded(sized(b"]q\xf0h\xf0a")),
    "pickle of a table that holds itself": recorded(b"\x80\x02}q\x00" + text("entries") + b"h\x00s."),
    "pickle of an extension": recorded(b"\x80\x02\x82\x01."),
    "pickle of a call": recorded(b"\x80\x02cos\nsystem\n" + text("true") + b"\x85R."),
    "pickle of a call by names": recorded(b"\x80\x04\x8c\x02os\x8c\x06system\x93."),
    "pickle of a state": recorded(b"\x80\x02]}" + text("__class__") + b"Nsb."),
    "pickle of another file": recorded(b"\x80\x02]Q."),
    "pickle that ends early": recorded(lambda: dumped(entry())[:-40]),
    "pickle of nothing": recorded(b"\x80\x02."),
    "pickle of more after its end": recorded(lambda: dumped(entry()) + b"\xff" * 9 * MB),
    "pickle of a rank of one escape": recorded(dumped(entry(), pg_config={"1": {"desc": "\x1b[2J\n::add-mask::x", "ranks": "[0, 1, 2]"}})),
    "a dump of ranks in brackets": recorded(dumped(entry(), pg_config={"1": {"desc": "pp", "ranks": "[" * 9000}})),
    "a dump of a sum for ranks": recorded(lambda: dumped(entry(), pg_config={"1": {"desc": "pp", "ranks": "1" + "+1j" * 3 * MB}})),
    "a dump of signs for ranks": recorded(lambda: dumped(entry(), pg_config={"1": {"desc": "pp", "ranks": "-" * MB + "1"}})),
    "a dump of 5,000 digits for a rank": recorded(dumped(entry(), pg_config={"1": {"desc": "pp", "ranks": f"[0, {NINES}]"}})),
    "a dump of a million ranks": recorded(lambda: dumped(entry(), pg_config={"1": {"desc": "pp", "ranks": str([*range(MB)])}})),
    "a dump of sets for ranks": recorded(lambda: dumped(entry(), pg_config={"1": {"desc": "pp", "ranks": "{" + ",".join(str(PRIME * i) for i in range(60_000)) + "}"}})),
    "a dump of 100,000 groups": recorded(lambda: dumped(entry(), pg_config={str(i): {"desc": "pp", "ranks": "[0, 1]"} for i in range(100_000)})),
    "a dump of 300,000 entries of other groups": recorded(lambda: dumped(*(entry(record_id=i, process_group=(str(i), "x")) for i in range(60_000)))),
    "a dump of a record of no number": recorded(dumped(entry(record_id=float("nan")), entry(record_id="x"))),
    "a dump of a huge record": recorded(dumped(entry(record_id=10**300))),
    "a dump of a huge sequence number": recorded(dumped(entry(p2p_seq_id=2**63 - 1))),
    "a dump of 9 MB of a name": recorded(lambda: dumped(entry(profiling_name="nccl:send " + "9" * 9 * MB))),
    "a dump of 9 MB of letters for a name": recorded(lambda: dumped(entry(profiling_name="n" * 9 * MB))),
    "JSON dump of brackets": recorded(lambda: '{"entries":' + "[" * 5 * MB),
    "JSON dump of 5,000 digits": recorded(dumped_json().replace('"p2p_seq_id": 1', f'"p2p_seq_id": {NINES}')),
    "JSON dump of 4,000 digits": recorded(dumped_json().replace('"p2p_seq_id": 1', f'"p2p_seq_id": {LONG}')),
    "JSON dump of 1e999": recorded(dumped_json().replace('"p2p_seq_id": 1', '"p2p_seq_id": 1e999')),
    "JSON dump of NaN": recorded(dumped_json().replace('"record_id": 0', '"record_id": NaN')),
    "JSON dump of sizes in sizes": recorded(dumped_json().replace("[[1, 512]]", "[" * 900 + "]" * 900)),
    "JSON dump of a million keys": recorded(lambda: '{"entries":[{' + ",".join(f'"k{i}":1' for i in range(700_000)) + "}]}"),
    "JSON dump of 9 MB of digits": recorded(lambda: '{"entries":' + "9" * 9 * MB + "}"),
    # recorded traces and orders
    "recorded trace of a huge rank": recorded(message(args={"rank": 10**12})),
    "recorded trace of 4,000 digits of a rank": recorded(message(args={"rank": LONG})),
    "recorded trace of 5,000 digits of a rank": recorded(message(args={"rank": NINES})),
    "recorded trace of an infinite rank": recorded(message(args={"rank": "X"}).replace('"X"', "1e999")),
    "recorded trace of half a rank": recorded(message(args={"rank": 0.5})),
    "recorded trace of a time of 400 digits": recorded(message(ts=10**400)),
    "recorded trace of no time": recorded(message(ts="nan")),
    "recorded trace of brackets": recorded(lambda: '{"traceEvents":' + "[" * 5 * MB),
    "recorded trace of a huge stage": recorded(message(args={"messages": ["99999999SEND_F99999999"]})),
    "recorded trace of messages for a text": recorded(lambda: message(args={"messages": "0SEND_F0" * MB})),
    "recorded trace of a message of digits": recorded(lambda: message(args={"messages": ["9" * 9 * MB]})),
    "recorded trace of 100,000 events": recorded(lambda: json.dumps({"traceEvents": [json.loads(message())["traceEvents"][0]] * 70_000})),
    "recorded trace of numbers for events": recorded(lambda: '{"traceEvents":[' + "1," * 4 * MB + "1]}"),
    "recorded orders of blank lines": recorded(lambda: "rank 0: send:F0.0>1\n" + "\n" * 9 * MB + "x"),
    "recorded orders of blanks": recorded(lambda: "rank 0: send:F0.0>1\n" + " " * 9 * MB + "x"),
    "recorded orders of lines of blanks": recorded(lambda: "rank 0: send:F0.0>1\n" + " \n" * 4 * MB + "x"),
    "recorded orders of 5,000 digits": recorded(f"rank 0: send:F0.0>1\n{NINES}\n"),
    "recorded orders of a rank of 5,000 digits": recorded(f"rank {NINES}: send:F0.0>1\n"),
    "recorded orders of a rank of 9 digits": recorded("rank 0: send:F0.0>1\nrank 999999999: send:F0.0>1\n"),
    "recorded orders of a peer of 5,000 digits": recorded(f"rank 0: send:F0.0>{NINES}\n"),
    "recorded orders of 9 MB of digits": recorded(lambda: "rank 0: " + "9" * 9 * MB),
    "recorded orders of blanks before a rank": recorded(lambda: "rank" + " " * 9 * MB + "0: send:F0.0>1"),
    "recorded orders of many messages": recorded(lambda: "rank 0: " + "send:F0.0>1 " * 700_000, "rank 1: recv:F0.0<0"),
    "recorded orders of 400,000 ranks": recorded(lambda: "".join(f"rank {i}: send:F0.0>1\n" for i in range(400_000))),
    "records of nothing": recorded(b""),
    "records of zeros": recorded(lambda: b"\0" * 10 * MB),
    "records of two kinds": recorded("rank 0: send:F0.0>1\n", dumped(entry())),
    "records of a thousand files": records(**{f"rank_{i}": "rank 0: send:F0.0>1\n" for i in range(1000)}),
    "records of a name that steers": records(**{"rank_0\x1b[2J\n::add-mask::x": b"\x80\x02."}),
    "records of a rank of 200 digits": records(**{"rank_" + "9" * 200: dumped(entry())}),
    "records of a device": files((*PLAN, "--recorded", "/dev"), {}),
    "records of processes": files((*PLAN, "--recorded", "/proc/self"), {}),
    # measured traces
    "trace of brackets": measured(lambda: "[" * 5 * MB),
    "trace of 9 MB of digits": measured(lambda: '{"traceEvents":' + "9" * 9 * MB + "}"),
    "trace of 4,000 digits": measured(trace(ts="X").replace('"X"', LONG)),
    "trace of 5,000 digits": measured(trace(ts="X").replace('"X"', NINES)),
    "trace of 1e999": measured(trace(ts="X").replace('"X"', "1e999")),
    "trace of NaN": measured(trace(dur="X").replace('"X"', "NaN")),
    "trace of a stage of 4,000 digits": measured(trace(args={"stage": "X"}).replace('"X"', LONG)),
    "trace of a rank of 4,000 digits": measured(trace(args={"rank": "X"}).replace('"X"', LONG)),
    "trace of a rank of 4,000 digits, again": measured(trace(args={"rank": "X"}).replace('"X"', LONG), command="show"),
    "trace of the largest stage": measured(trace(args={"stage": 2**31 - 1, "microbatch": 2**31 - 1})),
    "trace of the largest time": measured(trace(ts=2**62 // 1000 - 1, dur=2**62 // 1000 - 1)),
    "trace of a base of 62 bits": measured(trace(ts=2**62 // 1000 - 1, dur=2**62 // 1000 - 1).replace("{", '{"baseTimeNanoseconds":4611686018427387903,', 1)),
    "trace of a wait of 1e300": measured(trace(args={"waited": 1e300})),
    "trace of a name of digits": measured(lambda: trace(name="PP:" + "9" * 9 * MB)),
    "trace of a name of commas": measured(lambda: trace(name="PP:" + "(" * 9 * MB)),
    "trace of one operation again and again": measured(lambda: json.dumps({"traceEvents": [json.loads(trace())["traceEvents"][0]] * 80_000})),
    "trace of 30,000 ranks": measured(lambda: json.dumps({"traceEvents": [json.loads(trace(args={"rank": i, "stage": i}))["traceEvents"][0] for i in range(30_000)]})),
    "trace of a rank's number for each": measured(lambda: json.dumps({"traceEvents": [json.loads(trace(args={"rank": i * PRIME, "stage": i}))["traceEvents"][0] for i in range(20_000)]})),
    "trace of an operation without a rank of 9 MB": measured(lambda: trace(args={"rank": "x" * 9 * MB})),
    "trace of an operation without a rank in brackets": measured(trace(args={"rank": "X"}).replace('"X"', "[" * 900 + "]" * 900)),
    "trace of a part in brackets": measured(trace(args={"with": "X"}).replace('"X"', '{"a":' * 900 + "1" + "}" * 900)),
    "trace packed by 10 GB": measured(bomb(" " * MB, 9000), "run.json.gz"),
    "trace packed by 400 MB": measured(bomb(" " * MB, 400), "run.json.gz", "show"),
    "trace packed in nothing": measured(b"\x1f\x8b", "run.json.gz"),
    "trace packed in rubbish": measured(b"\x1f\x8b\x08\x00" + b"\xff" * 1000, "run.json.gz"),
    "trace that is a device": Hostile("/dev/zero", None, (), "calibrate"),
    "trace of spaces": measured(lambda: " " * 10 * MB),
    # answers
    "answer of a hint again and again": proved(lambda: "1000000 0 " + "1 " * MB + "0\n"),
    "answer of a clause of a million": proved(lambda: "1000000 " + "1 " * MB + "0 1 0\n"),
    "answer of steps of 5,000 digits": proved(lambda: f"{NINES} 0 1 0\n"),
    "answer of a step of 4,000 digits": proved(lambda: f"{LONG} 0 1 0\n"),
    "answer of a hint of 4,000 digits": proved(lambda: f"100000 0 {LONG} 0\n"),
    "answer of 90 MB of proof": proved(lambda: "1000000 1 0 1 0\n" * 6 * MB),
    "answer of 200 MB of proof": proved(lambda: " " * 200 * MB),
    "answer of lines of proof": proved(lambda: "\n" * 50 * MB),
    "answer of one line of proof": proved(lambda: "1000000 " + "1 2 " * 10 * MB + "0 1 0\n"),
    "answer of a proof of no xz": certified(refuted={"value": 11, "engine": "cadical", "ranks": None, "terms": {}, "proof": {"lrat": "A" * MB}}),
    "answer of a value of 4,000 digits": certified(schedule="X" * 10, lower_bound=int(LONG)),
    "answer of a bound of 4,000 digits": certified(bound={"rank": int(LONG), "head": 0, "work": 0, "tail": 0, "value": 0}),
    "answer of a head of 30 digits": certified(bound={"rank": 0, "head": int("9" * 30), "work": 0, "tail": 0, "value": 0}),
    "answer of a rank of 4,000 digits": certified(refuted={"value": 11, "engine": "cadical", "ranks": [int(LONG)], "terms": {}}),
    "answer of a refuted value in brackets": certified(refuted={"value": 11, "engine": "cadical", "ranks": json.loads("[" * 500 + "]" * 500), "terms": {}}),
    "answer for every m of 30 digits": certified(every={"microbatches": 1, "step": int("9" * 30), "value": 1, "growth": 1, "seam": 1, "starts": [], "bound": None, "proof": None}),
    "answer for every m of 4,000 digits": certified(every={"microbatches": int(LONG), "step": 1, "value": 1, "growth": 1, "seam": 1, "starts": [], "bound": None, "proof": None}),
    "answer for every m of 100,000": certified(every={"microbatches": 1, "step": 100_000, "value": 1, "growth": 1, "seam": 1, "starts": [[0], [0]], "bound": None, "proof": None}),
    "answer of an engine that steers": certified(refuted={"value": 99, "engine": "\x1b[2J\n::add-mask::x", "ranks": None, "terms": {}}),
    "answer of a million entries": answered(lambda made: made.update({f"k{i}": 1 for i in range(500_000)})),
    "answer of a million caps": said(mem_cap=[1] * MB),
    "answer of a cap of 4,000 digits": said(mem_cap=[int(LONG), 1]),
    "answer of costs of 4,000 digits": said(costs={"F": int(LONG)}),
    "answer of a cost of 1e999": answered(lambda made: made.update(costs={"F": float("inf")})),
    "answer of another's source": said(source=json.dumps({"certificate": 1})),
    "answer of a large source": said(source="schedule s(p = 100, m = 9000)\nstage s in 0 .. p on rank s\nrank r { repeat m { F } repeat m { B } }\n"),
    "answer of a larger source": said(source="schedule s(p = 30, m = 300)\nstage s in 0 .. p on rank s\nrank r { repeat m { F } repeat m { I } repeat m { W } }\n"),
    "answer of a source of calls": said(source="schedule s(p, m)\n" + "let f0(k) = k + 1\n" + "".join(f"let f{i}(k) = f{i - 1}(f{i - 1}(k))\n" for i in range(1, 40)) + "stage s in 0 .. p on rank f39(s)\nrank r { F B }"),
    "answer of a release of 4,000 digits": said(release=f"split:1/{LONG}"),
    "answer of a release that is a number": said(release=1),
    # costs
    "costs of a number of 5,000 digits": priced(f"F = {NINES}\n"),
    "costs of a number of 9 MB": priced(lambda: "F = " + "9" * 9 * MB),
    "costs of 9 MB of digits in hex": priced(lambda: "F = 0x" + "f" * 9 * MB),
    "costs of 9 MB of bits": priced(lambda: "F = 0b" + "1" * 9 * MB),
    "costs of 1e999999999": priced("F = 1e999999999\n"),
    "costs of 1e-999999999": priced("F = 1e-999999999\n"),
    "costs of not a number": priced("F = nan\nB = inf\n"),
    "costs of dotted keys": priced(lambda: "a" + ".a" * 4 * MB + " = 1\n"),
    "costs of a dotted section": priced(lambda: "[a" + ".a" * 4 * MB + "]\n"),
    "costs of sections in sections": priced(lambda: "".join(f"[{'a.' * i}a]\n" for i in range(2000))),
    "costs of brackets": priced(lambda: "F = " + "[" * 9 * MB),
    "costs of tables": priced(lambda: "F = " + "{a=" * 3 * MB),
    "costs of 900 brackets": priced("F = " + "[" * 900 + "]" * 900),
    "costs of blanks in a section": priced(lambda: "[" + " " * 100_000 + "x"),
    "costs of quotes": priced(lambda: "F = " + '"""' + "x" * 9 * MB),
    "costs of escapes": priced(lambda: 'F = "' + "\\u0041" * 1_500_000 + '"\n'),
    "costs of comments": priced(lambda: "#\n" * 4 * MB),
    "costs of a line of a comment": priced(lambda: "#" + "x" * 9 * MB),
    "costs of a million stages": priced(lambda: "F = [" + "1," * MB + "1]\n"),
    "costs of a million microbatches": priced(lambda: "F = [[" + "1," * MB + "1],[" + "1," * MB + "1]]\n"),
    "costs of a million lists": priced(lambda: "F = [" + "[1]," * 2 * MB + "[1]]\n"),
    "costs of a million keys": priced(lambda: "".join(f"k{i} = 1\n" for i in range(700_000))),
    "costs of a million keys in JSON": priced(lambda: "{" + ",".join(f'"k{i}":1' for i in range(700_000)) + "}"),
    "costs of brackets in JSON": priced(lambda: '{"F":' + "[" * 9 * MB),
    "costs of 1e999999999 in JSON": priced('{"F":1e999999999}'),
    "costs of 9 MB of digits in JSON": priced(lambda: '{"F":' + "9" * 9 * MB + "}"),
    "costs of dates": priced("F = 1979-05-27T07:32:00Z\n"),
    "costs of a text of a fraction": priced('F = "1/0"\nB = "1e999999999"\n'),
    "costs of many denominators in a grid": priced(lambda: "F = " + json.dumps([[f"1/{10**8 + 2 * i + 1}" for i in range(s, 20 + s)] for s in range(4)]) + "\n"),
    "costs by microbatch of many denominators": built_in("1f1b", "--p", "4", "--m", "20", "--cost", "F=[" + ",".join("[" + ",".join(f"1/{10**8 + 40 * s + 2 * i + 1}" for i in range(20)) + "]" for s in range(4)) + "]"),
    "costs by stage of four denominators": built_in("1f1b", "--p", "4", "--m", "20", "--cost", "F=[1/999999937,1/999999929,1/999999893,1/999999883]"),
    "memory of many denominators": built_in("1f1b", "--p", "4", "--m", "20", "--cost", "M=[1/999999937,1/999999929,1/999999893,1/999999883]"),
    "memory by microbatch of many denominators": built_in("1f1b", "--p", "4", "--m", "20", "--cost", "M=[" + ",".join("[" + ",".join(f"1/{10**8 + 40 * s + 2 * i + 1}" for i in range(20)) + "]" for s in range(4)) + "]"),
    "a release of a fine part": built_in("1f1b", "--p", "4", "--m", "20", "--release", "split:1/999999937"),
    "releases of fine parts": built_in("zb_h1", "--p", "4", "--m", "20", "--release", "I=1/999999937,W=999999936/999999937", "--cost", "M=[1/999999937,1/999999929,1/999999893,1/999999883]"),
    # models and devices
    "a model of 5,000 digits": modelled(model(layers=NINES)),
    "a model of 4,000 digits": modelled(model(layers=LONG)),
    "a model of 15 digits": modelled(model(layers="9" * 15, hidden="9" * 15, vocabulary="9" * 15, sequence="9" * 15)),
    "a model of a million layers": modelled(model(layers=10**6, hidden=10**6)),
    "a model in hex": modelled(model(hidden="0x" + "f" * 4000)),
    "a model of 1e999999999": modelled(model(hidden="1e999999999")),
    "a model of 1e-999999999": modelled(model() + "dropout = 1e-999999999\n"),
    "a model of NaN": modelled(model() + "dropout = nan\n"),
    "a model of dotted keys": modelled(lambda: "a" + ".a" * 4 * MB + " = 1\n"),
    "a model of blanks in a section": modelled(lambda: "[" + " " * 100_000 + "x"),
    "a model of lines of blanks": modelled(lambda: ("[" + " " * 1000 + "x\n") * 5000),
    "a model of a million keys": modelled(lambda: model() + "".join(f"k{i} = 1\n" for i in range(500_000))),
    "a model of brackets": modelled(lambda: "x = " + "[" * 9 * MB),
    "a model of sections": modelled(lambda: "".join(f"[s{i}]\n" for i in range(500_000))),
    "a model of many stages": modelled(lambda: model() + "layout = [" + "1," * MB + "1]\n"),
    "a model of tables in tables": modelled("x = " + "{a=" * 900 + "1" + "}" * 900),
    "a model of an option of 5,000 digits": built_in("1f1b", *PLAN, "--model", f"llama3-70b,tensor={NINES}"),
    "a model of a thousand options": built_in("1f1b", *PLAN, "--model", "llama3-70b" + ",zero=1" * 9000),
    "a model that steers": built_in("1f1b", *PLAN, "--model", "\x1b[2J\n::add-mask::x"),
    "a device of 5,000 digits": device(DEVICE.format(flops=NINES)),
    "a device of 4,000 digits": device(DEVICE.format(flops=LONG)),
    "a device of 1e999999999": device(DEVICE.format(flops="1e999999999")),
    "a device of e99": device(DEVICE.format(flops='"400e99"')),
    "a device of 9 MB of digits in a text": device(lambda: DEVICE.format(flops='"' + "9" * 9 * MB + '"')),
    "a device of dotted keys": device(lambda: "a" + ".a" * 4 * MB + " = 1\n"),
    "a device of a name that steers": device(DEVICE.format(flops='"400 TFLOP/s"') + 'name = "a\\n::add-mask::b\\u001b[2J"\n'),
    "a device of an option of 5,000 digits": built_in("1f1b", *PLAN, "--model", "llama3-70b", "--device", f"h100,node_size={NINES}"),
    # configurations of trainers
    "YAML of 5,000 digits": setting("a.yaml", nemo(NINES)),
    "YAML of 4,000 digits": setting("a.yaml", nemo(LONG)),
    "YAML of digits in hex": setting("a.yaml", nemo("0x" + "f" * 9000)),
    "YAML of bits": setting("a.yaml", nemo("0b" + "1" * 19_000)),
    "YAML of octal digits": setting("a.yaml", nemo("0" + "7" * 19_000)),
    "YAML of digits by sixty": setting("a.yaml", nemo("1" + ":59" * 6000)),
    "YAML of a float by sixty": setting("a.yaml", nemo("1" + ":59" * 6000 + ".5")),
    "YAML of 1.0e+999999999": setting("a.yaml", nemo("1.0e+999999999")),
    "YAML of infinity": setting("a.yaml", nemo(".inf")),
    "YAML of no number": setting("a.yaml", nemo(".nan")),
    "YAML of a date": setting("a.yaml", nemo("2001-99-99")),
    "YAML of a date in the zone": setting("a.yaml", nemo("2001-12-14 21:59:43.10 -99:99")),
    "YAML of a number that is none": setting("a.yaml", nemo("!!int abc")),
    "YAML of a float that is none": setting("a.yaml", nemo("!!float 1:x")),
    "YAML of a set of one hash": setting("a.yaml", nemo("!!set {" + ", ".join(str(PRIME * i) for i in range(800)) + "}")),
    "YAML of sets of one hash": setting("a.yaml", lambda: "distributed: {pp_size: 2}\nx: !!set\n" + "".join(f"  ? {PRIME * i}\n" for i in range(9000))),
    "YAML of pairs": setting("a.yaml", "distributed: {pp_size: 2}\nx: !!omap [" + "a: 1, " * 2000 + "]\n"),
    "YAML of Python": setting("a.yaml", nemo("!!python/object/apply:os.system [true]")),
    "YAML that laughs": setting("a.yaml", nemo(2) + laughs(30)),
    "YAML that laughs in a value": setting("a.yaml", laughs(9) + "distributed:\n  pp_size: *a8\n"),
    "YAML that laughs in mappings": setting("a.yaml", "a0: &a0 {pp_size: 2}\n" + "".join(f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}\n" for i in range(1, 200))),
    "YAML that merges": setting("a.yaml", merges(30)),
    "YAML that merges a lot": setting("a.yaml", "base: &b {" + ", ".join(f"k{i}: 1" for i in range(900)) + "}\n" + "".join(f"m{i}:\n  <<: *b\n" for i in range(4000))),
    "YAML that merges itself": setting("a.yaml", "a: &a\n  <<: *a\n  pp_size: 2\ndistributed: *a\n"),
    "YAML that merges lists of merges": setting("a.yaml", "a: &a {pp_size: 1}\nb: &b {<<: [" + "*a, " * 4000 + "]}\n" + "".join(f"c{i}: {{<<: [" + "*b, " * 2000 + "]}\n" for i in range(8))),
    "YAML of brackets": setting("a.yaml", "a: " + "[" * 19_000),
    "YAML of brackets on lines": setting("a.yaml", lambda: "a:\n" + " [\n" * 80_000),
    "YAML of lists in lists": setting("a.yaml", "a:\n  " + "- " * 9000 + "x\n"),
    "YAML of keys in keys": setting("a.yaml", lambda: "".join(" " * i + f"k{i}:\n" for i in range(600))),
    "YAML of question marks": setting("a.yaml", "? " * 9000),
    "YAML of anchors": setting("a.yaml", lambda: "".join(f"k{i}: &a{i} 1\n" for i in range(14_000))),
    "YAML of documents": setting("a.yaml", lambda: "---\na: 1\n" * 25_000),
    "YAML of one key again and again": setting("a.yaml", lambda: "distributed: {pp_size: 2}\n" * 9000),
    "YAML of a long key": setting("a.yaml", "k" * 19_000 + ": 1\n"),
    "YAML of a key that steers": setting("a.yaml", 'distributed:\n  "pp_size\\e[2J\\n::add-mask::x": 2\n'),
    "YAML of 250 KB of quotes": setting("a.yaml", lambda: 'a: "' + "x\n" * 120_000),
    "YAML of tags": setting("a.yaml", "%TAG ! tag:x,2000:\n---\n" + "a: !" + "x" * 15_000 + " 1\n"),
    "YAML of a folded text": setting("a.yaml", lambda: "a: >\n" + "  x\n" * 60_000),
    "YAML of cells of a layout": setting("a.yaml", "pipeline_model_parallel_layout: " + "Et*999999999|" * 100 + "\n", "--trainer", "megatron"),
    "JSON settings of 5,000 digits": setting("a.json", deepspeed(NINES)),
    "JSON settings of 4,000 digits": setting("a.json", deepspeed(LONG), "--p", "4"),
    "JSON settings of 1e999": setting("a.json", deepspeed("1e999"), "--p", "4"),
    "JSON settings of -Infinity": setting("a.json", deepspeed("-Infinity"), "--p", "4"),
    "JSON settings of NaN": setting("a.json", deepspeed("NaN"), "--p", "4"),
    "JSON settings of 0": setting("a.json", deepspeed("0"), "--p", "4"),
    "JSON settings of brackets": setting("a.json", '{"a":' + "[" * 15_000),
    "JSON settings of brackets on lines": setting("a.json", lambda: '{"a":\n' * 40_000),
    "JSON settings of 900 objects": setting("a.json", '{"a":' * 900 + "1" + "}" * 900),
    "JSON settings of objects and keys": setting("a.json", '{"aaaaaaaa":\n' * 900 + "{" + ",\n".join(f'"k{i}":1' for i in range(4900)) + "}" + "}" * 900),
    "JSON settings of one key": setting("a.json", lambda: "{" + '"a":1,\n' * 30_000 + '"b":1}'),
    "JSON settings of quotes": setting("a.json", '{"a": "' + '\\"' * 9000 + "\n"),
    "JSON settings of half a character": setting("a.json", '{"train_batch_size": "\\ud800", "gradient_accumulation_steps": "\\u001b[2J"}'),
    "JSON settings of true": setting("a.json", "true"),
    "TOML settings of 5,000 digits": setting("a.toml", titan(NINES)),
    "TOML settings of 4,000 digits": setting("a.toml", titan(LONG)),
    "TOML settings in hex": setting("a.toml", titan("0x" + "f" * 15_000)),
    "TOML settings of 1e999": setting("a.toml", titan("1e999")),
    "TOML settings of NaN": setting("a.toml", titan("nan")),
    "TOML settings of dotted keys": setting("a.toml", "a" + ".a" * 9000 + " = 1\n"),
    "TOML settings of many dotted keys": setting("a.toml", lambda: "".join(f"k{i}" + ".a" * 90 + " = 1\n" for i in range(1300))),
    "TOML settings of tables in tables": setting("a.toml", "x = " + "{a=" * 900 + "1" + "}" * 900),
    "TOML settings of sections": setting("a.toml", lambda: "".join(f"[[s]]\n[s.a{i}]\n" for i in range(12_000))),
    "TOML settings of blanks in a section": setting("a.toml", lambda: ("[" + " " * 19_000 + "x\n") * 13),
    "TOML settings of a key that steers": setting("a.toml", '[parallelism]\n"pipeline_parallel_degree\\u001b[2J\\n::add-mask::x" = 2\n'),
    "TOML settings of another file": setting("a.sh", "torchrun train.py --job.config_file /proc/self/mem\n"),
    "TOML settings of a device": setting("a.sh", "torchrun train.py --job.config_file /dev/zero\n"),
    "a script of 5,000 digits": setting("a.sh", megatron(NINES)),
    "a script of 30 digits": setting("a.sh", megatron("9" * 30)),
    "a script of zeros": setting("a.sh", megatron("0")),
    "a script of less than nothing": setting("a.sh", megatron("-1")),
    "a script of variables that double": setting("a.sh", "A0=xxxx\n" + "".join(f"A{i}=$A{i - 1}$A{i - 1}\n" for i in range(1, 300)) + "python pretrain_gpt.py --num-layers $A299\n"),
    "a script of variables that hold themselves": setting("a.sh", "A=$A$A\n" * 9000 + "python pretrain_gpt.py --num-layers $A\n"),
    "a script of defaults in defaults": setting("a.sh", "python pretrain_gpt.py --num-layers " + "${A:-" * 900 + "1" + "}" * 900 + "\n"),
    "a script of quotes": setting("a.sh", "python pretrain_gpt.py " + "'\"" * 9000 + "\n"),
    "a script of open quotes": setting("a.sh", lambda: ("python x --a '" + "\"\\" * 4000 + "\n") * 20),
    "a script of open dollars": setting("a.sh", lambda: ("$(" * 9000 + "\n") * 13),
    "a script of open braces": setting("a.sh", lambda: ("${" * 9000 + "\n") * 13),
    "a script of backslashes": setting("a.sh", lambda: "python pretrain_gpt.py " + "\\\n" * 120_000 + "--num-layers 2"),
    "a script of options": setting("a.sh", lambda: "python pretrain_gpt.py " + "".join(f"--k{i} {i} \\\n" for i in range(20_000))),
    "a script of one option": setting("a.sh", lambda: "python pretrain_gpt.py " + "--num-layers 2 \\\n" * 15_000),
    "a script of branches": setting("a.sh", lambda: "if a; then\n" * 20_000),
    "a script of options in options": setting("a.sh", 'A="--b ' * 1500 + "\n"),
    "a script that steers": setting("a.sh", "python pretrain_gpt.py --num-layers \x1b[2J --pipeline-model-parallel-size '2\n::add-mask::x'\n"),
    "a script of 300 KB": setting("a.sh", lambda: "# x\n" * 75_000),
    "a generator of a long name": built_in("python:" + "a" * 5000 + ".py:f"),
    "a schedule of a long name": built_in("a" * 5000 + ".ps"),
    "a layout of many": setting("a.sh", "python pretrain_gpt.py --pipeline-model-parallel-size 2 --num-layers 8 --pipeline-model-parallel-layout 'Et*999999999|t*999999999L'\n"),
    "a layout of brackets": setting("a.sh", "python pretrain_gpt.py --pipeline-model-parallel-size 2 --num-layers 8 --pipeline-model-parallel-layout '" + "(" * 9000 + "t" + ")*9" * 4000 + "'\n"),
    # lists of parameters, arguments, the environment
    "a list of 9 MB of digits": listed(lambda: "9" * 9 * MB),
    "a list of a million": listed(lambda: "1," * 2 * MB),
    "a list of a few too many": listed(lambda: "1 " * 4 * MB),
    "a list of commas": listed(lambda: "," * 9 * MB),
    "a list of a word": listed(lambda: "x" * 9 * MB),
    "a list of brackets": listed(lambda: "[" * 9 * MB),
    "a list of ranges": listed("0..1000000 " * 9000),
    "a list of a range of 30 digits": listed("0.." + "9" * 30),
    "a list of escapes": listed("\x1b[2J\n::add-mask::x"),
    "a list that is a device": built_in("1f1b", *PLAN, "-D", "x=@/dev/zero"),
    "a list that is a folder": built_in("1f1b", *PLAN, "-D", "x=@/"),
    "a cap of 120,000 digits and a sign": built_in("1f1b", *PLAN, "--mem-cap", "9" * 120_000 + "!"),
    "a cap of 4,000 digits of bytes": built_in("1f1b", *PLAN, "--mem-cap", LONG + "GB"),
    "a cap of 4,000 digits of bytes of a model": built_in("1f1b", *PLAN, "--model", "llama3-70b", "--mem-cap", LONG + "GB"),
    "a cap of 120,000 digits of bytes": built_in("1f1b", *PLAN, "--mem-cap", "9" * 120_000 + "GB"),
    "a cap of nothing of bytes": built_in("1f1b", *PLAN, "--model", "llama3-70b", "--mem-cap", "0." + "0" * 9000 + "1GB"),
    "a range of caps of dots": built_in("1f1b", *PLAN, "--mem-cap", "." * 100_000, command="optimize"),
    "a range of caps of 30 digits": Hostile("1f1b", None, (*PLAN, "--mem-cap", f"1..{'9' * 15}"), "optimize"),
    "costs of brackets on the command line": built_in("1f1b", *PLAN, "--cost", "F=" + "[" * 60_000),
    "costs of rows on the command line": built_in("1f1b", *PLAN, "--cost", "F=[" + "[1]," * 25_000),
    "costs of blanks on the command line": built_in("1f1b", *PLAN, "--cost", "F=[[1]" + " " * 100_000 + "x"),
    "costs of entries on the command line": built_in("1f1b", *PLAN, "--cost", "F=1," * 30_000),
    "costs of 1e999999999 on the command line": built_in("1f1b", *PLAN, "--cost", "F=1e999999999"),
    "a limit of 1e999 seconds": built_in("1f1b", *PLAN, "--time-limit", "1e999", command="optimize"),
    "a limit of 5,000 digits of seconds": built_in("1f1b", *PLAN, "--framework-time", NINES),
    "a seed of 30 digits": built_in("1f1b", *PLAN, "--seed", "9" * 30, "--time-limit", "1", "--mem-cap", "2", command="optimize"),
    "digits of 30 digits": built_in("1f1b", *PLAN, "--digits", "9" * 30),
    "operations of 30 digits": built_in("1f1b", *PLAN, "--max-ops", "9" * 30),
    "more ranks with operations of 30 digits": built_in("1f1b", "--p", "9" * 30, "--m", "1", "--max-ops", "9" * 30),
    "a width of 30 digits": built_in("1f1b", *PLAN, "--width", "9" * 30, command="show"),
    "a time of 1e999999999": built_in("1f1b", *PLAN, "--from", "1e999999999", command="show"),
    "stages of 30 digits": built_in("1f1b", *PLAN, "--stages", "9" * 30),
    "frozen stages of 30 digits": built_in("1f1b", *PLAN, "--frozen", "0.." + "9" * 30),
    "a release of 5,000 digits": built_in("1f1b", *PLAN, "--release", f"split:1/{NINES}"),
    "a release of brackets": built_in("1f1b", *PLAN, "--release", "I=" + "9" * 9000 + ",W=1"),
    "a torch of 5,000 digits": built_in("1f1b", *PLAN, "--torch-version", f"2.{NINES}"),
    "a trainer of 5,000 digits": setting("a.toml", titan(2), "--trainer", f"torchtitan=={NINES}"),
    "processes of 30 digits": setting("a.toml", titan(2), "--processes", "9" * 30),
    "an efficiency of 1e-999999999": built_in("1f1b", *PLAN, "--model", "llama3-70b", "--device", "h100", "--efficiency", "1e-999999999"),
    "GPUs of 30 digits": Hostile("--model", None, ("llama3-70b", "--gpus", "9" * 30, "--device", "h100"), "plan"),
    "a batch of 5,000 digits": Hostile("--model", None, ("llama3-70b", "--gpus", "64", "--device", "h100", "--batch", NINES), "plan"),
    "tokens of 5,000 digits": Hostile("--model", None, ("llama3-70b", "--gpus", "64", "--device", "h100", "--tokens", NINES), "plan"),
    "layouts of many": Hostile("--model", None, ("llama3-70b", "--gpus", "64", "--device", "h100", "--only", "t=" + ",".join(["4"] * 40_000)), "plan"),
    "a code of 100,000 letters": Hostile("P" * 100_000, None, (), "explain"),
    "a code that steers": Hostile("\x1b[2J\n::add-mask::x", None, (), "explain"),
    "a terminal of 30 digits": Hostile("1f1b", None, PLAN, "show", environment={"COLUMNS": "9" * 30, "LINES": "9" * 30}),
    "a terminal of 5,000 digits": Hostile("1f1b", None, PLAN, "show", environment={"COLUMNS": NINES}),
    "JSON of 9 MB of digits without Python's limit": Hostile("a.json", lambda: '{"version":' + "9" * 9 * MB + "}", environment={"PYTHONINTMAXSTRDIGITS": "0"}),
    "costs of 9 MB of digits without Python's limit": Hostile("1f1b", None, (*PLAN, "--costs", f"{FOLDER}/c.toml"), "verify", {"c.toml": lambda: "F = " + "9" * 9 * MB}, {"PYTHONINTMAXSTRDIGITS": "0"}),
    "a trace of 9 MB of digits without Python's limit": Hostile("run.json", lambda: '{"traceEvents":' + "9" * 9 * MB + "}", (), "calibrate", {}, {"PYTHONINTMAXSTRDIGITS": "0"}),
    "a model of 9 MB of digits without Python's limit": Hostile("1f1b", None, (*PLAN, "--model", f"{FOLDER}/x.toml"), "verify", {"x.toml": lambda: "x = " + "9" * 9 * MB}, {"PYTHONINTMAXSTRDIGITS": "0"}),
    "a dump of 9 MB of digits without Python's limit": Hostile("1f1b", None, (*PLAN, "--recorded", FOLDER), "verify", {"rank_0": lambda: '{"entries":' + "9" * 9 * MB + "}"}, {"PYTHONINTMAXSTRDIGITS": "0"}),
    "YAML of 19,000 digits without Python's limit": Hostile("a.yaml", nemo("9" * 19_000), (), "check", {}, {"PYTHONINTMAXSTRDIGITS": "0"}),
    "YAML of 700 digits with Python's least limit": Hostile("a.yaml", nemo("9" * 700), (), "check", {}, {"PYTHONINTMAXSTRDIGITS": "640"}),
    "an answer of 9 MB of digits without Python's limit": Hostile("a.json", lambda: '{"certificate": ' + "9" * 9 * MB + "}", (), "verify", {}, {"PYTHONINTMAXSTRDIGITS": "0"}),
    # patterns that would be tried at every place
    "a model of blanks in a text": modelled(lambda: 'x = """\n[' + " " * 100_000 + 'x\n"""\n'),
    "a model of a key in a text": modelled(lambda: 'x = """\n' + "a." * 50 + "a" * 200_000 + '\n"""\n'),
    "a script of open dollars in quotes": setting("a.sh", lambda: ('A="' + "$(" * 9000 + '"\n') * 13),
    "a script of open defaults in quotes": setting("a.sh", lambda: ('A="' + "${A:-" * 3900 + '"\n') * 13),
    "a script of mentions": setting("a.sh", lambda: ("PP_" * 6000 + "9\n") * 13),
    "a script of words and dots": setting("a.sh", lambda: ("a." * 9000 + "\n") * 13),
    "a script of signs": setting("a.sh", lambda: ("+" * 19_000 + "\n") * 13),
    "a range of caps of blanks": built_in("1f1b", *PLAN, "--mem-cap", " " * 100_000 + "x", command="optimize"),
    "a range of caps of ones": built_in("1f1b", *PLAN, "--mem-cap", "1.." + "1 " * 50_000 + ":", command="optimize"),
    "a time of blanks": built_in("1f1b", *PLAN, "--from", " " * 100_000 + "x", command="show"),
    "sizes of blanks": built_in("1f1b", "--p", " " * 100_000 + "x"),
    # configurations in Python
    "Python of brackets": setting("a.py", lambda: "x = " + "(" * 100_000),
    "Python of signs": setting("a.py", lambda: "x = " + "-" * 100_000 + "1\n"),
    "Python of sums": setting("a.py", lambda: "x = " + "1+" * 100_000 + "1\n"),
    "Python of lists in lists": setting("a.py", "x = " + "[" * 190 + "]" * 190 + "\n"),
    "Python of dots": setting("a.py", lambda: "x = a" + ".a" * 100_000 + "\n"),
    "Python of products": setting("a.py", lambda: "x0 = 9\n" + "".join(f"x{i} = x{i - 1} * x{i - 1}\n" for i in range(1, 9000))),
    "Python of texts that double": setting("a.py", lambda: "x0 = 'a'\n" + "".join(f"x{i} = x{i - 1} + x{i - 1}\n" for i in range(1, 9000))),
    "Python of 5,000 digits": setting("a.py", f"x = {NINES}\n"),
    "Python of functions that call themselves": setting("a.py", "def a() -> T.Config:\n    return a()\n"),
    "Python of functions that call twice": setting("a.py", "def a0() -> T.Config:\n    return T.Config()\n" + "".join(f"def a{i}() -> T.Config:\n    x = a{i - 1}()\n    y = a{i - 1}()\n    return x\n" for i in range(1, 30))),
    "Python of lists that double": setting("a.py", "x0 = [1]\n" + "".join(f"x{i} = [x{i - 1}, x{i - 1}]\n" for i in range(1, 60)) + "def a() -> T.Config:\n    return T.Config(training=C(steps=x59))\n"),
    "Python of zeros": setting("a.py", "x = 1 // 0\ny = 1 % 0\n"),
    "Python of a name that steers": setting("a.py", "def a() -> T.Config:\n    return T.Config(parallelism=P(pipeline_parallel_schedule='\\x1b[2J\\n::add-mask::x'))\n"),
    "Python of nothing": setting("a.py", "\0"),
    # texts of other kinds, and the other verbs
    "a page": Hostile("a", lambda: "<!DOCTYPE html>\n" + "<p>" * 3 * MB),
    "a README": Hostile("a", lambda: "# x\n" + "x\n" * 4 * MB),
    "a program": Hostile("a.py", lambda: "import x\n" + "x = 1\n" * MB),
    "a table of tabs": csv(lambda: "0F0\t0B0\n" * MB),
    "a table of signs": csv(lambda: ";" * 10 * MB),
    "a table with an index": csv(lambda: "".join(f"{i},0F{i}\n" for i in range(600_000))),
    "fmt of parentheses": Hostile("a.ps", lambda: HEAD + "let x = " + "(" * 9 * MB, (), "fmt"),
    "fmt of 900 parentheses": Hostile("a.ps", HEAD + "let x = " + "(" * 900 + "1" + ")" * 900 + "\nrank r { F B }\n", (), "fmt"),
    "fmt of a wide sum": Hostile("a.ps", lambda: HEAD + "let x = " + "+".join(["1"] * 9000) + "\nrank r { F B }\n", (), "fmt"),
    "fmt of comments": Hostile("a.ps", lambda: "#\n" * 4 * MB, (), "fmt"),
    "a trace for why": Hostile("a.json", trace(), (), "why"),
    "differences of long orders": Hostile("a.txt", lambda: "rank 0: " + " ".join(f"F0.{i}" for i in range(100_000)) + "\n", (f"{FOLDER}/b.txt",), "diff", {"b.txt": lambda: "rank 0: " + " ".join(f"F0.{i}" for i in reversed(range(100_000))) + "\n"}),
    "a comparison of hostile files": Hostile("a.json", '{"version":' + NINES + "}", (f"{FOLDER}/b.json",), "compare", {"b.json": "[" * 9000}),
    "an order of a stream": Hostile("a.json", lambda: loose(forwards(1, 1), parameters={"m": int(LONG)}), (), "order"),
    "a stream of a version in brackets": stream('{"version":' + "[" * 90 + "]" * 90 + "}"),
    "a stream of a version in 900 brackets": stream('{"version":' + "[" * 900 + "]" * 900 + "}"),
    "a stream of a parameter of 4,000 digits": stream(lambda: loose(forwards(1, 1), parameters={"m": int(LONG)})),
    "a stream of a version of 299 digits": stream('{"version":' + "9" * 299 + "}"),
    "a stream of readers": stream(lambda: loose(forwards(2, 1), version=2, reads={str(i): [0] for i in range(400_000)})),
    "a stream of slices": stream(lambda: loose(forwards(1, 1), version=2, slices=int("9" * 299))),
    "a stream of frozen stages": stream(lambda: loose(forwards(1, 1), version=2, frozen=[*range(MB)])),
    "costs of a million stages in JSON": priced(lambda: '{"F":[' + "1," * MB + "1]}"),
    "costs of a million microbatches in JSON": priced(lambda: '{"F":[[' + "1," * MB + "1],[" + "1," * MB + "1]]}"),
    "costs of 150,000 decimals in JSON": priced(lambda: '{"F":[[' + ",".join(f"0.{i:06}" for i in range(150_000)) + "],[" + ",".join(f"0.{i:06}" for i in range(150_000)) + "]]}"),
    "costs of a million lists in JSON": priced(lambda: '{"F":[' + "[1]," * MB + "[1]]}"),
    # scripts of bash
    "bash of commands that are options": setting("a.sh", lambda: "--a 1\n" * 40_000),
    "bash of options behind backslashes": setting("a.sh", lambda: "\\ \n--a 1\n" * 25_000),
    "bash of dashes behind a backslash": setting("a.sh", lambda: ("a \\ \n" + "-" * 19_000 + "\n") * 13),
    "bash of brackets": setting("a.sh", lambda: ("(" * 19_000 + "\n") * 13),
    "bash of groups": setting("a.sh", lambda: "{ " * 120_000),
    "bash of dollars in dollars": setting("a.sh", "A=" + "$(" * 9000 + ")" * 9000 + "\n"),
    "bash of back quotes": setting("a.sh", lambda: ("`" * 19_000 + "\n") * 13),
    "bash of sums": setting("a.sh", "A=$((" + "1+" * 9000 + "1))\npython pretrain_gpt.py --num-layers $A\n"),
    "bash of signs": setting("a.sh", "A=$((" + "-" * 9000 + "1))\npython pretrain_gpt.py --num-layers $A\n"),
    "bash of parentheses": setting("a.sh", "A=$((" + "(" * 9000 + "1" + ")" * 9000 + "))\npython pretrain_gpt.py --num-layers $A\n"),
    "bash of powers": setting("a.sh", "A=$((9**9**9**9))\npython pretrain_gpt.py --num-layers $A\n"),
    "bash of shifts": setting("a.sh", "A=$((1<<999999999999))\npython pretrain_gpt.py --num-layers $A\n"),
    "bash of products": setting("a.sh", "A=9\n" + "A=$((A*A))\n" * 9000 + "python pretrain_gpt.py --num-layers $A\n"),
    "bash of 5,000 digits in a sum": setting("a.sh", f"A=$(({NINES}+1))\npython pretrain_gpt.py --num-layers $A\n"),
    "bash of 5,000 digits in a test": setting("a.sh", f"if [ {NINES} -eq 1 ]; then A=2; fi\npython pretrain_gpt.py --num-layers $A\n"),
    "bash of 5,000 digits of a place": setting("a.sh", f"A=${{{NINES}}}\nB=${{A[{NINES}]}}\nC=${{A:{NINES}:{NINES}}}\npython pretrain_gpt.py --num-layers $A$B$C\n"),
    "bash of braces": setting("a.sh", "python pretrain_gpt.py --num-layers " + "{1,2}" * 3000 + "\n"),
    "bash of a range in braces": setting("a.sh", "python pretrain_gpt.py --num-layers {1..999999999}\n"),
    "bash of loops in loops": setting("a.sh", "".join(f"for a{i} in 1 2 3 4 5 6 7 8 9; do\n" for i in range(30)) + "python pretrain_gpt.py --num-layers $a1\n" + "done\n" * 30),
    "bash of a loop without end": setting("a.sh", "while true; do python pretrain_gpt.py --num-layers 2; done\n"),
    "bash of functions that call themselves": setting("a.sh", "f() { f; f; }\nf\npython pretrain_gpt.py --num-layers 2\n"),
    "bash of functions that call twice": setting("a.sh", "f0() { python pretrain_gpt.py --num-layers 2; }\n" + "".join(f"f{i}() {{ f{i - 1}; f{i - 1}; }}\n" for i in range(1, 40)) + "f39\n"),
    "bash of a script in a script": setting("a.sh", "bash -c \"" * 3000 + "python pretrain_gpt.py --num-layers 2\n"),
    "bash of a script that reads itself": setting("a.sh", "source a.sh\nsource $0\npython pretrain_gpt.py --num-layers 2\n"),
    "bash of replacements": setting("a.sh", "A=aaaaaaaa\n" + "A=${A//a/aaaa}\n" * 900 + "python pretrain_gpt.py --num-layers $A\n"),
    "bash of patterns": setting("a.sh", "A=" + "a" * 9000 + "\n" + "B=${A//*a*a*a*a*a*a*b/}\n" * 90 + "case $A in *a*a*a*a*a*a*b) C=1;; esac\npython pretrain_gpt.py --num-layers $B\n"),
    "bash of ways": setting("a.sh", "".join(f"if [ $X{i} = 1 ]; then A=$A{i}; else A=$A$A; fi\n" for i in range(3000)) + "python pretrain_gpt.py --num-layers $A\n"),
    "bash of lists": setting("a.sh", "A=(1)\n" + 'A+=("${A[@]}")\n' * 900 + 'python pretrain_gpt.py --num-layers "${A[@]}"\n'),
    "bash of words that end a text": setting("a.sh", lambda: "cat <<A <<B <<C\n" * 16_000),
    "bash of SBATCH": setting("a.sh", lambda: "#SBATCH" + " " * 19_000 + "\n" + "#SBATCH\n" * 20_000),
    "bash of private characters": setting("a.sh", "python pretrain_gpt.py --num-layers \U000f0000\U0010000a\n"),
    "bash of many commands": setting("a.sh", lambda: "python pretrain_gpt.py --num-layers 2\n" * 6000),
    "a command of an option of 100,000 letters": Hostile("--", None, ("torchrun", "pretrain_gpt.py", "--num-layers", "9" * 100_000), "check"),
    "a command of 20,000 words": Hostile("--", None, ("torchrun", "pretrain_gpt.py", *["--num-layers", "2"] * 10_000), "check"),
    "a command that steers": Hostile("--", None, ("torchrun", "pretrain_gpt.py", "--num-layers", "\x1b[2J\n::add-mask::x"), "check"),
}  # fmt: skip
