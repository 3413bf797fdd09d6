"""The rows that read streams, torch's CSV and order text, check their instructions, and write order text."""

from pipesched.extension import Check, Codes, Lazy, Needs, Reader, Row, Target


def _order(first: str, _: str) -> bool:
    from pipesched.orders.reading import is_order

    return is_order(first)


def _csv(first: str, _: str) -> bool:
    from pipesched.orders.reading import is_csv

    return is_csv(first)


TORCH_CSV = Reader(
    "torch-csv",
    "a torch CSV",
    ".csv",
    _csv,
    Lazy("orders.reading:csv"),
    ("parameters", "max_ops", "torch_version", "stages", "placement"),
    place=30,
)
ROWS: tuple[Row, ...] = (
    Codes(Lazy("orders.codes:OrdersCode")),
    Check(
        "each WAIT follows its send or reduction; programs for torch follow torch's rules",
        ("PS406",),
        Lazy("orders.check.waits:check_waits"),
        Needs.OWN,
        place=20,
    ),
    Check(
        "each rank uses inputs only after it received them, and sends results only after it computed them",
        ("PS308", "PS309"),
        Lazy("orders.check.handover:check_handover"),
        Needs.OWN,
        place=50,
    ),
    Check(
        "the gradients of a stage are reduced once, after they are complete",
        ("PS303", "PS601", "PS602", "PS603"),
        Lazy("orders.check.gradients:check_gradients"),
        Needs.OWN,
        place=60,
    ),
    Check(
        "the gradients of a stage's copies are summed, and every rank runs STEP once, with complete gradients",
        ("PS605", "PS606", "PS607"),
        Lazy("orders.check.step:check_step"),
        Needs.OWN,
        place=70,
    ),
    Check(
        "no rank holds more messages than its order requires",
        ("PS906",),
        Lazy("orders.check.in_hand:check_in_hand"),
        Needs.OWN | Needs.SOUND | Needs.ENDS,
        place=110,
    ),
    Reader("order", "an order", None, _order, Lazy("orders.reading:order"), ("parameters", "max_ops")),
    Reader(
        "stream",
        "a stream",
        ".json",
        lambda first, _: first.startswith("{"),
        Lazy("orders.reading:stream"),
        ("parameters",),
        place=20,
    ),
    TORCH_CSV,
    Target(
        "order",
        "the compute operations of every rank, as words; also for an order with errors",
        ".txt",
        Lazy("orders.order_write:ORDER"),
        messages=False,
        judged=False,
        place=40,
    ),
    Target(
        "program",
        "compute operations with their sends, receives and reductions; also with errors",
        ".txt",
        Lazy("orders.order_write:PROGRAM"),
        messages=True,
        judged=False,
        place=50,
    ),
)
