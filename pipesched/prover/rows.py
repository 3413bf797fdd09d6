"""The rows that add `pipesched prove`, and `--smallest` to `verify`."""

from pipesched.extension import Later, Lazy, Option, Row, Verb, flag

_SMALLEST = Lazy[type]("prover.smallest:Smallest")

ROWS: tuple[Row, ...] = (
    Verb(
        "prove",
        "Look",
        "Prove the properties and claims of a file, for all sizes and costs.",
        Lazy("prover.prove_command:prove"),
        Lazy("prover.prove_command:OPTIONS"),
        place=1,
    ),
    Option(
        "smallest",
        flag,
        "If it fails, judge the smallest size that fails so.",
        default=False,
        on=("verify",),
        after="definitions",
        into=_SMALLEST,
    ),
    Later(Lazy("prover.smallest:smallest"), place=5, owner=_SMALLEST),
)
