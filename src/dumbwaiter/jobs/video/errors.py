"""What can go wrong between a recording and its video.

```
DumbwaiterError
└── VideoError
    ├── RecordingError          the recording's fault; `user_message` tells the person, trying again is of no use
    │   ├── NoSuchRecording     no file of this name may be read
    │   ├── NoSuchWindow        it has no browser window of the name that was asked for
    │   ├── NotARegularFile     a pipe, a device, a directory
    │   ├── TooLarge            more bytes than allowed, packed or unpacked
    │   ├── EmptyRecording      nothing in it
    │   ├── NotJson             neither JSON nor something packed that holds JSON
    │   ├── Truncated           JSON that stops in the middle
    │   ├── NotARecording       JSON, but no rrweb events
    │   ├── TooFewEvents        fewer than two
    │   ├── NoFullSnapshot      changes without the page they change
    │   ├── AbsurdTimestamps    times that cannot belong to one session
    │   ├── TooDeep             nested deeper than any page
    │   └── TooLong             longer than allowed
    ├── ImpossibleOption        an option is out of its range
    ├── ToolMissing             the machine's fault; the message says what to install
    │   ├── ChromiumMissing
    │   └── EncoderMissing
    ├── BrowserLost             worth another attempt
    │   ├── BrowserCrashed      the browser or its page's process is gone
    │   ├── ProtocolError       the browser refused a command
    │   ├── BrowserStuck        no answer within the bound
    │   └── MemoryExceeded      the page took more memory than allowed, and was ended: this one is final
    ├── PlayerFailed            the player cannot show this recording
    ├── EncoderFailed           worth another attempt
    │   ├── EncoderStuck        FFmpeg neither reads nor makes progress
    │   └── BadVideo            a file came out, but not the one that was asked for
    ├── TooSlow                 the export took longer than allowed
    └── ExportCancelled         somebody asked to stop
```
"""

from __future__ import annotations

from dumbwaiter.errors import DumbwaiterError


class VideoError(DumbwaiterError):
    """An export did not make its video; `transient` says whether another attempt may."""

    transient = False


class RecordingError(VideoError):
    """This recording cannot become a video; another attempt would not change that.

    `str(error)` is for operators, `user_message` for the person who asked.
    """

    default_user_message = "This recording cannot be turned into a video."

    def __init__(self, message: str, *, user_message: str | None = None) -> None:
        super().__init__(message)
        self.user_message = user_message or self.default_user_message


class NoSuchRecording(RecordingError):
    """There is no recording of this name, or it lies where nobody may read it."""

    default_user_message = "There is no such recording."


class NoSuchWindow(RecordingError):
    """The recording has no browser window of this name."""

    default_user_message = "The recording has no window of that name."


class NotARegularFile(RecordingError):
    """The source is a directory, a pipe or a device."""

    default_user_message = "The recording could not be read."


class TooLarge(RecordingError):
    """The recording has more bytes than allowed."""

    default_user_message = "This recording is too large to be turned into a video."


class EmptyRecording(RecordingError):
    """There is nothing in the file, or no event in the list."""

    default_user_message = "This recording is empty."


class NotJson(RecordingError):
    """The bytes are neither JSON nor a known packing of JSON."""

    default_user_message = "This file is not a session recording (it is not valid JSON)."


class Truncated(RecordingError):
    """The JSON stops in the middle."""

    default_user_message = (
        "This recording is incomplete: the file stops in the middle. Please download or upload it again."
    )


class NotARecording(RecordingError):
    """The JSON holds no rrweb events."""

    default_user_message = "This file is not a session recording."


class TooFewEvents(RecordingError):
    """A session needs at least two events."""

    default_user_message = "This recording is too short: nothing happens in it."


class NoFullSnapshot(RecordingError):
    """Without a full snapshot there is no page to apply the changes to."""

    default_user_message = "This recording has no picture of the page to start from, so it cannot be shown."


class AbsurdTimestamps(RecordingError):
    """The events' times cannot belong to one session."""

    default_user_message = "The times in this recording are damaged."


class TooDeep(RecordingError):
    """The recorded page, or the JSON around it, is nested deeper than a browser can build."""

    default_user_message = "The recorded page is too complex to be shown."


class TooLong(RecordingError):
    """The session lasts longer than the longest allowed video."""

    default_user_message = "This recording is longer than a video may be."


class ImpossibleOption(VideoError):
    """An option is out of its range, or does not go with the others or with the recording."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.user_message = f"It cannot be exported as it was asked for: {message}."


class ToolMissing(VideoError):
    """A program that the export needs is not on this machine."""


class ChromiumMissing(ToolMissing):
    """No Chromium that can be started."""


class EncoderMissing(ToolMissing):
    """No FFmpeg that can be started and writes H.264."""


class BrowserLost(VideoError):
    """The browser could not finish; another attempt may."""

    transient = True


class BrowserCrashed(BrowserLost):
    """The browser's process, or the page's, is gone."""


class ProtocolError(BrowserLost):
    """The browser refused a command."""


class PlayerFailed(VideoError):
    """The player raised an error that leaves nothing to show."""

    user_message = "This recording could not be replayed."


class BrowserStuck(BrowserLost):
    """The browser did not answer in time."""


class MemoryExceeded(BrowserLost):
    """The browser was ended because it took more memory than allowed; it would do so again."""

    transient = False
    user_message = "This recording is too complex to be turned into a video."


class EncoderFailed(VideoError):
    """FFmpeg ended with an error; another attempt may succeed."""

    transient = True


class EncoderStuck(EncoderFailed):
    """FFmpeg took no picture and made no progress within the bound."""


class BadVideo(EncoderFailed):
    """The file that came out is not the video that was asked for."""


class TooSlow(VideoError):
    """The export took longer than `Options.wall_limit`."""

    user_message = "This recording takes too long to be turned into a video."


class ExportCancelled(VideoError):
    """The export was asked to stop, and did."""
