"""A flow: steps with dependencies, parallel steps, and a step mapped over a list.

python examples/flow.py
"""

import asyncio

from chimes import Chimes

app = Chimes("memory://")
flow = app.flow("nightly-report")


@flow.step()
async def customers(region: str) -> list[str]:
    return [f"{region}-{number}" for number in (1, 2, 3)]


@flow.step()
async def rates() -> dict[str, float]:
    """Has no dependency, so it runs in parallel with `customers`."""
    return {"EUR": 1.0, "THB": 0.025}


@flow.step(after=["customers"], map="customers", retries=2)
def bill(item: str) -> int:
    """Runs once per customer; the next step gets the list of results."""
    return len(item) * 100


@flow.step(after=["bill", "rates"])
def total(bill: list[int], rates: dict[str, float]) -> float:
    return sum(bill) * rates["EUR"]


@flow.step(after=["total"])
def report(total: float, region: str) -> str:
    return f"{region}: {total:.2f}"


@flow.step(after=["total"], when=lambda total: total > 1_000_000)
def celebrate(total: float) -> str:
    return "cake"


app.schedule("nightly", "0 2 * * *", flow, input={"region": "north"})


async def main() -> None:
    await app.start()
    try:
        handle = await flow.start({"region": "south"})
        print(await handle.result(timeout="30s"))
    finally:
        await app.stop()


if __name__ == "__main__":
    asyncio.run(main())
