"""Chimes in a Flask application: views enqueue, workers are separate processes.

flask --app web run               # in examples/flask_shop
flask --app web chimes worker     # in another terminal
"""

from flask import Flask, jsonify
from flask.typing import ResponseReturnValue
from tasks import app, confirm

from chimes.integrations.flask import FlaskChimes

chimes = FlaskChimes(app)


def create_app() -> Flask:
    web = Flask(__name__)
    web.config["CHIMES_APP"] = "tasks:app"
    chimes.init_app(web)

    @web.post("/orders/<int:number>")
    def create_order(number: int) -> ResponseReturnValue:
        handle = chimes.enqueue(confirm.options(key=f"confirm:{number}"), number)
        return jsonify(run=handle.id), 202

    @web.get("/runs/<run_id>")
    def get_result(run_id: str) -> ResponseReturnValue:
        return jsonify(result=chimes.run_handle(run_id).result(timeout="30s"))

    return web
