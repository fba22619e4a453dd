"""What a person sees who opens a signed link in a browser: a plain page that needs no script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from fastapi import Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from dumbwaiter.api.linktexts import TAGS, TEXTS
from dumbwaiter.api.models import FileView, SharedView
from dumbwaiter.api.refusals import Refusal

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# How often a page looks again that shows work going on, in seconds.
LOOK_AGAIN = 5

Texts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FileLine:
    """A download as the page shows it."""

    words: str
    url: str
    about: str


def wants_page(accept: str) -> bool:
    """A browser names `text/html` when a person opens an address; a program does not, or prefers JSON."""
    weights = {kind: weight for kind, weight in map(weighed, accept.split(",")) if kind}
    html = weights.get("text/html", 0.0)
    return html > 0 and html >= weights.get("application/json", 0.0)


def weighed(part: str) -> tuple[str, float]:
    kind, *parameters = (word.strip().lower() for word in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return kind, float(value)
            except ValueError:
                return kind, 0.0
    return kind, 1.0


def task_page(view: SharedView, language: str, headers: Mapping[str, str]) -> Response:
    """How the task stands, in words, with its downloads; it looks again by itself until the end."""
    working, texts = view.finished_at is None, TEXTS[language]
    return page(
        texts[view.phase],
        sentences_of(view, texts),
        language,
        headers=headers,
        files=[line_of(file, texts) for file in view.files],
        until=texts["until"].format(moment=moment(view.link_expires_at)),
        again=LOOK_AGAIN if working else None,
    )


def sentences_of(view: SharedView, texts: Texts) -> list[str]:
    """What there is to say below the headline."""
    if view.phase == "running":
        step = f", {view.current_step}" if view.current_step else ""
        said = [f"{view.progress_percentage:.0f} %{step}."]
        return said if view.message is None else [*said, view.message]
    if view.phase == "scheduled":
        return [texts["begins"].format(moment=moment(view.run_at))]
    if view.phase == "failed" and view.user_message:
        return [view.user_message]
    if view.phase == "success" and view.expired_files:
        count = view.expired_files
        return [texts["expired_one" if count == 1 else "expired"].format(count=count)]
    return []


def refusal_page(refusal: Refusal, language: str, headers: Mapping[str, str]) -> Response:
    """Why there is nothing to see, as a sentence."""
    kind = {404: "not_here", 410: "not_any_more"}.get(refusal.status, "not_now")
    texts = TEXTS[language]
    return page(
        texts[kind],
        [texts[f"why_{kind}"] or refusal.detail],
        language,
        headers={**refusal.headers, **headers},
        status=refusal.status,
    )


def page(
    headline: str,
    sentences: Sequence[str],
    language: str,
    *,
    headers: Mapping[str, str],
    status: int = 200,
    files: Sequence[FileLine] = (),
    until: str | None = None,
    again: int | None = None,
) -> Response:
    text = (
        templates()
        .get_template("link.html")
        .render(
            headline=headline,
            sentences=sentences,
            files=files,
            until=until,
            again=again,
            language=TAGS[language],
        )
    )
    headers = {**headers, "Content-Security-Policy": POLICY, "Vary": "Accept, Accept-Language"}
    return Response(text, status, headers, media_type="text/html")


@cache
def templates() -> Environment:
    return Environment(
        loader=PackageLoader("dumbwaiter.api"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def line_of(file: FileView, texts: Texts) -> FileLine:
    about = [size(file.size)]
    if file.expires_at is not None:
        about.append(texts["kept"].format(moment=moment(file.expires_at)))
    return FileLine(texts["download"].format(name=file.name), file.url, ", ".join(about))


def size(count: int) -> str:
    """Bytes as people read them."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def moment(at: datetime) -> str:
    """A time that says of which zone it is: the reader's is not known here."""
    return f"{at:%Y-%m-%d %H:%M} UTC"
