"""A FastAPI service whose orders are booked exactly once.

The order and the mark that the run was performed are committed together: `call.connection` is in
the transaction of the receiver.

    CHIMES_SIGNING_SECRET=whsec_… uvicorn with_fastapi:app --port 8000
"""

import os
import sqlite3
import time

from fastapi import FastAPI

from chimes.receiver import Call, Receiver, SqlStore

DATABASE = "orders.db"


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=60)


with connect() as setup:
    setup.execute("CREATE TABLE IF NOT EXISTS orders (run_id TEXT, attempt INTEGER)")
setup.close()

app = FastAPI()
receiver = Receiver([os.environ["CHIMES_SIGNING_SECRET"]], store=SqlStore(connect))


@app.post("/orders")
@receiver.fastapi
def book_order(call: Call) -> dict[str, object]:
    print(f"booking for run {call.run_id}, attempt {call.attempt}", flush=True)
    call.connection.execute("INSERT INTO orders VALUES (?, ?)", (call.run_id, call.attempt))
    time.sleep(float(os.environ.get("WORK_SECONDS", "0")))  # stands for slow work
    return {"booked": call.json()["order"]}
