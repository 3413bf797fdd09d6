"""The installed version of torch."""

from __future__ import annotations

from pipesched.model.torch_versions import TorchVersion, parse_version


def installed_version() -> TorchVersion:
    """Return the installed version of torch.

    Raises:
        PipeschedError: PS225: the version is not supported. ImportError: torch is not installed.
    """
    from importlib.metadata import version

    return parse_version(".".join(version("torch").split(".")[:2]))
