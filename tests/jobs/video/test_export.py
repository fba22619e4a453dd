"""The video shows the page: at the right time, in the right size, whole."""

from __future__ import annotations

import base64
import io
import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import numpy
import pytest
from PIL import Image

from dumbwaiter.jobs.video import encoder
from dumbwaiter.jobs.video.encoder import Encoder, find_ffmpeg
from dumbwaiter.jobs.video.export import Video
from dumbwaiter.jobs.video.mp4 import read_mp4
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.replay import Replay
from dumbwaiter.jobs.video.segments import Segment
from tests.jobs.video.support import (
    FPS,
    RECORDINGS,
    Picture,
    count_decoded,
    decode,
    element,
    page,
    plain_replayer,
    ssim,
    text,
)

ALIKE, OTHER = 0.98, 0.9


@pytest.fixture(scope="session")
def seconds_of_tour(tour: Recording, tmp_path_factory: pytest.TempPathFactory) -> list[Picture]:
    """What rrweb's own replayer shows at each full second."""
    with plain_replayer(tour, tmp_path_factory.mktemp("plain")) as plain:
        return [plain.at(second) for second in range(int(tour.duration_ms // 1000) + 1)]


def telling_seconds(shown: list[Picture], recording: Recording) -> list[int]:
    """Three seconds at which the page looks unlike its beginning, and unlike a second before and after.

    The pointer rests then: a paused Replayer is late with positions that come in one event, and so with what is hovered.
    """
    small = [picture[::2, ::2] for picture in shown]
    found = [
        second
        for second in range(1, len(small) - 1)
        if pointer_rests(recording, second)
        and ssim(small[second], small[0]) < OTHER
        and max(ssim(small[second], small[second - 1]), ssim(small[second], small[second + 1])) < 0.995
    ]
    assert len(found) >= 3, "the recording does not move enough to tell anything"
    return [found[0], found[len(found) // 2], found[-1]]


def pointer_rests(recording: Recording, second: int) -> bool:
    """Whether no movement is going on at this second."""
    moves = [e for e in json.loads(recording.events) if e["type"] == 3 and e["data"]["source"] == 1]
    times = [
        (move["timestamp"] + position["timeOffset"] - recording.started_ms) / 1000
        for move in moves
        for position in move["data"]["positions"]
    ]
    return not any(abs(time - second) < 0.5 for time in times)


def faults(video: Path, shown: list[Picture], recording: Recording) -> list[str]:
    """What is wrong with a video of this recording, compared with what the plain replayer shows."""
    found = []
    frames = count_decoded(video)
    if abs(frames - recording.duration_ms / 1000 * FPS) > 2:
        found.append(f"{frames} frames for {recording.duration_ms} ms")
    seconds = telling_seconds(shown, recording)
    for second, frame in zip(seconds, decode(video, *(second * FPS for second in seconds)), strict=True):
        here, before, after = (ssim(frame, shown[second + shift]) for shift in (0, -1, 1))
        if here < ALIKE:
            found.append(f"at {second} s the likeness is {here:.3f}")
        if here <= max(before, after):
            found.append(
                f"at {second} s it is more like a second before ({before:.3f}) or after ({after:.3f})"
            )
    return found


def test_each_frame_shows_the_page_at_its_time(
    tour: Recording, tour_video: Video, seconds_of_tour: list[Picture]
) -> None:
    assert faults(tour_video.path, seconds_of_tour, tour) == []


def test_a_video_of_the_first_frame_alone_does_not_pass_for_the_recording(
    tour: Recording, seconds_of_tour: list[Picture], tmp_path: Path
) -> None:
    still = tmp_path / "still.mp4"
    options = Options(cursor=False)
    grid = plan(tour, options)
    with Encoder(grid, options, still) as encoder:
        whole = Segment(0, 0, grid.frames)
        with (
            Replay(tour, grid, options, tmp_path, on_frame=lambda _: None) as replay,
            closing(replay.pictures(whole)) as pictures,
        ):
            encoder.put(0, next(pictures).data)
        encoder.finish()
    assert count_decoded(still) == grid.frames
    assert len(faults(still, seconds_of_tour, tour)) >= 3


def test_frames_and_duration_are_the_recordings_within_one_frame(tour: Recording, tour_video: Video) -> None:
    made = read_mp4(tour_video.path)
    seconds = tour.duration_ms / 1000
    assert count_decoded(tour_video.path) == tour_video.frames
    # the frames stand at 0, 1/25, … up to the last event, which needs one more
    assert 0 <= tour_video.frames - seconds * FPS <= 2
    assert made.duration_seconds == pytest.approx(tour_video.frames / FPS, abs=0.001)


def test_at_a_constant_rate_each_frame_is_in_the_file(
    form: Recording, form_video: Video, make: Callable[..., Video]
) -> None:
    constant = make(form, constant_rate=True)
    assert (
        read_mp4(constant.path).frames == count_decoded(constant.path) == constant.frames == form_video.frames
    )
    assert read_mp4(form_video.path).frames == form_video.pictures < form_video.frames
    assert constant.picture_hashes == form_video.picture_hashes


def test_the_video_is_what_players_and_pages_want(tour_video: Video) -> None:
    made = read_mp4(tour_video.path)
    assert (made.codec, made.width, made.height) == ("avc1", 1280, 720)
    assert made.index_first


def test_two_exports_of_one_recording_are_equal_byte_for_byte(
    form: Recording, form_video: Video, make: Callable[..., Video]
) -> None:
    assert make(form).path.read_bytes() == form_video.path.read_bytes()


def test_a_browser_without_frame_control_makes_the_same_video(
    form: Recording, form_without_pointer: Video, make: Callable[..., Video]
) -> None:
    controlled = decode(form_without_pointer.path, 20, 90, 160)
    photographed = decode(make(form, cursor=False, capture="screenshot").path, 20, 90, 160)
    assert [round(ssim(a, b), 2) for a, b in zip(controlled, photographed, strict=True)] == [1.0, 1.0, 1.0]


def test_the_pointer_is_drawn_and_can_be_left_out(form_video: Video, form_without_pointer: Video) -> None:
    (shown,) = decode(form_video.path, 110)
    (without,) = decode(form_without_pointer.path, 110)
    different = numpy.argwhere(abs(shown - without) > 60)
    assert 20 < len(different) < 600
    assert numpy.ptp(different, axis=0).max() < 60


def test_the_last_frame_can_be_held(make: Callable[..., Video]) -> None:
    still = page(element("p", text("still", 10), id=9))
    assert make(still, hold=timedelta(seconds=2)).frames == make(still).frames + 2 * FPS


def test_a_shortened_stillness_shows_what_the_map_says(
    form: Recording, form_video: Video, make: Callable[..., Video]
) -> None:
    short = make(form, max_gap=timedelta(milliseconds=200))
    assert short.frames < form_video.frames
    (_, still, moves, end) = short.time_map
    assert still == (0.04, 0.04)
    assert moves[0] == pytest.approx(0.24)  # five frames for the half second until the pointer moves
    assert moves[1] > 0.5
    assert end[1] - moves[1] == pytest.approx(end[0] - moves[0], abs=0.001)
    last = zip(decode(form_video.path, 168), decode(short.path, short.frames - 1), strict=True)
    assert min(ssim(one, other) for one, other in last) > 0.99


def test_a_part_of_the_recording_begins_with_what_was_there_by_then(
    form: Recording, form_video: Video, make: Callable[..., Video]
) -> None:
    part = make(form, start=timedelta(seconds=2), end=timedelta(seconds=4))
    assert part.frames == 51
    # the same pictures at the same times, two seconds earlier; the first is there in any case
    whole = dict(form_video.picture_hashes)
    assert [(frame, sha) for frame, sha in part.picture_hashes if frame] == [
        (frame - 50, sha) for frame, sha in whole.items() if 50 < frame <= 100
    ]


def test_an_odd_viewport_becomes_an_even_picture(make: Callable[..., Video]) -> None:
    video = make(RECORDINGS / "broken" / "odd-viewport.json")
    assert (video.width, video.height) == (1022, 576)


def test_a_page_with_links_is_shown(make: Callable[..., Video]) -> None:
    links = [
        element("a", text(where, 50 + number), id=10 + number, href=where)
        for number, where in enumerate(("https://site.recording.invalid/", "/cart", "#here", "mailto:a@b.c"))
    ]
    area = element("map", element("area", id=31, href="https://site.recording.invalid/"), id=30, name="m")
    video = make(page(*links, area, seconds=0.2))
    assert decode(video.path, 0)[0].std() > 1
    assert video.warnings == ()


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
def test_white_is_white_from_edge_to_edge(
    threads: int, make: Callable[..., Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads:
        words = [*encoder.REPORT, "-filter_threads", str(threads)]
        monkeypatch.setattr(encoder, "REPORT", words)
    white = element("div", id=9, style="position:fixed;inset:0;background:#fff")
    raw = planes_of(make(page(white, seconds=0.1)).path)
    luma = len(raw) * 2 // 3
    assert set(raw[:luma]) == {235}
    assert set(raw[luma:]) == {128}


def planes_of(video: Path) -> bytes:
    """Luma and both chromas of the first frame, as they are in the file."""
    command = [str(find_ffmpeg()), "-v", "error", "-i", str(video), "-frames:v", "1", "-f", "rawvideo", "-"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_colours_survive_the_conversion(make: Callable[..., Video]) -> None:
    swatch = element("div", id=9, style="position:fixed;inset:0;background:rgb(200,80,40)")
    video = make(page(swatch))
    (red, green, blue) = colour_of(video.path)
    assert abs(red - 200) <= 4
    assert abs(green - 80) <= 4
    assert abs(blue - 40) <= 4


def colour_of(video: Path) -> tuple[int, int, int]:
    """The colour in the middle of the first frame, as a player shows it."""
    command = [str(find_ffmpeg()), *["-v", "error", "-i"], str(video), *["-frames:v", "1", "-vf"]]
    command += ["scale=in_color_matrix=bt709:out_range=pc,format=rgb24", "-f", "rawvideo", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    middle = len(raw) // 2 // 3 * 3
    return raw[middle], raw[middle + 1], raw[middle + 2]


def test_chinese_text_is_drawn_as_characters_and_not_as_boxes(make: Callable[..., Video]) -> None:
    characters = "报名姓城市提交"
    cells = [
        element(
            "span",
            text(character, 100 + i),
            id=50 + i,
            style=f"position:fixed;left:{i * 64}px;top:0;font:48px sans-serif",
        )
        for i, character in enumerate(characters)
    ]
    (frame,) = decode(make(page(*cells)).path, 0)
    drawn = [frame[0:72, i * 64 : i * 64 + 56] for i in range(len(characters))]
    assert all((cell < 100).sum() > 100 for cell in drawn), "nothing is drawn"
    # boxes would all look the same
    pairs = [(a, b) for a in range(len(drawn)) for b in range(a)]
    assert max(ssim(drawn[a], drawn[b]) for a, b in pairs) < 0.9


def test_a_picture_inside_the_recording_is_there_in_the_first_frame(make: Callable[..., Video]) -> None:
    black = io.BytesIO()
    Image.new("RGB", (600, 300), (0, 0, 0)).save(black, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(black.getvalue()).decode()}"
    (frame,) = decode(make(page(element("img", id=9, src=address))).path, 0)
    assert frame[100, 100] < 30


def test_progress_grows_to_one_and_names_its_steps(
    form_video: Video, form_progress: list[tuple[float, str]]
) -> None:
    fractions = [fraction for fraction, _ in form_progress]
    assert fractions == sorted(fractions)
    assert (fractions[0] < 0.1, fractions[-1]) == (True, 1.0)
    assert list(dict.fromkeys(step for _, step in form_progress)) == ["rendering", "encoding"]
