"""Dockerfile, compose files, Helm chart, systemd unit and bill of materials."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from tools import sbom

from chimes.config.settings import FIELDS
from tests.helm import render_chart
from tests.system.node import CHIMES, Node
from tests.test_supply_chain import entries

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
CHART = DEPLOY / "helm" / "chimes"
UNIT = DEPLOY / "systemd" / "chimes.service"
VARIABLES = {name for field in FIELDS.values() for name in field.variables}


# --- Docker ---------------------------------------------------------------------------------------
def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_dockerfile_follows_the_rules() -> None:
    found = instructions()
    assert {word for word, _rest in found} <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL"),
        *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    for _word, image in (each for each in found if each[0] == "FROM"):
        assert re.fullmatch(r"python:3\.\d+-slim( AS \w+)?", image), image
    last = found[max(place for place, each in enumerate(found) if each[0] == "FROM") :]
    (user,) = [rest for word, rest in last if word == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "Kubernetes checks numbers only"
    assert [word for word, _rest in last].index("USER") > [word for word, _rest in last].index(
        "RUN"
    )
    assert [json.loads(rest) for word, rest in last if word in ("ENTRYPOINT", "CMD")] == [
        ["chimes"],
        ["serve"],
    ]
    (environment,) = [rest for word, rest in last if word == "ENV"]
    names = {pair.partition("=")[0] for pair in environment.split()}
    assert {name for name in names if name.startswith("CHIMES_")} <= VARIABLES
    for _word, rest in (each for each in found if each[0] == "RUN"):
        assert "apt-get" not in rest
        assert "pip install" not in rest or "--no-cache-dir" in rest
    ignored = (ROOT / ".dockerignore").read_text().split()
    for sources in copied():
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, f"{source} is not in the build context"


def copied() -> Iterator[list[str]]:
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            yield [source.removeprefix("./") for source in rest.split()[:-1]]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_commands_of_the_dockerfile_install_a_working_server(tmp_path: Path) -> None:
    """Runs the steps of the first stage in a directory that has only the copied files."""
    work, target = tmp_path / "src", tmp_path / "opt"
    work.mkdir()
    stage = instructions()
    stage = stage[: [word for word, _rest in stage].index("FROM", 1)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for word, rest in stage:
        if word == "COPY":
            *sources, _target = rest.split()
            for source in sources:
                origin = ROOT / source
                if origin.is_dir():
                    ignore = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(origin, work / source, ignore=ignore)
                else:
                    shutil.copy(origin, work / source)
        elif word == "RUN":
            words = shlex.split(rest.replace("/opt/chimes", str(target)))
            words[0] = sys.executable if words[0] == "python" else words[0]
            subprocess.run(words, cwd=work, env=environment, check=True, timeout=600)
    shutil.rmtree(work)
    # As in the image: the root is read-only, and only the data directory can be written.
    data = tmp_path / "data"
    data.mkdir()
    settings = environment | {
        "PATH": f"{target}/bin:{environment['PATH']}",
        "CHIMES_DATA_DIR": str(data),
        "CHIMES_PORT": str(free_port()),
        "CHIMES_HOST": "127.0.0.1",
    }
    server = subprocess.Popen(
        ["chimes", "serve"], env=settings, cwd=data, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        while "Ctrl-C" not in (line := server.stderr.readline()):
            assert line
        (check,) = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
        command = json.loads(check.partition("CMD ")[2])
        assert subprocess.run(command, env=settings, timeout=60, check=False).returncode == 0
        other = settings | {"CHIMES_PORT": str(free_port())}
        silent = subprocess.run(
            command, env=other, timeout=60, check=False, stderr=subprocess.DEVNULL
        )
        assert silent.returncode != 0
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert server.returncode == 0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


COMPOSE = sorted((DEPLOY / "compose").glob("*.yaml"))


def test_compose_files_name_existing_files_settings_and_services() -> None:
    assert [path.stem for path in COMPOSE] == [
        *("mariadb", "monitoring", "postgres", "redis", "sqlite")
    ]
    for path in COMPOSE:
        found = yaml.safe_load(path.read_text())
        volumes = set(found.get("volumes", {}))
        for name, service in found["services"].items():
            where = f"{path.name}: {name}"
            assert re.search(r":[v\d][\w.]*\d$", service["image"]), f"{where} has no fixed version"
            environment = service.get("environment", {})
            ours = {each for each in environment if each.startswith("CHIMES_")}
            assert ours <= VARIABLES, where
            for each in service.get("ports", ()):
                assert each.startswith("127.0.0.1:"), f"{where} is reachable from outside"
            for each in service.get("volumes", ()):
                source = each.partition(":")[0]
                assert source in volumes or (path.parent / source).exists(), f"{where}: {source}"
            for each in service.get("depends_on", {}):
                assert each in found["services"], where
            if "build" in service:
                context = (path.parent / service["build"]["context"]).resolve()
                assert context == ROOT
                assert (context / service["build"]["dockerfile"]).exists()
                assert service["read_only"]
                assert service["cap_drop"] == ["ALL"]
        if path.stem not in ("sqlite", "monitoring"):
            assert {"node-a", "node-b", "migrate", "database"} == set(found["services"])
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = scraped["scrape_configs"]
    names = set(job["dns_sd_configs"][0]["names"])
    nodes = {
        name
        for path in COMPOSE
        for name, service in yaml.safe_load(path.read_text())["services"].items()
        if "build" in service and name != "migrate"
    }
    assert names == nodes


# --- Helm -----------------------------------------------------------------------------------------
def rendered(**values: Any) -> dict[str, dict[str, Any]]:
    """The objects by kind."""
    texts = render_chart(CHART, values, release="prod")
    found = [yaml.safe_load(text) for text in texts.values() if text.strip()]
    return {each["kind"]: each for each in found}


def test_chart_renders_with_probes_disruption_budget_and_drain() -> None:
    objects = rendered()
    assert set(objects) == {"Deployment", "Service", "PodDisruptionBudget"}
    deployment, service = objects["Deployment"], objects["Service"]
    spec = deployment["spec"]["template"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= (
        labels.items()
    )
    (container,) = spec["containers"]
    (migration,) = spec["initContainers"]
    assert container["image"] == migration["image"] == "chimes:0.1.0"
    for probe, path in (("startup", "/health"), ("liveness", "/health"), ("readiness", "/ready")):
        assert container[f"{probe}Probe"]["httpGet"] == {
            "path": path,
            "port": "http",
            "httpHeaders": [{"name": "Host", "value": "localhost:7100"}],
        }
    environment = {each["name"]: each["value"] for each in container["env"]}
    # Kubernetes waits longer than Chimes does for running attempts.
    assert environment["CHIMES_SHUTDOWN_GRACE"] == "60s"
    assert spec["terminationGracePeriodSeconds"] == 75
    assert spec["securityContext"]["runAsNonRoot"]
    for each in (container, migration):
        assert each["securityContext"]["readOnlyRootFilesystem"]
        assert each["envFrom"] == [{"secretRef": {"name": "chimes"}}]
    ports = {each["name"] for each in container["ports"]}
    assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports
    user = next(rest for word, rest in instructions() if word == "USER")
    assert user == "{runAsUser}:{runAsGroup}".format(**spec["securityContext"])


def test_chart_renders_every_choice() -> None:
    given = {
        "replicaCount": 3,
        "image": {"tag": "1.2.3"},
        "app": "shop.tasks:app",
        "env": {"CHIMES_PUBLIC_URL": "https://chimes.example", "CHIMES_WORKERS": "20"},
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
        "podDisruptionBudget": {"enabled": False},
        "migrate": False,
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
    }
    objects = rendered(**given)
    assert set(objects) == {"Deployment", "Service", "Ingress"}
    spec = objects["Deployment"]["spec"]["template"]["spec"]
    environment = {each["name"]: each["value"] for each in spec["containers"][0]["env"]}
    assert environment.items() >= {"CHIMES_APP": "shop.tasks:app", **given["env"]}.items()
    assert set(environment) <= VARIABLES
    assert spec["containers"][0]["image"] == "chimes:1.2.3"
    assert "initContainers" not in spec
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert objects["Ingress"]["spec"]["tls"][0]["secretName"] == "tls"
    assert objects["Ingress"]["spec"]["ingressClassName"] == "nginx"


def test_values_have_a_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    validator = jsonschema_rs.Draft7Validator(schema)
    validator.validate(defaults)
    assert set(schema["properties"]) == set(defaults)
    wrong: tuple[dict[str, Any], ...] = (
        {"replicaCount": 0},
        {"replicas": 2},
        {"env": {"CHIMES_PORT": 7100}},
        {"app": "shop"},
        {"existingSecret": ""},
        {"image": {"repository": "x", "pullPolicy": "Sometimes"}},
    )
    for each in wrong:
        assert not validator.is_valid(defaults | each), each


# --- systemd --------------------------------------------------------------------------------------
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert "Type=notify" in text
    unit.write_text(text.replace("/opt/chimes/bin/chimes", CHIMES))
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert UNIT.name not in found.stderr, found.stderr
    assert found.returncode == 0, found.stderr
    security = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=25", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert security.returncode == 0, security.stdout[-2000:] + security.stderr


def test_a_node_reports_its_state_to_systemd(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60)
        node = Node(
            f"sqlite:///{tmp_path / 'chimes.db'}",
            tmp_path / "home",
            NOTIFY_SOCKET=str(address),
            WATCHDOG_USEC="300000",
        ).start()
        try:
            received = [manager.recv(4096).decode() for _number in range(3)]
            assert received[0].startswith("READY=1\nSTATUS=node ")
            assert f"MAINPID={node.pid}" in received[0]
            assert received[1:] == ["WATCHDOG=1", "WATCHDOG=1"]
            assert node.stop() == 0
        finally:
            node.close()
        manager.setblocking(False)
        while not (last := manager.recv(4096).decode()).startswith("STOPPING=1"):
            assert last == "WATCHDOG=1"


# --- bill of materials ----------------------------------------------------------------------------
def test_the_bill_of_materials_lists_all_pinned_packages_with_licences(tmp_path: Path) -> None:
    sbom.main(tmp_path)
    bill = json.loads((tmp_path / "chimes.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    names = {each["name"] for each in bill["components"]}
    assert names == entries(ROOT / "requirements.lock").keys() | {"htmx.org", "uplot"}
    references = {each["bom-ref"] for each in bill["components"]}
    assert len(references) == len(bill["components"])
    for each in bill["dependencies"]:
        assert set(each["dependsOn"]) <= references
    allowed = re.compile(
        r"(MIT|MIT-0|0BSD|BSD-[23]-Clause|Apache-2\.0|ISC|PSF-2\.0|MPL-2\.0|Unlicense|LGPL-3\.0)"
    )
    for each in bill["components"]:
        for word in re.split(r"[() ]+(?:AND|OR)?[() ]*", each["licenses"][0]["expression"]):
            assert not word or allowed.fullmatch(word), each["name"]
    text = (tmp_path / "licences.md").read_text()
    assert all(f"| {name} |" in text for name in names)
