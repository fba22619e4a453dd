"""The conversation with a browser: messages stay whole, and each command gets its own answer."""

from __future__ import annotations

import json
import os
import threading

from dumbwaiter.jobs.video.cdp import Connection, Message

EVENT = {"method": "Fetch.requestPaused", "params": {}}
LARGE = "x" * 1_000_000


def answer_it(connection: Connection) -> None:
    connection.send("Fetch.continueRequest", within=10)


def test_a_command_gets_its_own_answer_though_others_are_sent_while_it_is_written() -> None:
    """The browser asks for something while a command, larger than any pipe, is on its way to it."""
    orders_out, orders_in = os.pipe()
    answers_out, answers_in = os.pipe()
    heard: list[Message] = []

    def browser() -> None:
        with os.fdopen(orders_out, "rb") as orders, os.fdopen(answers_in, "wb", buffering=0) as answers:
            received = orders.read(1)
            answers.write(json.dumps(EVENT).encode() + b"\0")
            while len(heard) < 2:
                received += orders.read1(65_536)
                while b"\0" in received:
                    message, _, received = received.partition(b"\0")
                    heard.append(json.loads(message))
            for one in heard:
                answers.write(json.dumps({"id": one["id"], "result": {"to": one["method"]}}).encode() + b"\0")

    other = threading.Thread(target=browser)
    other.start()
    connection = Connection(orders_in, answers_out)
    connection.on["Fetch.requestPaused"] = lambda _: answer_it(connection)

    answer = connection.call("Runtime.evaluate", {"expression": LARGE}, within=10)
    other.join(10)
    connection.close()

    assert answer == {"to": "Runtime.evaluate"}
    assert [one["method"] for one in heard] == ["Runtime.evaluate", "Fetch.continueRequest"]
    assert heard[0]["params"] == {"expression": LARGE}
