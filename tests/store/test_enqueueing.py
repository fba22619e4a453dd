"""A task on its way into the table: what is stored, and when it is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dumbwaiter.errors import InvalidOption, RequestKeyReused, UnknownTask
from dumbwaiter.store.claiming import Concern
from dumbwaiter.task import Outcome, Status
from tests.store.world import NOBODY, NOW, at, claimed_ids, end, enqueued, new, started

EDGES = [
    pytest.param({}, id="empty"),
    pytest.param({"": ""}, id="an empty key"),
    pytest.param({"text": "é ü 中文 🥘 👩‍🍳 \u2028 \x7f"}, id="unicode"),
    pytest.param({"nul": "a\0b", "\0": 1}, id="NUL"),
    pytest.param({"quotes": "'\"\\ % %s :name ?", "lines": "\r\n\t"}, id="quotes"),
    pytest.param({"float": 1.0, "int": 1, "small": 5e-324, "large": 1.7976931348623157e308}, id="numbers"),
    pytest.param({"big": 10**1000, "negative": -(10**30)}, id="big integers"),
    pytest.param({"none": None, "true": True, "list": [[], [None], {}]}, id="nested"),
    pytest.param({"deep": [[[[[[[[[[1]]]]]]]]]]}, id="deep"),
    pytest.param({"long": "x" * 100_000}, id="long"),
]


@pytest.mark.parametrize("value", EDGES)
def test_a_payload_comes_back_as_it_was_given(store, value):
    task = enqueued(store, payload=value)

    read = store.get(task.id).payload

    assert read == value
    assert repr(read) == repr(value)  # 1 and 1.0 are equal, but not the same


@pytest.mark.parametrize("value", [*EDGES, pytest.param(None, id="none"), pytest.param("é\0", id="text")])
def test_a_result_comes_back_as_it_was_given(store, value):
    task = started(store)

    end(store, task, Outcome.succeeded(value))

    assert repr(store.get(task.id).result) == repr(value)


def test_a_number_too_large_for_json_is_refused_and_nothing_is_written(store):
    with pytest.raises(Exception, match="JSON has no inf"):
        enqueued(store, payload={"rate": float("1e400")})

    assert store.find() == []


def test_timestamps_keep_their_microseconds_and_come_back_in_utc(store):
    instant = datetime(2026, 3, 29, 2, 30, 0, 123457, tzinfo=timezone(timedelta(hours=8)))

    task = enqueued(store, run_at=instant, start_before=instant + timedelta(microseconds=1))
    read = store.get(task.id)

    assert (read.run_at, read.run_at.tzinfo, read.run_at.microsecond) == (instant, UTC, 123457)
    assert read.start_before - read.run_at == timedelta(microseconds=1)


@pytest.mark.parametrize("year", [2, 999, 1000, 1969, 9998])
def test_an_instant_of_any_year_comes_back_and_sorts_where_it_belongs(store, year):
    instant = datetime(year, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

    task = enqueued(store, run_at=instant)

    assert store.get(task.id).run_at == instant
    assert claimed_ids(store) == ([task.id] if year < 2000 else [])


def test_the_database_gives_the_time_to_the_microsecond(store):
    before, now, after = store.now(), store.now(), store.now()

    assert before.tzinfo is UTC
    assert before <= now <= after
    assert enqueued(store, now=None).created_at >= after


def test_a_naive_datetime_is_refused(store):
    with pytest.raises(InvalidOption, match="has no time zone"):
        enqueued(store, run_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"business_key": "k" * 201}, "at most 200"),
        ({"owner": "o" * 201}, "at most 200"),
        ({"business_key": "a\0"}, "NUL"),
        ({"owner": "\ud800"}, "surrogate"),
        ({"queue": ""}, "name"),
        ({"priority": 101}, "not within"),
        ({"delay": timedelta(days=100_000)}, "longer than"),
    ],
)
def test_an_option_that_one_database_could_not_store_is_refused_on_all(store, option, said):
    with pytest.raises(InvalidOption, match=said):
        enqueued(store, **option)


def test_a_key_of_200_characters_of_four_bytes_is_stored(store):
    key = "🥘" * 200

    task = enqueued(store, business_key=key, owner=key)

    assert store.get(task.id).business_key == key
    assert [found.id for found in store.find(owner=key, key=key)] == [task.id]


def test_a_task_with_a_delay_is_not_started_early(store):
    task = enqueued(store, delay=timedelta(seconds=30))

    assert task.run_at == at(30)
    assert (store.stage(now=at(29.9)), claimed_ids(store, now=at(29.9))) == (0, [])
    assert (store.stage(now=at(30)), claimed_ids(store, now=at(30))) == (1, [task.id])


def test_a_task_that_runs_at_a_later_time_is_not_started_early(store):
    task = enqueued(store, run_at=at(60))

    assert (store.stage(now=at(59)), claimed_ids(store, now=at(59))) == (0, [])
    assert (store.stage(now=at(60)), claimed_ids(store, now=at(60))) == (1, [task.id])


@pytest.mark.parametrize("now", [NOW, None], ids=["a literal now", "the database's now"])
@pytest.mark.parametrize(("hours", "due"), [(-1, True), (1, False)])
def test_a_task_is_ready_at_once_exactly_if_its_time_has_come(store, now, hours, due):
    instant = (now or store.now()) + timedelta(hours=hours)

    task = enqueued(store, run_at=instant, now=now)

    assert store.queues_with_work() == (["default"] if due else [])
    assert claimed_ids(store, now=now) == ([task.id] if due else [])


def test_a_negative_delay_is_none(store):
    task = enqueued(store, delay=timedelta(seconds=-5))

    assert task.run_at == NOW
    assert claimed_ids(store) == [task.id]


def test_the_time_at_which_the_next_task_is_due_is_known(store):
    assert store.ahead(Concern(())).next_due is None
    enqueued(store, delay=timedelta(seconds=60))
    enqueued(store, delay=timedelta(seconds=30))
    enqueued(store)

    assert store.ahead(Concern(()), now=at(20)).next_due == timedelta(seconds=10)


def test_staging_takes_the_earliest_first_and_no_more_than_it_was_told(store):
    late, early = (enqueued(store, delay=timedelta(seconds=seconds)) for seconds in (9, 3))

    assert store.stage(now=at(10), limit=1) == 1
    assert claimed_ids(store, now=at(10)) == [early.id]
    assert store.stage(now=at(10), limit=1) == 1
    assert claimed_ids(store, now=at(10)) == [late.id]


def test_a_request_sent_twice_makes_one_task(store):
    first, created = store.enqueue(new(request_key="a" * 64, request_hash="b" * 64))
    second, created_again = store.enqueue(new(request_key="a" * 64, request_hash="b" * 64))

    assert (second.id, created, created_again) == (first.id, True, False)


def test_a_request_sent_again_after_the_end_gets_the_same_task(store):
    task = started(store, request_key="a" * 64, request_hash="b" * 64, business_key="k")
    end(store, task)

    again, created = store.enqueue(new(request_key="a" * 64, request_hash="b" * 64, business_key="k"))

    assert (again.id, again.status, created) == (task.id, Status.SUCCESS, False)


def test_a_request_key_with_another_body_is_refused(store):
    task = enqueued(store, request_key="a" * 64, request_hash="b" * 64)

    with pytest.raises(RequestKeyReused) as refused:
        enqueued(store, request_key="a" * 64, request_hash="c" * 64)

    assert refused.value.task.id == task.id


@pytest.mark.parametrize(
    "text", ["", "7", NOBODY.upper().replace("0", "A"), NOBODY[:-1], f"{{{NOBODY}}}", "x" * 36]
)
def test_text_that_is_no_id_is_an_unknown_task(store, text):
    with pytest.raises(UnknownTask):
        store.get(text)
    with pytest.raises(UnknownTask):
        store.cancel(text)

    assert store.attempts(text) == []


def test_an_id_of_nobody_is_an_unknown_task(store):
    with pytest.raises(UnknownTask, match=NOBODY):
        store.get(NOBODY)


def test_an_id_in_capitals_is_an_unknown_task(store):
    task = enqueued(store)

    with pytest.raises(UnknownTask):
        store.get(task.id.upper())


def test_find_narrows_by_everything_it_is_given(store):
    mine = enqueued(store, owner="ann", queue="mail", business_key="k", task_type="t")
    enqueued(store, owner="bob", queue="mail", business_key="k", task_type="t")
    enqueued(store, queue="mail", business_key="k", task_type="t")

    assert len(store.find()) == 3
    assert len(store.find(queue="mail", status="pending")) == 3
    assert [task.id for task in store.find(owner="ann", queue="mail", key="k", task_type="t")] == [mine.id]
    assert store.find(owner="ann", status="success") == []


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 5_000, "'; --", "%"])
def test_find_finds_nothing_by_a_text_that_no_task_can_have(store, text):
    enqueued(store, owner="ann", business_key="k")

    for field in ("owner", "queue", "key", "task_type", "status"):
        assert store.find(**{field: text}) == [], field


def test_find_gives_pages_the_newest_first(store):
    ids = [enqueued(store).id for _ in range(5)]

    first = [task.id for task in store.find(limit=2)]
    second = [task.id for task in store.find(limit=2, before=first[-1])]

    assert first + second == ids[:0:-1]


def test_find_refuses_a_page_mark_that_is_no_id(store):
    with pytest.raises(InvalidOption, match="before"):
        store.find(before="yesterday")


def test_a_retry_is_named_by_the_task_it_retries(store):
    old = started(store)
    end(store, old)
    retry = enqueued(store, retry_of=old.id)

    store.note_retry(old, retry)
    store.note_retry(old, enqueued(store, retry_of=old.id))

    assert (store.get(old.id).retried_as, store.get(retry.id).retry_of) == (retry.id, old.id)


def test_a_listener_in_the_process_is_told_of_what_is_ready_and_of_nothing_else(store):
    heard: list[str] = []
    stop = store.on_ready(heard.append)
    enqueued(store, queue="a", now=None)
    enqueued(store, queue="b", now=None, delay=timedelta(hours=1))
    enqueued(store, queue="c", now=None, run_at=store.now() - timedelta(hours=1))
    stop()
    enqueued(store, queue="d", now=None)

    assert heard == ["a", "c"]
