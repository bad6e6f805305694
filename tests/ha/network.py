"""Hosts as network namespaces. Their switches are in a namespace, too, so nothing of the machine's
own network changes."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PREFIX = "chimes-ha"
#: The networks that connect all hosts, and their addresses.
NETWORKS = {"back": "10.231.0", "front": "10.231.1"}
_CLONE_NEWNET = 0x40000000
_numbers = itertools.count(1)


class NoNamespaces(Exception):
    """Network namespaces cannot be made on this machine."""


class Network:
    def __init__(self, hosts: Sequence[str]) -> None:
        _sweep()
        self._name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._hosts = {host: number for number, host in enumerate(hosts, 11)}
        self._made: list[str] = []
        try:
            self._make()
        except BaseException:
            self.remove()
            raise

    def _make(self) -> None:
        for each in ("switch", *self._hosts):
            self._add_namespace(each)
        switch = self.namespace("switch")
        for network in NETWORKS:
            ip("-n", switch, "link", "add", network, "type", "bridge")
            ip("-n", switch, "link", "set", network, "up")
        for host in self._hosts:
            for network in NETWORKS:
                self._connect(host, network)

    def _add_namespace(self, each: str) -> None:
        try:
            ip("netns", "add", self.namespace(each))
        except (RuntimeError, OSError) as error:
            raise NoNamespaces(
                "these tests make network namespaces, for which they need root with CAP_NET_ADMIN"
                f" and CAP_SYS_ADMIN, and the program ip (iproute2): {error}"
            ) from None
        self._made.append(self.namespace(each))
        ip("-n", self.namespace(each), "link", "set", "lo", "up")

    def _connect(self, host: str, network: str) -> None:
        switch, namespace = self.namespace("switch"), self.namespace(host)
        port = _port(host, network)
        ip("-n", switch, "link", "add", port, "type", "veth", "peer", network, "netns", namespace)
        ip("-n", switch, "link", "set", port, "master", network, "up")
        ip("-n", namespace, "address", "add", f"{self.address(host, network)}/24", "dev", network)
        ip("-n", namespace, "link", "set", network, "up")

    def remove(self) -> None:
        for each in self._made:
            ip("netns", "delete", each)
        self._made = []

    def namespace(self, host: str) -> str:
        return f"{self._name}-{host}"

    def address(self, host: str, network: str) -> str:
        return f"{NETWORKS[network]}.{self._hosts[host]}"

    def inside(self, host: str) -> list[str]:
        """The prefix of a command that runs on this host. It keeps the pid of the command."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def threads(self, host: str, count: int) -> ThreadPoolExecutor:
        """Threads of this process whose sockets, and those of their threads, are on this host."""
        path = f"/run/netns/{self.namespace(host)}"
        return ThreadPoolExecutor(count, initializer=_enter, initargs=(path,))

    def cut(self, host: str, *networks: str) -> None:
        for network in networks or NETWORKS:
            self._set(host, network, "down")

    def heal(self, host: str) -> None:
        for network in NETWORKS:
            self._set(host, network, "up")

    def _set(self, host: str, network: str, state: str) -> None:
        ip("-n", self.namespace("switch"), "link", "set", _port(host, network), state)


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _port(host: str, network: str) -> str:
    return f"{host}-{network}"


def _enter(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(path).open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)


def _sweep() -> None:
    """Removes the namespaces of killed test processes."""
    try:
        names = [line.split()[0] for line in ip("netns", "list").splitlines() if line]
    except (RuntimeError, OSError):
        return
    for name in names:
        owner = name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if name.startswith(f"{PREFIX}-") and not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)
