"""A small OpenID Connect provider on a free loopback port: discovery, keys, authorization code with
PKCE, user info and end of session. It checks what a provider has to check."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "chimes", "s3cret/with%signs"


class Provider:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
        #: Claims of the account that signs in.
        self.account: dict[str, Any] = {"sub": "248289761001", "preferred_username": "anna"}
        #: Replaces claims of the id token; None removes one.
        self.changed: dict[str, Any] = {}
        #: Claims that only the user info has.
        self.only_in_userinfo: tuple[str, ...] = ()
        self.metadata: dict[str, Any] = {}
        self.requests: list[str] = []
        #: If given, bodies are sent in two parts, the second one when this is set.
        self.first_part_read: threading.Event | None = None
        self._codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def authorize(self, url: str) -> str:
        """What the browser does: the user agrees. Returns the address that it is sent back to."""
        given = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert given["response_type"] == "code"
        assert given["client_id"] == CLIENT_ID
        assert given["code_challenge_method"] == "S256"
        assert "openid" in given["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = given
        query = {"code": code, "state": given["state"], "iss": self.issuer}
        return f"{given['redirect_uri']}?{urlencode(query)}"

    def _token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        name, _colon, secret = (
            base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        )
        if (unquote(name), unquote(secret)) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client"}
        asked = self._codes.pop(form["code"], None)
        if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        now = int(self._now().timestamp())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **{key: v for key, v in self.account.items() if key not in self.only_in_userinfo},
            **self.changed,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": "RS256", "kid": self.key.kid}
        id_token = jwt.encode(header, claims, self.key)
        return 200, {"access_token": "at", "token_type": "Bearer", "id_token": id_token}

    def _answer(self, path: str, body: bytes, authorization: str) -> tuple[int, dict[str, Any]]:
        self.requests.append(path)
        match path:
            case "/.well-known/openid-configuration":
                return 200, {
                    "issuer": self.issuer,
                    "authorization_endpoint": f"{self.issuer}/authorize",
                    "token_endpoint": f"{self.issuer}/token",
                    "userinfo_endpoint": f"{self.issuer}/userinfo",
                    "jwks_uri": f"{self.issuer}/keys",
                    "end_session_endpoint": f"{self.issuer}/logout",
                    "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
                } | self.metadata
            case "/keys":
                return 200, {"keys": [self.key.as_dict(private=False)]}
            case "/token":
                form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
                return self._token(form, authorization)
            case "/userinfo":
                return (200, self.account) if authorization == "Bearer at" else (401, {})
        return 404, {}

    def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                path = urlsplit(self.path).path
                if path in ("/authorize", "/logout"):
                    given = parse_qs(urlsplit(self.path).query)
                    provider.requests.append(path)
                    self.send_response(302)
                    self.send_header(
                        "Location",
                        provider.authorize(self.path)
                        if path == "/authorize"
                        else given["post_logout_redirect_uri"][0],
                    )
                    self.end_headers()
                    return
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, found = provider._answer(
                    urlsplit(self.path).path, body, self.headers.get("authorization", "")
                )
                text = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if (first_part_read := provider.first_part_read) is not None:
                    first_part_read.clear()
                    self.wfile.write(text[:20])
                    text = text[20:]
                    first_part_read.wait(60)
                self.wfile.write(text)

            do_GET = do_POST = respond

            def log_message(self, format: str, *args: object) -> None: ...

        return Handler
