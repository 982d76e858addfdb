"""``python -m tests.adversary``: run scenarios, one kind after another.

python -m tests.adversary --minutes 60 --page docs/failures.md
python -m tests.adversary --kind "zombie of an append" --seed 7      one scenario again
python -m tests.adversary --list
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from tests.adversary import (  # noqa: F401
    kinds_airflow,
    kinds_clusters,
    kinds_columns,
    kinds_filters,
    kinds_mounts,
    kinds_people,
    kinds_places,
    kinds_ranges,
    kinds_runs,
    kinds_tables,
)
from tests.adversary.play import KINDS, Played, Stage, table_of
from tests.adversary.scene import FDS

START = "<!-- adversary: written by `make adversary` -->"
END = "<!-- adversary: end -->"


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversary")
    parser.add_argument("--minutes", type=float, help="play all kinds in turn for so long")
    parser.add_argument("--rounds", type=int, help="play all kinds so often")
    parser.add_argument("--seed", type=int, help="seed of one scenario, or of all the seeds of a long run")
    parser.add_argument("--kind", action="append", help="only kinds with this in their name")
    parser.add_argument("--jobs", type=int, default=4, help="how many scenarios at a time")
    parser.add_argument("--folder", type=Path, help="where scenarios are played; those that fail stay")
    parser.add_argument("--page", type=Path, help="page to write the table into")
    parser.add_argument("--keep", action="store_true", help="keep all folders")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    names = [name for name in KINDS if not arguments.kind or any(part in name for part in arguments.kind)]
    if arguments.list or not names:
        print(*(names or KINDS), sep="\n")
        return int(not names)
    master = arguments.seed if arguments.seed is not None else int(time.time())
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="fds-adversary-"))
    print(f"seed {master}, {len(names)} kinds, folder {folder}", flush=True)
    # scenarios use an existing class archive, and create none
    subprocess.run([*FDS, "admin", "prepare"], check=True, stdout=subprocess.DEVNULL)
    stage = Stage(folder.resolve(), is_long=(arguments.minutes or 0) >= 20)

    def leave(*_: object) -> None:
        # servers and hosts end with this process; what a scenario has started ends without them
        stage.stop()
        os._exit(143)

    signal.signal(signal.SIGTERM, leave)
    try:
        played = _play_all(stage, names, master, arguments)
    finally:
        stage.stop()
    print(table_of(played))
    failed = [one for one in played if one.verdict not in ("passed", "not run")]
    if arguments.page is not None:
        write_page(arguments.page, played, master)
    print(f"{len(played)} scenarios of {len({one.kind for one in played})} kinds, {len(failed)} failed")
    return int(bool(failed))


def _play_all(stage: Stage, names: list[str], master: int, arguments: argparse.Namespace) -> list[Played]:
    draw = random.Random(master)
    is_one = arguments.minutes is None and arguments.rounds is None
    deadline = time.monotonic() + 60 * (arguments.minutes or 10_000)
    rounds = 1 if is_one else (arguments.rounds or 10_000)
    order = (draw.sample(names, len(names)) if not is_one else names for _ in range(rounds))
    todo = ((name, master if is_one else draw.randrange(10**6)) for kinds in order for name in kinds)
    played: list[Played] = []
    lock = threading.Lock()

    def work() -> None:
        while time.monotonic() < deadline:
            with lock:
                name, seed = next(todo, (None, 0))
            if name is None:
                return
            one = stage.play(name, seed, keep=arguments.keep)
            with lock:
                played.append(one)
                print(one, flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for future in [pool.submit(work) for _ in range(arguments.jobs)]:
            future.result()
    return played


def write_page(page: Path, played: list[Played], master: int) -> None:
    """Write the table between the markers of the page."""
    text = page.read_text()
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    ran = [one for one in played if one.has_verdict]
    bad = {verdict: sum(one.verdict == verdict for one in ran) for verdict in ("lost", "doubled", "stuck")}
    silent = sum(one.is_silent for one in ran)
    head = (
        f"{datetime.now(UTC):%Y-%m-%d}, `make adversary SEED={master}`: **{len(ran)} scenarios of "
        f"{len({one.kind for one in ran})} kinds: {bad['lost']} lost, {bad['doubled']} doubled, {silent} silent, "
        f"{bad['stuck']} stuck.**"
    )
    if broken := sum(one.verdict == "broken" for one in played):
        head += f" {broken} more are not counted: a fault of the scenario itself broke them off."
    page.write_text(f"{before}{START}\n{head}\n\n{table_of(played)}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
