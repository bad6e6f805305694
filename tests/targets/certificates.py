"""Certificates for tests, made by openssl when needed."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    folder: Path

    def client(self) -> ssl.SSLContext:
        """A client context that trusts this authority only."""
        return ssl.create_default_context(cafile=self.folder / "ca.pem")

    def server(self, name: str = "hook.example", *, expired: bool = False) -> ssl.SSLContext:
        stem = self.folder / ("expired" if expired else "valid")
        days = (
            ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
            if expired
            else ["-days", "2"]
        )
        if not stem.with_suffix(".pem").exists():
            self._issue(stem, name, days)
        return server_context(stem)

    def _issue(self, stem: Path, name: str, days: list[str]) -> None:
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", f"{stem}.key", "-out", f"{stem}.csr", "-subj", f"/CN={name}"),
        )
        extensions = stem.with_suffix(".ext")
        extensions.write_text(f"[ext]\nsubjectAltName=DNS:{name}\n")
        database = self.folder / f"{stem.name}.index"
        database.touch()
        config = stem.with_suffix(".cnf")
        config.write_text(
            f"[ca]\ndefault_ca=us\n[us]\ndatabase={database}\nnew_certs_dir={self.folder}\n"
            "rand_serial=yes\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
        )
        _openssl(
            *("ca", "-batch", "-notext", "-config", str(config), "-in", f"{stem}.csr"),
            *("-cert", str(self.folder / "ca.pem"), "-keyfile", str(self.folder / "ca.key")),
            *("-extfile", str(extensions), "-extensions", "ext", "-out", f"{stem}.pem"),
            *days,
        )


def create_authority(folder: Path) -> Authority:
    self_signed(folder / "ca", "Test authority")
    return Authority(folder)


def self_signed(stem: Path, name: str) -> ssl.SSLContext:
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", f"{stem}.key", "-out", f"{stem}.pem", "-days", "2", "-subj", f"/CN={name}"),
    )
    return server_context(stem)


def server_context(stem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{stem}.pem", f"{stem}.key")
    return context


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
