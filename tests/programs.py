"""The programs of other projects that tests run, wherever a machine has them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

#: Where ``scripts/test_programs.sh`` unpacks programs.
_UNPACKED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fds-tests" / "programs"


def find_program(name: str) -> str | None:
    """Return the path of a program, ``None`` if the machine has none.

    Looks on the PATH, then where Debian has servers, then in the folder of ``scripts/test_programs.sh``.
    """
    servers = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(["/usr/sbin", *servers, str(_UNPACKED)]))
