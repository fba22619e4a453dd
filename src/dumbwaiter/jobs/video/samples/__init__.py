"""The recordings that come with the package, by name."""

from __future__ import annotations

from importlib.resources import as_file, files

from dumbwaiter.jobs.video.errors import NoSuchRecording
from dumbwaiter.jobs.video.recording import Recording, load

SUFFIX = ".json.gz"


def sample_names() -> list[str]:
    """The names of the bundled recordings."""
    return sorted(
        item.name.removesuffix(SUFFIX) for item in files(__name__).iterdir() if item.name.endswith(SUFFIX)
    )


def no_sample(name: str) -> str:
    """The sentence that says so."""
    return f"there is no sample {name!r}; there are: {', '.join(sample_names())}"


def sample(name: str, window: str | None = None) -> Recording:
    """A bundled recording; see `load` for the window.

    Raises:
        NoSuchRecording: there is none of this name.
        NoSuchWindow: it has no window of that name.

    Example:
        >>> sample("shop-tour").title
        'Lantern & Leaf · 灯笼与茶'
    """
    if name not in sample_names():
        raise NoSuchRecording(no_sample(name))
    with as_file(files(__name__) / f"{name}{SUFFIX}") as path:
        return load(path, window=window)
