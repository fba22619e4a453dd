"""A to-do page that records itself and makes a video of what you did. Run it: uvicorn app:app"""

from pathlib import Path
from secrets import token_urlsafe

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse

from dumbwaiter import Dumbwaiter
from dumbwaiter.integrations.fastapi import lifespan, router
from dumbwaiter.jobs.video.task import register

HERE = Path(__file__).parent
# No inline script, no eval, nobody else's files: the recorder and the button need no exception.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

# SQLite and files in .dumbwaiter/. A visit is small: nobody needs to send more than 20 MB.
waiter = Dumbwaiter(max_upload=20_000_000)
register(waiter)  # the task type "video-export"


def visitor(request: Request) -> str:
    """Whose recordings and videos these are: of the browser that the page gave this cookie; your own sessions belong here."""
    name = request.cookies.get("visitor")
    if not name:
        raise HTTPException(401, "Open the page first.")
    return name


app = FastAPI(lifespan=lifespan(waiter))
app.include_router(router(waiter, authorize=visitor))


@app.get("/")
def page(request: Request) -> Response:
    """The page, and a cookie for a browser that has none."""
    answer = FileResponse(HERE / "page.html", headers={"Content-Security-Policy": POLICY})
    if "visitor" not in request.cookies:
        answer.set_cookie("visitor", token_urlsafe(), httponly=True, samesite="strict")
    return answer


@app.get("/{name}")
def asset(name: str) -> Response:
    """The page's own script, style sheet and picture."""
    if name not in ("page.js", "page.css", "dish.svg"):
        raise HTTPException(404)
    return FileResponse(HERE / name, headers={"Cache-Control": "no-cache"})
