"""Fetches a version of rrweb and puts its player where the video job looks for it.

`.venv/bin/python scripts/refresh_rrweb.py 2.2.2` needs npm and the network, once; nothing of node is needed afterwards.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "src/dumbwaiter/jobs/video/vendor"
TAKEN = {
    "package/dist/rrweb.umd.min.cjs": "rrweb.umd.min.cjs",
    "package/dist/style.min.css": "rrweb.min.css",
}


def fetch(version: str, into: Path) -> Path:
    """The package of this version, as npm packs it."""
    subprocess.run(
        ["npm", "pack", f"rrweb@{version}", "--silent"], cwd=into, check=True, stdout=subprocess.PIPE
    )
    return next(into.glob("rrweb-*.tgz"))


def unpack(package: Path) -> list[str]:
    """Put the two files in place; the line of each for SHA256SUMS."""
    sums = []
    with tarfile.open(package) as archive:
        for member, name in TAKEN.items():
            source = archive.extractfile(member)
            if source is None:
                sys.exit(f"{package.name} has no {member}: its layout has changed, look for the new place")
            with source, (VENDOR / name).open("wb") as target:
                shutil.copyfileobj(source, target)
            sums.append(f"{hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()}  {name}")
    return sums


def main(version: str) -> None:
    """Fetch, unpack, and write down what is there now."""
    with tempfile.TemporaryDirectory() as directory:
        sums = unpack(fetch(version, Path(directory)))
    (VENDOR / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    readme = VENDOR / "README.md"
    readme.write_text(re.sub(r"rrweb@[0-9][\w.-]*", f"rrweb@{version}", readme.read_text()))
    print("\n".join(sums))
    print("Now run the tests of the video job: the player's insides may have changed.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} VERSION")
    main(sys.argv[1])
