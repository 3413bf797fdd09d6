"""The row that adds `pipesched prove`."""

from pipesched.extension import Lazy, Row, Verb

ROWS: tuple[Row, ...] = (
    Verb(
        "prove",
        "Look",
        "Prove the properties and claims of a file, for all sizes and costs.",
        Lazy("prover.prove_command:prove"),
        Lazy("prover.prove_command:OPTIONS"),
        place=1,
    ),
)
