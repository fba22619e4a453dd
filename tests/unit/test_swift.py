"""Signatures, on a server that checks them: OpenStack Swift's S3 interface (`./dev test --swift`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from dumbwaiter import files as files_module
from dumbwaiter.errors import FileStoreError
from dumbwaiter.files import FileStore
from dumbwaiter.task import ResultFile
from tests.support.swift import KEY, SECRET, Swift, swift
from tests.support.waiting import until

pytestmark = [pytest.mark.swift, pytest.mark.service("swift"), pytest.mark.timeout(150)]
NAME = "报告 7.txt"


@pytest.fixture(scope="module")
def server() -> Iterator[Swift]:
    with swift() as running:
        yield running


@pytest.fixture
def files(server: Swift, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FileStore:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    source = tmp_path / "source"
    source.write_text("all is well")
    files = FileStore(server.url)
    files.put(source, "t/1/a", filename=NAME)
    files.put(source, "t/1/b", filename=NAME)
    return files


def linked(files: FileStore, expires: timedelta = timedelta(minutes=5)) -> str:
    link = files.link(ResultFile("a", "text/plain", 11, "", "t/1/a", 1), expires=expires)
    assert link is not None
    return link


def test_a_link_serves_the_file_its_parts_and_its_name(files: FileStore) -> None:
    whole, part = httpx.get(linked(files)), httpx.get(linked(files), headers={"Range": "bytes=4-5"})

    assert (whole.status_code, whole.text) == (200, "all is well")
    assert (part.status_code, part.text) == (206, "is")
    assert "filename*=UTF-8''%E6%8A%A5%E5%91%8A%207.txt" in whole.headers["Content-Disposition"]


def test_a_link_that_was_tampered_with_serves_nothing(files: FileStore) -> None:
    link = linked(files)

    assert httpx.get(link.replace("/t/1/a", "/t/1/b")).status_code == 403
    assert httpx.get(link.replace("X-Amz-Expires=300", "X-Amz-Expires=600000")).status_code == 403


def test_a_link_ends_when_it_was_promised_to(files: FileStore) -> None:
    link = linked(files, timedelta(seconds=2))

    until(lambda: httpx.get(link).status_code == 403)


def test_a_wrong_secret_is_refused_and_not_worth_a_retry(
    files: FileStore, server: Swift, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed")
    monkeypatch.setattr(files_module, "RETRIES", 0)

    with pytest.raises(FileStoreError) as caught:
        FileStore(server.url).size("t/1/a")

    assert not caught.value.transient
