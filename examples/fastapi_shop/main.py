"""Chimes in a FastAPI application: a node in the web process, API and dashboard on its port.

uvicorn main:api      # in examples/fastapi_shop; then open http://127.0.0.1:8000/ui/
"""

from fastapi import FastAPI

from chimes import Chimes
from chimes.integrations.fastapi import chimes_lifespan, mount_chimes

app = Chimes("sqlite:///shop.db")


@app.task(retries=3)
async def confirm(order: int) -> str:
    return f"order {order} is confirmed"


app.schedule("daily check", "0 7 * * *", confirm, args={"order": 0})

api = FastAPI(title="Shop", lifespan=chimes_lifespan(app))


@api.post("/orders/{number}")
async def create_order(number: int) -> dict[str, str]:
    handle = await confirm.options(key=f"confirm:{number}").enqueue(number)
    return {"run": handle.id}


@api.get("/runs/{run_id}")
async def get_result(run_id: str) -> dict[str, object]:
    return {"result": await app.run_handle(run_id).result(timeout="30s")}


mount_chimes(api, app)
