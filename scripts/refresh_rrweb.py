"""Fetches a version of rrweb and puts it where it is used: the player of the video job, or the recorder for pages.

`.venv/bin/python scripts/refresh_rrweb.py player 2.2.2` (or `recorder 2.1.6`) needs npm and the network, once; nothing of node is
needed afterwards.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src/dumbwaiter"


@dataclass(frozen=True)
class Part:
    """What is taken of which npm package, and where it goes."""

    package: str
    vendor: Path
    taken: dict[str, str]


PARTS = {
    "player": Part(
        "rrweb",
        SOURCE / "jobs/video/vendor",
        {
            "package/dist/rrweb.umd.min.cjs": "rrweb.umd.min.cjs",
            "package/dist/style.min.css": "rrweb.min.css",
        },
    ),
    "recorder": Part(
        "@rrweb/record",
        SOURCE / "recorder/vendor",
        {"package/dist/record.umd.min.cjs": "rrweb-record.umd.min.cjs"},
    ),
}


def fetch(package: str, version: str, into: Path) -> Path:
    """The package of this version, as npm packs it."""
    subprocess.run(
        ["npm", "pack", f"{package}@{version}", "--silent"], cwd=into, check=True, stdout=subprocess.PIPE
    )
    return next(into.glob("*.tgz"))


def unpack(packed: Path, part: Part) -> list[str]:
    """Put the files in place; the line of each for SHA256SUMS."""
    sums = []
    with tarfile.open(packed) as archive:
        for member, name in part.taken.items():
            source = archive.extractfile(member)
            if source is None:
                sys.exit(f"{packed.name} has no {member}: its layout has changed, look for the new place")
            with source, (part.vendor / name).open("wb") as target:
                shutil.copyfileobj(source, target)
            sums.append(f"{hashlib.sha256((part.vendor / name).read_bytes()).hexdigest()}  {name}")
    return sums


def main(part: Part, version: str) -> None:
    """Fetch, unpack, and write down what is there now."""
    with tempfile.TemporaryDirectory() as directory:
        sums = unpack(fetch(part.package, version, Path(directory)), part)
    (part.vendor / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    readme = part.vendor / "README.md"
    named = re.escape(part.package)
    readme.write_text(re.sub(rf"`{named}@[0-9][\w.-]*", f"`{part.package}@{version}", readme.read_text()))
    print("\n".join(sums))
    print("Now run the tests of the video job and of the recorder: the insides of rrweb may have changed.")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in PARTS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(PARTS)} VERSION")
    main(PARTS[sys.argv[1]], sys.argv[2])
