"""One process of the fuzzer: applies mutations by their numbers, and prints the outcome of each on stdout."""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from airflow_provider_fds.errors import FdsError
from tests.fuzz.targets import Target, all_targets

#: A process that needs more address space than this gets a MemoryError, instead of the machine's memory.
ADDRESS_SPACE_BYTES = 8 << 30


def peak_mb() -> int:
    """Return the peak of resident memory since the last call."""
    text = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(text.partition("VmHWM:")[2].split()[0]) // 1024


def outcome_of(target: Target, rng: random.Random) -> dict[str, Any]:
    """Damage, read, restore; return the outcome."""
    path = rng.choice(target.files) if target.files else None
    original = path.read_bytes() if path is not None else b""
    found: dict[str, Any] = {"target": target.name}
    try:
        if path is not None:
            stamp = path.stat()
            path.write_bytes(target.mutate(original, rng))
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        target.read(path, rng)
        found["outcome"] = "read"
    except FdsError as error:
        found["outcome"] = "refused" if str(error) else "empty message"
    except BaseException as error:  # noqa: BLE001 - this is what the fuzzer looks for
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        found |= {"outcome": "escaped", "what": f"{type(error).__name__} at {where}: {str(error)[:200]}"}
    finally:
        if path is not None:
            path.write_bytes(original)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    return found


def main() -> None:
    """Run every ``argv[4]``-th mutation from ``argv[2]`` to ``argv[3]`` of the seed ``argv[1]``."""
    seed, first, last, step = map(int, sys.argv[1:5])
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    with tempfile.TemporaryDirectory(prefix="fds-fuzz-") as folder:
        targets = all_targets(Path(folder))
        shares = [target.share for target in targets]
        peak_mb()
        print(json.dumps({"names": [target.name for target in targets]}), flush=True)
        for number in range(first, last, step):
            # one generator per mutation, so that it can be repeated alone
            rng = random.Random(f"{seed}/{number}")
            (target,) = rng.choices(targets, shares)
            print(json.dumps({"began": number, "target": target.name}), flush=True)
            began = time.process_time()
            found = outcome_of(target, rng)
            found |= {"number": number, "cpu_seconds": time.process_time() - began, "peak_mb": peak_mb()}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
