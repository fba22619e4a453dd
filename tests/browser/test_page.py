from __future__ import annotations

import re
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Locator, Page, expect

from dumbwaiter.task import Status
from tests.browser.conftest import BYTES, Kitchen
from tests.support.waiting import until


def button(tab: Page, name: str) -> Locator:
    return tab.get_by_role("button", name=name, exact=True)


def test_a_button_becomes_progress_becomes_a_download_and_a_reload_changes_nothing(
    tab: Page, kitchen: Kitchen
) -> None:
    button(tab, "Make soup").click()
    expect(tab.get_by_text("Peeling")).to_be_visible()
    kitchen.half.set()
    bar = tab.get_by_role("progressbar", name="Soup · 汤")
    expect(bar).to_have_js_property("value", 42)
    expect(tab.get_by_text("42 %")).to_be_visible()
    expect(tab.get_by_text("Cooking")).to_be_visible()
    expect(button(tab, "Make soup")).to_be_hidden()

    tab.reload()
    expect(tab.get_by_text("42 %")).to_be_visible()
    expect(bar).to_have_js_property("value", 42)

    kitchen.done.set()
    link = tab.get_by_role("link", name="Download")
    expect(link).to_be_visible()
    expect(tab.get_by_role("status")).to_have_text("Ready")
    expect(bar).to_be_hidden()

    tab.reload()
    expect(button(tab, "Make again")).to_be_visible()
    with tab.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "soup.txt"
    assert Path(download.value.path()).read_bytes() == BYTES


def test_made_again_it_is_a_new_task(tab: Page, kitchen: Kitchen) -> None:
    kitchen.half.set()
    kitchen.done.set()
    button(tab, "Make soup").click()
    expect(tab.get_by_role("link", name="Download")).to_be_visible()
    kitchen.done.clear()
    button(tab, "Make again").click()
    expect(tab.get_by_text("42 %")).to_be_visible()

    assert [task.status for task in kitchen.waiter.find()] == [Status.RUNNING, Status.SUCCESS]


def test_a_failure_is_told_in_the_persons_words_and_offered_again(tab: Page, kitchen: Kitchen) -> None:
    kitchen.spoilt = True
    kitchen.half.set()
    button(tab, "Make soup").click()
    expect(tab.get_by_role("status")).to_have_text("The oven is cold.")
    expect(button(tab, "Make again")).to_be_visible()

    tab.reload()
    expect(tab.get_by_role("status")).to_have_text("The oven is cold.")
    expect(tab.get_by_text("gas")).to_have_count(0)


def test_two_presses_are_one_task(
    tab: Page, kitchen: Kitchen, browser: Browser, client: httpx.Client
) -> None:
    other = browser.new_page()
    other.goto(str(client.base_url))
    button(tab, "Make soup").click()
    button(other, "Make soup").click()
    expect(other.get_by_text("Peeling")).to_be_visible()
    other.close()

    assert len(kitchen.waiter.find()) == 1


def test_what_is_being_made_can_be_cancelled(tab: Page, kitchen: Kitchen) -> None:
    button(tab, "Make soup").click()
    expect(tab.get_by_text("Peeling")).to_be_visible()
    button(tab, "Cancel").click()
    expect(tab.get_by_role("status")).to_have_text("Cancelled")
    expect(button(tab, "Make again")).to_be_visible()

    assert kitchen.waiter.find()[0].status is Status.CANCELLED


def test_the_keyboard_alone_is_enough(tab: Page, kitchen: Kitchen) -> None:
    tab.keyboard.press("Tab")
    expect(button(tab, "Make soup")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(button(tab, "Cancel")).to_be_focused()
    kitchen.half.set()
    kitchen.done.set()
    expect(tab.get_by_role("link", name="Download")).to_be_focused()


def test_it_fits_a_phone(browser: Browser, client: httpx.Client, kitchen: Kitchen) -> None:
    kitchen.waiter.enqueue("dish", {"name": "soup"}, key="offer:soup")
    phone = browser.new_context(viewport={"width": 320, "height": 640}, has_touch=True).new_page()
    phone.goto(str(client.base_url))
    expect(phone.get_by_role("progressbar")).to_be_visible()

    assert phone.evaluate("document.documentElement.scrollWidth") <= 320
    assert button(phone, "Cancel").bounding_box()["height"] >= 44  # type: ignore[index]
    phone.context.close()


def test_no_words_of_a_button_and_no_word_of_a_name_break_on_a_phone(
    browser: Browser, client: httpx.Client, kitchen: Kitchen
) -> None:
    kitchen.half.set()
    kitchen.done.set()
    kitchen.waiter.enqueue("dish", {"name": "soup"}, key="offer:soup")
    phone = browser.new_context(viewport={"width": 400, "height": 700}, has_touch=True).new_page()
    phone.goto(str(client.base_url))
    expect(phone.get_by_role("link", name="Download")).to_be_visible()
    phone.evaluate("document.querySelector('h2').textContent = 'Lantern & Leaves & Lids · 灯笼与茶'")

    for label in (phone.get_by_role("link", name="Download"), button(phone, "Make again")):
        assert label.bounding_box()["height"] < 60  # type: ignore[index]
    word = """() => {
        const text = document.querySelector('h2').firstChild, range = document.createRange();
        range.setStart(text, text.length - 4);
        range.setEnd(text, text.length);
        return range.getClientRects().length;
    }"""
    assert phone.evaluate(word) == 1
    assert phone.evaluate("document.documentElement.scrollWidth") <= 400
    phone.context.close()


def test_without_javascript_the_button_and_the_states_are_there(
    browser: Browser, client: httpx.Client, kitchen: Kitchen
) -> None:
    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(str(client.base_url))
    button(plain, "Make soup").click()
    expect(plain.get_by_role("progressbar")).to_be_visible()
    kitchen.half.set()
    kitchen.done.set()
    until(lambda: kitchen.waiter.find()[0].status.final)
    plain.reload()
    expect(plain.get_by_role("link", name="Download")).to_be_visible()
    plain.context.close()


def test_the_page_asks_nobody_else_for_anything(client: httpx.Client) -> None:
    text = client.get("/").text
    policy = client.get("/").headers["Content-Security-Policy"]

    assert re.findall(r'(?:src|href)="(https?:)?//', text) == []
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_form_of_another_site_makes_nothing(client: httpx.Client, kitchen: Kitchen) -> None:
    strange = client.post(
        "/offers/soup", headers={"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    )
    unknown = client.post("/offers/nothing")

    assert (strange.status_code, unknown.status_code) == (403, 404)
    assert kitchen.waiter.find() == []


def test_the_assets_may_be_kept_for_good_and_nothing_else_is_served(client: httpx.Client) -> None:
    addresses = re.findall(r'"(static/[^"]+)"', client.get("/").text)

    assert len(addresses) == 2
    for address in addresses:
        assert "immutable" in client.get(f"/{address}").headers["Cache-Control"]
    assert client.get("/static/page.html").status_code == 404
