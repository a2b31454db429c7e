"""Write the package descriptions that this machine's apt knows as rows: what a package is, and its section.

    apt-get update && python examples/data/debian_packages.py examples/data

makes package-sections-{train,validation,test}.jsonl: `text`, `section`, and `source`, the source package. Packages of
one source have nearly the same description, so a source is wholly in one of the files. Needs Debian or Ubuntu; the
rows are made anew on each machine and are not part of this project.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

NOT_TOPICS = {
    "debug", "doc", "introspection", "libdevel", "libs", "localization", "metapackages", "misc", "oldlibs", "otherosfs",
}  # fmt: skip
EMPTY_WORDS = ("transitional", "dummy package", "metapackage")
CLASSES = 12  # the largest sections
SHARES = (("test", 0.1), ("validation", 0.2), ("train", 1.0))  # up to which part of 1 a source's hash may be


def packages(dump: str) -> Iterator[Mapping[str, str]]:
    """The fields of each package in the output of `apt-cache dumpavail`, long lines left out."""
    for paragraph in dump.split("\n\n"):
        fields = {}
        for line in paragraph.split("\n"):
            name, colon, value = line.partition(": ")
            if colon and not line.startswith(" "):
                fields[name] = value
        if fields.get("Package"):
            yield fields


def rows(dump: str, *, classes: int = CLASSES) -> list[dict[str, str]]:
    """One row per description, the sections with most rows only."""
    found: dict[str, dict[str, str]] = {}
    for fields in packages(dump):
        text = next(
            (value for name, value in fields.items() if name.startswith("Description") and "md5" not in name), ""
        )
        section = fields.get("Section", "").rpartition("/")[2]
        if not text or not section or section in NOT_TOPICS or any(word in text.lower() for word in EMPTY_WORDS):
            continue
        source = fields.get("Source", fields["Package"]).split(" ")[0]
        found.setdefault(text.casefold(), {"text": text, "section": section, "source": source})
    largest = {name for name, _ in Counter(row["section"] for row in found.values()).most_common(classes)}
    return [row for row in found.values() if row["section"] in largest]


def part_of(source: str) -> str:
    """The file a source's packages go to; follows from its name alone.

    >>> {part_of(name) for name in ("bash", "bash")} <= {"train", "validation", "test"}
    True
    """
    place = int.from_bytes(blake2b(source.encode(), digest_size=4).digest(), "big") / 2**32
    return next(name for name, upto in SHARES if place < upto)


def write(folder: Path, found: list[dict[str, str]]) -> Mapping[str, int]:
    """Writes the three files; how many rows each has."""
    folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    parts: dict[str, list[str]] = {name: [] for name, _ in SHARES}
    for row in found:
        name = part_of(row["source"])
        parts[name].append(json.dumps(row, ensure_ascii=False) + "\n")
        counts[name] += 1
    for name, lines in parts.items():
        (folder / f"package-sections-{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    dump = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found = rows(dump)
    if len(found) < 1000:
        print("apt knows too few packages here: run `apt-get update` first", file=sys.stderr)  # noqa: T201
        return 1
    for name, count in write(folder, found).items():
        print(f"{folder}/package-sections-{name}.jsonl: {count} rows")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
