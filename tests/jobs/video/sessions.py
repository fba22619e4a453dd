"""Sessions that are made here, the same each time: for tests, and for `./dev bench video`."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from tests.jobs.video.support import element, page, text

Node = dict[str, Any]
WIDTH, HEIGHT = 1280, 720
MUTATION, MOVE = 0, 1
# Where the hostile recordings expect a listener that counts who comes.
CANARY = "127.0.0.1:18999"

# Each of these goes on for ever, and none of them changes a pixel.
UNSEEN = """
@keyframes turn { to { transform: rotate(360deg) } }
@keyframes shine { from { background-position: 0 0 } to { background-position: 400px 0 } }
.stack { position: relative; height: 40px }
.stack > * { position: absolute; left: 0; top: 0; width: 32px; height: 32px }
.hidden { visibility: hidden; background: #d33; animation: turn 0.8s linear infinite }
.clear { opacity: 0; background: linear-gradient(90deg, #333, #eee); animation: shine 1.3s linear infinite }
.empty { animation: turn 2s linear infinite }
.stack > .away { left: -4000px; background: #36c; animation: turn 0.9s linear infinite }
.card { position: relative; padding: 12px }
.card::before { content: ""; position: absolute; inset: 0; opacity: 0;
  background: linear-gradient(90deg, #333, #eee); animation: shine 1.1s linear infinite }
.card::after { content: "…"; visibility: hidden; display: inline-block; animation: turn 1.7s linear infinite }
"""
SEEN = """
body { margin: 40px; font: 20px sans-serif; background: #fafafa } iframe { border: 0; width: 600px; height: 120px }
li { list-style: none; padding: 4px 12px; margin: 2px; background: #e8e8e8; width: 600px }
"""


def unseen(numbers: count[int], **marks: Any) -> Node:
    """An element with animations that nobody sees; `marks` are what rrweb says of its place."""
    boxes = [
        {**element("div", id=next(numbers), **{"class": name}), **marks}
        for name in ("hidden", "clear", "empty", "away")
    ]
    return {**element("div", *boxes, id=next(numbers), **{"class": "stack"}), **marks}


def style(numbers: count[int], rules: str) -> Node:
    """A style sheet."""
    return element("style", {**text(rules, next(numbers)), "isStyle": True}, id=next(numbers))


def framed(numbers: count[int], *body: Node) -> Node:
    """The document of a frame."""
    root = next(numbers)
    head = element("head", style(numbers, UNSEEN), id=next(numbers))
    html = element("html", head, element("body", *body, id=next(numbers)), id=next(numbers))
    return {"type": 0, "id": root, "compatMode": "CSS1Compat", "childNodes": [in_document(html, root)]}


def in_document(node: Node, root: int) -> Node:
    """The node and all below it, as nodes of a frame's document."""
    children = [in_document(child, root) for child in node.get("childNodes", [])]
    return {**node, "rootId": root, **({"childNodes": children} if "childNodes" in node else {})}


def change(at_ms: float, **lists: list[dict[str, Any]]) -> dict[str, Any]:
    """A mutation, so many milliseconds after the session began."""
    data = {"source": MUTATION, "adds": [], "removes": [], "attributes": [], "texts": [], **lists}
    return {"type": 3, "data": data, "timestamp": at_ms}


def attached(at_ms: float, frame: int, document: Node) -> dict[str, Any]:
    """A frame gets its document."""
    event = change(at_ms, adds=[{"parentId": frame, "nextId": None, "node": document}])
    event["data"]["isAttachIframe"] = True
    return event


def session(base: bytes, *events: dict[str, Any], size: tuple[int, int] = (WIDTH, HEIGHT)) -> bytes:
    """The recording of a page, of this size, on which these things happen."""
    recorded: list[dict[str, Any]] = json.loads(base)
    first = recorded[0]["timestamp"]
    recorded[0]["data"].update(width=size[0], height=size[1])
    recorded += [{**event, "timestamp": first + event["timestamp"]} for event in events]
    return json.dumps(sorted(recorded, key=lambda event: float(event["timestamp"]))).encode()


def endless(seconds: float = 60.0, changes: int = 30) -> bytes:
    """A page that is still but for so many changes, and on which animations go on for ever without changing a pixel.

    They are on elements and pseudo-elements of the page, in a frame within a frame, and in a shadow root.
    """
    numbers = count(10)
    outer, inner = next(numbers), next(numbers)
    rows = [(next(numbers), next(numbers)) for _ in range(10)]
    listed = [element("li", text(f"row {i}", words), id=row) for i, (row, words) in enumerate(rows)]
    shadow = [{**style(numbers, UNSEEN), "isShadow": True}, unseen(numbers, isShadow=True)]
    host = {**element("div", *shadow, id=next(numbers)), "isShadowHost": True}
    card = element("div", text("a card", next(numbers)), id=next(numbers), **{"class": "card"})
    body = [
        element("ul", *listed, id=next(numbers)),
        card,
        unseen(numbers),
        host,
        element("iframe", id=outer),
    ]
    base = page(*body, head=(style(numbers, SEEN + UNSEEN),), seconds=seconds)
    events = [
        attached(
            5,
            outer,
            framed(numbers, text("a frame", next(numbers)), element("iframe", id=inner, height="60")),
        ),
        attached(6, inner, framed(numbers, text("a frame in it", next(numbers)), unseen(numbers))),
    ]
    for number in range(changes):
        row, words = rows[number % len(rows)]
        colour = f"background: hsl({number * 37 % 360}, 70%, 80%)"
        events.append(
            change(
                seconds * 1000 * (number + 0.5) / changes,
                texts=[{"id": words, "value": f"change {number}"}],
                attributes=[{"id": row, "attributes": {"style": colour}}],
            )
        )
    return session(base, *events)


def large_snapshot(megabytes: float = 30.0, seconds: float = 1.0) -> bytes:
    """A page whose snapshot has so many millions of bytes: paragraphs of three thousand letters each."""
    paragraphs = round(megabytes * 1e6 / 3100)
    body = [element("p", text("x" * 3000, 1_000_000 + i), id=1000 + i) for i in range(paragraphs)]
    return session(page(*body, seconds=seconds))


def large_picture(megabytes: float = 30.0) -> bytes:
    """A page with a picture whose address has so many millions of bytes."""
    address = "data:image/bmp;base64," + "A" * round(megabytes * 1e6)
    return session(page(element("img", id=9, src=address)))


def many_positions(positions: int = 1_000_000, seconds: float = 2.0) -> bytes:
    """A pointer that is at so many places."""
    batches = 100
    each, every_ms = positions // batches, seconds * 1000 / batches

    def moves(batch: int) -> dict[str, Any]:
        places = [
            {"x": i % WIDTH, "y": i % HEIGHT, "id": 9, "timeOffset": round(every_ms * (i / each - 1), 2)}
            for i in range(each)
        ]
        return {
            "type": 3,
            "data": {"source": MOVE, "positions": places},
            "timestamp": every_ms * (batch + 1) - 1,
        }

    moving = element("p", text("a pointer moves over this", 10), id=9)
    return session(page(moving, seconds=seconds), *map(moves, range(batches)))


def scripts() -> bytes:
    """A page with scripts wherever one can stand. One that runs sets `PWNED` in the outermost window, and calls at `CANARY`."""
    act = f"top.PWNED = 1; fetch('http://{CANARY}/ran')"
    numbers = count(10)

    def one(tag: str, *children: Node, **attributes: str) -> Node:
        return element(tag, *children, id=next(numbers), **attributes)

    def words(content: str) -> Node:
        return text(content, next(numbers))

    broken = "data:image/png;base64,AA"
    document = f"data:text/html,<script>{act}</script>"
    attacks = [
        one("script", words(act)),
        one("script", src=f"data:text/javascript,{act}"),
        one("img", src=broken, onerror=act),
        one("iframe", src=f"javascript:{act}"),
        one("iframe", src=document),
        one("iframe", srcdoc=f"<script>{act}</script><img src=x onerror='{act}'>"),
        one("object", data=document),
        one("embed", src=document),
        {**one("svg", {**one("script", words(act)), "isSVG": True}, onload=act), "isSVG": True},
        one("p", words(f"</script><script>{act}</script><!--")),
        one("style", words(f"</style><script>{act}</script>")),
        one("textarea", words(f"</textarea><script>{act}</script>")),
        one("noscript", words(f"</noscript><script>{act}</script>")),
        one("a", href=f"javascript:{act}", autofocus="", onfocus=act),
        one("input", autofocus="", onfocus=act, onblur=act),
        one("details", one("summary", words("more")), open="", ontoggle=act),
        one("video", one("source", src=broken, onerror=act), autoplay="", onerror=act),
        one("form", one("button", words("send"), formaction=f"javascript:{act}"), action=f"javascript:{act}"),
        one("div", style="animation: turn 1s", onanimationstart=act, ontransitionrun=act),
        one("base", href=f"javascript:{act}//"),
        one("meta", **{"http-equiv": "refresh", "content": f"0;url=javascript:{act}"}),
    ]
    late = change(
        400,
        attributes=[{"id": attacks[9]["id"], "attributes": {"onclick": act, "onmouseover": act}}],
        adds=[{"parentId": 5, "nextId": None, "node": one("script", words(act))}],
    )
    click = {
        "type": 3,
        "data": {"source": 2, "type": 2, "id": attacks[9]["id"], "x": 20, "y": 20},
        "timestamp": 600,
    }
    return session(page(*attacks, seconds=1.5), late, click)
