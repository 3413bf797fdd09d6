"""Rows for `pipesched prove` and `--smallest`, and for the theorems in verdicts on library schedules."""

import re

from pipesched.extension import Codes, Later, Lazy, Option, Reader, Row, Verb, flag

_SMALLEST = Lazy[type]("prover.smallest:Smallest")

_OPINION = Lazy[type]("prover.asked:Opinion")


def _certificate(first: str, text: str) -> bool:
    """Return True if a text declares that it is a certificate, or has the parts of one."""
    marks = r'"format"\s*:\s*"pipesched-proof"', r'"guesses"\s*:.*"obligations"\s*:'
    return first.startswith("{") and any(re.search(mark, text, re.S) for mark in marks)


ROWS: tuple[Row, ...] = (
    Codes(Lazy("prover.codes:ProverCode")),
    Reader(
        "proof",
        "a certificate of a proof",
        ".json",
        _certificate,
        Lazy("prover.certificate_read:schedule"),
        verify=Lazy("prover.verify_certificate:verify"),
        place=5,
    ),
    Option(
        "second_opinion",
        flag,
        "Also check a certificate with Z3.",
        default=False,
        on=("verify",),
        after="require_proof",
        into=_OPINION,
    ),
    Later(Lazy("prover.verify_certificate:require_certificate"), place=30, owner=_OPINION),
    Later(Lazy("prover.shipped:theorem"), place=40),
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
        "If a check fails, find the smallest size with this failure.",
        default=False,
        on=("verify",),
        after="definitions",
        into=_SMALLEST,
    ),
    Later(Lazy("prover.smallest:smallest"), place=5, owner=_SMALLEST),
)
