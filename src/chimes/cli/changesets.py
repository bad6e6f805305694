"""Commands that show what they change before they change it: `apply`, `edit`, `set`; and `export`
and `duplicate`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.backend import (
    Backend,
    HttpBackend,
    LocalBackend,
    api_path,
    default_url,
    find_schedule,
    get,
    items_of,
    post,
)
from chimes.cli.command import CONFLICT, UNREACHABLE, USAGE, Command, CommandError
from chimes.cli.options import (
    client_options,
    confirm_options,
    data_dir_option,
    output_format_options,
    output_options,
    read_key_file,
)
from chimes.cli.output import (
    CHANGES,
    Column,
    Json,
    Output,
    current_language,
    echo,
    echo_err,
    explicit_language,
    getter,
    localize,
    schedule_details,
    waiting,
)
from chimes.clock import SystemClock
from chimes.errors import ChimesError, ConfigError, InvalidInput
from chimes.i18n import Message, _, counted, joined
from chimes.redaction import escape_control

if TYPE_CHECKING:
    from chimes.config import LoadedSettings
    from chimes.runtime.apply_config import SourceFile

_SIGNS = {"create": "+", "update": "~", "delete": "-", "none": " "}
_SOURCE_SIGNS = {"created": "+", "updated": "~", "deleted": "-"}
#: The fields of a definition, in the order in which `edit` shows them.
_FIELDS = (
    *("name", "trigger", "target", "policy", "delivery", "labels", "priority", "enabled"),
    "depends_on",
)
#: Tries of `set` while others change the schedule.
_ATTEMPTS = 5


# --- plans ----------------------------------------------------------------------------------------
def _request_plan(backend: Backend, body: Json, *, dry_run: bool) -> Json:
    def text(seconds: int) -> Message:
        if dry_run:
            return _("Comparing with the stored schedules: {seconds} s", seconds=seconds)
        return _("Applying: {seconds} s", seconds=seconds)

    with waiting(text):
        return post(backend, f"/apply?dry_run={'true' if dry_run else 'false'}", body)


def _plan_of(answer: Json) -> list[Json]:
    found = answer.get("plan")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _changes(answer: Json) -> list[Json]:
    return [each for each in _plan_of(answer) if each["action"] != "none"]


def _print_plan(
    output: Output, answer: Json, schedules: Mapping[str, object], say: Callable[[str], None]
) -> None:
    """The changes as fields and as fires. `schedules`: as given, whose fields are shown of new
    schedules."""
    for item in _changes(answer):
        action = str(item["action"])
        say(f"{_SIGNS[action]} {escape_control(str(item['name']))}")
        given = schedules.get(str(item["name"]))
        fields = item["fields"]
        for path, pair in fields.items() if isinstance(fields, dict) else ():
            if action == "update":
                say(f"    {path}: {format_value(pair[0])} → {format_value(pair[1])}")
            elif action == "create" and _is_given(given, path) and path != "name":
                say(f"    {path}: {format_value(pair[1])}")
        say(f"    {localize(format_fires(output, item))}")
        for each in items_of({"items": item["warnings"]}):
            say(f"    {localize(_('Warning: {text}', text=escape_control(str(each['message']))))}")


def _is_given(value: object, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            # A value that is given in another form, such as labels as a list.
            return not isinstance(value, Mapping) and value is not None
        value = value[name]
    return True


def format_value(value: object) -> str:
    if value is None or value == "":
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape_control(" ".join(text.split()) if len(text) < 500 else f"{text[:499]}…")


def format_fires(output: Output, item: Json) -> str:
    fires = item["fires"]
    assert isinstance(fires, dict)
    effects = [
        (_("adds {count}", count=fires["added"]), fires["added"]),
        (_("drops {count}", count=fires["dropped"]), fires["dropped"]),
        (_("moves {count}", count=fires["moved"]), fires["moved"]),
    ]
    until = output.format_time(str(fires["until"]))
    changes = [text for text, number in effects if number]
    if not changes:
        return _("no fire changes until {time}", time=until)
    return _("fires: {changes} until {time}", changes=joined(", ", changes), time=until)


def _summary(answer: Json) -> str:
    plan = [str(each["action"]) for each in _plan_of(answer)]
    return _(
        "{created} to create, {updated} to update, {deleted} to delete, {unchanged} unchanged.",
        created=plan.count("create"),
        updated=plan.count("update"),
        deleted=plan.count("delete"),
        unchanged=plan.count("none"),
    )


# --- apply ----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyInput:
    """What a file, a directory of files or a configuration defines."""

    loaded: LoadedSettings
    #: None: there is no section of schedules.
    schedules: dict[str, object] | None
    #: Whether the file is a configuration, whose sources are applied, too.
    is_configuration: bool
    origin: str


@click.command("apply", cls=Command)
@click.option(
    "-f",
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="A file with `schedules:`, a directory of such files, or a chimes.yaml.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="Delete schedules that were made from the same file and are no longer in it.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without applying them.")
@click.option(
    "--detailed-exitcode", is_flag=True, help="With --dry-run: exit code 2 if changes are pending."
)
@click.option(
    "--namespace", metavar="NAME", help="Namespace of schedules that name none. Default: default."
)
@click.option(
    "--origin",
    metavar="NAME",
    help="Name that the schedules are marked with. Default: name of the file or directory.",
)
@confirm_options
@click.option("--store", metavar="URL", help="URL of the store, used if no server responds.")
@data_dir_option
@click.option("--url", envvar="CHIMES_URL", metavar="URL", help="URL of the server.")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    envvar="CHIMES_API_KEY_FILE",
    metavar="FILE",
    help="File with the API key. Default: CHIMES_API_KEY, then the admin token.",
)
@output_options
@click.pass_context
def apply(
    ctx: click.Context,
    /,
    file: Path | None,
    prune: bool,
    dry_run: bool,
    detailed_exitcode: bool,
    namespace: str | None,
    origin: str | None,
    confirm: Callable[..., bool],
    url: str | None,
    api_key_file: Path | None,
    output: Output,
    **flags: str | None,
) -> None:
    """Make the schedules of a file: show what would change, in fields and in fires, then create,
    update and delete. Schedules are written to the store if no server responds.

    Of a chimes.yaml the sources are applied, too: the server and other nodes on this machine reload
    it. Changes of schedules need your consent, or --yes; without either nothing changes and the
    exit code is 2.

    \b
    Examples:
      chimes apply -f schedules.yaml
      chimes apply -f schedules/ --prune --yes
      chimes apply -f schedules.yaml --dry-run --detailed-exitcode
      chimes apply -f chimes.yaml --dry-run
    """
    given = read_given(file, flags, origin)
    if prune and given.schedules is None:
        raise click.UsageError(_("--prune needs a file with a section `schedules:`."))
    checked = None
    if given.is_configuration and (given.loaded.sources is not None or given.schedules is None):
        from chimes.runtime.apply_config import load_checked_file

        checked = load_checked_file(given.loaded)
    key = read_key_file(api_key_file) if api_key_file else os.environ.get("CHIMES_API_KEY", "")
    server = _connect(url, key.strip() or given.loaded.settings.admin_token)
    if server is None and url is not None:
        raise CommandError(_("Cannot reach the server at {url}", url=url), UNREACHABLE)
    if server is not None:
        ctx.call_on_close(server.close)
    else:
        from chimes.config import masked_store_url, resolve_store_url

        store = masked_store_url(resolve_store_url(given.loaded.settings))
        echo_err(_("No server responds; using {store}.", store=store))
    sources: list[Json] | None = None
    if checked is not None and server is not None:
        sources = _apply_on_server(server, checked, dry_run=dry_run)
    elif checked is not None:
        sources = _apply_to_store(given.loaded, checked, dry_run=dry_run)
    if given.schedules is None:
        _print_sources(output, sources or [])
        return
    backend: Backend
    if server is None:
        backend = LocalBackend(given.loaded, store)
        ctx.call_on_close(backend.close)
    else:
        backend = server
    body: Json = {"schedules": given.schedules, "prune": prune, "origin": given.origin}
    if namespace:
        body["namespace"] = namespace
    if sources is not None and output.format not in ("json", "ndjson"):
        _print_sources(output, sources)
    ctx.exit(
        _apply_schedules(
            backend,
            output,
            body,
            confirm,
            dry_run=dry_run,
            pending_code=USAGE if detailed_exitcode else 0,
            more={} if sources is None else {"sources": sources},
        )
    )


def _apply_schedules(
    backend: Backend,
    output: Output,
    body: Json,
    confirm: Callable[..., bool],
    *,
    dry_run: bool,
    pending_code: int,
    more: Json,
) -> int:
    """The exit code. `pending_code`: of a dry run that has found changes."""
    answer = _request_plan(backend, body, dry_run=True)
    given = body["schedules"]
    assert isinstance(given, dict)
    as_json = output.format in ("json", "ndjson")
    say = echo_err if as_json or output.format == "ids" else echo
    _print_plan(output, answer, given, say)
    changes = _changes(answer)
    unmarked = [each for each in _plan_of(answer) if not each["marked"] and each not in changes]
    code = 0
    if not changes and (dry_run or not unmarked or not confirm("", explicit=True)):
        echo_err(_("Nothing to do."))
        if unmarked and not dry_run:
            echo_err(
                counted(
                    "{count} schedule equals the file but was not made from it. --yes marks it, so"
                    " that edits elsewhere warn and --prune may delete it.",
                    "{count} schedules equal the file but were not made from it. --yes marks them,"
                    " so that edits elsewhere warn and --prune may delete them.",
                    len(unmarked),
                )
            )
    elif dry_run:
        echo_err(_summary(answer))
        code = pending_code
    else:
        if changes:
            echo_err(_summary(answer))
        if changes and not confirm(_("Apply these changes?"), explicit=True):
            echo_err(_("Nothing was changed. Use --yes to apply without confirmation."))
            code = USAGE
        else:
            shown = body | {"expected_digest": answer["digest"]}
            answer = _request_plan(backend, shown, dry_run=False)
            echo_err(_("Applied.") if changes else _("Nothing to do; the schedules are marked."))
    if as_json:
        output.one(more | answer, [])
    elif output.format == "ids":
        for each in changes:
            echo(escape_control(str(each["id"])))
    return code


def read_given(
    file: Path | None, flags: Mapping[str, str | None], origin: str | None
) -> ApplyInput:
    from chimes.config import load_settings
    from chimes.config.file import read_schedules, schedules_of

    if file is not None and file.is_dir():
        return ApplyInput(
            loaded=load_settings(flags=flags),
            schedules=_read_directory(file),
            is_configuration=False,
            origin=origin or file.resolve().name,
        )
    if file is not None and file.is_file():
        schedules = read_schedules(file.read_bytes(), file)
        if schedules is not None:
            return ApplyInput(
                loaded=load_settings(flags=flags),
                schedules=schedules,
                is_configuration=False,
                origin=origin or file.resolve().name,
            )
    loaded = load_settings(flags=flags, config_file=file)
    if loaded.file is None:
        raise CommandError(
            _("No chimes.yaml found"), USAGE, hint=_("give its path: chimes apply -f FILE")
        )
    section = loaded.schedules
    return ApplyInput(
        loaded=loaded,
        schedules=None if section is None else schedules_of(section, loaded.file),
        is_configuration=True,
        origin=origin or loaded.file.resolve().name,
    )


def _read_directory(directory: Path) -> dict[str, object]:
    """The schedules of all YAML files below the directory, except hidden ones."""
    from chimes.config.file import read_schedules

    found: dict[str, object] = {}
    files: dict[str, Path] = {}
    for file in sorted(directory.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(directory).parts)
        if hidden or file.suffix not in (".yaml", ".yml") or not file.is_file():
            continue
        schedules = read_schedules(file.read_bytes(), file)
        if schedules is None:
            raise ConfigError(
                _(
                    "{file}: expected a file that only has the section `schedules:`; apply a"
                    " chimes.yaml by itself",
                    file=file,
                )
            )
        for name, each in schedules.items():
            if name in found:
                raise ConfigError(
                    _(
                        "{name!r} is in two files: {first} and {second}",
                        name=name,
                        first=files[name],
                        second=file,
                    )
                )
            found[name], files[name] = each, file
    if not files:
        raise ConfigError(
            _("{directory}: expected YAML files with schedules, found none", directory=directory)
        )
    return found


def _connect(url: str | None, key: str) -> HttpBackend | None:
    server = HttpBackend(url or default_url(), key)
    if server.connect():
        return server
    server.close()
    return None


def _print_sources(output: Output, changes: Iterable[Json]) -> None:
    columns = [
        Column("", lambda item: _SOURCE_SIGNS.get(str(item["what"]), " ")),
        Column(_("schedule"), getter("name")),
        Column(_("what"), getter("what"), labels=CHANGES),
    ]
    output.rows([{"id": item["name"], **item} for item in changes], columns)


def _apply_on_server(server: HttpBackend, checked: SourceFile, *, dry_run: bool) -> list[Json]:
    theirs = str(get(server, "/sources").get("file"))
    if theirs != checked.known.file:
        ours = checked.known.file
        raise CommandError(
            _(
                "The server at {url} uses {theirs}, not {ours}",
                url=server.url,
                theirs=theirs,
                ours=ours,
            )
            if theirs
            else _("The server at {url} has no configuration file", url=server.url),
            CONFLICT,
            hint=_("apply the file that the server reads, or start the server with --config"),
        )
    answer = post(server, f"/sources/reload?dry_run={'true' if dry_run else 'false'}")
    if not dry_run:
        from chimes.runtime.apply_config import signal_reload

        signal_reload(
            str(item["id"]) for item in items_of(get(server, "/nodes")) if item.get("alive")
        )
    changes = answer.get("changes")
    return [each for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []


def _apply_to_store(loaded: LoadedSettings, checked: SourceFile, *, dry_run: bool) -> list[Json]:
    import asyncio

    from chimes.runtime.apply_config import apply_to_store, signal_reload

    changes, alive = asyncio.run(apply_to_store(loaded, checked, dry_run=dry_run))
    if not dry_run:
        reloaded = signal_reload(alive)
        others = [node for node in alive if node not in reloaded]
        if reloaded:
            echo_err(_("Reloaded by: {nodes}", nodes=", ".join(reloaded)))
        if others:
            echo_err(
                _(
                    "Nodes on other machines, send SIGHUP to reload: {nodes}",
                    nodes=", ".join(others),
                )
            )
    return [{"name": each.name, "what": each.what} for each in changes]


# --- export ---------------------------------------------------------------------------------------
@click.command("export", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file instead of stdout.",
)
@click.option("--namespace", metavar="NAME", help="Schedules of this namespace. Default: default.")
@click.option("--full", is_flag=True, help="Also write fields that have default values.")
@client_options
def export(
    backend: Backend,
    schedules: tuple[str, ...],
    file: Path | None,
    namespace: str | None,
    full: bool,
) -> None:
    """Write schedules in the format of `chimes apply`: all of a namespace, or those that are named.

    Secrets are written as ***: applied to the same schedules, they keep the stored values. Use
    named secrets for files that make schedules elsewhere. Schedules that code declares are left
    out.

    \b
    Examples:
      chimes export -f schedules.yaml
      chimes export "Morning report" --full
    """
    from chimes.config.file import to_yaml

    ids = [str(find_schedule(backend, each)["id"]) for each in schedules]
    answer = get(
        backend,
        "/export",
        namespace=namespace,
        id=ids,
        full="true" if full else None,
    )
    text = to_yaml({"schedules": answer["schedules"]})
    skipped = answer.get("skipped")
    if isinstance(skipped, list) and skipped:
        echo_err(
            _(
                "Left out, because code declares them: {names}",
                names=escape_control(", ".join(map(str, skipped))),
            )
        )
    if file is None:
        click.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(
            _("Cannot write {file}: {reason}", file=file, reason=error.strerror), USAGE
        ) from None
    found = answer["schedules"]
    echo_err(
        counted(
            "{count} schedule written to {file}.",
            "{count} schedules written to {file}.",
            len(found) if isinstance(found, dict) else 0,
            file=file,
        )
    )


# --- edit -----------------------------------------------------------------------------------------
def _document(row: Json) -> Json:
    """The definition in a response, without the fields of the target that are empty."""
    found = {name: row[name] for name in _FIELDS if row.get(name) not in (None, [], {})}
    target = row["target"]
    if isinstance(target, dict):
        found["target"] = {
            name: value for name, value in target.items() if value not in (None, "", [], {})
        }
    return found


def _edit_body(row: Json, document: Json) -> Json:
    """A request that makes the document the definition of the schedule."""
    item = {name: value for name, value in document.items() if name != "name"}
    item |= {"id": row["id"], "namespace": row["namespace"]}
    return {"schedules": {str(document.get("name", row["name"])): item}, "origin": ""}


@click.command("edit", cls=Command)
@click.argument("schedule")
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Take the new definition from this file instead of an editor.",
)
@confirm_options
@output_options
@client_options
@click.pass_context
def edit(
    ctx: click.Context,
    backend: Backend,
    output: Output,
    confirm: Callable[..., bool],
    schedule: str,
    file: Path | None,
) -> None:
    """Edit a schedule as YAML in $VISUAL or $EDITOR. Shows the changed fields and the fires that
    change, and saves them with your consent or --yes. A field that you remove gets its default.

    If the text is invalid, or another user has changed the schedule, the text is kept in a file.

    \b
    Examples:
      chimes edit "Morning report"
      EDITOR="code --wait" chimes edit 0199
      chimes edit "Morning report" --file report.yaml --yes
    """
    people = sys.stdin.isatty() and not ctx.params["no_input"]
    if file is None and not people and not _editor():
        raise CommandError(
            _("There is no terminal for an editor"),
            USAGE,
            hint=_("use `chimes set`, give the text with --file, or set EDITOR to a program"),
        )
    row = find_schedule(backend, schedule)
    text = _edit_header(row) + _to_yaml(_document(row))
    path = file or _write_text(text)
    try:
        saved = _edit_until_saved(backend, output, confirm, row, path, given=file is not None)
    except _Unchanged:
        if file is None:
            _remove(path)
        echo_err(_("Nothing to do."))
        return
    except _NotSaved as refusal:
        if file is None and path.read_text(encoding="utf-8") != text:
            echo_err(
                _(
                    'Your text is in {file}. Save it with: chimes edit "{id}" --file {file}',
                    file=path,
                    id=row["id"],
                )
            )
        elif file is None:
            _remove(path)
        if refusal.error is not None:
            raise refusal.error from None
        echo_err(_("Nothing was changed. Use --yes to save without confirmation."))
        ctx.exit(USAGE)
    if file is None:
        _remove(path)
    output.one(saved, schedule_details(SystemClock().now()))


class _Unchanged(Exception):
    """The text changes nothing."""


class _NotSaved(Exception):
    """The user declined, or cannot be asked after an error."""

    def __init__(self, error: ChimesError | CommandError | None = None) -> None:
        self.error = error


def _edit_until_saved(
    backend: Backend,
    output: Output,
    confirm: Callable[..., bool],
    row: Json,
    path: Path,
    *,
    given: bool,
) -> Json:
    """The saved schedule. After an error the text is opened again if the user wants it."""
    while True:
        if not given:
            _open_editor(path)
        try:
            document = _parse_document(path)
            body = _edit_body(row, document)
            answer = _request_plan(backend, body, dry_run=True)
            item = _plan_of(answer)[0]
            if item["version"] != row["version"]:
                raise _changed_elsewhere(backend, row)
            if item["action"] == "none":
                raise _Unchanged
            schedules = body["schedules"]
            assert isinstance(schedules, dict)
            _print_plan(output, answer, schedules, echo_err)
            if not confirm(_("Save these changes?"), explicit=True):
                raise _NotSaved
            body["expected_digest"] = answer["digest"]
            try:
                _request_plan(backend, body, dry_run=False)
            except CommandError as failure:
                if failure.code == CONFLICT and failure.problem().get("code") == "plan_changed":
                    raise _changed_elsewhere(backend, row) from None
                raise
            return get(backend, api_path("schedules", row["id"]))
        except (ChimesError, CommandError) as error:
            # Not interactive with --yes: the text cannot be corrected.
            if given or confirm("", explicit=True):
                raise _NotSaved(error) from None
            echo_err(_("Error: {message}", message=error.message))
            if not confirm(_("Edit again?"), explicit=True):
                raise _NotSaved(error) from None
            if isinstance(error, CommandError) and error.code == CONFLICT:
                # A text that is saved after the other change was shown may replace it.
                row = get(backend, api_path("schedules", row["id"]))


def _changed_elsewhere(backend: Backend, row: Json) -> CommandError:
    """The error says who changed what since `row` was read."""
    from chimes.services.schedules.changeset import differences

    now = get(backend, api_path("schedules", row["id"]))
    lines = [
        f"{path}: {format_value(before)} → {format_value(after)}"
        for path, (before, after) in differences(_document(row), _document(now)).items()
    ]
    message = _(
        "{user} changed the schedule while you edited it:", user=now.get("updated_by") or "?"
    )
    return CommandError(joined("\n  ", [message, *lines]), CONFLICT)


def _edit_header(row: Json) -> str:
    """Comments above the text, of which the first says where it comes from."""
    lines = [
        _("Schedule {id}, version {version}", id=row["id"], version=row["version"]),
        _("Saving shows the changes first. Secrets shown as *** keep their values."),
    ]
    return "".join(f"# {escape_control(localize(line))}\n" for line in lines)


def _to_yaml(value: object) -> str:
    from chimes.config.file import to_yaml

    return to_yaml(value)


def _write_text(text: str) -> Path:
    """A file that only this user can read: definitions may contain what others must not see."""
    descriptor, name = tempfile.mkstemp(prefix="chimes-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return Path(name)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _editor() -> str:
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""


def _open_editor(path: Path) -> None:
    command = _editor() or "vi"
    try:
        # The user's own command.
        ended = subprocess.run([*shlex.split(command), str(path)], check=False)  # noqa: S603
    except (OSError, ValueError) as error:
        raise _NotSaved(
            CommandError(
                _("Cannot start the editor {command!r}: {reason}", command=command, reason=error),
                USAGE,
                hint=_("set EDITOR to the command of your editor"),
            )
        ) from None
    if ended.returncode != 0:
        raise _NotSaved(
            CommandError(
                _(
                    "The editor {command!r} ended with exit code {code}",
                    command=command,
                    code=ended.returncode,
                )
            )
        )


def _parse_document(path: Path) -> Json:
    from chimes.config.file import json_value, parsed_yaml
    from chimes.triggers.values import suggest_name

    found = json_value(parsed_yaml(path.read_bytes(), path), path)
    if not isinstance(found, dict):
        raise InvalidInput(_("expected the fields of a schedule as `key: value`"))
    for name in found:
        if name not in _FIELDS:
            raise InvalidInput(
                _("{field} is not a known field", field=name),
                field=name,
                code="unknown_field",
                hint=suggest_name(name, _FIELDS),
            )
    return found


# --- set and duplicate ----------------------------------------------------------------------------
@click.command("set", cls=Command)
@click.argument("schedule")
@click.argument("fields", nargs=-1, metavar="KEY=VALUE...")
@click.option(
    "--unset",
    multiple=True,
    metavar="KEY",
    help="Remove this field, which then has its default; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without saving them.")
@output_format_options
@client_options
def set_fields(
    backend: Backend,
    output: Output,
    schedule: str,
    fields: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Set fields of a schedule. Keys are those of the API, with dots: policy.timeout, labels.team,
    target.url, trigger.expression. `trigger` takes any expression of `chimes add`; objects and
    lists are JSON.

    \b
    Examples:
      chimes set "Morning report" policy.timeout=30s policy.max_retries=3
      chimes set "Morning report" trigger="every 2h" labels.team=billing
      chimes set 0199 --unset labels.team
    """
    pairs = [each.partition("=") for each in fields]
    for name, equals, _text in pairs:
        if not equals or not name:
            raise click.UsageError(_("A field must be KEY=VALUE, not {text!r}.", text=name))
    if not pairs and not unset:
        raise click.UsageError(_("Give at least one KEY=VALUE, or --unset KEY."))
    found = find_schedule(backend, schedule)
    for attempt in range(_ATTEMPTS):
        document = _with_fields(found, [(name, text) for name, _equals, text in pairs], unset)
        body = _edit_body(found, document)
        answer = _request_plan(backend, body, dry_run=True)
        item = _plan_of(answer)[0]
        if item["version"] == found["version"]:
            if item["action"] == "none" or dry_run:
                break
            try:
                _request_plan(backend, body | {"expected_digest": answer["digest"]}, dry_run=False)
                break
            except CommandError as failure:
                if failure.code != CONFLICT or attempt == _ATTEMPTS - 1:
                    raise
        found = get(backend, api_path("schedules", found["id"]))
    else:
        raise CommandError(
            _("The schedule is being changed by other requests; try again"), CONFLICT
        )
    if item["action"] == "none":
        echo_err(_("Nothing to do."))
    _print_plan(output, answer, {}, echo_err)
    if dry_run:
        echo_err(_("Nothing was changed."))
        return
    current = get(backend, api_path("schedules", found["id"]))
    output.one(current, schedule_details(SystemClock().now()))


def _with_fields(row: Json, pairs: list[tuple[str, str]], unset: tuple[str, ...]) -> Json:
    from chimes.services.schedules.definitions import assign_text, remove_field

    # All fields, so that each can be removed; those that are not set stay as they are.
    document: Json = {name: row.get(name) for name in _FIELDS if row.get(name) is not None}
    labels = document.get("labels")
    if isinstance(labels, list):
        document["labels"] = dict.fromkeys(map(str, labels))
    for name, text in pairs:
        if name == "trigger" and not text.startswith("{"):
            from chimes.language import read_trigger

            parsed = read_trigger(
                text,
                now=SystemClock().now(),
                timezone=str(row.get("timezone") or "UTC"),
                lang=explicit_language() or current_language(),
            )
            document["trigger"] = parsed.trigger.to_dict()
        else:
            assign_text(document, name, text)
    for name in unset:
        remove_field(document, name)
    return document


@click.command("duplicate", cls=Command)
@click.argument("schedule")
@click.option("--name", metavar="NAME", help="Name of the copy. Default: NAME (2).")
@click.option("--paused", is_flag=True, help="Create the copy paused.")
@output_options
@client_options
def duplicate(
    backend: Backend, output: Output, schedule: str, name: str | None, paused: bool
) -> None:
    """Copy a schedule with all its fields and secrets.

    \b
    Examples:
      chimes duplicate "Morning report" --name "Evening report" --paused
    """
    found = find_schedule(backend, schedule)
    body: Json = {"paused": paused} | ({"name": name} if name else {})
    made = post(backend, api_path("schedules", found["id"], "duplicate"), body)
    output.one(made, schedule_details(SystemClock().now()))
