"""The tasks of the shop; a worker imports this module only."""

from chimes import Chimes

app = Chimes("sqlite:///shop.db")


@app.task(retries=3)
def confirm(order: int) -> str:
    return f"order {order} is confirmed"
