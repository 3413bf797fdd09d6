"""The rows that add `emit --mend`."""

from pipesched.extension import Check, Codes, Lazy, Needs, Option, Rewrite, Row, flag

_OWNER = Lazy[type]("mend.mend:Mend")

ROWS: tuple[Row, ...] = (
    Codes(Lazy("mend.codes:MendCode")),
    Option(
        "mend",
        flag,
        "Repair an order that hangs or pairs messages wrongly, and report the changes.",
        default=False,
        on=("emit",),
        into=_OWNER,
    ),
    Rewrite(Lazy("mend.mend:mended"), owner=_OWNER),
    Check(
        "the order needs no repair by `emit --mend`",
        ("PS910",),
        Lazy("mend.mend:changes"),
        Needs.NOTHING,
        place=200,
        owner=_OWNER,
    ),
)
