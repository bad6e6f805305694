"""Three PostgreSQL servers under Patroni with etcd, one of each on three hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import asyncpg

from tests.ha.network import NETWORKS, Network
from tests.ha.processes import Process, program
from tests.servers.kinds import _postgres_binary
from tests.servers.places import DataDirectory
from tests.servers.server import _children, wait_for_exit
from tests.system.node import wait_until

Mode = Literal["sync", "async"]
T = TypeVar("T")

HOSTS = ("db1", "db2", "db3")
#: The host of the Chimes nodes and of the receiver.
APP = "app"
USER = "postgres"
TEMPLATE = Path(__file__).with_name("patroni.yml")
START_SECONDS = 180.0
_ROUTINE = re.compile("no action|Lock owner|checkpoint|^ok|recovery process")


class Member:
    """PostgreSQL, Patroni and etcd on one host."""

    def __init__(self, host: str, network: Network, mode: Mode, place: Path) -> None:
        self.host = host
        self.back = network.address(host, "back")
        self.front = network.address(host, "front")
        self._directory = place / host
        self._directory.mkdir(mode=0o755)
        shutil.chown(self._directory, USER)
        inside = network.inside(host)
        self.etcd = Process(
            [*inside, program("etcd"), *self._etcd_options(network)],
            self._directory / "etcd.log",
            user=USER,
            cwd=self._directory,
        )
        (self._directory / "patroni.yml").write_text(self._configuration(network, mode))
        self.patroni = Process(
            [*inside, program("patroni"), str(self._directory / "patroni.yml")],
            self._directory / "patroni.log",
            user=USER,
            cwd=self._directory,
        )

    def _etcd_options(self, network: Network) -> list[str]:
        peers = ",".join(f"{each}=http://{network.address(each, 'back')}:2380" for each in HOSTS)
        options = {
            "name": self.host,
            "data-dir": str(self._directory / "etcd"),
            "initial-cluster": peers,
            "initial-cluster-token": network.namespace("etcd"),
            "listen-peer-urls": f"http://{self.back}:2380",
            "initial-advertise-peer-urls": f"http://{self.back}:2380",
            "listen-client-urls": f"http://{self.back}:2379",
            "advertise-client-urls": f"http://{self.back}:2379",
            # For machines that are busy with other tests.
            "heartbeat-interval": "300",
            "election-timeout": "3000",
            # Patroni 3.0 overwrites the key of another leader with version 3 of the interface.
            "enable-v2": "true",
            "log-level": "warn",
        }
        return [f"--{name}={value}" for name, value in options.items()]

    def _configuration(self, network: Network, mode: Mode) -> str:
        text = TEMPLATE.read_text()
        for word, value in {
            "BACK_NETWORK": f"{NETWORKS['back']}.0/24",
            "FRONT_NETWORK": f"{NETWORKS['front']}.0/24",
            "NAME": self.host,
            "ETCD": ", ".join(f"{network.address(each, 'back')}:2379" for each in HOSTS),
            "BACK": self.back,
            "FRONT": self.front,
            "SYNCHRONOUS": "true" if mode == "sync" else "false",
            "DIRECTORY": str(self._directory),
            "BINARIES": str(Path(_postgres_binary("postgres")).parent),
        }.items():
            text = text.replace(word, value)
        return text

    def server_pids(self) -> list[int]:
        """The pids of PostgreSQL."""
        try:
            lines = (self._directory / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []
        postmaster = int(lines[0])
        if lines[1] != str(self._directory / "data") or not Path(f"/proc/{postmaster}").exists():
            return []
        return [postmaster, *_children(postmaster)]

    def signal_server(self, number: signal.Signals) -> None:
        for pid in self.server_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """SIGKILL to Patroni and PostgreSQL."""
        pids = self.server_pids()
        self.patroni.end(signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            wait_for_exit(pid, 30)

    def pause(self) -> None:
        self.patroni.send(signal.SIGSTOP)
        self.signal_server(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal_server(signal.SIGCONT)
        self.patroni.send(signal.SIGCONT)

    def end(self) -> None:
        self.signal_server(signal.SIGCONT)
        self.patroni.end()
        if self.server_pids():
            self.kill()
        self.etcd.end()

    def log_lines(self) -> str:
        """The last lines of Patroni and PostgreSQL about changes."""
        text = self.patroni.log.read_text(errors="replace") if self.patroni.log.exists() else ""
        lines = [each for each in text.splitlines() if not _ROUTINE.search(each)]
        return "\n".join([f"--- {self.host}", *lines[-80:]])


class Cluster:
    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self._place: DataDirectory | None = None
        self._threads: ThreadPoolExecutor | None = None
        self.members: dict[str, Member] = {}
        self.network = Network((*HOSTS, APP))
        try:
            self._start()
        except BaseException as error:
            self.__exit__(type(error), error)
            raise

    def _start(self) -> None:
        self._threads = self.network.threads(APP, 8)
        self._place = DataDirectory(in_memory=False, user=USER)
        for host in HOSTS:
            self.members[host] = Member(host, self.network, self.mode, self._place.path)
        for member in self.members.values():
            member.etcd.start()
        for member in self.members.values():
            member.patroni.start()
        self.wait_until_healthy(START_SECONDS)

    def stop(self) -> None:
        for host in self.members:
            self.network.heal(host)
        with ThreadPoolExecutor(len(HOSTS)) as threads:
            list(threads.map(Member.end, self.members.values()))
        if self._threads is not None:
            self._threads.shutdown()
        if self._place is not None:
            self._place.remove()
        self.network.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        if error is not None:
            error.add_note("\n".join(each.log_lines() for each in self.members.values()))
        self.stop()

    def on_app_host(self, work: Callable[..., T], *arguments: Any) -> T:
        """Calls the function in a thread whose sockets are on the host of Chimes."""
        assert self._threads is not None
        return self._threads.submit(work, *arguments).result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.on_app_host(asyncio.run, work)

    def url(self, database: str) -> str:
        """The store of Chimes: the list of all servers."""
        hosts = ",".join(f"{member.front}:5432" for member in self.members.values())
        user = "chimes:chimes-password"
        return f"postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write"

    # --- state --------------------------------------------------------------------------------
    def patroni(self, host: str, path: str, body: object = None) -> Any:
        """An answer of Patroni's REST API; None: no answer."""
        url = f"http://{self.members[host].back}:8008{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})

        def ask() -> str:
            with urllib.request.urlopen(request, timeout=60 if body else 3) as answer:
                found: str = answer.read().decode()
                return found

        try:
            answer = self.on_app_host(ask)
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read().decode()
        except OSError:
            return None
        return answer if body is not None else json.loads(answer)

    def sql(self, host: str, statement: str, database: str = "postgres") -> list[Any]:
        return self.run(self._fetch(host, statement, database))

    async def _fetch(self, host: str, statement: str, database: str) -> list[Any]:
        connection = await asyncpg.connect(
            host=self.members[host].back,
            user=USER,
            password="postgres-password",
            database=database,
            timeout=5,
            ssl=False,
        )
        try:
            return [tuple(row) for row in await connection.fetch(statement, timeout=60)]
        finally:
            await connection.close(timeout=5)

    def leader(self, *but: str) -> str:
        """The host whose server accepts writes; empty if there is none."""
        for host in HOSTS:
            if host in but:
                continue
            try:
                if self.sql(host, "SELECT pg_is_in_recovery()") == [(False,)]:
                    return host
            except (OSError, asyncpg.PostgresError, TimeoutError):
                continue
        return ""

    def is_healthy(self) -> bool:
        """Whether Patroni knows a leader and two standbys (one of them synchronous in that mode),
        and both receive what is written."""
        leader = self.leader()
        found = self.patroni(leader, "/cluster") if leader else None
        if found is None:
            return False
        standby = ["replica", "sync_standby" if self.mode == "sync" else "replica"]
        roles = sorted(each["role"] for each in found["members"] if each["state"] == "running")
        statement = "SELECT state FROM pg_stat_replication WHERE application_name LIKE 'db_'"
        try:
            rows = self.sql(leader, statement)
        except (OSError, asyncpg.PostgresError, TimeoutError):
            return False
        return roles == ["leader", *standby] and rows == [("streaming",)] * 2

    def wait_until_healthy(self, within: float = START_SECONDS) -> None:
        wait_until(self.is_healthy, "a leader and two standbys", within)

    def new_database(self, name: str) -> str:
        leader = self.leader()
        self.sql(leader, f"CREATE DATABASE {name} OWNER chimes")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.sql(self.leader(), f"DROP DATABASE {name} WITH (FORCE)")

    # --- faults -------------------------------------------------------------------------------
    def switch_over(self) -> None:
        """A planned change of the leader through Patroni's API."""
        leader = self.leader()
        candidates = [
            member["name"]
            for member in self.patroni(leader, "/cluster")["members"]
            if member["role"] == ("sync_standby" if self.mode == "sync" else "replica")
        ]
        body = {"leader": leader, "candidate": candidates[0]}
        answer = self.patroni(leader, "/switchover", body)
        assert "Successfully" in answer, answer
