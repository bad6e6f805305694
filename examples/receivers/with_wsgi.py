"""A service with the standard library only. Its effect is a line in a file, not in a database: the
file of receipts remembers the run before the effect, and what was answered.

    CHIMES_SIGNING_SECRET=whsec_… python with_wsgi.py 8000
"""

import os
import socketserver
import sys
import time
from pathlib import Path
from wsgiref.simple_server import WSGIServer, make_server

from chimes.receiver import Call, Receiver, SqliteStore

receiver = Receiver([os.environ["CHIMES_SIGNING_SECRET"]], store=SqliteStore("receipts.db"))


def book_order(call: Call) -> dict[str, object]:
    print(f"booking for run {call.run_id}, attempt {call.attempt}", flush=True)
    time.sleep(float(os.environ.get("WORK_SECONDS", "0")))  # stands for slow work
    with Path("orders.txt").open("a") as orders:
        orders.write(f"{call.run_id} {call.attempt}\n")
    return {"booked": call.json()["order"]}


class ThreadingServer(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


application = receiver.wsgi(book_order)

if __name__ == "__main__":
    make_server("127.0.0.1", int(sys.argv[1]), application, ThreadingServer).serve_forever()
