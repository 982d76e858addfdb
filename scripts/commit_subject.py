"""Check the message of a commit: scripts/commit_subject.py FILE, as a commit-msg hook."""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST = 72
#: Forms of verbs that are not imperative, at the beginning of a subject. Words such as "Embed" and "Process" are fine.
_OTHER_FORMS = re.compile(r"(?:Add|Fix|Chang|Updat|Remov|Refactor|Renam|Mov|Mak|Us|Writ|Test)(?:s|es|ed|ing)\b")


def problems(message: str) -> list[str]:
    """Return what is wrong with a message, one sentence each."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject, rest = (lines[0] if lines else ""), lines[1:]
    if re.match(r"(Merge|Revert|fixup!|squash!) ", subject):
        return []
    found = []
    if not subject.strip():
        return ["The subject is empty."]
    if len(subject) > MOST:
        found.append(f"The subject has {len(subject)} characters, more than {MOST}.")
    if not subject[0].isupper() or subject.endswith("."):
        found.append("The subject begins with a capital letter and ends without a full stop.")
    if _OTHER_FORMS.match(subject):
        found.append("The subject is imperative: 'Add', not 'Added', 'Adds' or 'Adding'.")
    if not any(line.strip() for line in rest):
        found.append("There is no body that says why.")
    elif rest[0].strip():
        found.append("There is no empty line after the subject.")
    return found


def main(path: str) -> int:
    """Print the problems of the message in a file."""
    found = problems(Path(path).read_text(encoding="utf-8"))
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
