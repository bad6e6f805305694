"""Jobs of Kubernetes, over its API (`batch/v1`).

The name of the Job is made of the job id, so that the API server itself refuses a second one
(409): a hand-over can be repeated. The Job does not repeat pods (`backoffLimit: 0`), because Chimes
retries; it ends at the timeout of the run, and Kubernetes deletes it a day after its end.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp

from chimes.config.connections import Connection
from chimes.i18n import _
from chimes.model.target import KubernetesTarget
from chimes.targets.base import TargetError
from chimes.targets.engines.port import Engine, Job, JobEnd, JobReport, unreachable

_TIMEOUT = aiohttp.ClientTimeout(total=20)
#: Seconds that Kubernetes keeps a finished Job.
_KEPT = 24 * 3600
_LOG_LINES, _LOG_BYTES = 100, 32 * 1024
_INVALID = re.compile(r"[^a-z0-9-]+")
Json = dict[str, Any]


class KubernetesEngine(Engine):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._session: aiohttp.ClientSession | None = None

    async def check(self) -> str:
        found = await self._request("GET", "/version")
        return _("Kubernetes {version} answers", version=str(found.get("gitVersion")))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def submit(self, job: Job) -> bool:
        manifest = build_manifest(job, self.connection)
        try:
            await self._request("POST", self._jobs(job), manifest)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def poll(self, job: Job) -> JobReport:
        try:
            found = await self._request("GET", f"{self._jobs(job)}/{job_name(job.id)}")
        except ApiError as error:
            if error.status != 404:
                raise
            return JobReport(
                status="deleted", end=JobEnd.CANCELED, error=_("the Job was deleted over there")
            )
        report = read_status(found)
        if report.end is None:
            return report
        output = await self._output(job)
        return JobReport(
            status=report.status,
            end=report.end,
            error=report.error,
            output=output,
            value=output[-1] if output else None,
        )

    async def cancel(self, job: Job) -> None:
        path = f"{self._jobs(job)}/{job_name(job.id)}?propagationPolicy=Background"
        try:
            await self._request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _output(self, job: Job) -> list[str]:
        """The last lines of the pod; empty if they cannot be read."""
        pods = f"/api/v1/namespaces/{self._namespace(job)}/pods"
        with contextlib.suppress(TargetError):
            found = await self._request("GET", f"{pods}?labelSelector=job-name={job_name(job.id)}")
            for pod in found.get("items", ()):
                name = pod["metadata"]["name"]
                limits = f"tailLines={_LOG_LINES}&limitBytes={_LOG_BYTES}"
                text = await self._request("GET", f"{pods}/{name}/log?{limits}", plain=True)
                return str(text["text"]).splitlines()
        return []

    def _namespace(self, job: Job) -> str:
        return cast(KubernetesTarget, job.target).namespace or self.connection.namespace

    def _jobs(self, job: Job) -> str:
        return f"/apis/batch/v1/namespaces/{self._namespace(job)}/jobs"

    async def _request(
        self, method: str, path: str, body: Json | None = None, *, plain: bool = False
    ) -> Json:
        """TargetError, retryable if the server could not answer; ApiError for what it refused."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT, connector=self._connector())
        headers = {"Accept": "*/*" if plain else "application/json"}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        url = f"{self.connection.url.rstrip('/')}{path}"
        try:
            async with self._session.request(
                method, url, json=body, headers=headers, allow_redirects=False
            ) as reply:
                text = await reply.text()
                status = reply.status
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise unreachable(self.connection, error) from None
        if 200 <= status < 300:
            return {"text": text} if plain else cast(Json, json.loads(text))
        raise ApiError(status, _reason(text))

    def _connector(self) -> aiohttp.BaseConnector:
        if not self.connection.ca_file:
            return aiohttp.TCPConnector()
        context = ssl.create_default_context(cafile=self.connection.ca_file)
        return aiohttp.TCPConnector(ssl=context)

    def _token(self) -> str:
        if not self.connection.token_file:
            return self.connection.token
        try:
            return Path(self.connection.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise TargetError(
                "bad_connection",
                _("cannot read {file}: {why}", file=self.connection.token_file, why=error.strerror),
            ) from None


class ApiError(TargetError):
    """A `Status` of the API server."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(
            "api_refused" if status < 500 else "unreachable",
            _("Kubernetes returned HTTP {status}: {reason}", status=status, reason=reason),
            retryable=status >= 500 or status in (408, 429),
            status=status,
        )


def _reason(text: str) -> str:
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict):
            return str(found.get("message") or found.get("reason") or "")[:500]
    return text[:200]


def job_name(job_id: str) -> str:
    """A name of at most 63 characters, as labels of pods need it."""
    return f"chimes-{_INVALID.sub('-', job_id.lower())}"[:63].rstrip("-")


def build_manifest(job: Job, connection: Connection) -> Json:
    target = cast(KubernetesTarget, job.target)
    container: Json = {"name": "main", "image": target.image}
    if target.command:
        container["command"] = list(target.command)
    if target.env:
        container["env"] = [{"name": name, "value": each} for name, each in target.env.items()]
    labels = {"app.kubernetes.io/managed-by": "chimes", "chimes-run": job_name(job.id)}
    own: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(job.id), "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": max(int(job.seconds), 1),
            "ttlSecondsAfterFinished": _KEPT,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
    manifest = cast(Json, _merged(dict(target.manifest), own))
    for image in _images(manifest):
        if not connection.allows(image):
            raise TargetError(
                "not_allowed_there",
                _(
                    "the connection {name!r} does not allow {used!r}",
                    name=connection.name,
                    used=image,
                ),
            )
    return manifest


def _merged(given: object, own: object) -> object:
    """`own` over `given`; of lists, the first item is merged and further ones of `given` stay."""
    if isinstance(given, Mapping) and isinstance(own, Mapping):
        return {**given, **{name: _merged(given.get(name), each) for name, each in own.items()}}
    if isinstance(given, list) and isinstance(own, list) and given and isinstance(own[0], Mapping):
        return [_merged(given[0], own[0]), *given[1:]]
    return own


def _images(manifest: Json) -> Iterator[str]:
    pod = manifest["spec"]["template"]["spec"]
    for part in ("containers", "initContainers", "ephemeralContainers"):
        for each in pod.get(part) or ():
            if isinstance(each, Mapping):
                yield str(each.get("image", ""))


def read_status(job: Json) -> JobReport:
    status = job.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return JobReport(status="Complete", end=JobEnd.SUCCEEDED)
        if condition.get("type") == "Failed":
            why = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            return JobReport(status="Failed", end=JobEnd.FAILED, error=why)
    return JobReport(status="Active" if status.get("active") else "Pending")
