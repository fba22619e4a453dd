"""How elements follow their tasks: by one stream, as long as somebody looks."""

from __future__ import annotations

from collections import Counter

from playwright.sync_api import BrowserContext, expect

from dumbwaiter.task import Status
from tests.browser.stoves import Stove, button, element, headline, opened, tasks_of
from tests.support.waiting import until


def test_a_page_that_nobody_looks_at_gives_its_stream_back(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = context.new_page()
    tab.clock.install()
    tab.goto(stove.host("plain", element(name)))
    tab.clock.run_for(1_000)
    button(tab, "Start").click()
    tab.clock.run_for(1_000)
    expect(tab.locator(".step")).to_have_text("Peeling")
    until(lambda: stove.streams == 1)
    tab.evaluate(
        """() => {
        Object.defineProperty(document, "hidden", { get: () => window.away, configurable: true });
        window.away = true;
        document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    tab.clock.run_for(11_000)
    until(lambda: stove.streams == 0)
    stove.gates[f"{name} half"].set()
    stove.gates[f"{name} done"].set()
    until(lambda: tasks_of(stove, name) == [Status.SUCCESS])
    tab.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    tab.clock.run_for(1_000)

    expect(headline(tab)).to_have_text("Ready")


def test_two_hundred_elements_share_one_connection(stove: Stove, context: BrowserContext, name: str) -> None:
    tasks = [stove.waiter.enqueue("dish", {"name": name}) for _ in range(100)]
    keyed = [stove.waiter.enqueue("dish", {"name": name}, key=f"{name}-{n}") for n in range(100)]
    by_id = "".join(f'<dumbwaiter-task task-id="{task.id}"></dumbwaiter-task>' for task in tasks)
    by_key = "".join(
        f'<dumbwaiter-task type="dish" key="{name}-{n}"></dumbwaiter-task>' for n in range(len(keyed))
    )
    tab = opened(context, stove.host("many", by_id + by_key))

    def states() -> Counter[str]:
        return Counter(
            tab.evaluate("[...document.querySelectorAll('dumbwaiter-task')].map(one => one.state)")
        )

    until(lambda: states() == {"working": 200})
    until(lambda: stove.streams == 1)
    stove.gates[f"{name} half"].set()
    stove.gates[f"{name} done"].set()
    until(lambda: states() == {"ready": 200})
    until(lambda: stove.streams == 0)

    asked = [path for method, path, _ in stove.requests if path.startswith("/tasks")]
    assert len([path for path in asked if path == "/tasks"]) == 100
    assert len([path for path in asked if path == "/tasks/events"]) <= 3
    assert len(asked) <= 103


def test_where_streams_do_not_get_through_it_asks(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = context.new_page()
    tab.route("**/tasks/events*", lambda route: route.fulfill(status=502, body="no streams here"))
    stove.gates[f"{name} half"].set()
    tab.goto(stove.host("plain", element(name)))
    button(tab, "Start").click()
    expect(tab.locator(".percent")).to_have_text("42%")
    stove.gates[f"{name} done"].set()

    expect(headline(tab)).to_have_text("Ready")
