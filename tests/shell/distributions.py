"""Checks the metadata of a wheel or an sdist by the rules of `twine check --strict`, so that an index accepts and
displays it.

    python -m tests.shell.distributions FILE...

Source: twine 7.0, twine/commands/check.py: the metadata are valid; there is a description, and its type is named.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import ExceptionGroup, Metadata

TYPES = ("text/markdown", "text/plain")  # reStructuredText would have to be rendered


def metadata(file: Path) -> bytes:
    """Return the metadata of a distribution."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return wheel.read(name)
    with tarfile.open(file) as sdist:
        found = sdist.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert found is not None
        return found.read()


def faults(raw: bytes) -> Iterator[str]:
    """Yield what an index would refuse or not show."""
    try:
        read = Metadata.from_email(raw, validate=True)
    except ExceptionGroup as error:
        yield from map(str, error.exceptions)
        return
    if not (read.description or "").strip():
        yield "there is no description"
    if (read.description_content_type or "").partition(";")[0] not in TYPES:
        yield f"the type of the description is not one of {', '.join(TYPES)}"


if __name__ == "__main__":
    found = [f"{file}: {fault}" for file in sys.argv[1:] for fault in faults(metadata(Path(file)))]
    print("\n".join(found) or f"{len(sys.argv) - 1} distributions can be published")
    sys.exit(bool(found) or len(sys.argv) < 2)
