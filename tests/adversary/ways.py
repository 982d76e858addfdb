"""The commands that a message names, followed as a person would: word for word, with the placeholders filled in."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.adversary.scene import VerdictError

if TYPE_CHECKING:
    from tests.adversary.scene import Outcome, Stream
    from tests.adversary.source import Source

MOVES: Final = (
    "rewind", "replan", "skip", "recover", "unlock", "accept",
    "resume", "hold", "transfer",
)  # fmt: skip


def named(outcome: Outcome) -> list[list[str]]:
    """Return the commands that a message names, as lists of words, in its order."""
    text = re.sub(r"\s*\n\s*", " ", outcome.err)
    found = []
    for name, rest in re.findall(r"fds ([a-z]+)([^`;]*)", text):
        if name in MOVES:
            found.append([name, *re.split(r"\s+", rest.split("…")[0].strip())])
    return found


def settle(
    stream: Stream,
    *,
    allowed: tuple[str, ...] = (),
    tries: int = 6,
    more: tuple[str, ...] = (),
    via: str = "connect",
    shift: str = "",
) -> Outcome:
    """Run until the stream is up to date; if a run refuses, run the command that its message names, if allowed here.

    Raises:
        VerdictError: ``stuck``, if that does not lead to an end.
    """
    done: list[str] = []
    outcome = None
    for _ in range(tries):
        outcome = stream.run(*more, via=via, shift=shift)
        if outcome.code == 0:
            return outcome
        step = follow(stream, outcome, allowed, done)
        if step is None and outcome.code not in (5, 6):
            break
    assert outcome is not None
    raise VerdictError("stuck", f"no way on after {done}: {outcome}")


def follow(stream: Stream, outcome: Outcome, allowed: tuple[str, ...], done: list[str]) -> str | None:
    """Run the first allowed command that a message names; ``None`` if it names none of them."""
    offered = {name: " ".join(rest) for name, *rest in reversed(named(outcome))}
    for name in allowed:
        if name not in offered:
            continue
        options = options_of(stream, name, offered[name])
        said = stream.move(name, *options)
        done.append(f"{name} {' '.join(options)} -> {said.code}")
        return done[-1]
    return None


def committed_before(asked: Outcome, source: Source) -> Counter[int]:
    """Return the rows that were committed when a move was requested: those before the position that it names."""
    found = re.search(r"before: +epoch \d+(?:,| is requested.*was at) .*?version (\d+)", asked.out)
    return source.emitted(0, int(found[1]) - 1) if found else Counter()


def options_of(stream: Stream, name: str, rest: str) -> list[str]:
    """Return the options of the command as in the message, with placeholders filled in."""
    try:
        words = shlex.split(rest.replace("`", ""))
    except ValueError:
        words = rest.split()
    options: list[str] = []
    takes = {
        "--to",
        "--batch",
        "--version",
        "--interval",
        "--landed",
        "--deployment",
        "--sink",
        "--sink-rows",
    }
    for place, word in enumerate(words):
        if word in takes and place + 1 < len(words):
            value = words[place + 1].rstrip(".,)`")
            # a person looking for the first missing batch starts with the first one of the epoch
            options += [word, "batch:0" if value == "batch:N" else value.partition("|")[0]]
        elif word in ("--replace", "--force", "--force-sink", "--new-sink"):
            options.append(word)
    if name == "recover":
        options = ["--sink", str(stream.sink), "--table", str(stream.table), "--checkpoint", str(stream.checkpoint)]
    if name == "unlock" and "--force" not in options:
        options.append("--force")
    return options
