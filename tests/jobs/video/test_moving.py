"""What moves by itself follows the recording's clock, the same in every run and wherever a run begins."""

from __future__ import annotations

import base64
import io
import itertools
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from dumbwaiter.jobs.video.encoder import find_ffmpeg
from dumbwaiter.jobs.video.export import Video
from dumbwaiter.jobs.video.recording import load
from tests.jobs.video.support import Replayed, added, changes, element, happening, page, replayed, text

RED, GREEN, BLUE = (255, 0, 0), (0, 128, 0), (0, 0, 255)
LENGTHS = (100, 200, 300)
# What an animation of these three shows at times since it began, for ever.
SEEN = {
    0.0: RED,
    0.08: RED,
    0.12: GREEN,
    0.28: GREEN,
    0.32: BLUE,
    0.56: BLUE,
    0.64: RED,
    0.72: GREEN,
    6.36: BLUE,
}
SVG = "http://www.w3.org/2000/svg"


def data_url(kind: str, content: bytes) -> str:
    """A picture inside an address."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def animated(kind: str, loop: int = 0) -> str:
    """Red for 0.1 s, green for 0.2 s, blue for 0.3 s; played `loop` times, or for ever."""
    made = io.BytesIO()
    frames = [Image.new("RGB", (40, 40), colour) for colour in (RED, GREEN, BLUE)]
    options: dict[str, Any] = {"lossless": True} if kind == "webp" else {}
    form = {"gif": "GIF", "apng": "PNG", "png": "PNG", "webp": "WEBP"}[kind]
    if kind != "gif" or loop != 1:
        options["loop"] = loop  # a GIF without a count is played once
    frames[0].save(made, form, save_all=True, append_images=frames[1:], duration=list(LENGTHS), **options)
    return data_url(f"image/{kind}", made.getvalue())


def colour(replay: Replayed, seconds: float, x: int = 20, y: int = 20) -> tuple[int, int, int]:
    """The colour of a place, at a moment."""
    red, green, blue = (int(value) for value in replay.at(seconds)[y, x])
    return red, green, blue


def near(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two colours look the same."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 12


def at(left: int, top: int, more: str = "") -> str:
    """A style that puts something there, 40 pixels wide."""
    return f"position:absolute;left:{left}px;top:{top}px;width:40px;height:40px;{more}"


def drawing(tag: str, *children: dict[str, Any], id: int, **attributes: str) -> dict[str, Any]:
    """An element of an SVG drawing."""
    return {**element(tag, *children, id=id, **attributes), "isSVG": True}


KINDS = ("gif", "apng", "png", "webp")


def gallery() -> bytes:
    """Animated pictures of each kind, in each place that a page has for them; the rows of the page, from the top."""
    images = [
        element("img", id=20 + i, src=animated(kind), style=at(50 * i, 0)) for i, kind in enumerate(KINDS)
    ]
    css = "".join(f'.k{i} {{ background: url("{animated(kind)}") }}' for i, kind in enumerate(KINDS))
    classes = [
        element("div", id=30 + i, **{"class": f"k{i}"}, style=at(50 * i, 50)) for i, kind in enumerate(KINDS)
    ]
    inline = element("div", id=40, style=at(0, 100, f"background-image: url({animated('gif')})"))
    before = element("div", id=41, **{"class": "before"}, style=at(50, 100))
    css += f".before::before {{ content: url('{animated('gif')}') }}"
    inside = drawing("image", id=43, href=animated("gif"), width="40", height="40")
    svg = drawing("svg", inside, id=42, style=at(100, 100))
    shadow = element("div", id=44)
    shadow["isShadowHost"] = True
    shadow["childNodes"] = [
        {**element("img", id=45, src=animated("gif"), style=at(150, 100)), "isShadow": True}
    ]
    head = element("style", id=9, _cssText=css)
    return page(*images, *classes, inline, before, svg, shadow, head=(head,), seconds=8.0)


PLACES = list(itertools.product(range(0, 200, 50), (0, 50, 100)))


def test_animated_pictures_show_the_frame_that_is_due(tmp_path: Path) -> None:
    wrong = []
    with replayed(gallery(), tmp_path) as replay:
        for seconds, expected in SEEN.items():
            drawn = replay.at(seconds)
            for left, top in PLACES:
                seen = tuple(int(value) for value in drawn[top + 20, left + 20])
                if not near(seen, expected):
                    wrong.append((seconds, left, top, seen, expected))
        assert replay.browser.evaluate("Player.warnings()") == []
    assert wrong == []


def test_a_picture_that_is_played_once_stops_at_its_end(tmp_path: Path) -> None:
    once = [
        element("img", id=20 + i, src=animated(kind, loop=1), style=at(50 * i, 0))
        for i, kind in enumerate(KINDS)
    ]
    with replayed(page(*once, seconds=9.0), tmp_path) as replay:
        for seconds, expected in ((0.5, BLUE), (0.7, BLUE), (8.0, BLUE)):
            drawn = replay.at(seconds)
            assert [near(tuple(drawn[20, 50 * i + 20]), expected) for i in range(len(KINDS))] == [True] * len(
                KINDS
            )


def test_a_picture_that_comes_later_begins_then_and_one_that_changes_begins_anew(tmp_path: Path) -> None:
    body, late = 5, element("img", id=20, src=animated("gif"), style=at(0, 0))
    plain = io.BytesIO()
    Image.new("RGB", (40, 40), (255, 255, 0)).save(plain, "PNG")
    recording = happening(
        page(seconds=4.0),
        (1.0, 0, changes(adds=added(late, body))),
        (
            2.0,
            0,
            changes(attributes=[{"id": 20, "attributes": {"src": data_url("image/png", plain.getvalue())}}]),
        ),
        (3.0, 0, changes(attributes=[{"id": 20, "attributes": {"src": animated("gif")}}])),
    )
    expected = {
        0.5: (255, 255, 255),
        1.04: RED,
        1.2: GREEN,
        1.5: BLUE,
        2.2: (255, 255, 0),
        3.04: RED,
        3.2: GREEN,
    }
    with replayed(recording, tmp_path) as replay:
        assert [s for s, wanted in expected.items() if not near(colour(replay, s), wanted)] == []


def smil(values: str = "0;100") -> str:
    """An SVG picture: a bar that grows by 100 in a second, and turns from black to blue in the second after."""
    return (
        f'<svg xmlns="{SVG}" width="120" height="20"><rect height="20" width="0" fill="#000">'
        f'<animate attributeName="width" values="{values}" dur="1s" fill="freeze"/>'
        '<set attributeName="fill" to="#0000ff" begin="1s"/></rect></svg>'
    )


def css_svg() -> str:
    """The same, moved by CSS."""
    return (
        f'<svg xmlns="{SVG}" width="120" height="20"><style>@keyframes grow {{ from {{ transform: scaleX(0) }} }}'
        "rect { animation: grow 1s linear }</style><rect height='20' width='100'/></svg>"
    )


def turning_svg() -> str:
    """A bar that is moved down by a transform."""
    return (
        f'<svg xmlns="{SVG}" width="120" height="20"><g transform="scale(2)"><rect height="2" width="50" fill="#000">'
        '<animateTransform attributeName="transform" type="translate" from="0 0" to="0 8" dur="1s" fill="freeze"/></rect></g></svg>'
    )


def drawn_svg(id: int) -> dict[str, Any]:
    """The growing bar as a part of the page."""
    grow = drawing("animate", id=id + 2, attributeName="width", values="0;100", dur="1s", fill="freeze")
    rect = drawing("rect", grow, id=id + 1, width="0", height="20")
    return drawing(
        "svg", rect, id=id, width="120", height="20", style="display:block;height:20px;margin-bottom:10px"
    )


def svg_page() -> bytes:
    """Rows of 30 pixels: a drawing in the page, in a shadow root, in a frame; a picture, a background, one moved by CSS, and by a transform."""
    shadow = {
        **element("div", id=50),
        "isShadowHost": True,
        "childNodes": [{**drawn_svg(51), "isShadow": True}],
    }
    frame = element("iframe", id=60, width="200", height="30", style="display:block;border:0")
    address = f"data:image/svg+xml,{quote(smil())}"
    row = "display:block;height:20px;margin-bottom:10px"
    picture = element("img", id=70, src=address, style=row)
    background = element("div", id=71, style=f'{row};background:url("{address}") no-repeat')
    moved = element("img", id=72, src=data_url("image/svg+xml", css_svg().encode()), style=row)
    turned = element("img", id=73, src=data_url("image/svg+xml", turning_svg().encode()), style=row)
    inside = [{**node, "rootId": 61} for node in (element("head", id=63),)]
    content = drawn_svg(65)
    html = element("html", *inside, element("body", content, id=64, style="margin:0"), id=62)
    document = {"type": 0, "id": 61, "childNodes": [stamped(html, 61)]}
    recording = page(drawn_svg(40), shadow, frame, picture, background, moved, turned, seconds=4.0)
    recording = recording.replace(
        b'"tagName": "body", "attributes": {}', b'"tagName": "body", "attributes": {"style": "margin:0"}'
    )
    return happening(recording, (0.0, 0, changes(adds=added(document, 60)) | {"isAttachIframe": True}))


def stamped(node: dict[str, Any], root: int) -> dict[str, Any]:
    """A node of a frame's document."""
    children = [stamped(child, root) for child in node.get("childNodes", [])]
    return {**node, "rootId": root, **({"childNodes": children} if "childNodes" in node else {})}


def test_svg_animations_follow_the_recording_in_pages_shadows_frames_and_pictures(tmp_path: Path) -> None:
    with replayed(svg_page(), tmp_path) as replay:
        for seconds in (0.2, 0.52, 0.8, 3.0):
            drawn = replay.at(seconds)
            long = [int((drawn[30 * row + 10, :120].min(axis=1) < 128).sum()) for row in range(6)]
            wanted = min(100, 100 * seconds)
            assert [length for length in long if abs(length - wanted) > 3] == [], (seconds, long)
            if seconds == 3.0:
                assert [near(tuple(drawn[30 * row + 10, 50]), BLUE) for row in (3, 4)] == [True, True]
        drawn = replay.at(3.0)
        assert drawn[180 + 18, 50].max() < 60, "the last bar has gone down"
        assert drawn[180 + 2, 50].min() > 200
        assert replay.browser.evaluate("Player.warnings()") == []


def clip() -> str:
    """Two seconds of video that turn from black to white."""
    command = [
        str(find_ffmpeg()),
        *[
            "-v",
            "error",
            "-f",
            "lavfi",
            "-i",
            "color=black:s=64x64:r=25:d=2,geq=lum='16+T*109':cb=128:cr=128",
        ],
    ]
    command += ["-c:v", "libvpx", "-b:v", "400k", "-f", "webm", "-"]
    return data_url("video/webm", subprocess.run(command, capture_output=True, check=True).stdout)


def video_page() -> bytes:
    """A video plays from 0.2 s on, is stopped at 1.2 s and sent to its second 1.6 at 1.5 s."""
    video = element("video", id=20, src=clip(), style=at(0, 0))
    video["attributes"] |= {"rr_mediaState": "paused", "rr_mediaCurrentTime": 0, "rr_mediaLoop": False}
    return happening(
        page(video, seconds=3.0),
        (0.2, 7, {"type": 0, "id": 20, "currentTime": 0.0}),
        (1.2, 7, {"type": 1, "id": 20, "currentTime": 1.0}),
        (1.5, 7, {"type": 2, "id": 20, "currentTime": 1.6}),
    )


def test_a_video_inside_the_recording_plays_as_it_was_played(tmp_path: Path) -> None:
    # seconds of the recording: seconds of the video
    expected = {0.1: 0.0, 0.6: 0.4, 1.1: 0.9, 1.4: 1.0, 2.0: 1.6}
    with replayed(video_page(), tmp_path) as replay:
        shown = {seconds: colour(replay, seconds)[0] / 127.5 for seconds in expected}
        assert replay.browser.evaluate("Player.warnings()") == []
    assert [(s, shown[s]) for s, wanted in expected.items() if abs(shown[s] - wanted) > 0.12] == []


# A browser that says it has arrived long before it can draw: a frame is there only when it has been asked for some times.
LATE = """(() => {
  const Real = VideoFrame, draw = CanvasRenderingContext2D.prototype.drawImage;
  const stampOf = (video) => { const frame = new Real(video); frame.close(); return frame.timestamp };
  let there = null, asked = 0;
  window.drawn = [];
  window.VideoFrame = class {
    constructor(video) {
      const stamp = stampOf(video);
      if (there === null || stamp === there || ++asked > 5) [there, asked] = [stamp, 0];
      this.timestamp = there;
    }
    close() {}
  };
  CanvasRenderingContext2D.prototype.drawImage = function (source, ...more) {
    if (source instanceof HTMLVideoElement) drawn.push(stampOf(source) === there);
    return draw.call(this, source, ...more);
  };
})()"""


def test_a_frame_of_a_video_is_taken_once_it_is_there_and_not_when_it_is_said_to_be(tmp_path: Path) -> None:
    with replayed(video_page(), tmp_path) as replay:
        replay.browser.evaluate(LATE)
        # the second of each pair shows the frame that is there already, the third another one
        shown = [replay.at(seconds) for seconds in (0.6, 0.64, 0.68, 1.32, 1.36, 2.0)]
        drawn = replay.browser.evaluate("drawn")
    assert len(drawn) >= 4
    assert all(drawn)
    assert not (shown[0] == shown[-1]).all()


def test_two_runs_show_the_same(make: Callable[..., Video]) -> None:
    one, other = (make(gallery(), fps=10, clock=True, end=timedelta(seconds=2)) for _ in range(2))
    assert one.picture_hashes == other.picture_hashes
    assert one.pictures > 8


@pytest.mark.parametrize("recording", [gallery, svg_page, video_page])
def test_a_run_from_the_middle_shows_the_same(recording: Callable[[], bytes], tmp_path: Path) -> None:
    moments = [k * 0.04 for k in range(22)]
    with replayed(recording(), tmp_path) as whole:
        watched = [whole.at(seconds) for seconds in moments]
    with replayed(recording(), tmp_path) as part:
        for seconds in moments[:-1]:
            part.go(seconds)
        assert (part.at(moments[-1]) == watched[-1]).all()
    assert not (watched[-1] == watched[0]).all()


def test_what_still_does_not_move_is_warned_of_and_nothing_else(tmp_path: Path) -> None:
    still = io.BytesIO()
    Image.new("RGB", (4, 4), RED).save(still, "PNG")
    source = element(
        "picture",
        element("source", id=21, srcset=animated("gif")),
        element("img", id=22, src=data_url("image/png", still.getvalue())),
        id=20,
    )
    button = element("input", id=23, type="image", src=animated("gif"))
    with replayed(
        page(source, button, element("p", text("a url(data:image/gif;base64,R0lG)", 25), id=24)), tmp_path
    ) as replay:
        replay.at(0.5)
        warnings = [text for text, _ in replay.browser.evaluate("Player.warnings()")]
        written = replay.browser.evaluate(
            "document.querySelector('iframe').contentDocument.querySelector('p').textContent"
        )
    assert sorted(warnings) == [
        "a picture that may be animated does not follow the recording, in an element <input>",
        "a picture that may be animated does not follow the recording, in an element <source>",
    ]
    assert written == "a url(data:image/gif;base64,R0lG)", "what is text and no style is left alone"


@pytest.mark.parametrize(
    "bad",
    [
        "data:image/gif;base64,R0lGODlhKAAoAP==",
        "data:image/gif;base64,%%%",
        "data:image/webp,RIFFxxxxWEBPVP8X%02",
        "data:image/svg+xml,<svg><animate",
    ],
)
def test_a_broken_picture_ends_nothing(bad: str, make: Callable[..., Video]) -> None:
    assert (
        make(
            page(element("img", id=9, src=bad), element("video", id=10, src="data:video/mp4;base64,AAAA"))
        ).frames
        == 26
    )


def test_a_recording_is_not_warned_of_for_what_moves(make: Callable[..., Video]) -> None:
    assert load(gallery()).warnings == ()
