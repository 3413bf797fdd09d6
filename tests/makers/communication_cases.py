"""Published programs that hang, and published programs that do not, with the verdict under every model.

Each case gives the source of its verdict: a maintainer's statement, a run on gloo, or, for a model without one, a
derivation by hand. Nothing here comes from the code under test.
"""

from __future__ import annotations

from tests.makers.communication_notation import Case
from tests.makers.communication_orders import deepspeed_1f1b, fused_1f1b, gpipe, naive_1f1b, torch_1f1b
from tests.makers.communication_recorded import DEFERRED, DUALPIPE
from tests.oracles.explorer import MODELS

CROSSED = "strict one-stream pair-stream"  # two ranks send before they receive: one free slot helps, or no order at all
RING = "strict one-stream"  # the same over three or more ranks: no two ranks send to each other
EVERY = " ".join(MODELS)

CASES = [
    Case(
        "crossed sends",
        "nccl#479: both send first; gloo hangs at 4 B to 16 MB alike. Posted without order both complete",
        ("0SEND_F0 0RECV_B0", "1SEND_B0 1RECV_F0"),
        CROSSED,
        1,
        stuck={"strict": (0, 0), "one-stream": (2, 2), "pair-stream": (2, 2)},
    ),
    Case(
        "crossed sends, both in a batch",
        "nccl#479, the remedy given there; gloo completes in either order within the batch",
        ("[0SEND_F0 0RECV_B0]", "[1RECV_F0 1SEND_B0]"),
    ),
    Case(
        "crossed sends, one rank receives first",
        "gloo completes",
        ("0SEND_F0 0RECV_B0", "1RECV_F0 1SEND_B0"),
    ),
    Case(
        "post the send and wait for it before the receive",
        "gloo hangs in the wait on both ranks, whatever the size",
        ("0SEND_F0 0WAIT_SEND_F0 0RECV_B0", "1SEND_B0 1WAIT_SEND_B0 1RECV_F0"),
        CROSSED + " async",
        1,
        stuck={"strict": (0, 0), "async": (1, 1), "pair-stream": (1, 1)},
    ),
    Case(
        "post both, wait for both",
        "gloo completes; by hand: in posting order each send waits behind the other",
        ("0SEND_F0 0RECV_B0 0WAIT_SEND_F0 0B0", "1SEND_B0 1RECV_F0 1WAIT_SEND_B0 1F0"),
        CROSSED,
        1,
    ),
    Case(
        "a send too many",
        "by hand: without a partner a send completes in no model, and a posted one is waited for at the end",
        ("0SEND_F0 0F1 0SEND_F1", "1RECV_F0 1F0"),
        EVERY,
        None,
        stuck={model: (2 if "strict" in model or "buffered" in model else 3, -1) for model in MODELS},
    ),
    Case(
        "nobody sends",
        "ColossalAI#1180: the list of tensors to send is empty, the receiver waits for nothing",
        ("0F0", "1RECV_F0 1F0"),
        EVERY,
        None,
        stuck={model: (-1, 0 if "strict" in model or "buffered" in model else 1) for model in MODELS},
    ),
    Case(
        "a dropped handle loses its message",
        "pytorch#132644: of two sends in a batch only the last is kept; the first never leaves",
        ("0F0 0F1 0SEND_F1", "1RECV_F0 1RECV_F1 1F0 1F1"),
        EVERY,
        None,
        stuck={"strict": (-1, 1), "buffered(inf)": (-1, 1), "async": (-1, 3)},
    ),
    *(
        Case(
            f"ring of {p}, all send first",
            "gloo hangs when sends block, completes when they are posted. By hand: no two ranks share two messages",
            tuple(f"{r}SEND_F0>{(r + 1) % p} {r}RECV_F0<{(r - 1) % p}" for r in range(p)),
            CROSSED if p == 2 else RING,
            1,
        )
        for p in (2, 3, 4)
    ),
    *(
        Case(
            f"ring of {p}, odd ranks receive first",
            "gloo completes",
            tuple(
                f"{r}RECV_F0<{(r - 1) % p} {r}SEND_F0>{(r + 1) % p}"
                if r % 2
                else f"{r}SEND_F0>{(r + 1) % p} {r}RECV_F0<{(r - 1) % p}"
                for r in range(p)
            ),
        )
        for p in (2, 3, 4)
    ),
    *(
        Case(
            f"ring of {p}, one batch a rank",
            "gloo completes",
            tuple(f"[{r}SEND_F0>{(r + 1) % p} {r}RECV_F0<{(r - 1) % p}]" for r in range(p)),
        )
        for p in (2, 3, 4)
    ),
    Case(
        "ring of 4 on communicators of two ranks, next first",
        "Megatron-LM#5240: made at first use, in an order that goes round; strict implies their consistent order",
        tuple(f"{r}SEND_F0>{(r + 1) % 4}@{r} {r}RECV_F0<{(r - 1) % 4}@{(r - 1) % 4}" for r in range(4)),
        "strict",
        1,
    ),
    Case(
        "both ways round a ring of 4, in the order of Megatron-LM's parity",
        "Megatron-LM p2p_communication, unbatched: even ranks send first, odd ranks receive first",
        tuple(
            f"{r}RECV_F0<{(r - 1) % 4} {r}SEND_F0>{(r + 1) % 4} {r}RECV_B0<{(r + 1) % 4} {r}SEND_B0>{(r - 1) % 4}"
            if r % 2
            else f"{r}SEND_F0>{(r + 1) % 4} {r}RECV_F0<{(r - 1) % 4} {r}SEND_B0>{(r - 1) % 4} {r}RECV_B0<{(r + 1) % 4}"
            for r in range(4)
        ),
    ),
    Case(
        "send, compute, receive on both ranks",
        "nccl#783: a send is allowed to block until the peer receives; where it is posted, each of two communicators "
        "has its own stream",
        ("0F0 0SEND_F0@1 0F1 0RECV_B0@2 0B0", "1F0 1SEND_B0@2 1F1 1RECV_F0@1 1B0"),
        "strict",
        1,
    ),
    Case(
        "send, compute, receive on both ranks: merged",
        "nccl#783, the remedy given there: delay the send until the receive and make them one",
        ("0F0 0F1 [0SEND_F0 0RECV_B0] 0B0", "1F0 1F1 [1SEND_B0 1RECV_F0] 1B0"),
    ),
    Case(
        "one rank batches, the other does not",
        "nccl#1279: undefined. NCCL's guide: calls within a group progress independently; so rank 1's send finds its "
        "receive, then its receive the send",
        ("[0SEND_F0 0RECV_B0]", "1SEND_B0 1RECV_F0"),
    ),
    Case(
        "a batch over two peers",
        "PiPPy#969 hung where a batch went as a whole: 1 sends to 2 after its compute, whose input is in a batch that "
        "2 is in too. Members that progress independently, as in NCCL's guide and on gloo, complete",
        ("0F0 [0SEND_F0>1 0SEND_F0>2]", "1RECV_F0<0 1F0 1SEND_F0>2", "[2RECV_F0<0 2RECV_F0<1] 2F0"),
    ),
    Case(
        "a batch over two peers: one batch a peer",
        "PiPPy#1000, the remedy",
        ("0F0 0SEND_F0>1 0SEND_F0>2", "1RECV_F0<0 1F0 1SEND_F0>2", "2RECV_F0<0 2RECV_F0<1 2F0"),
    ),
    Case(
        "interleaved: the last sends of the warm-up cross",
        "PiPPy#1088, pytorch#127332: they are alone, the receives are in the batch after them",
        ("0F1 0SEND_F1 [2RECV_F0] 2F0", "1F0 1SEND_F0 [1RECV_F1] 1F1"),
        CROSSED,
        1,
    ),
    Case(
        "interleaved: the last sends of the warm-up go with the receives",
        "PiPPy#1088, the remedy",
        ("0F1 [0SEND_F1 2RECV_F0] 2F0", "1F0 [1SEND_F0 1RECV_F1] 1F1"),
    ),
    Case(
        "1F1B in one process group",
        "Paddle#68141: sends of both directions share a stream",
        ("0F1 0SEND_F1 0RECV_B0 0B0", "1B0 1SEND_B0 1RECV_F1 1F1"),
        CROSSED,
        1,
    ),
    Case(
        "1F1B with a process group for each direction",
        "Paddle#68141, the remedy. By hand: it helps where sends are posted, for streams are those of communicators",
        ("0F1 0SEND_F1@0 0RECV_B0@1 0B0", "1B0 1SEND_B0@1 1RECV_F1@0 1F1"),
        "strict",
        1,
    ),
    Case(
        "both stages of a server send at once",
        "sglang#38249: the proxy tensors go up while the output comes down",
        ("0F0 0SEND_F0 0RECV_F0", "1F0 1SEND_F0 1RECV_F0"),
        CROSSED,
        1,
    ),
    Case(
        "both stages of a server send at once, in pairs",
        "sglang#38249, the remedy",
        ("0F0 [0SEND_F0 0RECV_F0]", "1F0 [1SEND_F0 1RECV_F0]"),
    ),
    Case(
        "previous and next rank are the same",
        "Megatron-LM#750: with 2 ranks the fixed order send_prev, recv_prev, send_next, recv_next pairs a gradient "
        "with an activation, and nothing hangs",
        ("[2SEND_B0 2RECV_F2 0SEND_F3 0RECV_B1]", "[1SEND_B1 1RECV_F3 1SEND_F2 1RECV_B0]"),
        swapped=True,
    ),
    Case(
        "previous and next rank are the same, a process group for activations and one for gradients",
        "by hand: the two messages from 1 to 0 are on two channels",
        ("[2SEND_B0@1 2RECV_F2 0SEND_F3 0RECV_B1@1]", "[1SEND_B1@1 1RECV_F3 1SEND_F2 1RECV_B0@1]"),
    ),
    Case(
        "received in another order than sent",
        "Paddle#41652: error values; gloo: finishes with the tensors swapped",
        ("0SEND_F0 0SEND_F1", "1RECV_F1 1RECV_F0 1F0 1F1"),
        swapped=True,
    ),
    Case(
        "late receives: crossed sends",
        "pytorch#172668, first order",
        ("0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2F0", "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1"),
        CROSSED,
        1,
        stuck={"strict": (3, 2), "pair-stream": (5, 4)},
    ),
    Case(
        "late receives: the crossed pair fused",
        "pytorch#172668, first order with neighbours in one batch",
        ("0F0 0SEND_F0 0F1 [0SEND_F1 2RECV_F0] 2F0", "1RECV_F0 1F0 [1SEND_F0 1RECV_F1] 1F1"),
    ),
    Case(
        "late receives: the swap does not help",
        "pytorch#172668, second order as quoted: the receive of the last gradient is not in the quotation",
        ("2SEND_F1 0F2 0SEND_F2 2RECV_B0 2B0", "3RECV_F1 3SEND_B0 3F1 3B1 1RECV_F2 3SEND_B1 1F2"),
        EVERY,
        None,
        stuck={"strict": (2, 1), "buffered(1)": (-1, 5), "async": (-1, 7)},
    ),
    Case(
        "late receives: the swap does not help, with the missing receive",
        "pytorch#172668, second order and one receive; by hand: one slot is enough",
        ("2SEND_F1 0F2 0SEND_F2 2RECV_B0 2B0 2RECV_B1 2B1", "3RECV_F1 3SEND_B0 3F1 3B1 1RECV_F2 3SEND_B1 1F2"),
        CROSSED,
        1,
        stuck={"strict": (2, 1)},
    ),
    Case(
        "deferred interleaved 1F1B, p = 2, m = 2",
        "torch 2.13 defer_pp_recv=True: hangs in order per pair, needs one slot; right on gloo",
        DEFERRED["interleaved 1F1B, m = 2"],
        CROSSED,
        1,
        stuck={"strict": (9, 9)},
    ),
    Case(
        "deferred ZB-V, p = 2, m = 4",
        "torch 2.13 defer_pp_recv=True: the third message of 0 to 1 goes as 0SEND_F2 and comes as 2RECV_B0",
        DEFERRED["ZB-V, m = 4"],
        CROSSED,
        1,
        swapped=True,
    ),
    Case(
        "deferred DualPipeV, p = 2, m = 4",
        "torch 2.13 defer_pp_recv=True: hangs in order per pair, needs one slot; right on gloo at p = 2",
        DEFERRED["DualPipeV, m = 4"],
        CROSSED,
        1,
    ),
    Case(
        "DualPipe, p = 2, m = 4",
        "DualPipe's step(): everything between two computes is one batch, and safe",
        DUALPIPE[2, 4],
    ),
    Case(
        "DualPipe, p = 4, m = 8",
        "DualPipe's step(): everything between two computes is one batch, and safe",
        DUALPIPE[4, 8],
    ),
]


def split(case: Case, fails: str, capacity: int | None, source: str) -> Case:
    """Return the case with the same messages in the same order, without batches."""
    ranks = tuple(text.replace("[", "").replace("]", "") for text in case.ranks)
    return Case(f"{case.name}, batches split", source, ranks, fails, capacity)


CASES += [
    split(
        case,
        f"{CROSSED} buffered(1)",
        2,
        "split into blocking operations it needs two slots: two sends stand before two receives on both sides",
    )
    for case in CASES
    if case.name.startswith("DualPipe")
]

CASES += [
    case
    for p, m in ((2, 2), (2, 4), (3, 3), (4, 6), (4, 8))
    for case in (
        Case(f"GPipe, p = {p}, m = {m}", "by hand: all messages go up, then all come down", gpipe(p, m)),
        Case(
            f"fused 1F1B, p = {p}, m = {m}",
            "Megatron-LM: what would cross is one batch on both sides",
            fused_1f1b(p, m),
        ),
        Case(
            f"naive 1F1B, p = {p}, m = {m}",
            "by hand: an activation and a gradient cross once per pair",
            naive_1f1b(p, m),
            CROSSED,
            1,
        ),
        Case(
            f"DeepSpeed 1F1B, p = {p}, m = {m}",
            "at each step two neighbours face each other",
            deepspeed_1f1b(p, m, gradient_first=False),
        ),
        Case(
            f"DeepSpeed 1F1B, newer, p = {p}, m = {m}",
            "the same, gradient first",
            deepspeed_1f1b(p, m, gradient_first=True),
        ),
        Case(f"torch 1F1B, one communicator, p = {p}, m = {m}", "safe from m = p on", torch_1f1b(p, m, lazy=False)),
        Case(f"torch 1F1B, lazy communicators, p = {p}, m = {m}", "safe from m = p on", torch_1f1b(p, m, lazy=True)),
    )
]

CASES += [
    case
    for p, m in ((2, 1), (3, 1), (3, 2), (4, 3))
    for case in (
        Case(
            f"torch 1F1B, one communicator, p = {p}, m = {m}",
            "rank 0 sends the last activation and receives the first gradient in one batch, while the next rank's two "
            "ends are apart, one made from the other: members of a batch go on independently",
            torch_1f1b(p, m, lazy=False),
        ),
        Case(
            f"torch 1F1B, lazy communicators, p = {p}, m = {m}",
            "pytorch#144702, why torch asks for m >= p: sent in a batch on the group's communicator, received alone on "
            "that of two ranks",
            torch_1f1b(p, m, lazy=True),
            EVERY,
            None,
        ),
    )
]
