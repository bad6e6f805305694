"""Sign-in through an OpenID Connect provider (extra `oidc`) or a reverse proxy.

Uses the OpenID Connect authorization code flow with discovery, PKCE, state and nonce. The groups
from the provider or proxy decide who may sign in and with which role (`sso_roles`).
"""

from __future__ import annotations

import base64
import importlib.util
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import quote_plus, urlencode, urlsplit

from chimes.clock import Clock
from chimes.config import Settings
from chimes.errors import ConfigError
from chimes.i18n import Message, _
from chimes.model.access import Role

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

#: Issuer of users that a proxy has authenticated.
PROXY_ISSUER: Final = "proxy"
#: Signatures by a shared secret and `none` are refused.
ALGORITHMS = frozenset(
    {
        *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
    }
)
#: Seconds for one request to the provider.
REQUEST_TIMEOUT = 10.0
#: Seconds that metadata of the provider is cached.
METADATA_LIFE = 3600.0
#: Seconds that keys of the provider are cached.
KEYS_LIFE = 3600.0
#: Seconds before keys that do not verify a token are read again.
MIN_KEYS_AGE = 30.0
#: Seconds that the provider's clock may differ.
LEEWAY = 60
MAX_RESPONSE_BYTES = 1024 * 1024
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ROLES = tuple(Role)
_log = logging.getLogger("chimes.access")


class SignInFailed(Exception):
    """Sign-in failed; the message is shown to the user."""

    def __init__(self, message: Message, status: int = 401) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A user that a provider or proxy has authenticated. Issuer and subject never change, the name
    may."""

    issuer: str
    subject: str
    name: str
    groups: tuple[str, ...] = ()


def uses_external_sign_in(settings: Settings) -> bool:
    """Whether a provider or proxy authenticates users."""
    return bool(settings.oidc_issuer or settings.proxy_user_header)


def check_settings(settings: Settings) -> None:
    """Raises ConfigError if the settings contradict each other."""
    if settings.proxy_user_header and not settings.trusted_proxies:
        raise ConfigError(
            _("proxy_user_header needs trusted_proxies: others could send the header, too"),
            key="proxy_user_header",
        )
    if not settings.oidc_issuer:
        return
    if not settings.oidc_client_id:
        raise ConfigError(
            _("oidc_issuer needs oidc_client_id, as the provider has registered it"),
            key="oidc_client_id",
        )
    parts = urlsplit(settings.oidc_issuer)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and (parts.hostname or "") in _LOOPBACK
    ):
        raise ConfigError(
            _("oidc_issuer must be a URL that begins with https://"), key="oidc_issuer"
        )
    if importlib.util.find_spec("authlib") is None:
        raise ConfigError(
            _("oidc_issuer is set, but Authlib is not installed: pip install 'chimes[oidc]'"),
            key="oidc_issuer",
        )


def role_of(identity: Identity, settings: Settings) -> Role:
    """The highest role of the groups. Raises SignInFailed if there is none."""
    roles = dict(settings.sso_roles)
    found = [Role(roles[group]) for group in identity.groups if group in roles]
    if settings.sso_default_role:
        found.append(Role(settings.sso_default_role))
    if not found:
        _log.warning(
            "sign-in refused: no group has a role",
            extra={"user": identity.name, "groups": list(identity.groups)},
        )
        raise SignInFailed(
            _(
                "{name} has no role in Chimes: none of the account's groups is in sso_roles. "
                "Ask an administrator.",
                name=identity.name,
            ),
            status=403,
        )
    return max(found, key=_ROLES.index)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInRequest:
    """What the browser keeps until the provider sends it back."""

    url: str
    state: str
    nonce: str
    verifier: str


class OidcProvider:
    """The provider of the settings. Its metadata and keys are cached."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._metadata: dict[str, Any] = {}
        self._metadata_until = float("-inf")
        self._keys: KeySet | None = None
        self._keys_at = float("-inf")

    @property
    def display_name(self) -> str:
        return self._settings.oidc_name or urlsplit(self._settings.oidc_issuer).hostname or ""

    async def begin(self, redirect_uri: str) -> SignInRequest:
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        metadata = await self._read_metadata()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _number in range(3))
        query = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self._settings.oidc_scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": create_s256_code_challenge(verifier),
            "code_challenge_method": "S256",
        }
        url = _with_query(metadata["authorization_endpoint"], query)
        return SignInRequest(url=url, state=state, nonce=nonce, verifier=verifier)

    async def finish(self, code: str, *, redirect_uri: str, nonce: str, verifier: str) -> Identity:
        """Exchanges the code for the identity. Raises SignInFailed."""
        metadata = await self._read_metadata()
        token = await self._exchange(metadata, code, redirect_uri, verifier)
        id_token = token.get("id_token")
        if not isinstance(id_token, str):
            _reject_response("the token response has no id_token")
        claims = await self._verify(metadata, id_token, nonce, token.get("access_token"))
        settings = self._settings
        wanted = (settings.oidc_user_claim, settings.oidc_groups_claim)
        endpoint = metadata.get("userinfo_endpoint")
        if endpoint and any(_claim(claims, name) is None for name in wanted):
            access = str(token.get("access_token", ""))
            more = await self._json(
                "GET", str(endpoint), headers={"Authorization": f"Bearer {access}"}
            )
            if more.get("sub") != claims["sub"]:
                _reject_response("the subject of the user info is another one")
            claims = {**more, **claims}
        name, groups = (_claim(claims, each) for each in wanted)
        if not isinstance(name, str) or not name:
            _reject_response(f"the claim {settings.oidc_user_claim!r} is missing")
        if isinstance(groups, str):
            groups = [groups]
        return Identity(
            issuer=settings.oidc_issuer,
            subject=str(claims["sub"]),
            name=name,
            groups=tuple(str(each) for each in groups) if isinstance(groups, list) else (),
        )

    async def end_session_url(self, return_to: str) -> str:
        """Where the browser ends its session at the provider; empty if the provider offers no such
        address or does not respond."""
        try:
            endpoint = (await self._read_metadata()).get("end_session_endpoint")
        except SignInFailed:
            return ""
        if not isinstance(endpoint, str) or not endpoint:
            return ""
        query = {
            "client_id": self._settings.oidc_client_id,
            "post_logout_redirect_uri": return_to,
        }
        return _with_query(endpoint, query)

    async def _exchange(
        self, metadata: Mapping[str, Any], code: str, redirect_uri: str, verifier: str
    ) -> dict[str, Any]:
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        methods = metadata.get("token_endpoint_auth_methods_supported")
        headers = {}
        if not settings.oidc_client_secret:
            form["client_id"] = settings.oidc_client_id
        elif isinstance(methods, list) and "client_secret_basic" not in methods:
            form["client_id"] = settings.oidc_client_id
            form["client_secret"] = settings.oidc_client_secret
        else:
            # RFC 6749, 2.3.1: both are encoded as in a form first.
            both = (settings.oidc_client_id, settings.oidc_client_secret)
            credentials = ":".join(quote_plus(each) for each in both)
            headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        return await self._json("POST", metadata["token_endpoint"], data=form, headers=headers)

    async def _verify(
        self, metadata: Mapping[str, Any], id_token: str, nonce: str, access_token: object
    ) -> dict[str, Any]:
        """The claims of a valid id token."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError

        offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = sorted(ALGORITHMS.intersection(offered))
        for fresh in (False, True):
            try:
                keys = await self._read_keys(metadata, fresh=fresh)
                token = jwt.decode(id_token, keys, algorithms=algorithms)
                break
            except (JoseError, ValueError) as error:
                # The provider may have changed its keys.
                if fresh or self._clock.monotonic() - self._keys_at < MIN_KEYS_AGE:
                    _reject_response(f"the id token is not valid: {error}", error)
        options: Any = {
            "iss": {"essential": True, "value": self._settings.oidc_issuer},
            "aud": {"essential": True, "value": self._settings.oidc_client_id},
            "sub": {"essential": True},
            "exp": {"essential": True},
            "iat": {"essential": True},
        }
        parameters = {
            "nonce": nonce,
            "client_id": self._settings.oidc_client_id,
            "access_token": access_token,
        }
        claims = CodeIDToken(token.claims, token.header, options, parameters)
        try:
            claims.validate(now=int(self._clock.now().timestamp()), leeway=LEEWAY)
        except (JoseError, ValueError, TypeError) as error:
            _reject_response(f"the id token is not valid: {error}", error)
        return dict(claims)

    async def _read_metadata(self) -> dict[str, Any]:
        from authlib.oidc.discovery import get_well_known_url

        if self._clock.monotonic() < self._metadata_until:
            return self._metadata
        issuer = self._settings.oidc_issuer
        found = await self._json("GET", get_well_known_url(issuer, external=True))
        if found.get("issuer") != issuer:
            _reject_response(
                f"the issuer is {found.get('issuer')!r}, but oidc_issuer is {issuer!r}"
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(found.get(name), str):
                _reject_response(f"{name} is missing in the metadata")
        self._metadata = found
        self._metadata_until = self._clock.monotonic() + METADATA_LIFE
        return found

    async def _read_keys(self, metadata: Mapping[str, Any], *, fresh: bool) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        now = self._clock.monotonic()
        if self._keys is None or fresh or now - self._keys_at > KEYS_LIFE:
            found: Any = await self._json("GET", metadata["jwks_uri"])
            try:
                self._keys = KeySet.import_key_set(found)
            except (JoseError, KeyError, TypeError, ValueError) as error:
                _reject_response(f"the keys cannot be read: {error!r}", error)
            self._keys_at = now
        return self._keys

    async def _json(self, method: str, url: str, **given: Any) -> dict[str, Any]:
        import aiohttp

        from chimes.targets.http.connection import read_at_most

        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(method, url, allow_redirects=False, **given) as response,
            ):
                body = await read_at_most(response, MAX_RESPONSE_BYTES)
                status = response.status
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            _log.warning(
                "the identity provider does not respond", extra={"url": url, "error": repr(error)}
            )
            raise SignInFailed(
                _("{name} does not respond. Try again later.", name=self.display_name), status=502
            ) from error
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if status != 200 or not isinstance(found, dict):
            reason = found.get("error") if isinstance(found, dict) else None
            _reject_response(f"{urlsplit(url).path} responded with {status} {reason or ''}".strip())
        return found


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim; `a.b` is also the claim `b` within `a`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def _reject_response(reason: str, cause: Exception | None = None) -> NoReturn:
    _log.warning("sign-in failed: %s", reason)
    raise SignInFailed(
        _("The response of the identity provider is invalid. See the server log for the reason.")
    ) from cause
