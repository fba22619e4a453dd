"""Signed links: what they open without a login, and that nobody can change or outlive them."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbwaiter import Dumbwaiter
from dumbwaiter.api.linkpages import wants_page
from dumbwaiter.errors import InvalidOption, UnknownTask
from dumbwaiter.links import Grant, Links
from tests.api.conftest import BYTES, ended
from tests.support.waiting import until

ADA = {"X-User": "ada"}


def made(client: httpx.Client, **arguments: object) -> str:
    """The id of a task of Ada's that has published a file."""
    url = client.post("/jobs/tasks/report", json=arguments, headers=ADA).headers["Location"]
    assert ended(client, url, **ADA)["status"] == "success"
    return url.rpartition("/")[2]


def test_a_link_tells_how_a_task_stands_and_gives_its_files_without_a_login(
    owned_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    task_id = made(owned_client, name="Bericht 灯笼.bin")
    link = waiter.link(task_id, base="/jobs/")
    answer = owned_client.get(link)

    assert answer.json()["task_id"] == task_id
    assert "links" not in answer.json()
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    [file] = answer.json()["files"]
    assert file["url"] == f"{link}/files/{quote(file['name'])}" == answer.json()["result_url"]
    assert owned_client.get(file["url"]).content == BYTES
    assert owned_client.get(f"{link}/files/other.bin").status_code == 404


def test_a_link_to_a_file_is_its_download_and_opens_nothing_else(
    owned_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    task_id = made(owned_client)
    link = waiter.link(task_id, base="/jobs", file="report.bin")
    whole, part = owned_client.get(link), owned_client.get(link, headers={"Range": "bytes=0-9"})

    assert (whole.content, part.status_code, part.content) == (BYTES, 206, BYTES[:10])
    assert whole.headers["Content-Disposition"].startswith("attachment")
    assert owned_client.get(f"{link}/files/other.bin").status_code == 404
    for path in ("cancel", "retry"):
        assert owned_client.post(f"{link}/{path}").status_code in (404, 405)


def test_a_link_is_over_when_its_time_is_and_says_so(owned_client: httpx.Client, waiter: Dumbwaiter) -> None:
    task_id = made(owned_client)
    link = waiter.link(task_id, base="/jobs", expires=timedelta(seconds=1))
    over = until(lambda: answer if (answer := owned_client.get(link)).status_code != 200 else None)
    file = owned_client.get(f"{link}/files/report.bin")

    assert (over.status_code, over.json()["type"], file.status_code) == (
        410,
        "urn:dumbwaiter:link-expired",
        410,
    )


def test_a_link_does_not_outlive_its_file(owned_client: httpx.Client, waiter: Dumbwaiter) -> None:
    task_id = made(owned_client, expires=0.5)
    link = waiter.link(task_id, base="/jobs", file="report.bin")
    gone = until(lambda: answer if (answer := owned_client.get(link)).status_code != 200 else None)

    assert (gone.status_code, gone.json()["type"]) == (410, "urn:dumbwaiter:file-expired")


def test_a_link_that_somebody_changed_does_not_exist(owned_client: httpx.Client, waiter: Dumbwaiter) -> None:
    first, second = made(owned_client), made(owned_client)
    link, other = (waiter.link(one, base="/jobs") for one in (first, second))
    forged = Links("a guess").token(Grant(first, waiter.store.now() + timedelta(days=1)))
    payload, _, signature = link.rpartition(".")
    changed = [
        f"{payload}.{other.rpartition('.')[2]}",
        f"{payload}x.{signature}",
        f"{payload}.{signature[:-2]}AA",
        f"{payload}.",
        f"/jobs/links/{forged}",
        "/jobs/links/nonsense",
        "/jobs/links/%00",
    ]

    assert [owned_client.get(one).status_code for one in changed] == [404] * len(changed)
    # what signs uploads signs no links, though the secret is one
    assert owned_client.get(link).status_code == 200


@given(st.text(max_size=60))
def test_whatever_text_it_is_no_token_unless_we_made_it(text: str) -> None:
    assert Links("secret").read(text) is None


def test_a_link_is_made_for_a_task_that_there_is_and_for_a_time_that_can_be(waiter: Dumbwaiter) -> None:
    task = waiter.enqueue("greet", {"name": "Kitchen"})

    with pytest.raises(UnknownTask):
        waiter.link("0190a6c8-0000-7000-8000-000000000000")
    for wrong in (timedelta(0), timedelta(days=-1), timedelta(days=4000)):
        with pytest.raises(InvalidOption, match="expires="):
            waiter.link(task.id, expires=wrong)


def test_all_processes_of_one_database_agree_on_links(waiter: Dumbwaiter) -> None:
    task = waiter.enqueue("greet", {"name": "Kitchen"})
    other = Dumbwaiter(waiter.settings.database, env="test")
    token = other.link(task.id).rpartition("/")[2]
    other.close()

    found = Links(waiter.store.schema.secret).read(token)
    assert found is not None
    assert found.task_id == task.id


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}


def test_a_browser_that_opens_a_link_gets_a_page_with_the_downloads_and_a_program_gets_json(
    owned_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    task_id = made(owned_client, name="a <b>bold name.bin")
    link = waiter.link(task_id, base="/jobs")
    page, bare = owned_client.get(link, headers=BROWSER), owned_client.get(link)

    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert (page.headers["Referrer-Policy"], page.headers["Vary"]) == (
        "no-referrer",
        "Accept, Accept-Language",
    )
    assert "<h1>It is ready</h1>" in page.text
    assert "a &lt;b&gt;bold name.bin" in page.text
    assert "<script" not in page.text
    [address] = re.findall(r'href="([^"]+)"', page.text)
    assert owned_client.get(address, headers=BROWSER).content == BYTES
    assert bare.headers["Content-Type"] == "application/json"


def test_the_page_speaks_the_language_that_the_browser_likes_best(
    owned_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    link = waiter.link(made(owned_client, name="报告.bin"), base="/jobs")
    chinese = BROWSER | {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}
    page = owned_client.get(link, headers=chinese).text
    unknown = owned_client.get("/jobs/links/nonsense", headers=chinese).text

    assert '<html lang="zh-CN">' in page
    assert "<h1>已就绪</h1>" in page
    assert ">下载 报告.bin</a>" in page
    assert "<p>没有这样的链接。</p>" in unknown


def test_the_page_of_a_link_looks_again_until_the_end(owned_client: httpx.Client, waiter: Dumbwaiter) -> None:
    later = waiter.enqueue("greet", {"name": "Kitchen"}, delay=timedelta(hours=1))
    link = waiter.link(later.id, base="/jobs")
    waiting = owned_client.get(link, headers=BROWSER).text
    waiter.cancel(later.id)
    over = owned_client.get(link, headers=BROWSER).text

    assert ("It has not begun yet" in waiting, 'http-equiv="refresh"' in waiting) == (True, True)
    assert ("It was cancelled" in over, 'http-equiv="refresh"' in over) == (True, False)


def test_a_browser_is_told_in_a_sentence_what_is_over(owned_client: httpx.Client, waiter: Dumbwaiter) -> None:
    task_id = made(owned_client, expires=0.5)
    to_file = waiter.link(task_id, base="/jobs", file="report.bin")
    brief = waiter.link(task_id, base="/jobs", expires=timedelta(seconds=1))

    def over(link: str) -> httpx.Response:
        return until(
            lambda: answer if (answer := owned_client.get(link, headers=BROWSER)).status_code != 200 else None
        )

    gone, expired = over(to_file), over(brief)
    unknown = owned_client.get("/jobs/links/nonsense", headers=BROWSER)
    assert [one.status_code for one in (gone, expired, unknown)] == [410, 410, 404]
    assert {one.headers["Content-Type"] for one in (gone, expired, unknown)} == {"text/html; charset=utf-8"}
    assert "<p>This file was kept for a while and has been removed.</p>" in gone.text
    assert "<p>This link was good for a while, and is no more.</p>" in expired.text
    assert "<p>There is no such link.</p>" in unknown.text


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/html", True),
        ("text/html;q=0.5, application/json", False),
        ("application/json;q=0.5, TEXT/HTML", True),
        ("text/html;q=0", False),
        ("text/html;q=nonsense", False),
        (",;,text/html;level=1", True),
    ],
)
def test_who_names_html_first_is_a_browser(accept: str, page: bool) -> None:
    assert wants_page(accept) is page


def test_a_link_to_a_file_that_a_finished_task_does_not_have_is_not_made(
    owned_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    task_id = made(owned_client)
    waiting = waiter.enqueue("report", delay=timedelta(hours=1))

    with pytest.raises(InvalidOption, match=r"has succeeded without such a file; its files are: report\.bin"):
        waiter.link(task_id, file="nope")
    assert waiter.link(waiting.id, file="to-come.bin")


@pytest.mark.parametrize("kind", ["task", "file", "a file of the task"])
def test_head_tells_of_whatever_a_link_opens_what_get_would(
    owned_client: httpx.Client, waiter: Dumbwaiter, kind: str
) -> None:
    task_id = made(owned_client)
    link = waiter.link(task_id, base="/jobs", file="report.bin" if kind == "file" else None)
    path = f"{link}/files/report.bin" if kind == "a file of the task" else link
    head, get = owned_client.head(path), owned_client.get(path)

    assert (head.status_code, head.content) == (200, b"")
    told = (
        "Content-Type",
        "Content-Length",
        "ETag",
        "Content-Disposition",
        "Referrer-Policy",
        "X-Robots-Tag",
    )
    # how a task stands is told with the time that is left: its length may differ
    assert [head.headers.get(name) for name in told if kind != "task" or name != "Content-Length"] == [
        get.headers.get(name) for name in told if kind != "task" or name != "Content-Length"
    ]
    # and it opens no more than GET does
    assert owned_client.head(f"{link}/files/other.bin").status_code == 404
    assert owned_client.head("/jobs/links/nonsense").status_code == 404
