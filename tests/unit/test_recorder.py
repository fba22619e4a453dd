from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from dumbwaiter import recorder

OURS = "dumbwaiter-recorder.js"


def test_our_own_script_has_nine_kibibytes_at_most_as_it_is_sent_and_all_of_it_thirty_three() -> None:
    sizes = {name: len(recorder.FILES.compressed(name)) for name in recorder.FILES.media_types}

    assert sizes[OURS] <= 9 * 1024
    assert sum(sizes.values()) <= 33 * 1024


def test_neither_makes_code_or_markup_of_texts() -> None:
    """What a strict policy of a page forbids."""
    for name in recorder.FILES.media_types:
        code = recorder.FILES.text(name).decode()
        assert re.findall(r"\beval\(|new Function|document\.write|insertAdjacentHTML", code) == [], name
    assert "innerHTML" not in recorder.FILES.text(OURS).decode()


def test_the_vendored_recorder_is_the_one_that_was_fetched() -> None:
    vendor = files("dumbwaiter.recorder") / "vendor"
    [line] = (vendor / "SHA256SUMS").read_text().splitlines()
    digest, name = line.split()

    assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest
    assert "MIT License" in (vendor / "LICENSE").read_text()
    assert re.search(r"@rrweb/record@\d+\.\d+\.\d+`", (vendor / "README.md").read_text())


def test_what_it_leaves_out_is_what_the_video_export_would_have_to_take_out() -> None:
    """The two lists are one: what a recording still asks for when it comes to the export is a warning there."""
    from dumbwaiter.jobs.video.sanitise import FRAMES, HREF_LOADS, LOADING

    code = recorder.FILES.text(OURS).decode()
    for name, words in {"LOADING": LOADING, "HREF_LOADS": HREF_LOADS, "FRAMES": FRAMES}.items():
        [listed] = re.findall(rf"^const {name} = /\^\((.*)\)\$/;", code, re.MULTILINE)
        assert set(listed.split("|")) == words


def test_an_address_is_of_the_content() -> None:
    assert re.fullmatch(r"dumbwaiter-[0-9a-f]{12}/dumbwaiter-recorder\.js", recorder.address())
    assert recorder.address("rrweb-record.js").startswith(recorder.address().partition("/")[0])
