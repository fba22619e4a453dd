"""`<dumbwaiter-task>` in a real Chromium, in pages of somebody else's, before a real server."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, expect

from dumbwaiter.task import Status
from tests.browser.stoves import BYTES, Stove, button, element, headline, opened, tasks_of
from tests.support.waiting import until


def test_one_click_becomes_progress_becomes_a_download(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    stove.gates[f"{name} half"].set()
    bar = tab.get_by_role("progressbar", name="Soup")
    expect(bar).to_have_attribute("aria-valuenow", "42")
    expect(bar).to_have_attribute("aria-valuetext", re.compile("42%, Cooking"))
    expect(button(tab, "Start")).to_be_hidden()
    stove.gates[f"{name} done"].set()

    expect(headline(tab)).to_have_text("Ready")
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download (2 kB)").click()
    assert download.value.suggested_filename == f"{name}.txt"
    assert Path(download.value.path()).read_bytes() == BYTES


def test_a_reload_in_mid_task_finds_it_again_by_its_key(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.gates[f"{name} half"].set()
    tab = opened(context, stove.host("plain", element(name)))
    button(tab, "Start").click()
    expect(tab.locator(".percent")).to_have_text("42%")
    tab.reload()
    expect(tab.locator(".percent")).to_have_text("42%")
    stove.gates[f"{name} done"].set()
    expect(headline(tab)).to_have_text("Ready")
    tab.reload()

    expect(tab.get_by_role("link", name="Download")).to_be_visible()
    assert tasks_of(stove, name) == [Status.SUCCESS]


def test_offline_it_says_so_and_back_it_knows(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    context.set_offline(True)
    expect(tab.locator(".trouble")).to_have_text(re.compile("No connection"))
    stove.gates[f"{name} half"].set()
    stove.gates[f"{name} done"].set()
    until(lambda: tasks_of(stove, name) == [Status.SUCCESS])
    expect(tab.locator(".step")).to_have_text("Peeling")
    context.set_offline(False)

    expect(headline(tab)).to_have_text("Ready")
    expect(tab.locator(".trouble")).to_be_hidden()


def test_what_one_tab_asks_for_the_other_shows(stove: Stove, context: BrowserContext, name: str) -> None:
    url = stove.host("plain", element(name))
    one, other = opened(context, url), opened(context, url)
    expect(button(other, "Start")).to_be_enabled()
    button(one, "Start").click()
    expect(other.locator(".step")).to_have_text("Peeling")
    stove.gates[f"{name} half"].set()
    stove.gates[f"{name} done"].set()

    expect(headline(one)).to_have_text("Ready")
    expect(headline(other)).to_have_text("Ready")
    assert tasks_of(stove, name) == [Status.SUCCESS]


def test_a_server_that_is_restarted_in_mid_stream_is_followed_again(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    stove.stop()
    stove.gates[f"{name} half"].set()
    expect(tab.locator(".trouble")).to_have_text(re.compile("does not answer"))
    stove.start()
    expect(tab.locator(".percent")).to_have_text("42%")
    expect(tab.locator(".trouble")).to_be_hidden()
    stove.gates[f"{name} done"].set()

    expect(headline(tab)).to_have_text("Ready")


def test_a_file_that_expires_while_it_is_looked_at_is_offered_again(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.gates[f"{name} half"].set()
    stove.gates[f"{name} done"].set()
    tab = opened(context, stove.host("plain", element(name, arguments=', "expires": 2')))
    button(tab, "Start").click()
    expect(tab.get_by_role("link", name="Download")).to_be_visible()
    expect(tab.locator(".note")).to_have_text(re.compile("Kept until"))

    expect(headline(tab)).to_have_text("It was kept for a while and has been removed")
    expect(button(tab, "Make again")).to_be_visible()
    expect(tab.get_by_role("link", name="Download")).to_be_hidden()


def test_a_failure_is_told_in_the_persons_words_and_as_text(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.gates[f"{name} half"].set()
    words = "<img src=x onerror=alert(1)> & the oven is cold."
    tab = opened(context, stove.host("plain", element(name, arguments=f', "spoilt": "{words}"')))
    button(tab, "Start").click()

    expect(headline(tab)).to_have_text(words)
    expect(button(tab, "Make again")).to_be_visible()
    assert tab.locator("img").count() == 0
    assert "gas" not in tab.locator(".root").inner_text()


def test_it_can_be_cancelled_and_made_again(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    button(tab, "Cancel").click()
    expect(headline(tab)).to_have_text("Cancelled")
    button(tab, "Make again").click()
    expect(tab.locator(".step")).to_have_text("Peeling")

    assert tasks_of(stove, name) == [Status.RUNNING, Status.CANCELLED]
    button(tab, "Cancel").click()
    expect(headline(tab)).to_have_text("Cancelled")


def test_who_waits_sees_how_many_are_ahead(stove: Stove, context: BrowserContext, name: str) -> None:
    slots = stove.waiter.settings.slots
    for _ in range(slots + 2):
        stove.waiter.enqueue("dish", {"name": name})
    tab = opened(context, stove.host("plain", element(name)))
    until(lambda: len(stove.waiter.find(status="running")) == slots)
    ahead = len(stove.waiter.find(status="pending"))
    button(tab, "Start").click()
    expect(headline(tab)).to_have_text(f"{ahead} ahead of you")
    for gate in ("half", "done"):
        stove.gates[f"{name} {gate}"].set()

    expect(headline(tab)).to_have_text("Ready")


def test_a_retry_is_announced_with_its_time_and_its_number(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = opened(context, stove.host("plain", element(name).replace('"dish"', '"souffle"', 1)))
    button(tab, "Start").click()
    expect(headline(tab)).to_have_text(
        "Something went wrong. Next try in a few seconds (attempt 2 of 3)", use_inner_text=True
    )
    expect(tab.locator(".step")).to_have_text("Rising (attempt 2 of 3)")
    stove.gates[f"{name} done"].set()

    expect(headline(tab)).to_have_text("Done")


def test_the_keyboard_is_enough_and_the_focus_is_never_lost(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    expect(button(tab, "Start")).to_have_attribute("aria-disabled", "false")
    tab.keyboard.press("Tab")
    expect(button(tab, "Start")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(button(tab, "Cancel")).to_be_focused()
    stove.gates[f"{name} half"].set()
    stove.gates[f"{name} done"].set()

    expect(tab.get_by_role("link", name="Download")).to_be_focused()
    tab.keyboard.press("Tab")
    expect(button(tab, "Make again")).to_be_focused()


def test_a_screen_reader_hears_of_each_phase_once(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    tab.evaluate(
        """() => {
        window.heard = [];
        const live = document.querySelector("dumbwaiter-task").shadowRoot.querySelector("[role=status]");
        new MutationObserver(() => heard.push(live.textContent)).observe(live, { childList: true, characterData: true, subtree: true });
        }"""
    )
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    stove.gates[f"{name} half"].set()
    expect(tab.locator(".percent")).to_have_text("42%")
    stove.gates[f"{name} done"].set()
    expect(headline(tab)).to_have_text("Ready")

    assert tab.evaluate("heard.filter(text => text !== 'Soup: Waiting for its turn')") == [
        "Soup: Being made",
        "Soup: Ready",
    ]


def test_in_a_chinese_page_it_speaks_chinese(stove: Stove, context: BrowserContext, name: str) -> None:
    stove.gates[f"{name} half"].set()
    tab = opened(context, stove.host("plain", element(name), lang="zh-CN"))
    button(tab, "开始").click()
    expect(headline(tab)).to_have_text("正在生成")
    expect(button(tab, "取消")).to_be_visible()
    stove.gates[f"{name} done"].set()

    expect(headline(tab)).to_have_text("已就绪")
    expect(tab.get_by_role("link", name="下载 (2 kB)")).to_be_visible()
    expect(button(tab, "重新生成")).to_be_visible()


def test_any_text_can_be_another(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("plain", element(name, """texts='{"make": "Cook it"}'""")))
    expect(button(tab, "Cook it")).to_be_visible()
    tab.evaluate(
        """async () => {
        const { setTexts } = await import(document.querySelector("script").src);
        setTexts("fr", { make: "Commencer", running: "En cours" });
        document.documentElement.lang = "fr";
        document.querySelector("dumbwaiter-task").removeAttribute("texts");
        }"""
    )

    expect(button(tab, "Commencer")).to_be_visible()


def test_twice_on_a_page_with_one_key_both_show_the_same(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.gates[f"{name} half"].set()
    tab = opened(context, stove.host("plain", element(name, "id=a") + element(name, "id=b")))
    button(tab.locator("#a"), "Start").click()
    for one in "ab":
        expect(tab.locator(f"#{one} .percent")).to_have_text("42%")
    stove.gates[f"{name} done"].set()
    for one in "ab":
        expect(headline(tab.locator(f"#{one}"))).to_have_text("Ready")

    assert tasks_of(stove, name) == [Status.SUCCESS]


def test_what_is_swapped_in_or_moved_goes_on_at_once(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.gates[f"{name} half"].set()
    tab = opened(context, stove.host("plain", f"<main>{element(name)}</main><aside></aside>"))
    button(tab, "Start").click()
    expect(tab.locator(".percent")).to_have_text("42%")
    # as HTMX and its like do: the same words of HTML, other elements; nothing flickers meanwhile
    texts = tab.evaluate(
        """async () => {
        const main = document.querySelector("main");
        main.innerHTML = main.innerHTML;
        await null;
        return main.firstChild.shadowRoot.querySelector(".percent").textContent;
        }"""
    )
    assert texts == "42%"
    asked = len(stove.requests)
    tab.evaluate("document.querySelector('aside').append(document.querySelector('dumbwaiter-task'))")
    stove.gates[f"{name} done"].set()

    expect(headline(tab)).to_have_text("Ready")
    assert [path for method, path, _ in stove.requests[asked:] if method == "POST"] == []


def test_a_framework_may_set_properties_before_and_after_and_again(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    """React and Vue set properties of elements that are there already, objects too, and anew at each rendering."""
    url = stove.host("late", "").removesuffix("late")
    stove.pages["bare"] = "<!doctype html><html lang=en><title>bare</title><body></body></html>"
    tab = opened(context, f"{url}bare")
    tab.evaluate(
        """name => {
        window.node = document.body.appendChild(document.createElement("dumbwaiter-task"));
        window.render = (more) => Object.assign(node, { type: "dish", businessKey: name, arguments: { name, ...more }, ariaLabel: "Soup" });
        render();
        window.states = [];
        document.body.addEventListener("dumbwaiter-state", ({ detail }) => { states.push(detail.state); render(); });
        document.body.addEventListener("dumbwaiter-make", ({ detail }) => { detail.arguments.expires = 60; });
        const script = Object.assign(document.createElement("script"), { type: "module", src: "/dumbwaiter.js" });
        document.head.append(script);
        }""",
        name,
    )
    stove.gates[f"{name} half"].set()
    stove.gates[f"{name} done"].set()
    button(tab, "Start").click()
    expect(headline(tab)).to_have_text("Ready")
    tab.evaluate("render()")

    assert tab.evaluate("states") == ["none", "working", "ready"]
    assert stove.waiter.find(key=name)[0].payload == {"name": name, "expires": 60}
    tab.evaluate("window.render = () => {}; node.businessKey = 'another'")
    expect(button(tab, "Start")).to_be_visible()


def test_headers_and_a_token_go_with_what_it_asks(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(
        context,
        stove.host("plain", element(name, """csrf-token="t0k3n" headers='{"X-Team": "blue"}'""")),
    )
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    asked = [ask for ask in stove.requests if ask[1].startswith("/tasks")]
    button(tab, "Cancel").click()
    expect(headline(tab)).to_have_text("Cancelled")

    assert {headers.get("x-team") for _, _, headers in asked} == {"blue"}
    assert {(method, headers.get("x-csrf-token")) for method, _, headers in asked} == {
        ("POST", "t0k3n"),
        ("GET", None),
    }


def test_headers_go_with_a_download_too(stove: Stove, context: BrowserContext, name: str) -> None:
    for gate in ("half", "done"):
        stove.gates[f"{name} {gate}"].set()
    tab = opened(context, stove.host("plain", element(name, """headers='{"X-Team": "blue"}'""")))
    button(tab, "Start").click()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download").click()

    assert download.value.suggested_filename == f"{name}.txt"
    assert Path(download.value.path()).read_bytes() == BYTES
    assert [headers["x-team"] for _, path, headers in stove.requests if "/files/" in path] == ["blue"]


def test_a_refusal_is_said_and_told_to_the_page(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("plain", element(name, arguments=', "expires": "soon"')))
    tab.evaluate(
        "addEventListener('dumbwaiter-error', ({ detail }) => { window.told = [detail.status, detail.problem.type]; })"
    )
    button(tab, "Start").click()

    expect(tab.locator(".problem")).to_have_text(re.compile("It could not be asked for: expires"))
    expect(button(tab, "Start")).to_be_visible()
    assert tab.evaluate("told") == [422, "urn:dumbwaiter:invalid-arguments"]


def test_a_press_whose_answer_was_lost_is_one_task(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("plain", element(name).replace("key=", "data-key=")))
    lost: list[str] = []

    def lose(route: object) -> None:
        if not lost:
            lost.append("once")
            route.fetch()  # type: ignore[attr-defined]
            route.abort()  # type: ignore[attr-defined]
        else:
            route.continue_()  # type: ignore[attr-defined]

    tab.route("**/tasks/dish", lose)
    button(tab, "Start").click()
    expect(tab.locator(".problem")).to_have_text(re.compile("does not answer"))
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")

    assert len([task for task in stove.waiter.find(task_type="dish") if task.payload["name"] == name]) == 1
    button(tab, "Cancel").click()


def test_a_file_that_is_chosen_is_uploaded_and_handed_to_the_task(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = opened(
        context,
        stove.host("plain", f'<dumbwaiter-task type="taste" key="{name}" upload="spice"></dumbwaiter-task>'),
    )
    with tab.expect_file_chooser() as choice:
        button(tab, "Choose a file").click()
    choice.value.set_files({"name": "盐.txt", "mimeType": "text/plain", "buffer": b"salt"})

    expect(headline(tab)).to_have_text("Done")
    assert stove.waiter.find(key=name)[0].result == "盐.txt: salt"


def test_where_an_upload_is_refused_it_says_why(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(
        context,
        stove.host("plain", f'<dumbwaiter-task type="taste" key="{name}" upload="spice"></dumbwaiter-task>'),
    )
    tab.route(
        "**/uploads*", lambda route: route.fulfill(status=413, json={"detail": "That is too much salt."})
    )
    with tab.expect_file_chooser() as choice:
        button(tab, "Choose a file").click()
    choice.value.set_files({"name": "salt.txt", "mimeType": "text/plain", "buffer": b"salt"})

    expect(tab.locator(".problem")).to_have_text("It could not be asked for: That is too much salt.")
    expect(button(tab, "Choose a file")).to_be_visible()


def test_arguments_that_are_no_json_are_told_of_and_nothing_is_asked(
    stove: Stove, browser: Browser, name: str
) -> None:
    stove.requests.clear()
    # no `window`: the console is told, too
    tab = browser.new_context().new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    for attribute in ("arguments", "headers", "texts"):
        for value in ("{'month': 3}", "[1]", "null"):
            said.clear()
            tab.goto(
                stove.host(
                    "wrong",
                    f'<dumbwaiter-task type="dish" key="{name}" {attribute}="{value}"></dumbwaiter-task>',
                )
            )
            expect(tab.locator(".problem")).to_have_text(
                re.compile(f"It could not be asked for: the attribute {attribute} is no JSON object: ")
            )
            button(tab, "Start").click(force=True)
            assert tab.evaluate("document.querySelector('dumbwaiter-task').make()") is None
            assert len(said) == 1
            assert f"<dumbwaiter-task>: the attribute {attribute} is no JSON object" in said[0]
    assert [path for _, path, _ in stove.requests if path.startswith("/tasks")] == []

    tab.evaluate(
        """name => {
        const element = document.querySelector("dumbwaiter-task");
        element.removeAttribute("texts");
        element.setAttribute("arguments", JSON.stringify({ name }));
    }""",
        name,
    )
    expect(tab.locator(".problem")).to_be_hidden()
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Peeling")
    button(tab, "Cancel").click()
    expect(headline(tab)).to_have_text("Cancelled")
    tab.context.close()


def test_an_element_without_a_type_says_what_it_lacks(stove: Stove, browser: Browser) -> None:
    stove.requests.clear()
    tab = browser.new_context().new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    tab.goto(stove.host("bare", '<dumbwaiter-task key="soup"></dumbwaiter-task>'))

    expect(tab.locator(".problem")).to_have_text(re.compile("it has neither a type nor a task-id"))
    assert len(said) == 1
    assert said[0].startswith("<dumbwaiter-task>: it has neither a type nor a task-id")
    assert [path for _, path, _ in stove.requests if path.startswith("/tasks")] == []
    tab.context.close()


def test_a_wrong_endpoint_is_named(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("astray", element(name, 'endpoint="/jobs/tasks"')))
    where = f"GET {stove.url}/jobs/tasks?task_type=dish&business_key={name}: 404"
    expect(tab.locator(".trouble")).to_have_text(f"There are no tasks at this address ({where})")

    # without a key nothing is asked before the press
    tab.goto(
        stove.host("astray", element(name, 'endpoint="/pages/astray/tasks"').replace("key=", "data-key="))
    )
    button(tab, "Start").click()
    expect(tab.locator(".problem")).to_have_text(
        "It could not be asked for: There are no tasks at this address "
        f"(POST {stove.url}/pages/astray/tasks/dish: 404)"
    )


def test_a_label_is_the_word_on_the_button(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(
        context, stove.host("plain", element(name, 'label="Export"').replace("aria-label", "data-label"))
    )
    button(tab, "Export").click()
    expect(tab.get_by_role("progressbar", name="Export")).to_be_visible()
    button(tab, "Cancel").click()

    expect(button(tab, "Make again")).to_be_visible()


def test_what_would_fail_again_is_offered_quietly(stove: Stove, context: BrowserContext, name: str) -> None:
    tab = opened(context, stove.host("plain", element(name).replace('"dish"', '"souffle"', 1)))
    button(tab, "Start").click()
    expect(tab.locator(".step")).to_have_text("Rising (attempt 2 of 3)")
    stove.gates[f"{name} burnt"].set()
    stove.gates[f"{name} done"].set()
    expect(headline(tab)).to_have_text("It is burnt.")

    expect(tab.locator(".make")).to_have_class(re.compile(r"^(?!.*\bmain\b).*\bagain\b"))


def test_the_name_of_a_chosen_file_is_made_one_that_the_server_takes(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = opened(
        context,
        stove.host("plain", f'<dumbwaiter-task type="taste" key="{name}" upload="spice"></dumbwaiter-task>'),
    )
    expect(button(tab, "Choose a file")).to_have_attribute("aria-disabled", "false")
    tab.evaluate(
        r"""() => {
        const file = new File(["salt"], "🧂".repeat(60) + "a\\b\u0007\n/c.txt");
        document.querySelector("dumbwaiter-task").make(file);
        }"""
    )

    expect(headline(tab)).to_have_text("Done")
    assert stove.waiter.find(key=name)[0].result == "🧂" * 39 + "a_b___c.txt: salt"


def test_a_few_seconds_are_not_about_and_bytes_have_a_plural(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    tab = opened(context, stove.host("plain", element(name)))
    told = {
        "task_id": "0198c0de-0000-7000-8000-000000000001", "task_type": "dish", "status": "running", "phase": "running",
        "display": "working", "progress_percentage": 97, "current_step": None, "steps": [], "attempt": 1, "max_attempts": 1,
        "estimated_remaining_seconds": 3, "files": [], "finished_at": None,
    }  # fmt: skip
    tab.route(re.compile("/tasks/(events|0198)"), lambda route: route.fulfill(status=502))
    show = "told => { document.querySelector('dumbwaiter-task').receive(told); }"
    tab.evaluate(show, told)
    expect(tab.locator(".left")).to_have_text("a few seconds left")
    tab.evaluate("document.documentElement.lang = 'zh'; document.querySelector('dumbwaiter-task').draw()")
    expect(tab.locator(".left")).to_have_text("还需几秒钟")
    tab.evaluate("document.documentElement.lang = 'en'")
    file = {"name": "a.txt", "size": 5, "content_type": "text/plain", "url": "/a", "expires_at": None}
    tab.evaluate(
        show,
        told
        | {"phase": "success", "display": "ready", "files": [file], "finished_at": "2026-01-01T00:00:00Z"},
    )

    expect(tab.get_by_role("link", name="Download (5 bytes)", exact=True)).to_be_visible()


def test_in_a_narrow_place_the_time_left_stays_beside_the_step(
    stove: Stove, context: BrowserContext, name: str
) -> None:
    stove.gates[f"{name} half"].set()
    tab = opened(context, stove.host("narrow", element(name)))
    tab.set_viewport_size({"width": 300, "height": 600})
    button(tab, "Start").click()
    expect(tab.locator(".percent")).to_have_text("42%")
    tab.evaluate(
        """() => {
        const element = document.querySelector("dumbwaiter-task");
        element.receive({ ...element.task, current_step: "stirring with patience", estimated_remaining_seconds: 95, estimated_remaining_range: [80, 190] });
        }"""
    )
    expect(tab.locator(".left")).to_have_text("80 sec to 3 min left")
    percent, step, left = (tab.locator(f".{part}").bounding_box() for part in ("percent", "step", "left"))
    assert percent is not None
    assert step is not None
    assert left is not None

    assert percent["y"] == step["y"] == left["y"]
    assert percent["height"] == left["height"] < 30
    button(tab, "Cancel").click()
