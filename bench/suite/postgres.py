"""A private PostgreSQL server: a temporary cluster on a free loopback port.

Durable as in production (fsync, synchronous_commit and full_page_writes are on). Only memory and
the distance of checkpoints differ from the defaults, as production guides advise: with the defaults
most of the noise would come from checkpoints within a round.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from suite.children import stop
from suite.ports import free_port

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "200",
    "jit": "off",
}
START_SECONDS = 30.0
STOP_SECONDS = 30.0


class PsqlSession:
    """A psql process for many queries, because starting one takes 50 ms of CPU from the processes
    under measurement. A context manager."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> PsqlSession:
        return self

    def __exit__(self, *_: object) -> None:
        stop(self._process)

    def query(self, text: str) -> str:
        """Executes a query that returns one row and returns that line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text};\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"psql exited with {self._process.wait()}")
        return answer.strip()


class Postgres:
    """A context manager; `url` is what clients connect to."""

    def __init__(self) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="chimes-bench-pg-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.database_url("bench")

    def database_url(self, database: str) -> str:
        return f"postgresql://bench@127.0.0.1:{self.port}/{database}"

    @property
    def environment(self) -> dict[str, str]:
        """For psql, pgbench and other programs that use libpq."""
        return os.environ | {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "bench",
            "PGDATABASE": "bench",
        }

    def __enter__(self) -> Postgres:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def sql(self, text: str, database: str = "bench", *, data: str = "") -> str:
        """The output of psql, with | between columns. `data` is its standard input."""
        command = [program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text]
        done = subprocess.run(
            command,
            env=self.environment,
            input=data,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def copy(self, table: str, data: str, database: str) -> None:
        """Adds rows in the text format of COPY."""
        self.sql(f"COPY {table} FROM STDIN", database, data=data)

    def psql_session(self, database: str) -> PsqlSession:
        command = [program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database]
        return PsqlSession(command, self.environment)

    def fresh_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", "postgres")
        self.sql(f"CREATE DATABASE {name}", "postgres")
        return self.database_url(name)

    def cpu_seconds(self) -> float:
        """CPU time of the server and its processes so far, including ended ones."""
        assert self._process is not None
        parent = str(self._process.pid)
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if stat.parent.name == parent:
                    ticks += sum(int(each) for each in fields[11:15])
                elif fields[1] == parent:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            # SIGINT means fast shutdown.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        data = self._folder / "data"
        data.mkdir()
        as_user: dict[str, str] = {}
        if os.geteuid() == 0:
            # The server does not run as root.
            as_user = {"user": "postgres", "group": "postgres"}
            self._folder.chmod(0o755)
            shutil.chown(data, "postgres", "postgres")
        initdb = [program("initdb"), "-D", str(data), "-U", "bench", "-A", "trust"]
        subprocess.run(
            [*initdb, "-E", "UTF8", "--no-locale", "--no-sync"],
            check=True,
            capture_output=True,
            cwd="/",
            timeout=120,
            extra_groups=[] if as_user else None,
            **as_user,
        )
        settings = SETTINGS | {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
        }
        options = [f"-c{name}={value}" for name, value in settings.items()]
        log = (self._folder / "log").open("wb")
        self._process = subprocess.Popen(
            [program("postgres"), "-D", data, *options],
            stdout=log,
            stderr=log,
            cwd="/",
            extra_groups=[] if as_user else None,
            # Ctrl-C must reach only the benchmark, which stops the nodes before the server.
            start_new_session=True,
            **as_user,
        )
        log.close()
        self._await_ready()
        self.sql("CREATE DATABASE bench", "postgres")

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        check = [program("pg_isready"), "-q", "-d", "postgres"]
        while subprocess.run(check, env=self.environment, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self._folder / "log").read_text(errors="replace")
                raise RuntimeError(f"PostgreSQL did not start:\n{text[-2000:]}")
            time.sleep(0.05)


def program(name: str) -> str:
    """Path of a PostgreSQL program: on the PATH or in the directory that Debian uses."""
    found = shutil.which(name)
    if found:
        return found
    paths = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    if not paths:
        raise RuntimeError(f"{name} was not found. Install the PostgreSQL server, not only psql.")
    return str(paths[0])
