"""What the page says, in English and Chinese; the button and the list have their own words in `component/`."""

from __future__ import annotations

from collections.abc import Mapping

ENGLISH = {
    "tagline": "Send a recorded session down; a video comes up.",
    "player": "The recording, replayed",
    "play": "Play",
    "pause": "Pause",
    "position": "Position in the recording",
    "views": "What to watch",
    "recording": "Recording",
    "video": "Video",
    "video_of": "The video of {name}",
    "settings": "Settings",
    "size": "Size",
    "full": "Full",
    "rate": "Frames a second",
    "speed": "Speed",
    "choose": "Choose a recording",
    "recordings": "Recordings",
    "own": "A recording of your own",
    "own_how": "Drop it anywhere, or choose a file: rrweb as JSON, plain or gzip",
    "yours": "Your recording",
    "unseen": "This recording cannot be shown here. It may be exported all the same.",
    "broken": "This recording cannot be shown here.",
    "once_more": "Choose the file once more to see it here.",
    "earlier": "Earlier exports",
    "export": "Export video",
    "again": "Export again",
    "making": "Making the video",
    "video_export": "Video export",
    "nothing_yet": "What you export appears here.",
    "download": "Download",
    "no_script": "Without JavaScript this page shows how things stand whenever it is loaded.",
    "serves": "The tasks of an application, and how they stand.",
    "callable": "Tasks that may be asked for",
    "how": "Each is asked for with its arguments as JSON; the description of all addresses lets them be tried:",
    "none_callable": (
        "None of its task types may be asked for over HTTP: that takes http=True where a task is declared. "
        "In Python and on the command line all may be."
    ),
    "recent": "Recent tasks",
    "queued": "Waiting for its turn",
    "scheduled": "Waiting for its time",
    "retrying": "Something went wrong; it will be tried again",
    "running": "Being made",
    "cancelling": "Stopping",
    "cancelled": "Cancelled",
    "ready": "Ready",
    "expired": "It was kept for a while and has been removed",
    "failed": "Something went wrong while it was being made.",
}
CHINESE = {
    "tagline": "放下一段会话录制，升上来一段视频。",
    "player": "录制回放",
    "play": "播放",
    "pause": "暂停",
    "position": "录制中的位置",
    "views": "观看内容",
    "recording": "录制",
    "video": "视频",
    "video_of": "{name} 的视频",
    "settings": "设置",
    "size": "尺寸",
    "full": "原尺寸",
    "rate": "每秒帧数",
    "speed": "速度",
    "choose": "选择录制",
    "recordings": "录制列表",
    "own": "您自己的录制",
    "own_how": "拖放到页面任意位置，或选择文件：rrweb 的 JSON，可用 gzip 压缩",
    "yours": "您的录制",
    "unseen": "此录制无法在这里播放，但仍可导出。",
    "broken": "此录制无法在这里播放。",
    "once_more": "再次选择该文件即可在这里播放。",
    "earlier": "以往的导出",
    "export": "导出视频",
    "again": "重新导出",
    "making": "正在生成视频",
    "video_export": "视频导出",
    "nothing_yet": "您导出的视频会显示在这里。",
    "download": "下载",
    "no_script": "没有 JavaScript 时，本页显示加载那一刻的状态。",
    "serves": "一个应用的后台任务及其状态。",
    "callable": "可以提交的任务",
    "how": "以 JSON 传入参数即可提交；所有地址的说明在此，可直接试用：",
    "none_callable": "没有任务类型可以通过 HTTP 提交：声明任务时需写 http=True。在 Python 和命令行中均可提交。",
    "recent": "最近的任务",
    "queued": "正在排队",
    "scheduled": "等待预定时间",
    "retrying": "出了点问题，将会重试",
    "running": "正在生成",
    "cancelling": "正在停止",
    "cancelled": "已取消",
    "ready": "已就绪",
    "expired": "文件已过保存期并被删除",
    "failed": "生成时出了问题。",
}
TEXTS: Mapping[str, Mapping[str, str]] = {"en": ENGLISH, "zh": CHINESE}
# What page.js says.
SCRIPT = ("play", "pause", "video_of", "yours", "unseen", "broken", "once_more")


def language_of(accept: str | None) -> str:
    """The language of TEXTS that an Accept-Language header likes best; English where it names none of them.

    Example:
        >>> language_of("fr, zh-CN;q=0.9, en;q=0.8")
        'zh'
    """
    best, most = "en", 0.0
    for choice in (accept or "").split(","):
        tag, _, weight = choice.partition(";")
        name, liked = tag.strip().lower().partition("-")[0], quality(weight)
        if name in TEXTS and liked > most:
            best, most = name, liked
    return best


def quality(weight: str) -> float:
    """The number of `q=0.8`; 1 where there is none, 0 for what is no number."""
    name, _, number = weight.strip().partition("=")
    if not name:
        return 1.0
    try:
        return float(number) if name.strip() == "q" else 0.0
    except ValueError:
        return 0.0
