"""Takes out of a recorded page whatever would only wait for, or ask for, something outside the recording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dumbwaiter.jobs.video.errors import TooDeep

Node = dict[str, Any]

DOCUMENT, ELEMENT = 0, 2
FULL_SNAPSHOT, INCREMENTAL = 2, 3
MUTATION = 0
# Blink lays out deeply nested boxes by recursion; no real page comes near this.
MAX_DEPTH = 2_500
LOADING = {
    "src", "srcset", "poster", "data", "background", "xlink:href", "imagesrcset", "srcdoc", "manifest", "archive",
    "code", "codebase", "classid",
}  # fmt: skip
HREF_LOADS = {
    "link",
    "base",
    "image",
    "use",
    "feimage",
    "lineargradient",
    "radialgradient",
    "pattern",
    "mpath",
    "script",
}
FRAMES = {"iframe", "frame", "object", "embed", "portal", "fencedframe"}
INSIDE = ("data:", "#")
# So many of what is left out are named, and not at any length.
MOST_NAMED, LONGEST_NAMED = 5, 120
ADDRESS = re.compile(r"(https?:)?//\S+", re.IGNORECASE)


@dataclass
class Dropped:
    """What was taken out: how much of it, and the first few of its addresses."""

    count: int = 0
    addresses: dict[str, None] = field(default_factory=dict)

    def add(self, targets: Iterable[object]) -> None:
        for target in targets:
            self.count += 1
            if len(self.addresses) < MOST_NAMED and isinstance(target, str) and ADDRESS.match(target):
                self.addresses[target[:LONGEST_NAMED]] = None

    def __str__(self) -> str:
        what = "1 reference" if self.count == 1 else f"{self.count:,} references"
        named = ", ".join(self.addresses)
        more = ", …" if self.count > len(self.addresses) else ""
        return f"{what} to things outside the recording left out" + (f": {named}{more}" if named else "")


def sanitise(events: list[dict[str, Any]]) -> Dropped:
    """Drop external targets of loading elements, refreshes and base addresses, in place; tells what was dropped.

    Style sheets keep their `url(…)`: the browser's own wall answers those at once.

    Raises:
        TooDeep: the page is nested deeper than a browser can lay out.
    """
    tags: dict[int, str] = {}
    dropped = Dropped()
    for event in events:
        for node in nodes(event):
            if isinstance(node.get("id"), int) and isinstance(node.get("tagName"), str):
                tags[node["id"]] = node["tagName"].lower()
            dropped.add(clean_element(node))
        for change in attribute_changes(event):
            number = change.get("id")
            tag = tags.get(number, "") if isinstance(number, int) else ""
            dropped.add(clean_attributes(tag, change["attributes"], changing=True))
    return dropped


def nodes(event: dict[str, Any]) -> Iterator[Node]:
    """Every serialised node that an event brings, in the order of the page."""
    data = event["data"]
    if event["type"] == FULL_SNAPSHOT:
        roots = [data["node"]]
    elif event["type"] == INCREMENTAL and data.get("source") == MUTATION:
        roots = [add["node"] for add in data["adds"]]
    else:
        roots = []
    waiting = [(root, 0) for root in roots]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise TooDeep(f"the recorded page is nested more than {MAX_DEPTH:,} elements deep")
        complete_node(node)
        yield node
        waiting.extend((child, depth + 1) for child in reversed(node.get("childNodes", ())))


def complete_node(node: Node) -> None:
    """Make its children a list of nodes, and an element's attributes an object: the player walks them without looking."""
    children = node.get("childNodes")
    if isinstance(children, list):
        node["childNodes"] = [child for child in children if isinstance(child, dict)]
    elif "childNodes" in node or node.get("type") in (DOCUMENT, ELEMENT):
        node["childNodes"] = []
    if node.get("type") == ELEMENT and not isinstance(node.get("attributes"), dict):
        node["attributes"] = {}


def attribute_changes(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The changes of attributes that a mutation event brings."""
    data = event["data"]
    if event["type"] == INCREMENTAL and data.get("source") == MUTATION:
        yield from data["attributes"]


def clean_element(node: Node) -> list[object]:
    """Clean one node, and tell what went; anything that is no element is left as it is."""
    attributes = node.get("attributes")
    tag = node.get("tagName")
    if node.get("type") != ELEMENT or not isinstance(attributes, dict) or not isinstance(tag, str):
        return []
    return clean_attributes(tag.lower(), attributes, changing=False)


def clean_attributes(tag: str, attributes: dict[str, Any], *, changing: bool) -> list[object]:
    """Remove the attributes of one element that load something; a change of one becomes its removal. Returns their values."""
    unwanted = {
        name: value for name, value in attributes.items() if loads(tag, name.lower(), value, attributes)
    }
    for name in unwanted:
        if changing:
            attributes[name] = None
        else:
            del attributes[name]
    return list(unwanted.values())


def loads(tag: str, name: str, value: object, attributes: dict[str, Any]) -> bool:
    """Whether this attribute would make the browser fetch, or go, somewhere."""
    if name.startswith("on"):
        return True
    if tag == "meta":
        return name == "content" and str(attributes.get("http-equiv", "")).strip().lower() == "refresh"
    if not isinstance(value, str):
        return False
    target = value.strip().lower()
    if name == "href" and (tag in HREF_LOADS or not tag):
        return tag == "base" or not target.startswith(INSIDE)
    if name == "srcdoc":
        return True
    if tag in FRAMES and name in ("src", "data"):
        return target != "about:blank"
    return name in LOADING and bool(target) and not target.startswith(INSIDE)
