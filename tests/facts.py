"""What the training data of the shipped model holds of the course's sentence, counted.

python -m tests.facts TRAIN.tsv.xz > saccade/shipped/fr-en/data.json
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

from saccade.data.readers import read_lines


def facts_of(path: Path) -> dict[str, int | str]:
    """Counts of lines with the words of "Jane visite l'Afrique en septembre." on either side, and the file's hash."""
    lines = [set(re.findall(r"\w+", line.lower())) for line in read_lines(path)]

    def having(*words: str) -> int:
        return sum(all(word in line for word in words) for line in lines)

    return {
        "lines": len(lines),
        "with Jane": having("jane"),
        "with Afrique and septembre": having("afrique", "septembre"),
        "with Africa and September": having("africa", "september"),
        "with visite and Afrique": having("visite", "afrique"),
        "with visits and Africa": having("visits", "africa"),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts_of(Path(sys.argv[1])), indent=1) + "\n")
