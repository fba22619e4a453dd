"""Presses that come twice, downloads that are refused, and somebody else at the same page."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from dumbwaiter.task import Status
from tests.browser.stoves import BYTES, Stove, button, element, headline, opened, tasks_of
from tests.support.waiting import until

GAPS = pytest.mark.parametrize("gap", [120, 300])  # ms


def press_twice(tab: Page, what: str, gap: int) -> None:
    """At the same spot, high on the button: what takes its place may stand a little higher."""
    expect(button(tab, what)).to_be_enabled()
    box = button(tab, what).bounding_box()
    assert box is not None
    x, y = box["x"] + 25, box["y"] + box["height"] * 0.15
    tab.mouse.click(x, y)
    tab.wait_for_timeout(gap)
    tab.mouse.click(x, y)


@GAPS
def test_cancel_pressed_twice_does_not_start_a_waiting_task_again(
    stove: Stove, context: BrowserContext, name: str, gap: int
) -> None:
    stove.waiter.enqueue("dish", {"name": name}, key=name, delay=timedelta(hours=1))
    tab = opened(context, stove.host("plain", element(name)))
    press_twice(tab, "Cancel", gap)

    expect(headline(tab)).to_have_text("Cancelled")
    expect(button(tab, "Make again")).to_be_enabled()
    assert tasks_of(stove, name) == [Status.CANCELLED]


@GAPS
def test_cancel_pressed_twice_does_not_start_a_running_task_again(
    stove: Stove, context: BrowserContext, name: str, gap: int
) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    press_twice(tab, "Cancel", gap)

    expect(headline(tab)).to_have_text("Cancelled")
    expect(button(tab, "Make again")).to_be_enabled()
    assert tasks_of(stove, name) == [Status.CANCELLED]


@GAPS
def test_make_again_pressed_twice_makes_one_task_however_soon_it_ends(
    stove: Stove, context: BrowserContext, name: str, gap: int
) -> None:
    stove.gates[f"{name} half"].set()
    tab = opened(context, stove.host("plain", element(name, arguments=', "spoilt": "The oven is cold."')))
    button(tab, "Start").click()
    expect(headline(tab)).to_have_text("The oven is cold.")
    press_twice(tab, "Make again", gap)

    expect(button(tab, "Make again")).to_be_enabled()
    until(lambda: tasks_of(stove, name) == [Status.FAILED] * 2)
    button(tab, "Make again").click()
    until(lambda: tasks_of(stove, name) == [Status.FAILED] * 3)


def test_a_key_that_is_pressed_twice_or_held_down_is_one_press(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.waiter.enqueue("dish", {"name": name}, key=name, delay=timedelta(hours=1))
    tab = opened(context, stove.host("plain", element(name)))
    expect(button(tab, "Cancel")).to_be_enabled()
    button(tab, "Cancel").focus()
    tab.keyboard.press("Enter")
    expect(button(tab, "Make again")).to_be_focused()
    tab.keyboard.press("Enter")
    tab.keyboard.press("Space")
    expect(button(tab, "Make again")).to_be_enabled()
    assert tasks_of(stove, name) == [Status.CANCELLED]

    tab.keyboard.down("Enter")
    expect(tab.locator(".step")).to_have_text("Peeling")
    expect(button(tab, "Cancel")).to_be_enabled()
    tab.keyboard.down("Enter")
    tab.keyboard.up("Enter")
    stove.gates[f"{name} half"].set()
    expect(tab.locator(".percent")).to_have_text("42%")
    stove.gates[f"{name} done"].set()
    expect(headline(tab)).to_have_text("Ready")


def at_guests(stove: Stove, context: BrowserContext, name: str) -> Page:
    """A page whose element says in a header who asks, with a dish that is ready."""
    for gate in ("half", "done"):
        stove.gates[f"{name} {gate}"].set()
    tab = opened(context, stove.host("guests", element(name, 'endpoint="/guests/tasks" hidden')))
    tab.evaluate("""() => {
        window.guest = { "X-Guest": "ada" };
        window.errors = [];
        window.node = document.querySelector("dumbwaiter-task");
        node.headers = () => guest;
        node.hidden = false;
        addEventListener("dumbwaiter-error", ({ detail }) => errors.push(detail.status));
        addEventListener("error", () => errors.push("uncaught"));
        addEventListener("unhandledrejection", () => errors.push("uncaught"));
    }""")
    button(tab, "Start").click()
    expect(headline(tab)).to_have_text("Ready")
    tab.evaluate("window.saved = []")
    tab.on("download", lambda _: tab.evaluate("saved.push('one')"))
    return tab


def refused(tab: Page, status: int) -> None:
    tab.get_by_role("link", name="Download").click()
    # asked from here: what waits in the page is an eval, which the page's policy forbids
    until(lambda: tab.evaluate("errors.length"))
    assert tab.evaluate("[errors, saved]") == [[status], []]


def test_a_download_after_the_login_ended_is_not_saved_but_said(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = at_guests(stove, context, name)
    tab.evaluate("window.guest = { 'X-Team': 'none' }")
    refused(tab, 401)
    expect(tab.locator(".problem")).to_have_text("Please sign in again")
    tab.evaluate("window.guest = { 'X-Guest': 'ada' }")
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download").click()

    assert Path(download.value.path()).read_bytes() == BYTES
    expect(tab.locator(".problem")).to_be_hidden()


def test_a_download_of_what_is_gone_is_not_saved_and_can_be_made_again(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = at_guests(stove, context, name)
    shutil.rmtree(stove.directory / "files")
    refused(tab, 410)
    expect(tab.locator(".problem")).to_have_text("It was kept for a while and has been removed")
    button(tab, "Make again").click()
    expect(tab.locator(".problem")).to_be_hidden()
    expect(headline(tab)).to_have_text("Ready")


def test_a_download_of_somebody_elses_shows_what_this_one_has(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = at_guests(stove, context, name)
    tab.evaluate("window.guest = { 'X-Guest': 'eve' }")
    refused(tab, 404)
    expect(button(tab, "Start")).to_be_visible()
    expect(tab.get_by_role("link", name="Download")).to_be_hidden()
    expect(tab.locator(".problem")).to_be_hidden()


def test_a_download_that_nobody_answers_is_said(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = at_guests(stove, context, name)
    tab.route("**/files/**", lambda route: route.abort())
    refused(tab, 0)
    expect(tab.locator(".problem")).to_have_text(
        "It could not be asked for: The server does not answer; still trying"
    )


def test_an_element_put_in_for_somebody_else_does_not_show_the_former_ones_task(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = at_guests(stove, context, name)
    again = """(who) => {
        node.remove();
        window.guest = { "X-Guest": who };
        window.seen = [];
        window.node = node.cloneNode();
        node.headers = () => guest;
        node.addEventListener("dumbwaiter-state", ({ detail }) => seen.push(detail.state));
        document.body.append(node);
    }"""
    tab.evaluate(again, "eve")
    expect(button(tab, "Start")).to_be_enabled()
    assert tab.evaluate("seen") == ["none"]
    tab.evaluate(again, "ada")
    assert tab.evaluate("Promise.resolve().then(() => seen)") == ["ready"]
