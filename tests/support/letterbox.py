"""Tasks that take uploads, in each of the ways in which tasks run."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any

from dumbwaiter import Dumbwaiter, Retry, TaskContext, Upload

waiter = Dumbwaiter()
AT_ONCE = Retry(max_retries=1, base=timedelta(milliseconds=20), jitter=0)


def read(ctx: TaskContext, letter: Upload) -> dict[str, Any]:
    """What is found of an upload: read to its end, at a place in its middle, and downloaded."""
    with ctx.open(letter) as file:
        whole = hashlib.sha256()
        while piece := file.read(100_000):
            whole.update(piece)
        file.seek(-3, 2)
        tail = file.read()
        file.seek(1)
        head = file.read(2)
    path = ctx.download(letter)
    return {
        "name": letter.filename,
        "size": letter.size,
        "type": letter.content_type,
        "whole": whole.hexdigest(),
        "ends": [head.decode("latin-1"), tail.decode("latin-1")],
        "downloaded": [path.name, hashlib.sha256(path.read_bytes()).hexdigest()],
        "in_workdir": path.parent == ctx.workdir,
    }


@waiter.task("read-on-thread", http=True)
def read_on_thread(ctx: TaskContext, letter: Upload) -> dict[str, Any]:
    return read(ctx, letter)


@waiter.task("read-as-coroutine", http=True)
async def read_as_coroutine(ctx: TaskContext, letter: Upload) -> dict[str, Any]:
    with await ctx.aopen(letter) as file:
        whole = await asyncio.to_thread(file.read)
    path = await ctx.adownload(letter, "copy")
    assert path.read_bytes() == whole
    path.unlink()
    return await asyncio.to_thread(read, ctx, letter)


@waiter.task("read-isolated", isolate=True, http=True)
def read_isolated(ctx: TaskContext, letter: Upload) -> dict[str, Any]:
    return read(ctx, letter)


@waiter.task("read-all", http=True, retry=AT_ONCE)
def read_all(
    ctx: TaskContext, letters: list[Upload], cover: Upload | str = "", fail: bool = False
) -> list[str]:
    found = []
    for letter in letters:
        with ctx.open(letter) as file:
            found.append(file.read().decode())
    if isinstance(cover, Upload):
        found.append(ctx.download(cover, "cover").read_text())
    elif cover:
        found.append(cover)
    if fail and ctx.task.attempt == 1:
        raise ConnectionError("once more")
    return found


@waiter.task("read-anothers", retry=Retry(max_retries=0), isolate=True)
def read_anothers(ctx: TaskContext, upload_id: str) -> str:
    with ctx.open(Upload(upload_id)) as file:
        return file.read().decode()
