"""Child processes, which run this package and import nothing from the folder in which they start.

    python -m MODULE    sys.path = current folder, PYTHONPATH, standard library, site-packages
    command(MODULE)     sys.path = PYTHONPATH, standard library, site-packages; pipesched from this installation

A json.py or a torch.py among a user's files therefore never replaces the module of that name. An empty entry of
PYTHONPATH also means the current folder, and is usually a mistake (``PYTHONPATH=$PYTHONPATH:/there``): it is dropped.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_BEGIN = """\
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
folder, module = sys.argv[1:]
found = PathFinder.find_spec("pipesched", [folder])
sys.modules["pipesched"] = package = module_from_spec(found)
found.loader.exec_module(package)
import_module(module).main()
"""


def command(module: str) -> list[str]:
    """Return the command line that runs ``main()`` of a module of this package."""
    return [sys.executable, "-P", "-c", _BEGIN, str(Path(__file__).parents[2]), module]


def environment(**wanted: str) -> dict[str, str]:
    """Return the environment of the process: the user's variables, plus the `wanted` ones that the user has not set."""
    path = os.pathsep.join(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    return {**wanted, **os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": path}
