"""`<dumbwaiter-list>` in a real Chromium."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, expect

from tests.browser.stoves import Stove, button, element, headline, opened
from tests.support.waiting import until


def test_a_list_shows_the_newest_first_and_what_another_button_begins(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    for gate in ("half", "done"):
        stove.gates[f"{name} {gate}"].set()
    first = stove.waiter.enqueue("dish", {"name": name})
    until(lambda: stove.waiter.get(first.id).status.final)
    stove.gates[f"{name} done"].clear()
    page = element(name) + """<dumbwaiter-list limit="3" names='{"dish": "A dish"}'></dumbwaiter-list>"""
    tab = opened(context, stove.host("list", page))
    rows = tab.get_by_role("list", name="Recent tasks").get_by_role("listitem")
    expect(headline(rows.first)).to_have_text("Ready")
    expect(rows.first.locator(".title")).to_have_text("A dish")
    tab.locator("dumbwaiter-task[key]").get_by_role("button", name="Start").click()
    expect(rows.first.locator(".percent")).to_have_text("42%")
    expect(headline(rows.nth(1))).to_have_text("Ready")
    stove.gates[f"{name} done"].set()

    expect(headline(rows.first)).to_have_text("Ready")
    button(rows.nth(1), "Make again").click()
    expect(rows).to_have_count(3)
    expect(rows.nth(2).get_by_role("link", name="Download")).to_be_visible()


def test_from_right_to_left_the_bar_grows_from_the_right(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.gates[f"{name} half"].set()
    tab = opened(context, stove.host("rtl", f'<div dir="rtl">{element(name)}</div>'))
    button(tab, "Start").click()
    expect(tab.locator(".percent")).to_have_text("42%")
    bar = tab.locator(".bar").bounding_box()
    done = tab.locator(".fill").bounding_box()
    percent = tab.locator(".percent").bounding_box()
    assert bar is not None
    assert done is not None
    assert percent is not None

    assert abs((done["x"] + done["width"]) - (bar["x"] + bar["width"])) < 2
    assert done["x"] > bar["x"] + 100
    assert percent["x"] > bar["x"] + bar["width"] / 2
    button(tab, "Cancel").click()


def test_who_has_nothing_is_told_so(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = context.new_page()
    tab.route("**/tasks?limit=*", lambda route: route.fulfill(json={"tasks": []}))
    tab.goto(stove.host("empty", "<dumbwaiter-list></dumbwaiter-list>", lang="zh"))

    expect(tab.locator("dumbwaiter-list .empty")).to_have_text("暂无任务")
