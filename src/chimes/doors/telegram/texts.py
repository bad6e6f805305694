"""What the bot says, in three languages.

Where users of the seed know a sentence by heart (`Schedule created: <id>`), it stands beside the
chat's own language: what they built on it goes on working.
"""

from __future__ import annotations

from typing import Literal

Language = Literal["en", "th", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "th", "zh")

_TEXTS: dict[str, tuple[str, str, str]] = {
    "created": (
        "Schedule created: {id}",
        "ตั้งเวลาแล้ว · Schedule created: {id}",
        "已创建 · Schedule created: {id}",
    ),
    "not_found": (
        "Schedule not found: {id}",
        "ไม่พบกำหนดการ · Schedule not found: {id}",
        "找不到 · Schedule not found: {id}",
    ),
    "parse_error": (
        "Schedule parse error: {message}",
        "อ่านเวลาไม่ออก · Schedule parse error: {message}",
        "无法理解时间 · Schedule parse error: {message}",
    ),
    "examples": ("For example:", "ตัวอย่าง:", "例如:"),
    "no_task": (
        "What should be done then? Write it after the time.",
        "ให้ทำอะไรตอนนั้น เขียนต่อท้ายเวลาได้เลย",
        "到时候要做什么？请写在时间后面。",
    ),
    "paused": (
        "Schedule paused: {id}",
        "หยุดไว้แล้ว · Schedule paused: {id}",
        "已暂停 · Schedule paused: {id}",
    ),
    "resumed": (
        "Schedule resumed: {id}\nNext: {next}",
        "ทำงานต่อแล้ว · Schedule resumed: {id}\nครั้งถัดไป: {next}",
        "已恢复 · Schedule resumed: {id}\n下次: {next}",
    ),
    "started": (
        "Run started: {run}\nSchedule: {id}",
        "เริ่มทำแล้ว · Run started: {run}\nกำหนดการ: {id}",
        "已开始 · Run started: {run}\n计划: {id}",
    ),
    "started_again": (
        "Run started: {run}",
        "เริ่มทำแล้ว · Run started: {run}",
        "已开始 · Run started: {run}",
    ),
    "deleted": (
        "Schedule deleted: {id}",
        "ลบแล้ว · Schedule deleted: {id}",
        "已删除 · Schedule deleted: {id}",
    ),
    "snoozed": (
        "Schedule snoozed until {until}: {id}",
        "พักไว้ถึง {until} · Schedule snoozed: {id}",
        "已推迟到 {until} · Schedule snoozed: {id}",
    ),
    "which": (
        "Which one? Write {command} and the id; /schedules lists them.",
        "รายการไหน เขียน {command} ตามด้วยรหัส ดูรหัสได้ที่ /schedules",
        "哪一个？请写 {command} 和编号；/schedules 可以查看。",
    ),
    "none": (
        "No schedules yet. Try: /schedule {example}",
        "ยังไม่มีกำหนดการ ลอง: /schedule {example}",
        "还没有计划。试试: /schedule {example}",
    ),
    "list": ("Schedules:", "กำหนดการ:", "计划:"),
    "more": ("… and more", "… และอื่นๆ", "… 还有更多"),
    "no_runs": (
        "No runs yet: {id}",
        "ยังไม่เคยทำ: {id}",
        "还没有运行: {id}",
    ),
    "runs": ("Runs of {id}:", "ประวัติของ {id}:", "{id} 的运行记录:"),
    "next": ("next {at}", "ครั้งถัดไป {at}", "下次 {at}"),
    "off": ("paused", "หยุดอยู่", "已暂停"),
    "over": ("done", "เสร็จแล้ว", "已结束"),
    "quota": (
        "There are {limit} active schedules already. Pause or delete one first.",
        "มีกำหนดการที่ทำงานอยู่ครบ {limit} รายการแล้ว หยุดหรือลบบางรายการก่อน",
        "已有 {limit} 个有效计划。请先暂停或删除一个。",
    ),
    "invalid": (
        "That does not work: {message}",
        "ทำไม่ได้: {message}",
        "不行: {message}",
    ),
    "busy": (
        "Too many messages; try again in {seconds} s.",
        "ข้อความมากเกินไป ลองใหม่ใน {seconds} วินาที",
        "消息太多，请 {seconds} 秒后再试。",
    ),
    "unauthorized": ("Unauthorized chat", "Unauthorized chat", "Unauthorized chat"),
    "expired": (
        "This came too late to be carried out. Send it again if you still want it.",
        "ข้อความนี้มาช้าเกินไป ถ้ายังต้องการให้ส่งใหม่",
        "这条消息来得太晚，没有执行。如仍需要请重新发送。",
    ),
    "unknown": (
        "I do not know /{name}. /help lists what I can do.",
        "ไม่รู้จัก /{name} ดูคำสั่งได้ที่ /help",
        "没有 /{name} 这个命令，请看 /help。",
    ),
    "failed": (
        "That did not work because of a fault here. Please try again.",
        "ระบบขัดข้อง กรุณาลองใหม่",
        "系统出错，请重试。",
    ),
    "help": (
        "Write when and what, for example:\n{example}\n\n"
        "/schedule <words> – make a schedule\n/schedules – list them\n"
        "/schedule_runs <id> – what became of one\n/schedule_pause <id>\n/schedule_resume <id>\n"
        "/schedule_run <id> – run it now\n/schedule_delete <id>\n"
        "/language en|th|zh\n/timezone Asia/Bangkok",
        "พิมพ์เวลาและสิ่งที่ให้ทำ เช่น\n{example}\n\n"
        "/schedule <ข้อความ> – ตั้งเวลา\n/schedules – ดูรายการ\n"
        "/schedule_runs <รหัส> – ดูประวัติ\n/schedule_pause <รหัส> – หยุด\n"
        "/schedule_resume <รหัส> – ทำต่อ\n"
        "/schedule_run <รหัส> – ทำตอนนี้\n/schedule_delete <รหัส> – ลบ\n"
        "/language en|th|zh\n/timezone Asia/Bangkok",
        "请写时间和要做的事，例如:\n{example}\n\n"
        "/schedule <文字> – 新建计划\n/schedules – 查看列表\n"
        "/schedule_runs <编号> – 运行记录\n/schedule_pause <编号> – 暂停\n"
        "/schedule_resume <编号> – 恢复\n"
        "/schedule_run <编号> – 立即运行\n/schedule_delete <编号> – 删除\n"
        "/language en|th|zh\n/timezone Asia/Bangkok",
    ),
    "language_set": ("Language: English", "ภาษา: ไทย", "语言: 中文"),
    "language_which": (
        "Write /language en, /language th or /language zh.",
        "เขียน /language en, /language th หรือ /language zh",
        "请写 /language en、/language th 或 /language zh。",
    ),
    "timezone_set": ("Time zone: {zone}", "เขตเวลา: {zone}", "时区: {zone}"),
    "timezone_which": (
        "Write a zone such as /timezone Asia/Bangkok. Now it is {zone}.",
        "เขียนเขตเวลา เช่น /timezone Asia/Bangkok ตอนนี้ใช้ {zone}",
        "请写时区，例如 /timezone Asia/Bangkok。现在是 {zone}。",
    ),
    "timezone_bad": (
        "There is no time zone {zone}. Write one such as Asia/Bangkok.",
        "ไม่มีเขตเวลา {zone} เขียนเช่น Asia/Bangkok",
        "没有时区 {zone}。请写例如 Asia/Bangkok。",
    ),
    "not_ours": (
        "Not found",
        "ไม่พบ",
        "找不到",
    ),
    "link_asked": (
        "Almost done: confirm this chat where you are logged in ({hint}).",
        "เกือบเสร็จแล้ว ยืนยันแชตนี้ในระบบที่เข้าใช้อยู่ ({hint})",
        "快好了: 请在已登录的地方确认此聊天 ({hint})。",
    ),
    "link_bad": (
        "This code is not valid any more. Ask for a new one.",
        "รหัสนี้ใช้ไม่ได้แล้ว ขอรหัสใหม่",
        "此代码已失效，请获取新的。",
    ),
    "linked": (
        "This chat now belongs to {owner}.",
        "แชตนี้ผูกกับ {owner} แล้ว",
        "此聊天现在属于 {owner}。",
    ),
    "unlinked": (
        "This chat is on its own again.",
        "ยกเลิกการผูกแชตแล้ว",
        "已解除绑定。",
    ),
    "test": (
        "A test message from Chimes: this chat can be reached.",
        "ข้อความทดสอบจาก Chimes: ติดต่อแชตนี้ได้",
        "Chimes 测试消息: 可以联系到此聊天。",
    ),
}
EXAMPLES: dict[Language, str] = {
    "en": "every weekday at 9:00 summarise the news",
    "th": "ทุกวัน 09:00 สรุปข่าว AI",
    "zh": "每天早上9点总结新闻",
}


def say(key: str, language: Language, **given: object) -> str:
    text = _TEXTS[key][LANGUAGES.index(language)]
    return text.format_map({name: str(value) for name, value in given.items()})


def language_of(code: str) -> Language | None:
    """From a tag such as `th`, `zh-hans` or `en-US`."""
    found = code.partition("-")[0].partition("_")[0].lower()
    return next((each for each in LANGUAGES if each == found), None)


def language_of_text(text: str) -> Language | None:
    """By its script; Latin letters say nothing."""
    if any("\u0e00" <= char <= "\u0e7f" for char in text):
        return "th"
    return "zh" if any("\u4e00" <= char <= "\u9fff" for char in text) else None
