"""Draw the output of a command as a terminal window (SVG), and show the output while it runs.

Usage: ``terminal_picture.py FILE.svg TITLE COMMAND…``. The exit code is that of the command; the file is written only
if it is 0.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

_COLUMNS = 120
#: Fonts from the web, which a picture in a page does not load; the reader's own monospace font serves.
_FONTS = re.compile(r"\s*@font-face \{.*?\}|Fira Code, ", re.DOTALL)


def main(target: str, title: str, *command: str) -> int:
    """Run the command, and draw what it printed."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            # the folder is that of one machine
            console.print(Text(line.rstrip().replace(str(Path.cwd()), ".")), soft_wrap=False)
    if process.returncode == 0:
        svg = console.export_svg(title=title, theme=MONOKAI, unique_id="terminal")
        Path(target).write_text(_FONTS.sub("", svg), encoding="utf-8")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
