"""What messages say, in the three languages: one table, nothing else."""

from __future__ import annotations

from collections.abc import Mapping

LANGUAGES = ("en", "th", "zh")
USUAL = "en"

_EN: Mapping[str, str] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timeout": "took too long",
    "canceled": "was canceled",
    "skipped": "was skipped",
    "missed": "was missed",
    "unknown": "ended in a way that nobody knows",
    "ended": "has ended",
    "recovery": "works again",
    "headline": "{name}: {what}",
    "a_run": "Run",
    "planned": "Planned for {time} ({zone})",
    "missed_many": "{count} planned times were missed",
    "reason": "Reason: {reason}",
    "error": "Error: {error}",
    "stopped": "Stopped because: {reason}",
    "cut": "… the rest is with the run",
    "files": "Files:",
    "forgotten": "The run is no longer on record.",
    "open": "Open: {url}",
    "undelivered": "Not delivered by {channel}: {title}",
    "undelivered_why": "This message could not be delivered to {to}: {error}",
    "button_run": "Run again",
    "button_pause": "Pause",
    "button_snooze": "Snooze 1 h",
    "channel_inbox": "inbox",
    "channel_telegram": "Telegram",
    "channel_webhook": "webhook",
    "channel_email": "e-mail",
    "overlap": "the run before it was still under way",
    "dependency": "what it depends on did not succeed in time",
    "misfire": "its time was too long ago",
    "paused": "it was paused",
    "canceled_by_hand": "somebody canceled it",
    "replaced_by_newer_run": "a newer run took its place",
    "schedule_deleted": "its schedule was deleted",
    "crash_limit": "the nodes that carried it out stopped again and again",
    "lost_after_start": "the node that carried it out stopped",
}

_TH: Mapping[str, str] = {
    "succeeded": "สำเร็จ",
    "failed": "ล้มเหลว",
    "timeout": "ใช้เวลานานเกินไป",
    "canceled": "ถูกยกเลิก",
    "skipped": "ถูกข้าม",
    "missed": "พลาดเวลา",
    "unknown": "ไม่ทราบผลลัพธ์",
    "ended": "สิ้นสุดแล้ว",
    "recovery": "กลับมาทำงานได้แล้ว",
    "headline": "{name}: {what}",
    "a_run": "งาน",
    "planned": "กำหนดเวลา {time} ({zone})",
    "missed_many": "พลาดไป {count} รอบ",
    "reason": "สาเหตุ: {reason}",
    "error": "ข้อผิดพลาด: {error}",
    "stopped": "หยุดเพราะ: {reason}",
    "cut": "… ส่วนที่เหลืออยู่ในบันทึกของงาน",
    "files": "ไฟล์:",
    "forgotten": "ไม่มีบันทึกของงานนี้แล้ว",
    "open": "เปิดดู: {url}",
    "undelivered": "ส่งทาง {channel} ไม่สำเร็จ: {title}",
    "undelivered_why": "ส่งข้อความนี้ไปยัง {to} ไม่ได้: {error}",
    "button_run": "รันอีกครั้ง",
    "button_pause": "หยุดชั่วคราว",
    "button_snooze": "เลื่อน 1 ชม.",
    "channel_inbox": "กล่องข้อความ",
    "channel_telegram": "Telegram",
    "channel_webhook": "เว็บฮุก",
    "channel_email": "อีเมล",
    "overlap": "รอบก่อนหน้ายังทำงานอยู่",
    "dependency": "งานที่ต้องรอไม่สำเร็จทันเวลา",
    "misfire": "เลยเวลามานานเกินไป",
    "paused": "ถูกหยุดชั่วคราว",
    "canceled_by_hand": "มีผู้ยกเลิก",
    "replaced_by_newer_run": "มีรอบใหม่มาแทน",
    "schedule_deleted": "ตารางเวลาถูกลบ",
    "crash_limit": "เครื่องที่ทำงานนี้หยุดทำงานซ้ำหลายครั้ง",
    "lost_after_start": "เครื่องที่ทำงานนี้หยุดทำงาน",
}

_ZH: Mapping[str, str] = {
    "succeeded": "成功",
    "failed": "失败",
    "timeout": "超时",
    "canceled": "已取消",
    "skipped": "已跳过",
    "missed": "已错过",
    "unknown": "结果不明",
    "ended": "已结束",
    "recovery": "已恢复正常",
    "headline": "{name}：{what}",
    "a_run": "任务",
    "planned": "计划时间 {time}（{zone}）",
    "missed_many": "错过了 {count} 次",
    "reason": "原因：{reason}",
    "error": "错误：{error}",
    "stopped": "停止原因：{reason}",
    "cut": "… 其余内容见运行记录",
    "files": "文件：",
    "forgotten": "该运行的记录已不存在。",
    "open": "打开：{url}",
    "undelivered": "未能通过{channel}送达：{title}",
    "undelivered_why": "此消息未能送达 {to}：{error}",
    "button_run": "再次运行",
    "button_pause": "暂停",
    "button_snooze": "推迟 1 小时",
    "channel_inbox": "收件箱",
    "channel_telegram": "Telegram",
    "channel_webhook": "网络钩子",
    "channel_email": "电子邮件",
    "overlap": "上一次运行尚未结束",
    "dependency": "所依赖的任务未按时成功",
    "misfire": "已超过允许的时间",
    "paused": "已暂停",
    "canceled_by_hand": "被人取消",
    "replaced_by_newer_run": "被更新的一次运行取代",
    "schedule_deleted": "计划已被删除",
    "crash_limit": "执行它的节点多次停止",
    "lost_after_start": "执行它的节点停止了",
}

_TABLES = {"en": _EN, "th": _TH, "zh": _ZH}


def language_of(tag: str) -> str:
    """The language that is spoken here for a tag such as `zh-CN`."""
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return primary if primary in _TABLES else USUAL


def say(language: str, key: str, **values: object) -> str:
    return _TABLES[language_of(language)][key].format(**values)


def word(language: str, code: str) -> str:
    """The words for a stable code; a code that has none is its own."""
    return _TABLES[language_of(language)].get(code, code)
