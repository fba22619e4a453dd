"""The tests of the tests: each patch here breaks a promise on purpose, and the tests that it names must go red."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = sorted(Path(__file__).parent.glob("*.patch"))
# Of a status of its own: pytest's own are 0 to 5, and 1 is what a mutant must end with.
NOT_THE_COPY = 70
# What is run must be the copy, and nothing that is installed.
PROGRAM = f"""
import sys, dumbwaiter, pytest
if not dumbwaiter.__file__.startswith(sys.argv[1]):
    sys.exit({NOT_THE_COPY})
sys.exit(pytest.main(sys.argv[2:]))
"""


def named(patch: Path) -> list[str]:
    """The tests that must fail, as the patch's first line names them."""
    first, _, _ = patch.read_text(encoding="utf-8").partition("\n")
    word, _, tests = first.partition(": ")
    assert word == "Must fail", f"{patch.name} begins with no list of tests"
    return tests.split()


def copied(place: Path) -> Path:
    """A copy of the package, to be put first on PYTHONPATH."""
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return place / "src"


def applied(patch: Path, place: Path, *options: str) -> None:
    """Apply a patch to the copy. Inside somebody's repository git would pass over what does not belong to that."""
    done = subprocess.run(
        ["git", "apply", *options, str(patch)],
        cwd=place,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(place.parent)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.fail(
            f"{patch.name} does not apply any more; make it anew:\n{done.stderr.strip()}", pytrace=False
        )


def run(test: str, package: Path) -> subprocess.CompletedProcess[str]:
    """One test, with the package in that directory."""
    how = ["-x", "--faults", "--hypothesis-profile=mutants", "-p", "no:randomly", "-p", "no:cacheprovider"]
    paths = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(package), *how, test],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package as it is."""
    return copied(tmp_path_factory.mktemp("program"))


def test_every_patch_still_applies_to_the_program(program: Path) -> None:
    for patch in PATCHES:
        applied(patch, program.parent, "--check")


def test_every_test_that_a_patch_names_is_there() -> None:
    for patch in PATCHES:
        for test in named(patch):
            path, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8"), test


@pytest.mark.mutants
@pytest.mark.timeout(300)
@pytest.mark.parametrize("test", sorted({test for patch in PATCHES for test in named(patch)}), ids=str)
def test_what_a_patch_names_is_green_on_the_program_as_it_is(program: Path, test: str) -> None:
    done = run(test, program)

    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]


@pytest.mark.mutants
@pytest.mark.timeout(600)
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_program_that_breaks_a_promise_is_found_out(patch: Path, tmp_path: Path) -> None:
    package = copied(tmp_path)
    applied(patch, tmp_path)

    for test in named(patch):
        done = run(test, package)
        told = done.stdout[-4_000:] + done.stderr[-2_000:]
        assert done.returncode != NOT_THE_COPY, "the installed package was run, not the mutant"
        # red by a test of its own, not by a fixture that found no server
        assert (done.returncode, bool(re.search(r"\d+ failed", done.stdout))) == (1, True), (test, told)
