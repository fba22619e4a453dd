"""A FastAPI application that makes reports in the background. Run it: uvicorn fastapi_app:app"""

from datetime import timedelta
from typing import Annotated

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from dumbwaiter.integrations.fastapi import lifespan, router

# SQLite and files in .dumbwaiter/; in production: Dumbwaiter("postgresql://…", files="s3://…")
waiter = Dumbwaiter()
Month = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}$")]


@waiter.task("sales-report", retry=Retry(max_retries=3), timeout=timedelta(minutes=5), http=True)
def sales_report(ctx: TaskContext, month: Month, rows: int = 1000) -> dict[str, int]:
    """Write a report, line by line, and publish it as a download."""
    path = ctx.workdir / "report.csv"
    with path.open("w") as report:
        for number in range(rows):
            ctx.sleep(0.005)  # the time that a real query takes; ends here if somebody cancelled
            report.write(f"{month},{number},{number * 7 % 97}\n")
            ctx.progress((number + 1) / rows, step="adding up")
    ctx.publish(path, filename=f"sales-{month}.csv")
    return {"rows": rows}


def current_user(request: Request) -> str:
    """Whose request it is; your own sessions or tokens belong here. Nobody sees anybody else's tasks."""
    user = request.headers.get("X-User")
    if user is None:
        raise HTTPException(401, "Say who you are in the header X-User.")
    return user


app = FastAPI(lifespan=lifespan(waiter))
app.include_router(router(waiter, authorize=current_user))
# POST /tasks/sales-report {"month": "2026-11"}, then GET /tasks/{id}, then GET /tasks/{id}/files/sales-2026-11.csv


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    """The button, the progress bar and the download. With a session cookie in place of X-User it needs no headers."""
    return """<!doctype html>
<title>Sales</title>
<h1>Sales in November</h1>
<script type="module" src="/dumbwaiter.js"></script>
<dumbwaiter-task type="sales-report" key="2026-11" arguments='{"month": "2026-11"}' headers='{"X-User": "ada"}'>
</dumbwaiter-task>"""
