"""What presets and templates are called in each language, and how one says their times.

`example` is what a person would type; with a prompt behind it, it is the whole schedule in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Text(NamedTuple):
    name: str
    description: str
    example: str
    prompt: str = ""


Texts = Mapping[str, Text]

ENGLISH: Texts = {
    "hourly": Text("Hourly", "At the start of every hour", "every hour"),
    "daily_midnight": Text("Daily Midnight", "Every day at midnight", "every day at 00:00"),
    "daily_9am": Text("Daily 9 AM", "Every day at 9 AM", "every day at 09:00"),
    "weekly_monday_8am": Text(
        "Weekly Monday 8 AM", "Every Monday at 8 AM", "every Monday at 08:00"
    ),
    "daily_summary": Text(
        "Daily summary",
        "What happened today, every evening",
        "every day at 18:00",
        "Summarise what happened today in at most ten points, the most important first.",
    ),
    "news_digest": Text(
        "News digest",
        "The news of the last day, every morning",
        "every day at 07:00",
        "Collect the most important news of the last day in five points, each with its source.",
    ),
    "morning_brief": Text(
        "AI morning brief",
        "What the day brings, before work begins",
        "every weekday at 08:00",
        "Prepare a short brief for my working day: the weather, what is due, what is still open.",
    ),
    "weekly_report": Text(
        "Weekly report",
        "The week that was, on Monday morning",
        "every Monday at 09:00",
        "Write a report of last week: what was achieved, the key figures, risks and next steps.",
    ),
    "reminder": Text(
        "Reminder",
        "A message at a set time",
        "every Friday at 16:30",
        "Remind me to write down my working hours, in one friendly sentence.",
    ),
    "month_end": Text(
        "Month-end closing",
        "Calls an address on the last day of each month",
        "on the last day of every month at 18:00",
    ),
    "health_ping": Text(
        "Health ping",
        "Calls an address and tells you when it stops answering, and when it is back",
        "every 5 minutes",
    ),
    "heartbeat": Text(
        "Heartbeat",
        "A sign of life every minute, for a monitor that misses it when it stays away",
        "every minute",
    ),
    "nightly_backup": Text(
        "Nightly backup",
        "Starts a backup when nobody works",
        "every day at 02:00",
    ),
    "data_sync": Text(
        "Data sync",
        "Brings two systems to the same state every half hour",
        "every 30 minutes",
    ),
    "certificate_check": Text(
        "Certificate check",
        "Calls an https address each day; an expired certificate makes the call fail",
        "every day at 06:00",
    ),
    "cleanup": Text(
        "Clean-up",
        "Removes what is no longer needed, once a week",
        "every Sunday at 03:00",
    ),
}

THAI: Texts = {
    "hourly": Text("ทุกชั่วโมง", "ต้นชั่วโมงของทุกชั่วโมง", "ทุกชั่วโมง"),
    "daily_midnight": Text("ทุกวันเที่ยงคืน", "ทุกวันเวลาเที่ยงคืน", "ทุกวัน 00:00"),
    "daily_9am": Text("ทุกวัน 9 โมงเช้า", "ทุกวันเวลา 9 โมงเช้า", "ทุกวัน 09:00"),
    "weekly_monday_8am": Text("ทุกวันจันทร์ 8 โมงเช้า", "ทุกวันจันทร์เวลา 8 โมงเช้า", "ทุกวันจันทร์ 08:00"),
    "daily_summary": Text(
        "สรุปประจำวัน",
        "สรุปเรื่องที่เกิดขึ้นวันนี้ ส่งให้ทุกเย็น",
        "ทุกวัน 18:00",
        "สรุปเรื่องที่เกิดขึ้นในวันนี้ไม่เกินสิบข้อ เรียงจากเรื่องที่สำคัญที่สุด",
    ),
    "news_digest": Text(
        "สรุปข่าว",
        "รวมข่าวในรอบวันที่ผ่านมา ส่งให้ทุกเช้า",
        "ทุกวัน 07:00",
        "รวบรวมข่าวสำคัญในรอบวันที่ผ่านมาห้าข้อ พร้อมแหล่งที่มาของแต่ละข้อ",
    ),
    "morning_brief": Text(
        "บรีฟยามเช้าจาก AI",
        "ภาพรวมของวันก่อนเริ่มงาน",
        "ทุกวันทำการ 08:00",
        "เตรียมบรีฟสั้น ๆ ก่อนเริ่มงาน ทั้งสภาพอากาศ งานที่ครบกำหนด และงานที่ยังค้างอยู่",
    ),
    "weekly_report": Text(
        "รายงานประจำสัปดาห์",
        "สรุปสัปดาห์ที่ผ่านมา ส่งเช้าวันจันทร์",
        "ทุกวันจันทร์ 09:00",
        "เขียนรายงานของสัปดาห์ที่ผ่านมา ทั้งผลงาน ตัวเลขสำคัญ ความเสี่ยง และขั้นตอนต่อไป",
    ),
    "reminder": Text(
        "เตือนความจำ",
        "ส่งข้อความเตือนตามเวลาที่กำหนด",
        "ทุกวันศุกร์ 16:30",
        "เตือนฉันให้กรอกไทม์ชีต ด้วยประโยคที่เป็นกันเองหนึ่งประโยค",
    ),
    "month_end": Text(
        "ปิดสิ้นเดือน",
        "เรียกที่อยู่เว็บในวันสุดท้ายของทุกเดือน",
        "ทุกวันสุดท้ายของเดือน 18:00",
    ),
    "health_ping": Text(
        "ตรวจสุขภาพระบบ",
        "เรียกที่อยู่เว็บ แล้วแจ้งเมื่อระบบไม่ตอบและเมื่อกลับมาใช้ได้",
        "ทุก 5 นาที",
    ),
    "heartbeat": Text(
        "สัญญาณชีพ",
        "ส่งสัญญาณทุกนาที ให้ระบบเฝ้าระวังรู้ทันทีที่เงียบไป",
        "ทุกนาที",
    ),
    "nightly_backup": Text("สำรองข้อมูลกลางคืน", "เริ่มสำรองข้อมูลในเวลาที่ไม่มีใครทำงาน", "ทุกวัน 02:00"),
    "data_sync": Text("ซิงก์ข้อมูล", "ปรับข้อมูลของสองระบบให้ตรงกันทุกครึ่งชั่วโมง", "ทุก 30 นาที"),
    "certificate_check": Text(
        "ตรวจใบรับรอง",
        "เรียกที่อยู่ https ทุกวัน ถ้าใบรับรองหมดอายุ การเรียกจะล้มเหลว",
        "ทุกวัน 06:00",
    ),
    "cleanup": Text("เก็บกวาดข้อมูล", "ลบสิ่งที่ไม่ใช้แล้วสัปดาห์ละครั้ง", "ทุกวันอาทิตย์ 03:00"),
}

CHINESE: Texts = {
    "hourly": Text("每小时", "每小时整点", "每小时"),
    "daily_midnight": Text("每天零点", "每天零点", "每天 00:00"),
    "daily_9am": Text("每天早上9点", "每天早上9点", "每天 09:00"),
    "weekly_monday_8am": Text("每周一早上8点", "每周一早上8点", "每周一 08:00"),
    "daily_summary": Text(
        "每日总结",
        "每天傍晚总结当天发生的事",
        "每天 18:00",
        "用不超过十条要点总结今天发生的事，最重要的放在最前面。",
    ),
    "news_digest": Text(
        "新闻摘要",
        "每天早上汇总过去一天的新闻",
        "每天 07:00",
        "汇总过去一天最重要的五条新闻，并注明每条的来源。",
    ),
    "morning_brief": Text(
        "AI 晨间简报",
        "上班前了解当天的安排",
        "工作日 08:00",
        "为我准备一份简短的晨间简报：天气、到期事项和尚未完成的事项。",
    ),
    "weekly_report": Text(
        "周报",
        "周一早上回顾上一周",
        "每周一 09:00",
        "写一份上周的工作报告：成果、关键数据、风险和后续步骤。",
    ),
    "reminder": Text(
        "提醒",
        "在设定的时间发送消息",
        "每周五 16:30",
        "用一句友好的话提醒我填写工时。",
    ),
    "month_end": Text("月末结账", "在每月最后一天调用一个地址", "每月最后一天18:00"),
    "health_ping": Text("健康检查", "调用一个地址，无响应和恢复时通知你", "每隔5分钟"),
    "heartbeat": Text("心跳", "每分钟发出一次信号，一旦中断监控就会发现", "每分钟"),
    "nightly_backup": Text("夜间备份", "在无人工作的时间开始备份", "每天 02:00"),
    "data_sync": Text("数据同步", "每半小时让两个系统的数据保持一致", "每隔30分钟"),
    "certificate_check": Text(
        "证书检查", "每天调用一个 https 地址，证书过期时调用会失败", "每天 06:00"
    ),
    "cleanup": Text("清理", "每周清除一次不再需要的数据", "每周日 03:00"),
}

TEXTS: Mapping[str, Texts] = {"en": ENGLISH, "th": THAI, "zh": CHINESE}
