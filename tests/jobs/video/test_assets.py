"""What a recorded page had from elsewhere is gone, slow, or behind a login: nobody waits for it, and it is told."""

from __future__ import annotations

from collections.abc import Callable

from dumbwaiter.jobs.video.export import Video
from tests.jobs.video.support import decode, element, page, text


def with_assets(number: int, address: str) -> bytes:
    """A page with a line of words, a style sheet, a font and so many pictures from elsewhere."""
    head = (
        element("link", id=10, rel="stylesheet", href=f"{address}/page.css"),
        element(
            "style", text(f"@font-face {{ font-family: Ours; src: url({address}/ours.woff2) }}", 12), id=11
        ),
    )
    pictures = [
        element("img", id=100 + n, src=f"{address}/{n}.png", width="8", height="8") for n in range(number)
    ]
    words = element("p", text("what is there is shown", 14), id=13, style="font: 30px Ours, sans-serif")
    return page(words, *pictures, head=head, seconds=0.4)


def test_three_hundred_things_from_elsewhere_cost_nothing_and_are_told(make: Callable[..., Video]) -> None:
    healthy = make(with_assets(0, "https://assets.recording.invalid"))
    video = make(with_assets(300, "https://assets.recording.invalid"))

    (said,) = video.warnings
    assert said.startswith("301 references to things outside the recording left out: ")
    assert said.endswith("https://assets.recording.invalid/3.png, …")
    # 300 requests that somebody waits for, even for a moment each, would take longer
    assert video.timings["whole"] < healthy.timings["whole"] * 1.5 + 5
    (last,) = decode(video.path, video.frames - 1)
    assert last[:100].min() < 100  # the words, in another font
