"""`key create`, `key list`, `key revoke`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from chimes.cli.backend import Backend, delete, get, items_of, patch, path_of, post
from chimes.cli.command import FAILED, NOT_FOUND, USAGE, Command, Failure, Lazy, LazyGroup
from chimes.cli.locale import said
from chimes.cli.options import (
    Whole,
    client_options,
    form_options,
    output_options,
    reach_options,
    yes_option,
)
from chimes.cli.output import Column, Json, Output, echo, inner, pick, tell
from chimes.i18n import Message, _, counted
from chimes.redaction import escaped

COMMANDS = {
    "create": Lazy("chimes.cli.access", "create", "Create a key; it is shown once."),
    "list": Lazy("chimes.cli.access", "list_keys", "List keys, without their secrets."),
    "revoke": Lazy("chimes.cli.access", "revoke", "Make a key useless."),
}
_ROLES = click.Choice(["viewer", "member", "operator", "admin"])
_SCOPES = click.Choice(["read", "operate", "write", "agent", "agent_schedules"])
_COLUMNS = [
    Column(_("id"), pick("id")),
    Column(_("name"), pick("name")),
    Column(_("role"), pick("role")),
    Column(_("owner"), lambda item: _owner(item), rank=3),
    Column(_("state"), lambda item: _("revoked") if item.get("revoked_at") else _("active")),
    Column(_("scopes"), lambda item: _scopes(item), rank=5),
    Column(_("created"), pick("created_at"), time=True, rank=2),
    Column(_("expires"), pick("expires_at"), time=True, rank=1),
    Column(_("used"), pick("last_used_at"), time=True, rank=4),
]


@click.group("key", cls=LazyGroup, lazy=COMMANDS)
def key() -> None:
    """API keys. From the first one on, every call needs a key."""


@click.command("create", cls=Command)
@click.argument("name", required=False)
@click.option("--role", type=_ROLES, default="member", show_default=True)
@click.option("--owner", metavar="TYPE:ID", help="Whose objects it sees, such as user:alice.")
@click.option(
    "--scope",
    "scopes",
    type=_SCOPES,
    multiple=True,
    help="What it is for, within its role; may be given several times. None: all of it.",
)
@click.option("--expires-in", metavar="DURATION", help="Such as 720h or P30D.")
@form_options
@reach_options
def create(
    reach: Callable[..., Backend],
    output: Output,
    name: str | None,
    role: str,
    owner: str | None,
    scopes: tuple[str, ...],
    expires_in: str | None,
) -> None:
    """Create a key. It is printed once, and cannot be shown again. Without a NAME it is called
    after its role and owner.

    \b
    Examples:
      chimes key create --role admin laptop
      chimes key create ci --role operator --expires-in P90D
      chimes key create --role member --owner user:anna
      chimes key create robot --owner user:anna --scope agent --scope agent_schedules
    """
    usual = _("{role} for {owner}", role=role, owner=owner or "system:default")
    body: Json = {"name": said(usual) if name is None else name, "role": role}
    if owner:
        kind, separator, owner_id = owner.partition(":")
        if not separator or not owner_id:
            raise click.UsageError(_("An owner is written as TYPE:ID, such as user:alice."))
        body["owner"] = {"type": kind, "id": owner_id}
    if scopes:
        body["scopes"] = list(dict.fromkeys(scopes))
    if expires_in:
        body["expires_in"] = expires_in
    made = post(reach(create=True), "/keys", body)
    if output.form in ("json", "ndjson"):
        output.one(made, [])
        return
    echo(str(made["key"]))
    tell(
        _("This is the only time the key is shown. Use it as CHIMES_API_KEY or as a Bearer token.")
    )


@click.command("list", cls=Command)
@output_options
@client_options
def list_keys(backend: Backend, output: Output) -> None:
    """List keys, revoked ones too.

    \b
    Examples:
      chimes key list
    """
    output.rows(items_of(get(backend, "/keys")), _COLUMNS)


@click.command("revoke", cls=Command)
@click.argument("key_id", metavar="KEY")
@yes_option
@client_options
@click.pass_context
def revoke(ctx: click.Context, backend: Backend, ask: Callable[..., bool], key_id: str) -> None:
    """Make a key useless for good; KEY is its id, the beginning of it, or its name.

    \b
    Examples:
      chimes key revoke laptop
    """
    keys = [each for each in items_of(get(backend, "/keys")) if not each.get("revoked_at")]
    found = [each for each in keys if key_id in (each["id"], each["name"])] or [
        each for each in keys if len(key_id) >= 3 and str(each["id"]).startswith(key_id)
    ]
    if not found:
        raise Failure(
            _("There is no active key {key!r}", key=key_id),
            NOT_FOUND,
            hint=_("see `chimes key list`"),
        )
    if len(found) > 1:
        some = ", ".join(str(each["id"]) for each in found)
        raise Failure(_("{key!r} names several keys: {ids}", key=key_id, ids=some), USAGE)
    question = _("Revoke {name} ({id})?", name=found[0]["name"], id=found[0]["id"])
    if not ask(question, careful=True):
        tell(_("Nothing was revoked; --yes would do it without asking."))
        ctx.exit(FAILED)
    delete(backend, path_of("keys", found[0]["id"]))
    echo(escaped(str(found[0]["id"])))


def _scopes(item: Json) -> str:
    scopes = item.get("scopes")
    return ",".join(str(each) for each in scopes) if isinstance(scopes, list) else ""


def _owner(item: Json) -> str:
    owner = inner(item, "owner")
    return f"{owner.get('type', '')}:{owner.get('id', '')}"


# @@ `user create`, `user list`, `user change`, `user remove`.

USER_COMMANDS = {
    "create": Lazy("chimes.cli.access", "create_user", "Let somebody sign in at the dashboard."),
    "list": Lazy("chimes.cli.access", "list_users", "List who can sign in with a password."),
    "change": Lazy("chimes.cli.access", "change", "Give somebody another password or role."),
    "remove": Lazy("chimes.cli.access", "remove", "Let somebody in no longer."),
}
_USER_COLUMNS = [
    Column(_("name"), pick("name")),
    Column(_("role"), pick("role")),
    Column(_("created"), pick("created_at"), time=True, rank=1),
    Column(_("by"), pick("created_by"), rank=2),
]


@click.group("user", cls=LazyGroup, lazy=USER_COMMANDS)
def user() -> None:
    """People who sign in at the dashboard. From the first one on, nobody else gets in."""


@click.command("create", cls=Command)
@click.argument("name")
@click.option("--role", type=_ROLES, default="member", show_default=True)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@form_options
@reach_options
def create_user(
    reach: Callable[..., Backend], output: Output, name: str, role: str, password_stdin: bool
) -> None:
    """Let somebody sign in. The password is asked for, or read with --password-stdin; it is never
    an argument, which others on this machine could see.

    \b
    Examples:
      chimes user create anna --role admin
      chimes user create bob --password-stdin < password.txt
    """
    password = _password(from_stdin=password_stdin)
    body: Json = {"name": name, "role": role, "password": password}
    made = post(reach(create=True), "/users", body)
    if output.form in ("json", "ndjson"):
        output.one(made, [])
        return
    echo(escaped(str(made["name"])))


@click.command("list", cls=Command)
@output_options
@client_options
def list_users(backend: Backend, output: Output) -> None:
    """List who can sign in with a password.

    \b
    Examples:
      chimes user list
    """
    output.rows(items_of(get(backend, "/users")), _USER_COLUMNS)


@click.command("change", cls=Command)
@click.argument("name")
@click.option("--role", type=_ROLES)
@click.option("--password", "asked", is_flag=True, help="Ask for a new password.")
@click.option("--password-stdin", is_flag=True, help="Read a new password from standard input.")
@client_options
def change(
    backend: Backend, name: str, role: str | None, asked: bool, password_stdin: bool
) -> None:
    """Another role, or another password, which signs this user out everywhere.

    \b
    Examples:
      chimes user change anna --role operator
      chimes user change anna --password
    """
    body: Json = {} if role is None else {"role": role}
    if asked or password_stdin:
        body["password"] = _password(from_stdin=password_stdin)
    if not body:
        raise click.UsageError(_("Say what to change: --role, --password or both."))
    echo(escaped(str(patch(backend, path_of("users", name), body)["name"])))


@click.command("remove", cls=Command)
@click.argument("name")
@yes_option
@client_options
@click.pass_context
def remove(ctx: click.Context, backend: Backend, ask: Callable[..., bool], name: str) -> None:
    """Let somebody in no longer; what belongs to them stays.

    \b
    Examples:
      chimes user remove anna
    """
    if not ask(_("Remove {name}?", name=name), careful=True):
        tell(_("Nothing was removed; --yes would do it without asking."))
        ctx.exit(FAILED)
    delete(backend, path_of("users", name))
    echo(escaped(name))


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise Failure(
            _("There is no terminal to ask for a password on"),
            USAGE,
            hint=_("send it with --password-stdin"),
        )
    found: str = click.prompt(_("Password"), hide_input=True, confirmation_prompt=True, err=True)
    return found


# @@ `audit`: who did what, and whether the trail is whole.

_PAGE = 200
_AUDIT_COLUMNS = [
    Column(_("number"), pick("number")),
    Column(_("at"), pick("at"), time=True),
    Column(_("verb"), pick("verb")),
    Column(_("object"), lambda item: _object(item), rank=1),
    Column(_("owner"), pick("owner"), rank=3),
    Column(_("actor"), pick("actor"), rank=2),
    Column(_("interface"), pick("interface"), rank=4),
    Column(_("allowed"), lambda item: "" if item.get("allowed") else _("refused"), rank=5),
]


@click.command("audit", cls=Command)
@click.option("--verify", is_flag=True, help="Walk through the whole chain instead.")
@click.option("--actor", metavar="ACTOR", help="Such as key:ID or user:alice.")
@click.option("--interface", metavar="INTERFACE", help="Such as native, softnix or telegram.")
@click.option("--verb", metavar="VERB", help="Such as create, pause or refused.")
@click.option("--object", "object_id", metavar="ID", help="Of one schedule, run or key.")
@click.option("--owner", metavar="TYPE:ID", help="Of the objects of one owner.")
@click.option("--limit", "-n", type=Whole(1), default=50, show_default=True)
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
    """Who did what, newest first. Each entry is chained to the one before it by its hash.

    \b
    Examples:
      chimes audit --verb delete
      chimes audit --owner user:anna --json
      chimes audit --verify
    """
    if verify:
        ctx.exit(_verify(backend, output))
    asked = {"actor": actor, "interface": interface, "verb": verb, "object_id": object_id, "owner": owner}
    output.rows(_entries(backend, limit, asked), _AUDIT_COLUMNS)


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
    verdict = get(backend, "/audit/verify")
    if output.form in ("json", "ndjson"):
        output.one(verdict, [])
    elif verdict.get("ok"):
        echo(_whole(verdict.get("checked")))
    else:
        tell(
            _(
                "Entry {number} does not fit: it, or one before it, was changed.",
                number=verdict.get("first_bad"),
            )
        )
    return 0 if verdict.get("ok") else FAILED


def _whole(checked: object) -> Message:
    count = checked if isinstance(checked, int) else 0
    return counted("ok: {count} entry", "ok: {count} entries", count)


def _object(item: Json) -> str:
    return f"{item.get('object_kind', '')} {item.get('object_id', '')}".strip()
