"""What is masked is not seen: no pixel depends on it, in no frame, wherever it stands and whatever the page does."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from dumbwaiter.jobs.video.browser import Browser, start
from dumbwaiter.jobs.video.errors import ImpossibleOption
from dumbwaiter.jobs.video.export import Video
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.recording import load
from dumbwaiter.jobs.video.replay import pages
from tests.jobs.video import support
from tests.jobs.video.support import Picture, added, changes, happening, page, replayed

Node = dict[str, Any]
BOX = 51  # the grey of a box
ONE, OTHER = "4111 2222", "my secret"
WIDE, HIGH, COLUMNS = 150, 44, 4


class Page:
    """Makes nodes, each with an id of its own."""

    def __init__(self, content: str) -> None:
        self.content = content
        self._ids = itertools.count(100)

    def word(self) -> Node:
        """The secret as text."""
        return support.text(self.content, next(self._ids))

    def element(self, tag: str, *children: Node, style: str = "", **attributes: str) -> Node:
        """An element; `class_` is its class."""
        named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return support.element(tag, *children, id=next(self._ids), style=style, **named)

    def secret(self, tag: str, *children: Node, style: str = "", **attributes: str) -> Node:
        """A masked element of a size that does not depend on what it holds."""
        size = "box-sizing:border-box;width:120px;height:32px;margin:0;font:14px monospace;color:#06c;"
        return self.element(tag, *children, style=size + style, class_="secret", **attributes)

    def picture(self) -> str:
        """A picture whose colour tells what it is of."""
        made = io.BytesIO()
        Image.new("RGB", (60, 30), (255, 0, 0) if self.content == ONE else (0, 0, 255)).save(made, "PNG")
        return f"data:image/png;base64,{base64.b64encode(made.getvalue()).decode()}"

    def document(self, frame: Node, *body: Node) -> tuple[float, int, dict[str, Any]]:
        """The event that brings an iframe its document."""
        html = self.element("html", self.element("head"), self.element("body", *body))
        root = next(self._ids)

        def stamped(node: Node) -> Node:
            return (
                {**node, "rootId": root, "childNodes": [stamped(child) for child in node["childNodes"]]}
                if "childNodes" in node
                else {**node, "rootId": root}
            )

        document = {"type": 0, "id": root, "childNodes": [stamped(html)]}
        return 0.0, 0, changes(adds=added(document, frame["id"])) | {"isAttachIframe": True}


def with_shadow(host: Node, *children: Node) -> Node:
    """An element with a shadow root that holds these."""
    return {**host, "isShadowHost": True, "childNodes": [{**child, "isShadow": True} for child in children]}


def drawing(node: Node) -> Node:
    """The same as part of an SVG drawing."""
    children = [drawing(child) if child["type"] == 2 else child for child in node["childNodes"]]
    return {**node, "isSVG": True, "childNodes": children}


def guises(p: Page, left: Callable[[int], int], top: Callable[[int], int]) -> Iterator[tuple[str, Node]]:
    """What may hold a secret. `left` and `top` tell where the one of this number stands."""
    loud = "visibility:visible;color:red;position:relative;display:block;"
    yield "text", p.secret("div", p.word())
    yield (
        "a fixed child",
        p.secret(
            "div", p.element("b", p.word(), style=f"{loud};position:fixed;left:{left(1)}px;top:{top(1)}px")
        ),
    )
    yield (
        "a dialog",
        p.secret(
            "div",
            p.element(
                "dialog",
                p.word(),
                open="",
                rr_open_mode="modal",
                style=f"margin:0;left:{left(2)}px;top:{top(2)}px",
            ),
        ),
    )
    yield (
        "a part of a line",
        p.element(
            "p", p.element("span", p.word(), class_="secret", style="font:14px monospace"), style="margin:0"
        ),
    )
    yield "a loud child", p.secret("div", p.element("b", p.word(), style=loud))
    important = "visibility:visible !important;color:red !important"
    yield "a child with a last word", p.secret("div", p.element("b", p.word(), style=important))
    more = "filter:none !important;clip-path:none !important"
    yield "what has a last word itself", p.secret("div", p.word(), style=more)
    yield (
        "a child that hangs out",
        p.secret(
            "div",
            p.element("b", p.word(), style=f"{loud};position:absolute;left:70px;top:20px"),
            style="position:relative",
        ),
    )
    yield "a field", p.secret("input", value=p.content)
    yield "a field's hint", p.secret("input", placeholder=p.content)
    yield "a text area", p.secret("textarea", p.word())
    yield "a choice", p.secret("select", p.element("option", p.word()))
    yield "a picture", p.secret("img", src=p.picture())
    yield "a background", p.secret("div", style=f"background:url({p.picture()})")
    cut = "background:linear-gradient(red,blue);-webkit-background-clip:text;color:transparent"
    yield "letters cut from a background", p.secret("div", p.word(), style=cut)
    part = 30 if p.content == ONE else 70
    yield (
        "a cut-out",
        p.secret(
            "div", style=f"background:#06c;-webkit-mask:linear-gradient(to right,#000 {part}%,transparent 0)"
        ),
    )
    yield "a pseudo-element", p.secret("div", data_word=p.content)
    yield (
        "a box that is none",
        p.secret("div", p.word(), p.element("b", p.word(), style="color:red"), style="display:contents"),
    )
    yield (
        "what a layer of the page's own says more of",
        p.element("div", p.secret("div", p.element("b", p.word())), class_="layered"),
    )
    last = "filter:none !important;clip-path:none !important;color:red !important;-webkit-text-fill-color:red !important"
    yield "what has every last word", p.secret("div", p.word(), style=last)
    chosen = p.element("option", p.word(), class_="secret")
    yield "an option of a choice", p.element("select", chosen, style="width:120px;height:32px")
    for name, drawn in (("a stroke", "-webkit-text-stroke:1px red"), ("emphasis", "text-emphasis:dot red")):
        inner = p.element("div", p.word(), class_="secret", style="display:contents")
        yield (
            f"a box that is none, with {name}",
            p.element("div", inner, style=f"width:120px;height:32px;{drawn}"),
        )
    yield (
        "a cut-out of another kind",
        p.secret(
            "div",
            style=f"background:#06c;-webkit-mask-box-image:linear-gradient(to right,#000 {part}%,transparent 0)",
        ),
    )
    yield "a list", p.secret("ul", p.element("li", p.word()))
    yield (
        "a row of a table",
        p.element("table", p.element("tbody", p.element("tr", p.element("td", p.word()), class_="secret"))),
    )
    yield "a drawing", drawing(p.secret("svg", p.element("text", p.word(), y="20", fill="red")))
    yield (
        "a part of a drawing",
        drawing(
            p.element("svg", p.element("text", p.word(), y="20", class_="secret"), width="120", height="32")
        ),
    )
    yield "a host of a shadow", with_shadow(p.secret("div"), p.element("b", p.word(), style=loud))
    yield "inside a shadow", with_shadow(p.element("div"), p.secret("div", p.word()))
    yield "inside a frame", p.element("iframe", width="140", height="36")
    yield "a frame", p.element("iframe", width="140", height="36", class_="secret")


def place(number: int) -> tuple[int, int]:
    """Where a guise stands."""
    return number % COLUMNS * (WIDE + 10), number // COLUMNS * (HIGH + 8)


def everywhere(content: str) -> tuple[list[str], bytes]:
    """A page with a secret in all guises, and their names in order."""
    p = Page(content)
    found = list(guises(p, lambda number: place(number)[0], lambda number: place(number)[1]))
    spots = [
        p.element(
            "div",
            node,
            style=f"position:absolute;left:{place(i)[0]}px;top:{place(i)[1]}px;width:{WIDE}px;height:{HIGH}px",
        )
        for i, (_, node) in enumerate(found)
    ]
    style = (
        "[data-word]::before { content: attr(data-word); color: red; visibility: visible } * { transition: all 0.3s }"
        "@layer page { .layered .secret { filter: none !important; clip-path: none !important }"
        ".layered b { visibility: visible !important; color: red !important; -webkit-text-fill-color: red !important } }"
    )
    frames = {name: node for name, node in found if node["tagName"] == "iframe"}
    recording = happening(
        page(*spots, head=(p.element("style", _cssText=style),)),
        p.document(frames["inside a frame"], p.secret("div", p.word())),
        p.document(frames["a frame"], p.element("b", p.word(), style="color:red;visibility:visible")),
    )
    events = json.loads(recording)
    events[0]["data"]["height"] = place(len(found) + COLUMNS)[1]
    return [name for name, _ in found], json.dumps(events).encode()


def looks(recording: bytes, workdir: Path, **options: Any) -> list[Picture]:
    """The page at three moments."""
    with replayed(recording, workdir, cursor=False, **options) as replay:
        return [replay.at(seconds) for seconds in (0.0, 0.04, 0.5)]


def telling(one: Picture, other: Picture) -> list[int]:
    """The numbers of the guises of which something is seen: pixels differ."""
    different = abs(one - other).max(axis=2) > 0
    found = []
    for number in range(64):
        left, top = place(number)
        if different[top : top + HIGH + 8, left : left + WIDE + 10].any():
            found.append(number)
    return found


def test_no_pixel_depends_on_what_is_masked_in_any_guise(tmp_path: Path) -> None:
    (names, one), (_, other) = everywhere(ONE), everywhere(OTHER)
    masked = [looks(recording, tmp_path, masks=(".secret",)) for recording in (one, other)]
    seen = [[names[i] for i in telling(a, b)] for a, b in zip(*masked, strict=True)]
    assert seen == [[], [], []]

    shown = [looks(recording, tmp_path) for recording in (one, other)]
    assert [names[i] for i in telling(shown[0][-1], shown[1][-1])] == names, "each is seen without a mask"


def test_a_form_is_masked_by_where_it_is_sent_to(tmp_path: Path) -> None:
    shown = []
    for content in (ONE, OTHER):
        p = Page(content)
        form = p.element("form", p.element("b", p.word()), action="/pay", style="width:120px")
        shown.append(looks(page(form), tmp_path, masks=('form[action="/pay"]',))[-1])
    assert (shown[0] == shown[1]).all()
    assert shown[0].min() <= BOX + 2


def test_a_mask_that_covers_nothing_is_told(make: Callable[..., Video]) -> None:
    p = Page(ONE)
    comes = p.secret("div", p.word())
    recording = happening(
        page(p.element("p", p.word()), seconds=1.0), (0.5, 0, changes(adds=added(comes, 5)))
    )
    video = make(recording, masks=(".secret", ".sercet"), workers=2)
    assert video.warnings == ("mask .sercet: nothing on these pages is it",)


def test_a_box_is_solid_and_stands_where_the_element_does(tmp_path: Path) -> None:
    p = Page(ONE)
    card = p.secret("div", p.word(), style="position:absolute;left:40px;top:60px")
    with replayed(page(card), tmp_path, masks=(".secret",)) as replay:
        drawn = replay.at(0.1)
    inside, around = drawn[62:90, 42:158], numpy.delete(drawn, slice(60, 92), axis=0)
    assert abs(inside - BOX).max() <= 2
    assert around.min() >= 250


def moving_secret(content: str) -> bytes:
    """A secret comes, moves, is scrolled, changes and goes into a shadow root; a second one becomes secret while it is there."""
    p = Page(content)
    card = p.secret("div", p.word(), style="position:absolute;left:40px;top:60px;transition:all 0.2s")
    later = with_shadow(p.element("div"), p.secret("div", p.word()))
    turned = p.element("div", style="height:40px;transition:all 0.2s")
    tall = p.element("main", turned, p.element("div", style="height:2000px"))
    recording = page(tall, seconds=1.2)
    return happening(
        recording,
        (0.1, 0, changes(adds=added(card, tall["id"]))),
        (
            0.3,
            0,
            changes(
                attributes=[
                    {"id": card["id"], "attributes": {"style": {"left": "300px", "visibility": "visible"}}}
                ]
            ),
        ),
        (0.4, 3, {"id": 1, "x": 0, "y": 30}),
        (0.6, 0, changes(texts=[{"id": card["childNodes"][0]["id"], "value": content[::-1]}])),
        (0.7, 0, changes(adds=added(later, tall["id"]))),
        (0.8, 3, {"id": 1, "x": 0, "y": 1800}),
        (0.9, 3, {"id": 1, "x": 0, "y": 0}),
        # first the class and then the content, as a page would do it that knows of the mask
        (
            1.0,
            0,
            changes(
                attributes=[{"id": turned["id"], "attributes": {"class": "secret"}}],
                adds=added(p.word(), turned["id"]),
            ),
        ),
    )


def test_what_comes_moves_and_is_scrolled_is_never_seen_for_a_frame(make: Callable[..., Video]) -> None:
    one, other = (make(moving_secret(content), masks=(".secret",), cursor=False) for content in (ONE, OTHER))
    assert one.picture_hashes == other.picture_hashes
    assert len(one.picture_hashes) == 7, "the boxes move"
    assert (
        make(moving_secret(ONE), cursor=False).picture_hashes
        != make(moving_secret(OTHER), cursor=False).picture_hashes
    )


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Browser]:
    """A browser with the player, and nothing in it yet."""
    with start(Options(), tmp_path, 64, 64, []) as browser:
        browser.show(pages(load(page())))
        yield browser


def test_what_is_no_selector_of_elements_is_named(player: Browser) -> None:
    def fault(*masks: str) -> str | None:
        found: str | None = player.evaluate(
            f"Player.fault({json.dumps({'masks': masks, 'background': '#000'})})"
        )
        return found

    good = (
        "p",
        "a, b",
        "[data-x='}']",
        "#a > .b:not(.c)",
        "input[type=password i]",
        ".姓名",
        "div:has(> img)",
    )
    assert fault(*good) is None
    bad = (
        "",
        "  ",
        "p::before",
        "::before, p",
        "div[",
        "a {}",
        "a } b {",
        "a /*",
        "a,",
        "50%",
        "a\\",
        "[b='",
        ":is(a",
        "}",
        "@media",
        "a;b",
    )
    assert [
        selector
        for selector in bad
        if fault("p", selector) != f"masks: {json.dumps(selector)} is no CSS selector of elements"
    ] == []


def test_an_export_with_a_wrong_selector_is_refused_before_anything_is_drawn(
    make: Callable[..., Video], tmp_path: Path
) -> None:
    with pytest.raises(ImpossibleOption, match=r"div\[.* is no CSS selector"):
        make(page(), masks=(".secret", "div["))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
