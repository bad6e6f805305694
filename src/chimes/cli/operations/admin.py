"""`key`, `user`, `audit`, `nodes`, `drain`, `node`: administration of access and of nodes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from chimes.cli.backend import Backend, api_path, delete, find_node, get, items_of, patch, post
from chimes.cli.command import (
    FAILED,
    NOT_FOUND,
    TIMED_OUT,
    USAGE,
    Command,
    CommandError,
    LazyCommand,
    LazyGroup,
)
from chimes.cli.options import (
    WholeNumber,
    client_options,
    confirm_options,
    lazy_client_options,
    output_format_options,
    output_options,
)
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter, localize, nested
from chimes.clock import SystemClock
from chimes.i18n import Message, _, counted
from chimes.redaction import escape_control

KEY_COMMANDS = {
    "create": LazyCommand(
        "chimes.cli.operations.admin", "create_key", "Create a key and print it once."
    ),
    "list": LazyCommand(
        "chimes.cli.operations.admin", "list_keys", "List keys without their secrets."
    ),
    "revoke": LazyCommand("chimes.cli.operations.admin", "revoke_key", "Revoke a key."),
}
_ROLES = click.Choice(["viewer", "member", "operator", "admin"])
_SCOPES = click.Choice(["read", "operate", "write", "agent", "agent_schedules"])
_KEY_COLUMNS = [
    Column(_("id"), getter("id")),
    Column(_("name"), getter("name")),
    Column(_("role"), getter("role")),
    Column(_("owner"), lambda item: _owner(item), rank=3),
    Column(_("state"), lambda item: _("revoked") if item.get("revoked_at") else _("active")),
    Column(_("scopes"), lambda item: _scopes(item), rank=5),
    Column(_("created"), getter("created_at"), time=True, rank=2),
    Column(_("expires"), getter("expires_at"), time=True, rank=1),
    Column(_("used"), getter("last_used_at"), time=True, rank=4),
]


@click.group("key", cls=LazyGroup, lazy=KEY_COMMANDS)
def key() -> None:
    """Manage API keys. Once a key exists, every request needs one."""


@click.command("create", cls=Command)
@click.argument("name", required=False)
@click.option("--role", type=_ROLES, default="member", show_default=True)
@click.option("--owner", metavar="TYPE:ID", help="Owner of the key, such as user:alice.")
@click.option(
    "--scope",
    "scopes",
    type=_SCOPES,
    multiple=True,
    help="Restrict the key within its role; repeatable. Default: everything the role allows.",
)
@click.option(
    "--expires-in", metavar="DURATION", help="Lifetime, such as 720h or P30D. Default: no expiry."
)
@output_format_options
@lazy_client_options
def create_key(
    open_backend: Callable[..., Backend],
    output: Output,
    name: str | None,
    role: str,
    owner: str | None,
    scopes: tuple[str, ...],
    expires_in: str | None,
) -> None:
    """Create a key. It is printed once and cannot be shown again. The default NAME is made of its
    role and owner.

    \b
    Examples:
      chimes key create --role admin laptop
      chimes key create ci --role operator --expires-in P90D
      chimes key create --role member --owner user:anna
      chimes key create robot --owner user:anna --scope agent --scope agent_schedules
    """
    usual = _("{role} for {owner}", role=role, owner=owner or "system:default")
    body: Json = {"name": localize(usual) if name is None else name, "role": role}
    if owner:
        kind, separator, owner_id = owner.partition(":")
        if not separator or not owner_id:
            raise click.UsageError(_("--owner must be TYPE:ID, such as user:alice."))
        body["owner"] = {"type": kind, "id": owner_id}
    if scopes:
        body["scopes"] = list(dict.fromkeys(scopes))
    if expires_in:
        body["expires_in"] = expires_in
    created = post(open_backend(create=True), "/keys", body)
    if output.format in ("json", "ndjson"):
        output.one(created, [])
        return
    echo(str(created["key"]))
    echo_err(_("The key is not shown again. Use it as CHIMES_API_KEY or as a Bearer token."))


@click.command("list", cls=Command)
@output_options
@client_options
def list_keys(backend: Backend, output: Output) -> None:
    """List keys, including revoked ones.

    \b
    Examples:
      chimes key list
    """
    output.rows(items_of(get(backend, "/keys")), _KEY_COLUMNS)


@click.command("revoke", cls=Command)
@click.argument("key_id", metavar="KEY")
@confirm_options
@client_options
@click.pass_context
def revoke_key(
    ctx: click.Context, backend: Backend, confirm: Callable[..., bool], key_id: str
) -> None:
    """Revoke a key for good. KEY is its id, a prefix of the id, or its name.

    \b
    Examples:
      chimes key revoke laptop
    """
    keys = [each for each in items_of(get(backend, "/keys")) if not each.get("revoked_at")]
    found = [each for each in keys if key_id in (each["id"], each["name"])] or [
        each for each in keys if len(key_id) >= 3 and str(each["id"]).startswith(key_id)
    ]
    if not found:
        raise CommandError(
            _("No active key {key!r}", key=key_id),
            NOT_FOUND,
            hint=_("list keys with `chimes key list`"),
        )
    if len(found) > 1:
        ids = ", ".join(str(each["id"]) for each in found)
        raise CommandError(_("{key!r} matches several keys: {ids}", key=key_id, ids=ids), USAGE)
    question = _("Revoke {name} ({id})?", name=found[0]["name"], id=found[0]["id"])
    if not confirm(question, explicit=True):
        echo_err(_("Nothing was revoked. Use --yes to revoke without confirmation."))
        ctx.exit(FAILED)
    delete(backend, api_path("keys", found[0]["id"]))
    echo(escape_control(str(found[0]["id"])))


def _scopes(item: Json) -> str:
    scopes = item.get("scopes")
    return ",".join(str(each) for each in scopes) if isinstance(scopes, list) else ""


def _owner(item: Json) -> str:
    owner = nested(item, "owner")
    return f"{owner.get('type', '')}:{owner.get('id', '')}"


# --- user -----------------------------------------------------------------------------------------
USER_COMMANDS = {
    "create": LazyCommand(
        "chimes.cli.operations.admin", "create_user", "Create a user of the dashboard."
    ),
    "list": LazyCommand("chimes.cli.operations.admin", "list_users", "List users."),
    "change": LazyCommand(
        "chimes.cli.operations.admin", "change_user", "Change the password or role of a user."
    ),
    "remove": LazyCommand("chimes.cli.operations.admin", "remove_user", "Remove a user."),
}
_USER_COLUMNS = [
    Column(_("name"), getter("name")),
    Column(_("role"), getter("role")),
    Column(_("created"), getter("created_at"), time=True, rank=1),
    Column(_("by"), getter("created_by"), rank=2),
]


@click.group("user", cls=LazyGroup, lazy=USER_COMMANDS)
def user() -> None:
    """Manage users of the dashboard. Once a user exists, the dashboard needs a login."""


@click.command("create", cls=Command)
@click.argument("name")
@click.option("--role", type=_ROLES, default="member", show_default=True)
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin.")
@output_format_options
@lazy_client_options
def create_user(
    open_backend: Callable[..., Backend], output: Output, name: str, role: str, password_stdin: bool
) -> None:
    """Create a user. The password is prompted for or read with --password-stdin; it is never an
    argument, because other users of this machine could see it.

    \b
    Examples:
      chimes user create anna --role admin
      chimes user create bob --password-stdin < password.txt
    """
    password = _password(from_stdin=password_stdin)
    body: Json = {"name": name, "role": role, "password": password}
    created = post(open_backend(create=True), "/users", body)
    if output.format in ("json", "ndjson"):
        output.one(created, [])
        return
    echo(escape_control(str(created["name"])))


@click.command("list", cls=Command)
@output_options
@client_options
def list_users(backend: Backend, output: Output) -> None:
    """List the users of the dashboard.

    \b
    Examples:
      chimes user list
    """
    output.rows(items_of(get(backend, "/users")), _USER_COLUMNS)


@click.command("change", cls=Command)
@click.argument("name")
@click.option("--role", type=_ROLES)
@click.option("--password", "prompt", is_flag=True, help="Prompt for a new password.")
@click.option("--password-stdin", is_flag=True, help="Read a new password from stdin.")
@client_options
def change_user(
    backend: Backend, name: str, role: str | None, prompt: bool, password_stdin: bool
) -> None:
    """Change the role or the password of a user. A new password ends all sessions.

    \b
    Examples:
      chimes user change anna --role operator
      chimes user change anna --password
    """
    body: Json = {} if role is None else {"role": role}
    if prompt or password_stdin:
        body["password"] = _password(from_stdin=password_stdin)
    if not body:
        raise click.UsageError(_("Nothing to change: give --role, --password or --password-stdin."))
    echo(escape_control(str(patch(backend, api_path("users", name), body)["name"])))


@click.command("remove", cls=Command)
@click.argument("name")
@confirm_options
@client_options
@click.pass_context
def remove_user(
    ctx: click.Context, backend: Backend, confirm: Callable[..., bool], name: str
) -> None:
    """Remove a user. The schedules of the user stay.

    \b
    Examples:
      chimes user remove anna
    """
    if not confirm(_("Remove {name}?", name=name), explicit=True):
        echo_err(_("Nothing was removed. Use --yes to remove without confirmation."))
        ctx.exit(FAILED)
    delete(backend, api_path("users", name))
    echo(escape_control(name))


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise CommandError(
            _("Cannot prompt for a password without a terminal"),
            USAGE,
            hint=_("use --password-stdin"),
        )
    found: str = click.prompt(_("Password"), hide_input=True, confirmation_prompt=True, err=True)
    return found


# --- audit ----------------------------------------------------------------------------------------
_PAGE = 200
_AUDIT_COLUMNS = [
    Column(_("number"), getter("number")),
    Column(_("at"), getter("at"), time=True),
    Column(_("verb"), getter("verb")),
    Column(_("object"), lambda item: _object(item), rank=1, min_width=18),
    Column(_("owner"), getter("owner"), rank=3),
    Column(_("actor"), getter("actor"), rank=2),
    Column(_("interface"), getter("interface"), rank=4),
    Column(_("allowed"), lambda item: "" if item.get("allowed") else _("refused"), rank=5),
]


@click.command("audit", cls=Command)
@click.option("--verify", is_flag=True, help="Verify the hash chain of all entries instead.")
@click.option("--actor", metavar="ACTOR", help="Only by this actor, such as key:ID or user:alice.")
@click.option(
    "--interface",
    metavar="INTERFACE",
    help="Only through this interface, such as native, softnix or telegram.",
)
@click.option("--verb", metavar="VERB", help="Only this verb, such as create, pause or refused.")
@click.option("--object", "object_id", metavar="ID", help="Only this schedule, run or key.")
@click.option("--owner", metavar="TYPE:ID", help="Only objects of this owner.")
@click.option("--limit", "-n", type=WholeNumber(1), default=50, show_default=True)
@output_options
@client_options
@click.pass_context
def audit(
    ctx: click.Context,
    backend: Backend,
    output: Output,
    verify: bool,
    actor: str | None,
    interface: str | None,
    verb: str | None,
    object_id: str | None,
    owner: str | None,
    limit: int,
) -> None:
    """List audit entries, newest first. Each entry contains the hash of the one before it.

    \b
    Examples:
      chimes audit --verb delete
      chimes audit --owner user:anna --json
      chimes audit --verify
    """
    if verify:
        ctx.exit(_verify(backend, output))
    filters = {
        "actor": actor,
        "interface": interface,
        "verb": verb,
        "object_id": object_id,
        "owner": owner,
    }
    output.rows(_entries(backend, limit, filters), _AUDIT_COLUMNS)


def _entries(backend: Backend, limit: int, filters: dict[str, str | None]) -> list[Json]:
    found: list[Json] = []
    before: object = None
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        page = get(backend, "/audit", limit=size, before=before, **filters)
        found.extend(items_of(page))
        before = page.get("next_before")
        if before is None:
            break
    return found


def _verify(backend: Backend, output: Output) -> int:
    report = get(backend, "/audit/verify")
    if output.format in ("json", "ndjson"):
        output.one(report, [])
    elif report.get("ok"):
        echo(_intact(report.get("checked")))
        if report.get("pruned"):
            echo(_pruned(report))
    elif report.get("first_bad") is None:
        echo_err(_CHECKPOINT_PROBLEMS[str(report.get("checkpoint"))])
    else:
        echo_err(
            _(
                "The hash of entry {number} does not match: it or an earlier entry was changed.",
                number=report.get("first_bad"),
            )
        )
    return 0 if report.get("ok") else FAILED


_CHECKPOINT_PROBLEMS = {
    "invalid": _(
        "Entries were pruned, but the signature of their checkpoint is wrong: the checkpoint was "
        "changed, or audit_key is not the key that signed it."
    ),
    "unchecked": _(
        "Entries were pruned. To verify their checkpoint, the server needs the key that signed it "
        "(CHIMES_AUDIT_KEY)."
    ),
}


def _pruned(report: Json) -> Message:
    return _(
        "Older entries, up to number {number}, were pruned; their signed checkpoint is valid.",
        number=report.get("pruned_until"),
    )


def _intact(checked: object) -> Message:
    count = checked if isinstance(checked, int) else 0
    return counted("ok: {count} entry", "ok: {count} entries", count)


def _object(item: Json) -> str:
    return f"{item.get('object_kind', '')} {item.get('object_id', '')}".strip()


# --- nodes, drain, node ---------------------------------------------------------------------------
NODE_COMMANDS = {
    "resume": LazyCommand("chimes.cli.operations.admin", "resume", "Resume a drained node."),
    "forget": LazyCommand(
        "chimes.cli.operations.admin", "forget", "Remove a dead node from the list."
    ),
}
_SHOWN_CAPABILITIES = 6
#: Seconds between polls of a draining node, which reports with its heartbeat.
_POLL = 0.5
_STATES = {
    "alive": _("alive"),
    "draining": _("draining"),
    "drained": _("drained"),
    "gone": _("gone"),
}


@click.group("node", cls=LazyGroup, lazy=NODE_COMMANDS)
def node() -> None:
    """Resume nodes that `chimes drain` stopped, and remove dead ones."""


@click.command("nodes", cls=Command)
@output_options
@client_options
def nodes(backend: Backend, output: Output) -> None:
    """List nodes: state, roles, capabilities and clock offset.

    \b
    Examples:
      chimes nodes
      chimes nodes --json=id,state,running,clock_offset_seconds
    """
    output.rows(items_of(get(backend, "/nodes")), _columns())


@click.command("drain", cls=Command)
@click.argument("node_id", metavar="NODE")
@click.option("--reason", default="", help="Reason for the audit log.")
@click.option("--wait", is_flag=True, help="Wait until the node has no in-flight runs.")
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    help="How long to wait; exit code 124 after that.",
)
@output_options
@client_options
def drain(
    backend: Backend, output: Output, node_id: str, reason: str, wait: bool, timeout: str
) -> None:
    """Stop a node from accepting new runs. It starts draining with its next heartbeat and finishes
    its in-flight runs; other nodes continue. It stays drained until `chimes node resume` or a
    restart.

    \b
    Examples:
      chimes drain web-1-4711-0a1b2c3d
      chimes drain web-1 --reason "new kernel" --wait
    """
    found = find_node(backend, node_id)
    draining = _post(backend, found, "drain", reason)
    if wait:
        draining = _wait_until_drained(backend, draining, timeout)
    output.rows([draining], _columns())


@click.command("resume", cls=Command)
@click.argument("node_id", metavar="NODE")
@click.option("--reason", default="", help="Reason for the audit log.")
@output_options
@client_options
def resume(backend: Backend, output: Output, node_id: str, reason: str) -> None:
    """Resume a drained node with its next heartbeat.

    \b
    Examples:
      chimes node resume web-1
    """
    found = find_node(backend, node_id)
    output.rows([_post(backend, found, "resume", reason)], _columns())


@click.command("forget", cls=Command)
@click.argument("node_id", metavar="NODE")
@confirm_options
@client_options
@click.pass_context
def forget(
    ctx: click.Context, backend: Backend, confirm: Callable[..., bool], node_id: str
) -> None:
    """Remove a node whose lease has expired from the list. Other nodes take over its runs.

    \b
    Examples:
      chimes node forget web-1
    """
    found = find_node(backend, node_id)
    if not confirm(_("Remove node {id}?", id=found["id"])):
        echo_err(_("Nothing was removed."))
        ctx.exit(FAILED)
    delete(backend, api_path("nodes", found["id"]))
    echo(escape_control(str(found["id"])))


def _post(backend: Backend, found: Json, verb: str, reason: str) -> Json:
    return post(backend, api_path("nodes", found["id"], verb), {"reason": reason} if reason else {})


def _wait_until_drained(backend: Backend, node: Json, timeout: str) -> Json:
    """The node once it has no in-flight runs, or has left."""
    from chimes.triggers import parse_duration

    clock = SystemClock()
    until = clock.monotonic() + parse_duration(timeout, field="--timeout").total_seconds()
    while node.get("state") == "draining":
        if clock.monotonic() + _POLL > until:
            raise CommandError(
                _("Node {id} is still draining after {timeout}", id=node["id"],
                    timeout=timeout),
                TIMED_OUT,
                hint=_("it continues to drain; check it with `chimes nodes`"),
            )  # fmt: skip
        time.sleep(_POLL)
        present = [each for each in items_of(get(backend, "/nodes")) if each["id"] == node["id"]]
        node = present[0] if present else node | {"state": "gone"}
    return node


def _columns() -> list[Column]:
    return [
        Column(_("id"), getter("id")),
        Column(_("state"), _state),
        Column(_("roles"), lambda item: ",".join(_words(item, "roles")), rank=2),
        Column(_("capacity"), getter("capacity"), rank=5),
        Column(_("clock"), _clock, rank=3),
        Column(_("heartbeat"), getter("heartbeat_at"), time=True, rank=1),
        Column(_("since"), getter("started_at"), time=True, rank=6),
        Column(_("version"), getter("version"), rank=4),
        Column(_("running"), getter("running"), rank=4),
        Column(_("capabilities"), _capabilities, rank=7, max_width=60, min_width=12),
    ]


def _state(item: Json) -> Message | str:
    state = str(item.get("state") or ("alive" if item.get("alive") else "gone"))
    return _STATES.get(state, state)


def _clock(item: Json) -> str:
    offset = item.get("clock_offset_seconds")
    return f"{offset:+.3f} s" if isinstance(offset, int | float) else ""


def _capabilities(item: Json) -> str:
    capabilities = _words(item, "offers")
    more = len(capabilities) - _SHOWN_CAPABILITIES
    listed = ", ".join(capabilities[:_SHOWN_CAPABILITIES])
    return _("{names} and {count} more", names=listed, count=more) if more > 0 else listed


def _words(item: Json, name: str) -> list[str]:
    value = item.get(name)
    return [str(each) for each in value] if isinstance(value, list) else []
