"""The rows that read streams, torch's CSV and orders in words, and write orders in words."""

from pipesched.extension import Lazy, Reader, Target


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
ROWS = (
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
        "the computes of every rank, as words; also of an order with errors",
        ".txt",
        Lazy("orders.order_write:ORDER"),
        messages=False,
        judged=False,
        place=40,
    ),
    Target(
        "program",
        "its sends, receives and reductions too; also with errors",
        ".txt",
        Lazy("orders.order_write:PROGRAM"),
        messages=True,
        judged=False,
        place=50,
    ),
)
