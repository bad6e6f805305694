"""Tasks and a schedule in one file.

python examples/tasks.py                                  # in memory, as a demonstration
chimes worker --app tasks:app --store sqlite:///shop.db   # as a worker; run it in examples/
"""

import asyncio

from chimes import Chimes, Context, RunFailed

app = Chimes("memory://")


@app.task(retries=3, retry_backoff="1s", timeout="30s")
async def send_invoice(context: Context, order: int) -> str:
    context.logger.info("order %s, attempt %s", order, context.attempt)
    return f"invoice for order {order}"


@app.task
def count_words(text: str) -> int:
    """A sync function runs in a thread."""
    return len(text.split())


@app.task
async def broken() -> None:
    raise ValueError("no paper left")


app.schedule("invoices", "0 9 * * 1-5", send_invoice, args={"order": 1}, timezone="Asia/Bangkok")
app.schedule("words", "every 1s", count_words, args={"text": "every second counts"})


async def main() -> None:
    await app.start()
    try:
        handle = await send_invoice.enqueue(42)
        print(await handle.result(timeout="10s"))
        print(await (await count_words.enqueue("one two three")).result("10s"))
        try:
            await (await broken.enqueue()).result("10s")
        except RunFailed as failure:
            print("failed:", failure.error)
        for schedule in await app.list_schedules():
            print(schedule.name, schedule.cron_spec, schedule.enabled)
        # Run one now; its next planned run does not change.
        print(await (await app.trigger_schedule("invoices")).result("10s"))
    finally:
        await app.stop()


if __name__ == "__main__":
    asyncio.run(main())
