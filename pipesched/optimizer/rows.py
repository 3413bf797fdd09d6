"""The least bubble under a memory cap."""

from pipesched.extension import Later, Lazy, Reader, Verb

ROWS = (
    Reader(
        "answer",
        "an optimizer's answer",
        ".json",
        lambda first, text: first.startswith("{") and '"certificate":' in text,
        Lazy("optimizer.answer_read:schedule"),
        verify=Lazy("optimizer.verify_answer:verify"),
        place=10,
    ),
    Later(("require_proof", "proof"), Lazy("optimizer.verify_answer:require_proof"), place=20),
    Verb(
        "optimize",
        "Make",
        "Find the least bubble under a memory cap, with a proof.",
        Lazy("optimizer.optimize_command:optimize"),
        Lazy("optimizer.options:OPTIMIZE"),
        place=10,
    ),
)
