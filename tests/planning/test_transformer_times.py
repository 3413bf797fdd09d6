"""FLOPs, messages and costs of a model agree with the paper, with torch's count, and with a simulated ring."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction as Q

import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.planning.transformer import activations, devices, flops, parameters, times, traffic
from pipesched.planning.transformer.config import Experts, Latent, Training, Transformer
from pipesched.planning.transformer.devices import DEVICES, Device, amount
from pipesched.planning.transformer.model_file import read
from pipesched.planning.transformer.state import state
from pipesched.support.source import Source

MEGATRON = ("1.7b", "3.6b", "7.5b", "18.4b", "39.1b", "76.1b", "145.6b", "310.1b", "529.6b", "1008b")
MINE = Device("mine", Q(10**12), Q(10**10), Q(10**9), Q(10**8), Q(10**7), 8)


@pytest.mark.parametrize("name", MEGATRON)
def test_a_step_of_megatron_is_equation_3(name: str) -> None:
    """Equation 3 of Narayanan et al. (SC 2021) holds for any split, with full recomputation: 96 B s l h^2 (1 + s / 6h +
    V / 16 l h)."""
    a, _ = read(f"megatron-{name}")
    h, s, layers = Q(a.hidden), a.sequence, a.layers
    expected = 96 * s * layers * h**2 * (1 + s / (6 * h) + a.vocabulary / (16 * layers * h))
    for stages, t in ((1, 1), (2, 1), (4, 8)):
        cut = flops.by_stage(a, Training(tensor=t, recompute="full"), stages)
        assert t * sum(stage.forward + stage.backward for stage in cut) == expected


def test_a_layer_is_the_papers() -> None:
    """By the paper's appendix a forward takes 24 b s h^2 + 4 b s^2 h; the gradients of weights do not include the
    attention."""
    a = Transformer(layers=3, hidden=256, heads=8, vocabulary=1000, sequence=128)
    _, one, _ = flops.by_stage(a, Training(microbatch=2), 3)
    dense, scores = 24 * 2 * 128 * 256**2, 4 * 2 * 128**2 * 256
    assert (one.forward, one.input, one.weights) == (dense + scores, dense + 2 * scores, dense)
    again = {
        ("selective", "standard"): scores,
        ("selective", "flash"): 0,
        ("full", "flash"): dense + scores,
    }
    for (recompute, attention), expected in again.items():
        way = Training(microbatch=2, recompute=recompute, attention=attention)
        assert flops.by_stage(a, way, 3)[1].again == expected
        assert flops.by_stage(a, way, 3)[1].input == one.input + expected


@pytest.mark.parametrize(("kv", "gated", "size"), [(8, False, 256), (2, True, 112), (1, True, 96)])
def test_torch_counts_the_same(kv: int, gated: bool, size: int) -> None:
    """A layer and a head of torch have the FLOPs of its own counter; with grouped keys and gated parts."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    b, s, h, heads, words = 2, 16, 64, 8, 50
    a = Transformer(1, h, heads, words, s, kv_heads=kv, feed_forward=size, gated=gated)
    shapes = [(h, h), (h, 2 * kv * h // heads), (h, h), (h, size * (2 if gated else 1)), (size, h), (h, words)]
    wq, wkv, wo, up, down, out = (torch.randn(shape, requires_grad=True) for shape in shapes)
    x = torch.randn(b, s, h, requires_grad=True)

    def split(value: object, count: int) -> object:
        return value.view(b, s, count, h // heads).transpose(1, 2)  # type: ignore[attr-defined]

    def forward() -> object:
        key, value = (split(part, kv).repeat_interleave(heads // kv, 1) for part in (x @ wkv).chunk(2, -1))
        mixed = (split(x @ wq, heads) @ key.transpose(2, 3)).softmax(-1) @ value
        y = x + mixed.transpose(1, 2).reshape(b, s, h) @ wo
        wide = y @ up
        if gated:
            gate, wide = wide.chunk(2, -1)
            wide = gate.sigmoid() * wide
        return ((y + wide @ down) @ out).sum()

    with FlopCounterMode(display=False) as count:
        loss = forward()
    (stage,) = flops.by_stage(a, Training(microbatch=b), 1)
    assert count.get_total_flops() == stage.forward
    with FlopCounterMode(display=False) as count:
        loss.backward()  # type: ignore[attr-defined]
    assert count.get_total_flops() == stage.backward
    assert flops.of_model(a, b) == stage.forward + stage.backward


def test_experts_and_compressed_heads_count_what_a_token_meets() -> None:
    """Two of eight experts and a shared one are written out, and a latent layer is counted matrix by matrix."""
    h, f, s = 64, 48, 32
    a = Transformer(2, h, 4, 100, s, experts=Experts(8, 2, f, shared=1, dense_layers=1), gated=True, feed_forward=128)
    one = Training()
    assert flops.entries(a, one, 0) == 4 * h * h + 3 * h * 128
    assert flops.entries(a, one, 1) == 4 * h * h + 3 * h * f * (2 + 1) + h * 8
    b = replace(a, experts=None, latent=Latent(query=24, key_value=16, rope=4, key=12, value=10))
    heads = 4 * (24 * (12 + 4) + 16 * (12 + 10) + 10 * h)
    assert flops.entries(b, one, 0) == h * (24 + 16 + 4) + heads + 3 * h * 128
    assert flops.attention(b, one) == 2 * s * s * 4 * (12 + 4 + 10)
    assert flops.attention(b, Training(context=2, tensor=4)) == flops.attention(b, one) / 8


def walked(ranks: int, size: Q) -> Q:
    """Return the bytes that one rank sends in an all-reduce around a ring, a chunk per step: all chunks are summed,
    then distributed.
    """
    held = [{r} for r in range(ranks)]  # of the chunk that began at rank 0: whose terms each rank has
    sent = Q(0)
    for step in range(2 * (ranks - 1)):
        held[(step + 1) % ranks] |= held[step % ranks]
        sent += size / ranks
    assert all(len(terms) == ranks for terms in held)
    return sent


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_what_ranks_of_a_layer_send_is_a_ring(t: int) -> None:
    """A layer has two all-reduces of 2 s b h bytes in F and two in I; gradients are reduced once per step, over all
    copies."""
    a = Transformer(2, 64, 8, 100, 32)
    x = Training(microbatch=3, tensor=t)
    size = Q(2 * 3 * 32 * 64)
    assert traffic.forward(a, x, 0).tensor == 2 * walked(t, size) == traffic.backward(a, x, 0).tensor
    assert traffic.backward(a, replace(x, recompute="full"), 0).tensor == 4 * walked(t, size)
    device = replace(MINE, node=Q(1), network=Q(1))
    for zero, gathered in ((0, 4000), (1, 2000)):
        both = traffic.between_copies((Q(1000), Q(0), Q(0)), traffic.shares(a, Training(data=t, zero=zero), device))
        assert both == (walked(t, Q(gathered)) / 2, walked(t, Q(4000)) / 2)


@pytest.mark.parametrize(("groups", "each"), [(2, 4), (4, 2)])
def test_groups_of_copies_divide_inside_and_reduce_between(groups: int, each: int) -> None:
    """HSDP: state and gathers equal one group's; gradients are scattered in it, then each share is all-reduced
    over the groups, which walk the network one by one.
    """
    a, device = Transformer(2, 64, 8, 100, 32), replace(MINE, node=Q(3), network=Q(1), node_size=each)
    part = [parameters.Part("all", 1000, Q(1000))]
    for zero in (1, 3):
        x = Training(data=groups * each, zero=zero, replicas=groups)
        assert state(a, x, part) == state(a, replace(x, data=each, replicas=1), part)
        gather, scatter = traffic.between_copies((Q(1000), Q(0), Q(0)), traffic.shares(a, x, device))
        assert gather == walked(each, Q(2000)) / 2 / 3
        assert scatter == walked(each, Q(4000)) / 2 / 3 + walked(groups, Q(4000, each))


def test_a_group_across_two_nodes_is_as_slow_as_their_link() -> None:
    """Ranks are walked one by one: if one of the adjacent groups spans two nodes, all wait for it."""
    for wide in range(1, 13):
        for pipeline in (1, 2, 4):
            x, a = Training(tensor=wide), Transformer(4, 12 * 1024, 27720, 1000, 128, head_size=8)
            devices_ = range(wide * pipeline)
            groups = [{one // MINE.node_size for one in devices_[at : at + wide]} for at in devices_[::wide]]
            slow = MINE.node if all(len(nodes) == 1 for nodes in groups) else MINE.network
            made = times.costs(a, x, MINE, range(pipeline)).given["F"]
            sent = sum(traffic.forward(a, x, i).tensor for i in range(4)) / slow
            computed = sum(one.forward for one in flops.by_stage(a, x, pipeline)) / (MINE.flops / 2)
            assert float(sum(made)) == pytest.approx(1000 * float(sent + computed), abs=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_zero_divides_is_sent_for_every_microbatch(zero: int) -> None:
    """Each of n copies sends (n - 1) / n of fp32 gradients in W, of 16-bit parameters in F and in I."""
    a, n, apart = Transformer(4, 64, 8, 100, 32), 4, {"overlap": Q(0)}
    made, alone = (times.costs(a, Training(data=n, zero=z), MINE, range(2), **apart).given for z in (zero, 0))
    for stage in range(2):
        held = [12 * 64**2 + 13 * 64] * 2 + ([100 * 64 + 32 * 64] if stage == 0 else [2 * 64 + 100 * 64])
        seconds = Q(sum(held) * (n - 1), n) / MINE.node
        for kind, bytes_each, least in (("F", 2, 3), ("I", 2, 3), ("W", 4, 2)):
            more = made[kind][stage] - alone[kind][stage]  # type: ignore[index]
            assert float(more) == pytest.approx(1000 * bytes_each * float(seconds) * (zero >= least), abs=2e-6)
            both = (Training(data=n, zero=z) for z in (zero, 0))
            parts = [times.costs(a, x, MINE, range(2), slices=4, **apart).given[kind] for x in both]
            assert float(parts[0][stage] - parts[1][stage]) == pytest.approx(float(more), abs=2e-6)  # type: ignore[index]


@pytest.mark.parametrize(("sent", "beside", "layers"), [(6, 30, 3), (30, 6, 3), (7, 7, 1), (5, 0, 4), (12, 12, 12)])
def test_what_is_sent_layer_by_layer_runs_beside_the_others(sent: int, beside: int, layers: int) -> None:
    """A layer's gradients are sent when its backward has ended and the link is free: each is walked."""
    free = Q(0)
    for layer in range(1, layers + 1):
        free = max(free, Q(layer * beside, layers)) + Q(sent, layers)
    assert traffic.exposed(Q(sent), Q(beside), layers) == free - beside
    assert traffic.exposed(0.0, 5.0, layers) == 0


@pytest.mark.parametrize("apart", [1, 2, 4, 8, 16])
def test_a_reduction_leaves_a_node_by_as_many_adapters_as_it_has_ranks_there(apart: int) -> None:
    """Every group of a cluster is listed, node by node; all have the rate of the slowest."""
    device = replace(MINE, node=Q(6), network=Q(1), node_size=8)
    for ranks in range(2, 13):
        wide = apart * ranks
        first = [base + k for base in range(0, 8 * wide, wide) for k in range(apart)]
        nodes = [Counter((one + apart * i) // 8 for i in range(ranks)) for one in first]
        fewest = min(min(found.values()) for found in nodes)
        inside = all(len(found) == 1 for found in nodes)
        assert traffic.ring(device, ranks, apart) == (6 if inside else min(6, fewest))


def test_ranks_of_a_sequence_and_of_experts_send_what_others_need() -> None:
    """A rank gets the keys and values of each of c - 1 others; with e ranks of experts, 1 / e of the tokens stay."""
    a = Transformer(2, 64, 8, 100, 32, kv_heads=2, experts=Experts(8, 2, 48))
    assert traffic.forward(a, Training(context=4), 0).context == 3 * (32 // 4) * 2 * 2 * 8 * 2
    assert traffic.forward(a, Training(data=4, expert=4), 0).experts == 2 * Q(3, 4) * 32 * 2 * 64 * 2
    sent = traffic.Traffic(Q(10**9), Q(10**9), Q(0))
    assert traffic.seconds(Training(tensor=4, context=2), MINE, sent) == 2
    assert traffic.seconds(Training(tensor=4, context=4), MINE, sent) == 11


def test_costs_are_operations_over_what_a_device_reaches() -> None:
    """Costs are in milliseconds, right to the nanosecond; a stage's messages use its slower link."""
    a = Transformer(4, 256, 8, 1000, 128)
    x = Training(tensor=2, data=2)
    cost = times.costs(a, x, MINE, (0, 1, 2, 3), Q(1, 4))
    computed, sent = flops.by_stage(a, x, 4), traffic.forward(a, x, 0).tensor / MINE.node
    for stage in range(4):
        for key, value in (("F", computed[stage].forward), ("I", computed[stage].input)):
            expected = 1000 * (float(value) / 0.25e12 + float(sent))
            assert float(cost.given[key][stage]) == pytest.approx(expected, abs=1e-6)  # type: ignore[index]
    edge = activations.boundary(a, x)
    assert edge == 2 * 128 * 256
    # a rank is 4 devices, a node 8: 0 1 | 2 3
    expected = [1000 * edge / MINE.node] + [1000 * edge / MINE.network] * 2 + [1000 * edge / MINE.node]
    assert [float(c) for c in cost.given["C"]] == pytest.approx([float(c) for c in expected], abs=1e-6)  # type: ignore[union-attr]
    again = replace(x, recompute="full")
    assert times.costs(a, again, MINE, range(4), runs_again=True) == times.costs(a, x, MINE, range(4))
    assert times.costs(a, again, MINE, range(4)).given["I"] > times.costs(a, x, MINE, range(4)).given["I"]  # type: ignore[operator]


def test_every_device_names_its_source_and_a_file_reads_as_one() -> None:
    """The table has nine rows; a file in other units gives the same numbers."""
    assert {*DEVICES} == {"a100", "a100-40gb", "h100", "h200", "b200", "gb200", "gb300", "l40s", "mi300x"}
    assert all(device.source for device in DEVICES.values()) and devices.read("H100") is DEVICES["h100"]
    text = """[device]
flops = "0.9894 PFLOP/s"
memory = "80 GB"
node = 450e9
network = "50 GB/s"
host = "64000 MB/s"
hbm = "3.35 TB/s"
multiprocessors = 132
like = "h100"
usable = "84.9 GB"
"""
    made = devices.of_source(Source("mine.toml", text))
    assert replace(made, name="h100", source=DEVICES["h100"].source) == DEVICES["h100"]
    assert amount("1.5 GiB") == 3 * 2**29 and amount("2GB/s", rate=True) == 2 * 10**9 and amount(7) == 7


WHOLE = {"flops": "1e12", "memory": "'80 GB'", "node": "'3 GB/s'", "network": "'1 GB/s'", "host": "'1 GB/s'"}


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        ({"flops": None}, 1, "lacks device.flops"),
        ({"host": None}, 1, "lacks device.host"),
        ({"memory": "'80 GB/s'"}, 3, "memory is '80 GB/s', not bytes"),
        ({"memory": "'80 Gb'"}, 3, "memory is '80 Gb', not bytes"),
        ({"memory": "'80 GFLOP'"}, 3, "not bytes"),
        ({"memory": "0"}, 3, "memory is 0, not bytes"),
        ({"memory": "-1"}, 3, "memory is -1, not bytes"),
        *(({"memory": size}, 3, "not bytes") for size in ("nan", "1e999999999", "1e90", "'0.001B'", "'1e30 GB'")),
        ({"flops": "'1e99 TFLOP/s'"}, 2, "not FLOP/s"),
        ({"node": "'3 GB'"}, 4, "node is '3 GB', not bytes per second"),
        ({"node": "true"}, 4, "not bytes per second"),
        ({"flops": "'900 GB/s'"}, 2, "not FLOP/s"),
        ({"node_size": "0"}, 7, "node_size is 0, not a positive whole number"),
        ({"nodesize": "8"}, 7, "a device has no device.nodesize"),
    ],
)
def test_a_wrong_device_is_told_at_its_line(change: dict[str, str | None], line: int, says: str) -> None:
    """A missing key is reported at its section."""
    text = "[device]\n" + "".join(f"{key} = {value}\n" for key, value in {**WHOLE, **change}.items() if value)
    with pytest.raises(PipeschedError) as error:
        devices.of_source(Source("mine.toml", text))
    (found,) = error.value.diagnostics
    assert says in found.message and found.where is not None and found.where.line == line
    with pytest.raises(PipeschedError, match="unknown device"):
        devices.read("h10")


def test_a_schedule_has_the_costs_of_its_stages() -> None:
    """The times are of each stage with its layers, so nothing is scaled by p / S. A cost of the user replaces a derived
    cost; costs of a file do not, as their unit differs. A schedule that recomputes its forwards does so in R and not in
    I.
    """
    small = (Transformer(8, 256, 8, 1000, 128), Training(recompute="full"))
    given = {"model": small, "device": MINE, "p": 4, "m": 8}
    own = times.costs(*small, MINE, (0, 1, 2, 3))
    plain, cut = pipesched.verify("1f1b", **given), pipesched.verify("interleaved", **given)
    assert plain.time.costs["F"] == [exact(x) for x in own.given["F"]]  # type: ignore[union-attr]
    work = [sum(x.time.work) for x in (plain, cut)]
    assert float(work[0]) == pytest.approx(float(work[1]), rel=1e-6)
    rows = pipesched.compare("1f1b", "interleaved", **given).rows
    assert [row.makespan for row in rows] == [plain.makespan, cut.makespan]
    assert pipesched.verify("1f1b", costs="C=0", **given).time.costs["C"] == 0
    text = "schedule mine(p, m)\nstage s in 0 .. p on rank s\ncosts F = 7, B = 90, C = 5\nrank r { repeat m { F B } }\n"
    assert pipesched.verify(Source("mine.ps", text), **given).time.costs == plain.time.costs
    best = pipesched.optimize(**given, mem_cap=4, backward="fused")
    assert best.makespan <= plain.makespan
    again = "schedule twice(p, m)\nstage s in 0 .. p on rank s\nrank r { repeat m { F R B } }\n"
    found = pipesched.verify(Source("twice.ps", again), **given).time.costs
    once = times.costs(small[0], replace(small[1], recompute="none"), MINE, range(4))
    assert found["I"] == [exact(x) for x in once.given["I"]] and found["R"] == found["F"]  # type: ignore[union-attr]
    assert "50 % of 1 TFLOP/s" in str(plain) and "50 % of 1 TFLOP/s" in pipesched.compare("1f1b", **given).text()


def exact(x: object) -> object:
    """Return a number in the form of a report."""
    return int(x) if x == int(x) else str(x)  # type: ignore[call-overload]


def test_costs_of_a_file_that_are_not_used_are_named() -> None:
    """A model's times replace a file's own, by microbatch or not."""
    asked = {"p": 4, "m": 4, "model": "llama3-70b", "device": "h100"}
    for sizes, named in (
        (
            {"target": "packed", "length": [4, 1, 2, 1]},
            ["F, B of the file not used: every microbatch takes the same time"],
        ),
        ({"target": "packed"}, ["F, B of the file not used"]),
        ({"target": "1f1b"}, []),
    ):
        said = str(pipesched.verify(**asked, **sizes))
        assert re.findall(r"; ([A-Z, ]+ of the file not used.*)", said) == named
