"""The registry rows that add `pipesched optimize`."""

from pipesched.common.rows import Service
from pipesched.extension import Codes, Later, Lazy, Option, Reader, Row, Verb, flag

_PROOF = Lazy[type]("optimizer.asked:Proof")

ROWS: tuple[Row, ...] = (
    Codes(Lazy("optimizer.codes:OptimizerCode")),
    Reader(
        "answer",
        "an optimizer's answer",
        ".json",
        lambda first, text: first.startswith("{") and '"certificate":' in text,
        Lazy("optimizer.answer_read:schedule"),
        verify=Lazy("optimizer.verify_answer:verify"),
        place=10,
    ),
    Option(
        "require_proof",
        flag,
        "Fail unless the file is an answer that is proved optimal.",
        default=False,
        on=("verify",),
        after="fsdp",
        into=_PROOF,
    ),
    Option(
        "proof",
        None,
        "Write the clauses of an answer's proof to PATH.cnf and their refutation to PATH.lrat.",
        "PATH",
        on=("verify",),
        after="require_proof",
        into=_PROOF,
    ),
    Service("order", Lazy("optimizer.plan_order:order")),
    Later(Lazy("optimizer.verify_answer:require_proof"), place=20, owner=_PROOF),
    Verb(
        "optimize",
        "Make",
        "Find the least bubble under a memory cap, with a proof.",
        Lazy("optimizer.optimize_command:optimize"),
        Lazy("optimizer.optimize_command:OPTIMIZE"),
        {"ps": (".ps",), "json": (".json",)},
        place=10,
    ),
)
