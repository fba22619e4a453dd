"""What the page of a signed link says, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping

ENGLISH = {
    "queued": "It waits for its turn",
    "scheduled": "It has not begun yet",
    "retrying": "Something went wrong; it will be tried again",
    "running": "It is being made",
    "cancelling": "It is being stopped",
    "success": "It is ready",
    "failed": "It could not be made",
    "cancelled": "It was cancelled",
    "begins": "It begins at {moment}.",
    "expired_one": "A file was kept for a while and removed.",
    "expired": "{count} files were kept for a while and removed.",
    "until": "This link is good until {moment}.",
    "download": "Download {name}",
    "kept": "kept until {moment}",
    "not_here": "Not here",
    "not_any_more": "Not any more",
    "not_now": "Not now",
    # in English the refusal's own sentence is shown
    "why_not_here": "",
    "why_not_any_more": "",
    "why_not_now": "",
}
CHINESE = {
    "queued": "正在排队",
    "scheduled": "尚未开始",
    "retrying": "出了点问题，将会重试",
    "running": "正在生成",
    "cancelling": "正在停止",
    "success": "已就绪",
    "failed": "未能生成",
    "cancelled": "已取消",
    "begins": "将于 {moment} 开始。",
    "expired_one": "有一个文件已过保存期并被删除。",
    "expired": "有 {count} 个文件已过保存期并被删除。",
    "until": "此链接有效期至 {moment}。",
    "download": "下载 {name}",
    "kept": "保存至 {moment}",
    "not_here": "这里没有内容",
    "not_any_more": "已不再提供",
    "not_now": "暂时无法提供",
    "why_not_here": "没有这样的链接。",
    "why_not_any_more": "链接或文件已过有效期。",
    "why_not_now": "请稍后再试。",
}
TEXTS: Mapping[str, Mapping[str, str]] = {"en": ENGLISH, "zh": CHINESE}
# As a document names them.
TAGS = {"en": "en", "zh": "zh-CN"}
