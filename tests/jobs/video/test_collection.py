"""Every recording of the collection gives what its table says.

Those that were made for this project are here. Those of other projects are only read, from the folder that DUMBWAITER_TEST_RECORDINGS names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dumbwaiter.jobs.video import errors
from dumbwaiter.jobs.video.export import Video
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.recording import Recording, load
from tests.jobs.video.sessions import endless, large_picture, large_snapshot, many_positions, scripts
from tests.jobs.video.support import RECORDINGS

VARIABLE = "DUMBWAITER_TEST_RECORDINGS"
Row = tuple[str, int, float, tuple[int, int]]

# Events, seconds, size of the page.
OWN: list[Row] = [
    ("canvas-anim.json.gz", 96, 6.9, (1280, 720)),
    ("css-animation.json", 15, 6.2, (1280, 720)),
    ("drag-drop.json", 211, 6.5, (1280, 720)),
    ("form-chinese.json", 79, 6.7, (1280, 720)),
    ("idle-10min.json", 129, 599.3, (1280, 720)),
    ("mutation-heavy.json.gz", 441, 20.7, (1280, 720)),
    ("scroll-long.json", 69, 8.8, (1280, 720)),
    ("spa-typical.json", 313, 58.9, (1280, 720)),
]
REAL: list[Row] = [
    ("posthog-export-5-scrubbed.json", 658, 976.5, (1920, 1107)),
    ("rrweb-player-demo.json", 272, 81.1, (1166, 705)),
]
FIXTURES: list[Row] = [
    ("posthog-js--adopted-style-sheet-before-shadow-root.json", 5, 0.1, (1920, 1080)),
    ("posthog-js--scroll-document-initial-offset.json", 4, 0.1, (1200, 600)),
    ("posthog-js--scroll-revealed-by-late-style.json", 7, 1.5, (1200, 500)),
    ("posthog-js--silk-sheet-reveal-broken.json", 7, 0.7, (390, 699)),
    ("rrvideo--example.json", 6, 0.3, (1000, 800)),
    ("rrweb--adopted-style-sheet-empty-replace--emptyReplaceSyncEvents.json", 4, 0.3, (1920, 1080)),
    ("rrweb--adopted-style-sheet-modification.json", 15, 0.6, (1920, 1080)),
    ("rrweb--bad-style.json", 5, 0.0, (1920, 1080)),
    ("rrweb--canvas-in-iframe.json", 6, 0.5, (1200, 500)),
    ("rrweb--custom-element-define-class.json", 4, 0.1, (1000, 800)),
    ("rrweb--document-replacement.json", 5, 0.5, (1200, 500)),
    ("rrweb--iframe-shadowdom-hover.json", 8, 1.5, (1200, 500)),
    ("rrweb--iframe.json", 13, 2.5, (1200, 500)),
    ("rrweb--nested-style-declaration.json", 7, 0.6, (1920, 1080)),
    ("rrweb--scroll-with-parent-styles.json", 7, 2.0, (1200, 500)),
    ("rrweb--scroll.json", 8, 2.0, (1200, 500)),
    ("rrweb--shadow-dom.json", 8, 1.0, (1200, 500)),
    ("rrweb--style-sheet-rule-events.json", 10, 3.1, (1000, 800)),
    ("rrweb--style-sheet-text-mutation.json", 10, 3.0, (1000, 800)),
    # one of its 43 events has lost a digit of its time, and stands 198 days behind the others
    ("rrweb--video-playback.json", 42, 39.4, (1600, 900)),
    ("sentry--is-sync-tap.json", 9, 0.2, (1600, 900)),
    ("sentry--mouse.json", 5, 0.2, (1600, 900)),
    ("sentry--style-sheet-rule-events.json", 10, 3.1, (1000, 800)),
    ("sentry--touch-some-pointer-id.json", 9, 0.2, (1600, 900)),
]
BROKEN: dict[str, type[errors.RecordingError] | None] = {
    "breaks-out-of-html.json": None,
    "css-attacks.json": None,
    "deep-nesting.json": None,
    "empty-array.json": errors.EmptyRecording,
    "empty-file.json": errors.EmptyRecording,
    "giant-viewport.json": None,
    "huge-timestamp.json": None,
    "missing-nodes.json": None,
    "missing-timestamp.json": None,
    "nan-timestamp.json": errors.NotJson,
    "never-answers.json": None,
    "no-full-snapshot.json": errors.NoFullSnapshot,
    "no-meta.json": None,
    "null-bytes.json": None,
    "null.json": errors.NotARecording,
    "number.json": errors.NotARecording,
    "object.json": errors.NotARecording,
    "odd-viewport.json": None,
    "one-event.json": errors.TooFewEvents,
    # the same bytes as the one before: the message says both, that it is one event and that it is no full snapshot
    "only-meta.json": errors.TooFewEvents,
    "shuffled.json": None,
    "ssrf-everything.json": None,
    "string-timestamp.json": None,
    "truncated.json": errors.Truncated,
    "unknown-types.json": None,
    "zero-timestamp.json": None,
}
# css-attacks is looked at where the memory of exports is
DRAWN = sorted(name for name, error in BROKEN.items() if error is None and name != "css-attacks.json")


def elsewhere(folder: str, name: str) -> Path:
    """A recording of another project."""
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.skip(f"not here: {VARIABLE} names no folder with {folder}/")
    path = Path(given) / folder / name
    if not path.exists():
        pytest.fail(f"not here: {path}, in the folder that {VARIABLE} names", pytrace=False)
    return path


def facts(recording: Recording) -> tuple[int, float, tuple[int, int]]:
    return recording.event_count, round(recording.duration_ms / 1000, 1), recording.viewport


@pytest.mark.parametrize(("name", "events", "seconds", "size"), OWN)
def test_our_own_sessions_are_read_whole(
    name: str, events: int, seconds: float, size: tuple[int, int]
) -> None:
    recording = load(RECORDINGS / "own" / name)

    assert facts(recording) == (events, seconds, size)
    assert recording.has_canvas == name.startswith("canvas")


@pytest.mark.parametrize(("name", "events", "seconds", "size"), REAL)
def test_sessions_of_others_are_read_whole(
    name: str, events: int, seconds: float, size: tuple[int, int]
) -> None:
    assert facts(load(elsewhere("real", name))) == (events, seconds, size)


@pytest.mark.parametrize(("name", "events", "seconds", "size"), FIXTURES)
def test_fixtures_of_others_are_read_whole(
    name: str, events: int, seconds: float, size: tuple[int, int]
) -> None:
    assert facts(load(elsewhere("fixtures", name))) == (events, seconds, size)


@pytest.mark.long
@pytest.mark.parametrize("name", [row[0] for row in FIXTURES])
def test_fixtures_of_others_become_videos(name: str, make: Callable[..., Video]) -> None:
    recording = load(elsewhere("fixtures", name))
    grid = plan(recording, Options())

    video = make(recording)
    assert (video.frames, video.width, video.height) == (grid.frames, grid.width, grid.height)


def test_the_table_of_what_is_broken_has_all_that_is_here() -> None:
    assert sorted(path.name for path in (RECORDINGS / "broken").iterdir()) == sorted(BROKEN)


@pytest.mark.parametrize(("name", "error"), BROKEN.items())
def test_what_is_broken_is_refused_by_name_or_read(
    name: str, error: type[errors.RecordingError] | None
) -> None:
    path = RECORDINGS / "broken" / name
    if error is None:
        assert load(path).event_count >= 3
        return
    with pytest.raises(error):
        load(path)


def test_one_event_that_is_no_full_snapshot_is_told_as_both() -> None:
    with pytest.raises(errors.TooFewEvents, match=r"has 1, and no full snapshot"):
        load(RECORDINGS / "broken" / "only-meta.json")


@pytest.mark.long
@pytest.mark.parametrize("name", DRAWN)
def test_what_is_broken_and_can_be_read_becomes_a_video(name: str, make: Callable[..., Video]) -> None:
    video = make(RECORDINGS / "broken" / name, fps=5)

    # three seconds, or those of the form; what has lost its first event begins with the second
    assert 3.0 <= video.duration_seconds <= 7.1


@pytest.mark.parametrize(
    ("made", "events"),
    [
        (endless(), 35),
        (scripts(), 5),
        (large_snapshot(1), 3),
        (large_picture(1), 3),
        (many_positions(10_000), 103),
    ],
    ids=["endless", "scripts", "snapshot", "picture", "positions"],
)
def test_the_sessions_that_are_made_here_are_read_whole_and_warn_of_no_damage(
    made: bytes, events: int
) -> None:
    recording = load(made)

    assert recording.event_count == events
    assert recording.viewport == (1280, 720)
    assert [warning for warning in recording.warnings if "event" in warning] == []
