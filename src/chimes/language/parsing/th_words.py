"""Thai: all recognisers, and the words that hold a time phrase together."""

from __future__ import annotations

import re

from chimes.language.parsing import th_clock, th_days, th_spans

RULES = [*th_clock.RULES, *th_days.RULES, *th_spans.RULES]
#: Between parts, meaning nothing by themselves.
JOINING = r"วันที่(?= ?[0-9]+[/-])|เวลา|ตอน|ช่วง|ใน|ของ|ณ|ที่"
#: Between two of a kind: both are meant.
LISTING = r"และ|กับ|แล้วก็"
#: Asks for something; it may stand before, or in the middle of, the words of time.
REQUEST = re.compile(
    r"กรุณา|โปรด|รบกวน|ช่วย|ขอให้|ขอ|อยากให้|ให้|ตั้ง|เตือน|แจ้งเตือน|แจ้ง|บอก|ปลุก|"
    r"ฉัน|ผม|เรา|หน่อย|ด้วย|ว่า|นะ|ครับ|ค่ะ|คะ"
)
