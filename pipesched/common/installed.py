"""The version of the torch that is installed."""

from __future__ import annotations

from pipesched.model.torch_versions import TorchVersion, parse_version


def installed_version() -> TorchVersion:
    """Return the version of the torch that is installed.

    Raises:
        PipeschedError: PS225, it is not supported.
        ImportError: there is none.
    """
    from importlib.metadata import version

    return parse_version(".".join(version("torch").split(".")[:2]))
