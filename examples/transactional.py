"""Inserts an order and enqueues its task in one transaction.

python examples/transactional.py      # creates shop.db in the working directory
"""

import asyncio

from sqlalchemy import create_engine, text

from chimes import Chimes

app = Chimes("sqlite:///shop.db")


@app.task
async def confirm(order: int) -> str:
    return f"order {order} is confirmed"


async def main() -> None:
    engine = create_engine("sqlite:///shop.db")
    await app.start()
    try:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE IF NOT EXISTS orders (number INTEGER)"))

        with engine.begin() as connection:
            connection.execute(text("INSERT INTO orders VALUES (7)"))
            handle = await confirm.options(connection=connection).enqueue(7)
        print(await handle.result(timeout="10s"))

        with engine.connect() as connection:
            connection.execute(text("INSERT INTO orders VALUES (8)"))
            await confirm.options(connection=connection).enqueue(8)
            connection.rollback()  # neither the order nor its task

        with engine.connect() as connection:
            found = connection.execute(text("SELECT number FROM orders ORDER BY number"))
            print("orders:", [number for (number,) in found])
    finally:
        await app.stop()
        engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
