"""A page records itself, on a line that loses things, and what arrives is whole, in order and tells no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page

from dumbwaiter.jobs.video import load
from tests.browser.stoves import opened, window
from tests.browser.studio import (
    LIMIT,
    Studio,
    arrived,
    change,
    changes_in,
    recording,
    sealed,
    started,
    stopped,
    told,
)
from tests.support.waiting import until

FORM = """<h1>Order</h1><img src="/plate.svg" alt="a plate">
<form action="/pay">
  <input name="plain" value="first-words"> <input name="word" type="password"> <input name="card" autocomplete="cc-number">
  <input type="hidden" name="csrf" value="hidden-token"> <textarea name="long">early-draft</textarea>
  <select name="size"><option>small</option><option>large</option></select> <input type="checkbox" name="tick">
  <button type="button">Send it</button>
</form>
<div id="free" contenteditable></div>
<p data-mask>Balance: masked-balance <input name="inside"> <select name="choice"><option>one</option><option>two</option></select></p>
<p data-block>blocked-words <input name="blocked" value="blocked-value"></p>"""
SECRETS = ("hunter2", "4111-1111", "hidden-token", "masked-balance", "blocked-words", "blocked-value")
PLACES = ("plain", "long", "free", "inside")


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with recording(tmp_path_factory.mktemp("studio")) as studio:
        yield studio


@pytest.fixture
def visit(browser: Browser, studio: Studio) -> Iterator[BrowserContext]:
    studio.requests.clear()
    studio.faults.clear()
    studio.held.clear()
    studio.down.clear()
    with window(browser, viewport={"width": 600, "height": 500}) as context:
        yield context


@pytest.fixture
def tab(visit: BrowserContext, studio: Studio) -> Page:
    return opened(visit, studio.host("order", FORM))


def typed(tab: Page) -> None:
    """A visitor fills the form in, and changes their mind."""
    tab.locator("[name=plain]").fill("")
    tab.locator("[name=plain]").press_sequentially("typed-plain")
    tab.locator("[name=word]").press_sequentially("hunter2")
    tab.locator("[name=card]").press_sequentially("4111-1111-1111")
    tab.locator("[name=long]").fill("typed-long")
    tab.locator("#free").press_sequentially("typed-free")
    tab.locator("[name=inside]").fill("typed-inside")
    tab.locator("[name=choice]").select_option("two")
    tab.locator("[name=size]").select_option("large")
    tab.locator("[name=blocked]").fill("typed-blocked")
    tab.locator("[name=tick]").check()


def test_a_session_goes_up_in_parts_with_nothing_that_was_typed_and_loads_without_a_warning(
    studio: Studio, tab: Page
) -> None:
    tab.evaluate(
        "document.querySelector('[name=plain]').value = ''"
    )  # what stood there at first is in its HTML
    started(tab, every=50)
    typed(tab)
    arrived(tab, 3)
    tab.get_by_role("button", name="Send it").click()
    whole = studio.recorded(stopped(tab))

    session = load(whole)
    assert (session.warnings, session.viewport, session.title) == ((), (600, 500), "order")
    assert studio.parts() == list(range(1, tab.evaluate("recording.arrived") + 1))
    for secret in (*SECRETS, "typed-", "first-words", "early-draft"):
        assert secret.encode() not in whole, secret
    assert b"********" in whole
    assert b"Send it" in whole  # a button's words are the page's
    assert len(re.findall(rb"data:image/svg\+xml", whole)) == 2  # the picture, and that of the style sheet
    assert b"rgb(10, 120, 40)" in whole
    assert set(re.findall(rb"https?://[^\"\\ )]+", whole)) <= {f"{studio.url}/pages/order".encode()} | {
        b"http://www.w3.org/2000/svg"
    }


def test_where_masking_is_off_what_is_secret_is_masked_all_the_same(studio: Studio, tab: Page) -> None:
    tab.evaluate("document.querySelector('[name=word]').value = 'hunter2'")
    started(tab, maskInputs=False)
    typed(tab)
    tab.evaluate("document.querySelector('[name=word]').type = 'text'")  # the eye beside it
    tab.locator("[name=word]").press_sequentially("-hunter2")
    tab.evaluate("document.querySelector('[name=choice]').remove()")
    whole = studio.recorded(stopped(tab))

    assert load(whole).warnings == ()
    for secret in (*SECRETS, "typed-inside", "typed-blocked"):
        assert secret.encode() not in whole, secret
    for plain in ("first-words", "early-draft", "typed-plain", "typed-long", "typed-free"):
        assert plain.encode() in whole, plain


def test_further_selectors_unmask_nothing_that_the_page_has_marked(studio: Studio, tab: Page) -> None:
    started(tab, mask="h1", block="#free")
    typed(tab)
    whole = studio.recorded(stopped(tab))

    for secret in (*SECRETS, "Order", "typed-inside", "typed-blocked", "typed-free"):
        assert secret.encode() not in whole, secret


def test_the_choice_in_a_masked_select_is_not_told(studio: Studio, tab: Page) -> None:
    tab.locator("[name=choice]").select_option("two")
    tab.locator("[name=size]").select_option("large")
    started(tab, maskInputs=False)
    snapshot = next(
        event for event in map(json.loads, studio.recorded(stopped(tab)).splitlines()) if event["type"] == 2
    )

    text = json.dumps(snapshot)
    assert re.findall(r'"selected": true\}, "childNodes": \[\{"type": 3, "textContent": "([^"]+)"', text) == [
        "large"
    ]


def test_a_form_that_is_reset_is_empty_in_the_recording(studio: Studio, tab: Page) -> None:
    started(tab)
    tab.locator("[name=word]").fill("hunter2")
    tab.evaluate("document.forms[0].reset()")
    tab.evaluate("new Promise((done) => setTimeout(done))")
    events = [json.loads(line) for line in studio.recorded(stopped(tab)).splitlines()]

    word = tab.evaluate("rrwebRecord.record.mirror.getId(document.querySelector('[name=word]'))")
    inputs = [event["data"] for event in events if event["type"] == 3 and event["data"]["source"] == 5]
    assert [data["text"] for data in inputs if data["id"] == word] == ["********", ""]


def test_parts_that_fail_or_whose_answer_is_lost_come_again_and_nothing_is_lost_nor_doubled(
    studio: Studio, tab: Page
) -> None:
    studio.faults.update({1: ["503"], 2: ["answer lost"], 4: ["lost", "429"]})
    started(tab, every=30)
    for number in range(40):
        change(tab, f"change {number}")
    arrived(tab, 4)
    change(tab, "change 40")
    whole = studio.recorded(stopped(tab))

    assert changes_in(whole) == [f"change {number}" for number in range(41)]
    assert load(whole).warnings == ()
    parts = studio.parts()
    assert [parts.count(number) for number in (1, 2, 3, 4)] == [2, 2, 1, 3]
    assert sorted(parts) == parts
    assert {"retrying", "recording"} <= {news["state"] for news in told(tab)}
    assert told(tab)[-1] == {"state": "ended", "reason": "stopped"}


def test_what_happens_while_there_is_no_network_is_kept(
    studio: Studio, tab: Page, visit: BrowserContext
) -> None:
    started(tab, every=20)
    arrived(tab, 1)
    visit.set_offline(True)
    for number in range(10):
        change(tab, f"change {number}")
    until(lambda: told(tab) and told(tab)[-1]["state"] == "retrying")
    visit.set_offline(False)

    assert changes_in(studio.recorded(stopped(tab))) == [f"change {number}" for number in range(10)]


def test_it_waits_as_long_as_the_server_says_unless_the_network_comes_back(studio: Studio, tab: Page) -> None:
    studio.faults[1] = ["later"]
    started(tab, every=20)
    until(lambda: told(tab))
    assert told(tab) == [{"state": "retrying", "status": 503, "message": "A test says in an hour."}]
    tab.evaluate("dispatchEvent(new Event('online'))")
    arrived(tab, 1)

    assert told(tab)[1:] == [{"state": "recording"}]
    assert studio.parts()[:2] == [1, 1]


def test_without_an_answer_at_first_it_records_all_the_same(studio: Studio, tab: Page) -> None:
    studio.down.set()
    started(tab, every=20)
    assert tab.evaluate("recording.upload") is None
    change(tab, "change 0")
    studio.down.clear()

    assert changes_in(studio.recorded(stopped(tab))) == ["change 0"]


def test_a_canvas_is_recorded_where_rrweb_is_told_to(studio: Studio, tab: Page) -> None:
    tab.evaluate("document.body.append(document.createElement('canvas'))")
    started(tab, rrweb={"recordCanvas": True, "emit": None})
    tab.evaluate("document.querySelector('canvas').getContext('2d').fillRect(1, 2, 30, 40)")
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    session = load(studio.recorded(stopped(tab)))

    assert session.has_canvas
    assert session.warnings == ()


def test_what_happened_in_the_moment_of_the_end_is_in_it(studio: Studio, tab: Page) -> None:
    started(tab)
    upload = tab.evaluate("() => { document.body.append('the very last'); return recording.stop() }")

    assert b"the very last" in studio.recorded(upload["upload"])


def test_without_a_network_for_too_long_it_ends_and_keeps_what_it_has(
    studio: Studio, tab: Page, visit: BrowserContext
) -> None:
    started(tab, every=20, maxWaiting=20_000)
    arrived(tab, 1)
    visit.set_offline(True)
    numbers = count()
    while not told(tab) or told(tab)[-1]["state"] != "ended":
        change(tab, f"change {next(numbers)} {'x' * 1000}")
    [ended] = [news for news in told(tab) if news["state"] == "ended"]
    visit.set_offline(False)
    kept = changes_in(studio.recorded(stopped(tab)))

    assert ended["reason"] == "behind"
    assert kept == [f"change {number}" for number in range(len(kept))]
    assert 10 < len(kept) < 20


@pytest.mark.parametrize("leaving", ["goes elsewhere", "is closed"])
def test_a_page_that_is_left_leaves_its_last_part_though_the_one_before_is_still_under_way(
    studio: Studio, tab: Page, leaving: str
) -> None:
    studio.faults[1] = ["held"]
    started(tab, every=60_000)
    upload = tab.evaluate("recording.upload.upload")
    change(tab, "change 0")
    sealed(tab)
    until(lambda: studio.parts() == [1])
    change(tab, "change 1")
    if leaving == "is closed":
        tab.close(run_before_unload=True)
    else:
        tab.goto("about:blank")
    studio.held.set()
    until(lambda: len(studio.waiter.uploads.parts(studio.waiter.uploads.get(upload))) == 2)
    whole = studio.recorded(upload)

    assert changes_in(whole) == ["change 0", "change 1"]
    assert load(whole).warnings == ()


def test_a_recording_goes_on_from_page_to_page_with_what_could_not_be_sent(studio: Studio, tab: Page) -> None:
    started(tab, acrossPages=True, every=20)
    first = tab.evaluate("recording.upload.upload")
    change(tab, "change 0")
    arrived(tab, 1)
    studio.down.set()
    for number in range(1, 70):  # more than what outlives a page
        change(tab, f"change {number} {'x' * 1000}")
    until(lambda: told(tab) and told(tab)[-1]["state"] == "retrying")
    tab.goto(studio.host("thanks", "<h1>Thank you</h1>"))
    studio.down.clear()
    started(tab, acrossPages=True)
    change(tab, "change 70")
    whole = studio.recorded(stopped(tab))

    assert tab.evaluate("recording.upload.upload") == first
    assert tab.evaluate("sessionStorage.length") == 0
    assert changes_in(whole) == [f"change {number}" for number in range(71)]
    assert b"Thank you" in whole
    assert load(whole).warnings == ()


def test_at_the_limit_of_the_server_it_says_so_and_what_there_is_can_be_used(
    studio: Studio, tab: Page
) -> None:
    started(tab, prefix="/small")
    numbers = count()
    while tab.evaluate("recording.news.state") != "ended":
        change(tab, f"change {next(numbers)} {'x' * 10_000}")
    made = next(numbers)
    change(tab, f"change {made}")
    whole = studio.recorded(stopped(tab))

    assert [news["reason"] for news in told(tab) if news["state"] == "ended"] == ["limit"]
    assert LIMIT - 20_000 < len(whole) <= LIMIT
    assert changes_in(whole) == [f"change {number}" for number in range(made - 1)]
    assert load(whole).warnings == ()


@pytest.mark.parametrize(("status", "reason"), [(413, "limit"), (403, "refused")])
def test_a_part_that_is_refused_ends_it_and_what_came_before_can_be_used(
    studio: Studio, tab: Page, status: int, reason: str
) -> None:
    studio.faults[2] = [str(status)]
    started(tab)
    change(tab, "change 0")
    sealed(tab)
    arrived(tab, 1)
    change(tab, "change 1")
    sealed(tab)
    until(lambda: tab.evaluate("recording.news.state") == "ended")
    change(tab, "change 2")
    whole = studio.recorded(stopped(tab))

    assert told(tab) == [
        {"state": "ended", "reason": reason, "status": status, "message": f"A test says {status}."}
    ]
    assert changes_in(whole) == ["change 0"]
    assert studio.parts() == [1, 2]


def refused(start: Callable[[], None]) -> str:
    with pytest.raises(Error) as error:
        start()
    return error.value.message


def test_what_is_set_up_wrong_is_said_at_once(studio: Studio, tab: Page) -> None:
    assert "Who are you?" in refused(lambda: started(tab, prefix="/guests"))
    assert "Not Found" in refused(lambda: started(tab, prefix="/nowhere"))
    assert "not a valid selector" in refused(lambda: started(tab, mask="p["))
    started(tab, prefix="/guests/", headers={"X-Guest": "ada"})
    assert "being recorded already" in refused(lambda: started(tab))
    upload = stopped(tab)
    assert studio.waiter.uploads.get(upload).owner == "ada"


def test_an_upload_that_the_server_announced_is_taken_without_another_word(studio: Studio, tab: Page) -> None:
    upload = tab.evaluate(
        """async () => (await fetch("/guests/uploads", { method: "POST", body: "{}",
        headers: { "Content-Type": "application/json", "X-Guest": "eve" } })).json()"""
    )
    started(tab, upload=upload)

    assert stopped(tab) == upload["id"]
    assert studio.waiter.uploads.get(upload["id"]).owner == "eve"
    assert [path for method, path, _ in studio.requests if method == "POST"] == [
        "/guests/uploads",
        f"/guests/uploads/{upload['id']}/complete",
    ]


def test_a_page_of_another_site_records_with_what_the_server_gave_it(
    studio: Studio, visit: BrowserContext
) -> None:
    studio.host("away", FORM)
    tab = opened(visit, f"{studio.url.replace('127.0.0.1', 'localhost')}/elsewhere/away")
    upload = tab.request.post(f"{studio.url}/small/uploads", data={}).json()
    started(tab, f"{studio.url}/small/dumbwaiter-recorder.js", prefix=studio.url, upload=upload)
    change(tab, "change 0")

    assert stopped(tab) == upload["id"]
    assert changes_in(studio.recorded(upload["id"])) == ["change 0"]
