"""Schedules of other systems as schedules of Chimes: CronJobs, Celery beat, APScheduler, crontabs.

Each entry becomes a definition of the API, or an error that says why it cannot. Nothing is started
and nothing is created. Crontabs and CronJobs keep their expression, zone and rules for clock
changes, so they fire as before; entries of Celery and APScheduler have the fires of the old system
for comparison. Their objects are read by attributes, so that neither is a dependency.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import yaml

from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import Message, _
from chimes.services.schedules.crontab import crontab_lines
from chimes.triggers import Cron, Every, Once, Trigger, trigger_from_dict
from chimes.triggers.zones import parse_zone

Json = dict[str, object]
#: Up to `count` fires of the old system after a moment.
OldFires = Callable[[datetime, int], Sequence[datetime]]
_MAX_NAME = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedSchedule:
    #: Where it stands in the old system: a line, or a name.
    place: str
    text: str
    #: The schedule as JSON of the API; None: see `error`.
    definition: Json | None = None
    error: str = ""
    #: What is lost or means something else.
    notes: tuple[Message, ...] = ()
    #: None: the trigger has the same fires by its rules.
    old_fires: OldFires | None = None

    @property
    def trigger(self) -> Trigger | None:
        given = None if self.definition is None else self.definition["trigger"]
        return trigger_from_dict(given) if isinstance(given, Mapping) else None


# --- crontab --------------------------------------------------------------------------------------
def import_crontab(text: str, *, zone: str, users: bool) -> tuple[ImportedSchedule, ...]:
    """`zone`: of the old system. `users`: a system crontab, with a user before the command."""
    return tuple(
        ImportedSchedule(
            place=str(line.number),
            text=line.text,
            definition=line.definition,
            error=line.error,
            notes=line.notes,
        )
        for line in crontab_lines(text, zone=zone, users=users)
    )


# --- Kubernetes -----------------------------------------------------------------------------------
_OVERLAPS = {"Allow": "allow", "Forbid": "skip", "Replace": "cancel_old"}
#: Parts of a pod that a command has no counterpart for.
_LOST_IN_POD = (
    *("volumes", "initContainers", "serviceAccountName", "nodeSelector", "affinity"),
    *("tolerations", "securityContext", "imagePullSecrets", "hostNetwork"),
)
_LOST_IN_CONTAINER = ("resources", "volumeMounts", "envFrom", "securityContext", "lifecycle")
_EXPANDED = re.compile(r"\$\([A-Za-z_][A-Za-z0-9_]*\)")


def import_k8s(text: str) -> tuple[ImportedSchedule, ...]:
    """The CronJobs of a manifest. InvalidInput if it is not YAML or has none."""
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise InvalidInput(_("the file is not valid YAML: {why}", why=str(error))) from None
    objects = [each for document in documents for each in _objects(document)]
    jobs = [each for each in objects if isinstance(each, Mapping) and each.get("kind") == "CronJob"]
    if not jobs:
        raise InvalidInput(_("the file has no object of kind CronJob"))
    return tuple(_converted(_path(job, "metadata", "name"), job, _of_cronjob) for job in jobs)


def _objects(document: object) -> Sequence[object]:
    if isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items")
        return items if isinstance(items, list) else ()
    return (document,)


def _converted(
    place: object, given: Any, convert: Callable[[str, Any], ImportedSchedule]
) -> ImportedSchedule:
    name = str(place or "?")
    try:
        return convert(name, given)
    except ChimesError as error:
        return ImportedSchedule(place=name, text=name, error=error.message)


def _path(value: object, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _of_cronjob(name: str, job: Mapping[str, object]) -> ImportedSchedule:
    spec = _path(job, "spec")
    schedule = _path(spec, "schedule")
    if not isinstance(schedule, str) or not schedule.strip():
        raise InvalidInput(_("the CronJob has no schedule"))
    notes: list[Message] = []
    zone = _path(spec, "timeZone")
    if not zone and "TZ=" not in schedule:
        notes.append(_("the zone of the cluster is unknown; UTC is assumed"))
    zone = parse_zone(str(zone or "UTC")).name
    # Kubernetes computes times with robfig/cron.
    trigger = Cron(schedule, timezone=zone, dst="robfig")
    job_spec = _path(spec, "jobTemplate", "spec")
    policy: Json = {}
    overlap = str(_path(spec, "concurrencyPolicy") or "Allow")
    if overlap not in _OVERLAPS:
        raise InvalidInput(_("unknown concurrencyPolicy {word!r}", word=overlap))
    policy["overlap"] = _OVERLAPS[overlap]
    deadline = _path(spec, "startingDeadlineSeconds")
    if isinstance(deadline, int):
        policy |= {"misfire": "skip", "misfire_grace": f"PT{deadline}S"}
    else:
        policy["misfire"] = "one"
    limit = _path(job_spec, "activeDeadlineSeconds")
    if isinstance(limit, int):
        policy["timeout"] = f"PT{limit}S"
    else:
        notes.append(_("there is no activeDeadlineSeconds; the timeout is an hour"))
    retries = _path(job_spec, "backoffLimit")
    policy["max_retries"] = retries if isinstance(retries, int) else 6
    if _path(job_spec, "parallelism") not in (None, 1) or _path(job_spec, "completions") not in (
        None,
        1,
    ):
        notes.append(_("lost: {names}", names="parallelism, completions"))
    target, more = _of_pod(_path(job_spec, "template", "spec"))
    namespace = _path(job, "metadata", "namespace")
    definition: Json = {
        "name": f"{namespace}/{name}" if namespace else name,
        "trigger": trigger.to_dict(),
        "target": target,
        "policy": policy,
    }
    if _path(spec, "suspend") is True:
        definition["enabled"] = False
    return ImportedSchedule(
        place=name,
        text=schedule,
        definition=definition,
        notes=(*notes, *more),
    )


def _of_pod(pod: object) -> tuple[Json, list[Message]]:
    containers = _path(pod, "containers")
    if not isinstance(containers, list) or len(containers) != 1:
        raise InvalidInput(_("a command has one container; this pod has another number"))
    (container,) = containers
    command = [str(each) for each in _path(container, "command") or ()]
    arguments = [str(each) for each in _path(container, "args") or ()]
    if not command:
        raise InvalidInput(
            _(
                "the container has no command: the program is in its image, {image}. Write it into "
                "`command`",
                image=str(_path(container, "image")),
            )
        )
    notes: list[Message] = []
    target: Json = {"kind": "command", "command": command + arguments}
    variables: dict[str, str] = {}
    for each in _path(container, "env") or ():
        name, value = str(_path(each, "name")), _path(each, "value")
        if value is not None:
            variables[name] = str(value)
        elif _path(each, "valueFrom", "secretKeyRef") is not None:
            variables[name] = f"{{{{secret.{name}}}}}"
            notes.append(
                _("the value of {name} is a secret: store it with `chimes secret set {name}`",
                  name=name)
            )  # fmt: skip
        else:
            notes.append(_("lost: {names}", names=f"env {name} (valueFrom)"))
    if variables:
        target["env"] = variables
    if folder := _path(container, "workingDir"):
        target["cwd"] = str(folder)
    lost = [name for name in _LOST_IN_POD if _path(pod, name)]
    lost += [name for name in _LOST_IN_CONTAINER if _path(container, name)]
    image = str(_path(container, "image"))
    notes.append(
        _("the command runs on a worker, not in the image {image}: its programs must be there",
          image=image)
    )  # fmt: skip
    if lost:
        notes.append(_("lost: {names}", names=", ".join(lost)))
    if any(_EXPANDED.search(each) for each in command + arguments):
        notes.append(_("$(NAME) in arguments is not expanded; use a shell and $NAME"))
    return target, notes


# --- Celery beat ----------------------------------------------------------------------------------
def import_celery_beat(
    entries: Mapping[str, object], *, zone: str, app: str, as_task: bool
) -> tuple[ImportedSchedule, ...]:
    """The entries of a `beat_schedule`. `app`: what `celery -A` is given. `as_task`: they become
    tasks of a Chimes application with the same names, instead of commands that call Celery."""

    def convert(name: str, entry: Any) -> ImportedSchedule:
        return _of_beat_entry(name, entry, zone, app, as_task)

    return tuple(_converted(name, entry, convert) for name, entry in entries.items())


def _of_beat_entry(name: str, entry: Any, zone: str, app: str, as_task: bool) -> ImportedSchedule:
    task = _path(entry, "task")
    if not isinstance(task, str):
        raise InvalidInput(_("the entry has no task"))
    trigger, old, notes = _beat_trigger(_path(entry, "schedule"), zone)
    args = list(_path(entry, "args") or ())
    kwargs = dict(_path(entry, "kwargs") or {})
    options = dict(_path(entry, "options") or {})
    definition: Json = {"name": name[:_MAX_NAME], "trigger": trigger.to_dict()}
    if as_task:
        if args:
            raise InvalidInput(_("a task of Chimes takes arguments by name; use kwargs"))
        definition["target"] = {"kind": "task", "name": task, "args": _plain_json(kwargs)}
    else:
        command = ["celery", "-A", app, "call", task]
        if args:
            command += ["--args", json.dumps(_plain_json(args))]
        if kwargs:
            command += ["--kwargs", json.dumps(_plain_json(kwargs))]
        for option in ("queue", "exchange", "routing_key", "expires"):
            if isinstance(options.get(option), str | int | float):
                command += [f"--{option.replace('_', '-')}", str(options.pop(option))]
        definition["target"] = {"kind": "command", "command": command}
        notes.append(_("the run ends when Celery has accepted the task, not when it has ended"))
    if options:
        notes.append(_("lost: {names}", names=", ".join(sorted(options))))
    return ImportedSchedule(
        place=name,
        text=f"{task}: {_path(entry, 'schedule')!r}",
        definition=definition,
        notes=tuple(notes),
        old_fires=old,
    )


def _plain_json(value: object) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidInput(_("arguments are not JSON: {error}", error=str(error))) from None


def _beat_trigger(given: Any, zone: str) -> tuple[Trigger, OldFires, list[Message]]:
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = timedelta(seconds=given)
    every = getattr(given, "run_every", given)
    if isinstance(every, timedelta):
        note = _("beat counts from its start, Chimes from 1970-01-01T00:00:00Z")
        trigger = Every(every)
        return (
            trigger,
            lambda after, count: [after + every * n for n in range(1, count + 1)],
            [note],
        )
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    fields = [getattr(given, f"_orig_{name}", None) for name in names]
    if any(each is None for each in fields):
        raise InvalidInput(
            _(
                "a schedule of type {type} cannot be converted; only intervals and crontab can",
                type=type(given).__name__,
            )
        )
    texts = [_beat_field(each) for each in fields]
    if texts[2] != "*" and texts[4] != "*":
        raise InvalidInput(
            _(
                "Celery runs it on days that match both day_of_month and day_of_week, Chimes on "
                "days that match one of them; choose one"
            )
        )
    cron = Cron(" ".join(texts), timezone=zone)
    wanted = [frozenset(getattr(given, name)) for name in names]
    return cron, lambda after, count: _beat_fires(wanted, zone, after, count), []


def _beat_field(value: object) -> str:
    if isinstance(value, str):
        return value.replace(" ", "")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, set | frozenset | list | tuple):
        return ",".join(str(each) for each in sorted(value))
    raise InvalidInput(_("unknown field {value!r} of a crontab", value=value))


def _beat_fires(
    wanted: Sequence[frozenset[int]], zone: str, after: datetime, count: int
) -> list[datetime]:
    """The minutes that match the sets to which Celery has expanded its crontab."""
    minutes, hours, days, months, weekdays = wanted
    local = parse_zone(zone)
    found: list[datetime] = []
    second = int(after.timestamp()) // 60 * 60
    last = second + _SEARCH_SECONDS
    while len(found) < count and second < last:
        second += 60
        moment = after.fromtimestamp(second, tz=after.tzinfo)
        at = moment + timedelta(seconds=local.offset_at(second)) - (moment.utcoffset() or _ZERO)
        if at.month not in months or at.day not in days or at.isoweekday() % 7 not in weekdays:
            # To the last minute of the day.
            second += (23 - at.hour) * 3600 + (59 - at.minute) * 60
        elif at.hour in hours and at.minute in minutes:
            found.append(moment)
    return found


_ZERO = timedelta()
_SEARCH_SECONDS = 5 * 366 * 86400


# --- APScheduler ----------------------------------------------------------------------------------
_GENERATED_ID = re.compile(r"[0-9a-f]{32}")
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_SIMPLE = re.compile(
    r"(?:\*|[0-9]+(?:-[0-9]+)?)(?:/[0-9]+)?(?:,(?:[0-9]+(?:-[0-9]+)?)(?:/[0-9]+)?)*"
)
_DAYS = re.compile(
    r"(?:[a-z]{3}|[0-6])(?:-(?:[a-z]{3}|[0-6]))?(?:,(?:[a-z]{3}|[0-6])(?:-(?:[a-z]{3}|[0-6]))?)*"
)


def import_apscheduler(
    jobs: Sequence[Any], *, as_task: bool, python: str = "python3"
) -> tuple[ImportedSchedule, ...]:
    """Jobs of APScheduler 3. `as_task`: they become tasks of a Chimes application, named as their
    functions, instead of commands that call the functions with `python`."""

    def convert(name: str, job: Any) -> ImportedSchedule:
        return _of_job(name, job, as_task, python)

    return tuple(_converted(getattr(job, "id", "?"), job, convert) for job in jobs)


def _of_job(name: str, job: Any, as_task: bool, python: str) -> ImportedSchedule:
    trigger, notes = _job_trigger(job.trigger)
    reference = str(getattr(job, "func_ref", None) or "")
    module, colon, function = reference.partition(":")
    args, kwargs = _plain_json(list(job.args or ())), _plain_json(dict(job.kwargs or {}))
    title = str(getattr(job, "name", "") or name)
    if title == function.rpartition(".")[2] and not _GENERATED_ID.fullmatch(name):
        # The default name is that of the function, which several jobs may have.
        title = name
    definition: Json = {"name": title[:_MAX_NAME], "trigger": trigger.to_dict()}
    if as_task:
        if args:
            raise InvalidInput(_("a task of Chimes takes arguments by name; use kwargs"))
        task = function or title
        definition["target"] = {"kind": "task", "name": task, "args": kwargs}
    elif not colon:
        raise InvalidInput(_("its function cannot be imported by name"))
    else:
        code = (
            "import json, sys; from importlib import import_module; from operator import attrgetter"
            f"; attrgetter({function!r})(import_module({module!r}))"
            "(*json.loads(sys.argv[1]), **json.loads(sys.argv[2]))"
        )
        command = [python, "-c", code, json.dumps(args), json.dumps(kwargs)]
        definition["target"] = {"kind": "command", "command": command}
        notes.append(_("the function runs in a process of its own: set `cwd` so that it is found"))
    limit, grace = getattr(job, "max_instances", 1), getattr(job, "misfire_grace_time", None)
    policy: Json = {"misfire": "one" if getattr(job, "coalesce", True) else "all"}
    if isinstance(limit, int) and limit > 1:
        policy |= {"max_concurrent_runs": limit, "overlap": "skip"}
    else:
        policy["overlap"] = "skip"
    if isinstance(grace, int):
        policy |= {"misfire": "skip", "misfire_grace": f"PT{grace}S"}
    definition["policy"] = policy
    if getattr(job, "next_run_time", True) is None:
        definition["enabled"] = False
    old = job.trigger

    def fires(after: datetime, count: int) -> list[datetime]:
        found: list[datetime] = []
        tick = timedelta(microseconds=1)
        at = old.get_next_fire_time(None, after + tick)
        while at is not None and len(found) < count:
            found.append(at)
            at = old.get_next_fire_time(at, at + tick)
        return found

    return ImportedSchedule(
        place=name,
        text=f"{reference or title}: {old}",
        definition=definition,
        notes=tuple(notes),
        old_fires=fires,
    )


def _job_trigger(given: Any) -> tuple[Trigger, list[Message]]:
    notes: list[Message] = []
    if getattr(given, "jitter", None):
        notes.append(_("lost: {names}", names="jitter"))
    if (run_date := getattr(given, "run_date", None)) is not None:
        return Once(run_date), notes
    bounds: dict[str, Any] = {}
    if (end := getattr(given, "end_date", None)) is not None:
        bounds["end_at"] = end
    start = getattr(given, "start_date", None)
    if isinstance(interval := getattr(given, "interval", None), timedelta):
        return Every(interval, anchor=start, **bounds), notes
    fields = {each.name: str(each) for each in getattr(given, "fields", ())}
    if not fields:
        raise InvalidInput(
            _(
                "a trigger of type {type} cannot be converted; only cron, interval and date can",
                type=type(given).__name__,
            )
        )
    if start is not None:
        bounds["start_at"] = start
    return Cron(_job_expression(fields), timezone=str(given.timezone), **bounds), notes


def _job_expression(fields: Mapping[str, str]) -> str:
    for name in ("year", "week"):
        if fields.get(name, "*") != "*":
            raise InvalidInput(_("the field {name} has no counterpart", name=name))
    day, weekday = fields["day"], fields["day_of_week"]
    if day != "*" and weekday != "*":
        raise InvalidInput(
            _(
                "APScheduler runs it on days that match both day and day_of_week, Chimes on days "
                "that match one of them; choose one"
            )
        )
    if day == "last":
        day = "L"
    elif not _SIMPLE.fullmatch(day):
        raise InvalidInput(_("{text!r} has no counterpart", text=day))
    for name in ("second", "minute", "hour", "month"):
        if not _SIMPLE.fullmatch(fields[name]):
            raise InvalidInput(_("{text!r} has no counterpart", text=fields[name]))
    if weekday != "*":
        if not _DAYS.fullmatch(weekday):
            raise InvalidInput(_("{text!r} has no counterpart", text=weekday))
        # Monday is 0 there.
        weekday = re.sub(r"[0-6]", lambda found: _WEEKDAYS[int(found[0])], weekday).upper()
    parts = (fields["minute"], fields["hour"], day, fields["month"], weekday)
    second = fields["second"]
    return " ".join(parts if second == "0" else (second, *parts))


def summary_of(definition: Json) -> str:
    """The target in a few words."""
    target = definition["target"]
    assert isinstance(target, Mapping)
    match target["kind"]:
        case "command":
            command = target.get("command")
            shown = shlex.join(command) if isinstance(command, list) else str(target["shell"])
            return f"{shown} < {target['stdin']!r}" if target.get("stdin") else shown
        case "http":
            return f"{target.get('method', 'POST')} {target['url']}"
        case _:
            return f"{target['kind']} {target.get('name', '')}"


def beat_schedule_in(
    module: Any, attribute: str
) -> Iterator[tuple[str, Mapping[str, object], Any]]:
    """The beat schedules in a module, with the name and the configuration of their application;
    for a mapping, its own name and the module."""
    names = [attribute] if attribute else [name for name in vars(module) if name[:1] != "_"]
    for name in names:
        found = getattr(module, name, None)
        conf = getattr(found, "conf", None)
        entries = getattr(conf, "beat_schedule", None)
        named = attribute or name.lower().endswith("beat_schedule")
        if isinstance(entries, Mapping) and entries:
            yield name, entries, conf
        elif isinstance(found, Mapping) and found and named:
            yield name, found, module
