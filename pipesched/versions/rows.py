"""The rows that add weight versions: checks of STEPs inside an order, a part of the report, names in claims."""

from pipesched.extension import Check, ClaimName, Codes, Lazy, Measure, Needs, Row

ROWS: tuple[Row, ...] = (
    Codes(Lazy("versions.codes:VersionCode")),
    Check(
        "every STEP inside the order takes the same batch on all stages, and every version exists before it is read",
        ("PS611", "PS612", "PS613", "PS614", "PS615", "PS616"),
        Lazy("versions.check:check_order"),
        Needs.SOUND | Needs.INSIDE,
        place=5,
    ),
    Check(
        "one REDUCE_GRAD per STEP inside the order, after the gradients of its batch are complete",
        ("PS601", "PS602", "PS603"),
        Lazy("versions.check:check_program"),
        Needs.OWN | Needs.SOUND | Needs.INSIDE,
        place=65,
    ),
    Measure("versions", Lazy("versions.report:part"), inside=True, place=5),
    ClaimName("versions", Lazy("versions.report:alive")),
    ClaimName("staleness", Lazy("versions.report:staleness")),
    ClaimName("crossed", Lazy("versions.report:crossed")),
)
