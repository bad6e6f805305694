"""Writes the bill of materials (CycloneDX) and the list of licences of what requirements.lock pins
and of the vendored scripts. Usage: sbom.py FOLDER"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
VENDOR = ROOT / "src/chimes/web/dashboard/static/vendor/VENDOR.toml"
_PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
#: Of packages for other platforms, which are not installed here, and of those with two licences.
LICENCES = {
    "async-timeout": "Apache-2.0",
    "pywin32": "PSF-2.0",
    "colorama": "BSD-3-Clause",
    "tzdata": "Apache-2.0",
    "httpx2-jsfetch": "BSD-3-Clause",
    "uvloop": "MIT OR Apache-2.0",
}
_CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "ISC License (ISCL)": "ISC",
}
_NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache 2": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "MIT License": "MIT",
    "The MIT License": "MIT",
}


def pins() -> dict[str, str]:
    return dict(_PIN.findall((ROOT / "requirements.lock").read_text()))


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence_of(name: str) -> str:
    """The SPDX expression of a package. Raises SystemExit if it names none that is known."""
    if name in LICENCES:
        return LICENCES[name]
    found = _find(name)
    if found is not None:
        metadata = found.metadata
        if expression := metadata.get("License-Expression"):
            return str(expression)
        for classifier in metadata.get_all("Classifier") or ():
            if classifier.startswith("License :: ") and (
                known := _CLASSIFIERS.get(classifier.rpartition(" :: ")[2])
            ):
                return known
        given = str(metadata.get("License") or "").strip()
        if given in _NAMES or re.fullmatch(r"[A-Za-z0-9.+-]+( (AND|OR) [A-Za-z0-9.+-]+)*", given):
            return _NAMES.get(given, given)
    raise SystemExit(f"{name}: no known licence; add it to LICENCES in tools/sbom.py")


def vendored() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = tomllib.loads(VENDOR.read_text())
    return found


def bill() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    root = f"pkg:pypi/chimes@{project['version']}"
    versions = pins()
    addresses = {name: f"pkg:pypi/{name}@{version}" for name, version in versions.items()}
    components: list[dict[str, Any]] = [
        {
            "type": "library",
            "bom-ref": addresses[name],
            "name": name,
            "version": version,
            "purl": addresses[name],
            "licenses": [{"expression": licence_of(name)}],
        }
        for name, version in versions.items()
    ]
    components += [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{each['package']}@{each['version']}",
            "name": each["package"],
            "version": each["version"],
            "purl": f"pkg:npm/{each['package']}@{each['version']}",
            "licenses": [{"expression": each["licence"]}],
            "components": [
                {
                    "type": "file",
                    "name": file,
                    "hashes": [{"alg": "SHA-256", "content": about["sha256"]}],
                }
                for file, about in each["files"].items()
            ],
        }
        for each in vendored().values()
    ]

    def needs(texts: list[str]) -> list[str]:
        names = {re.sub(r"[-_.]+", "-", Requirement(text).name).lower() for text in texts}
        return sorted(addresses[name] for name in names if name in addresses)

    extras = project["optional-dependencies"]
    direct = [*project["dependencies"], *(each for name in extras for each in extras[name])]
    dependencies = [{"ref": root, "dependsOn": needs(direct)}]
    for name in versions:
        package = _find(name)
        dependencies.append(
            {
                "ref": addresses[name],
                "dependsOn": needs(
                    [
                        text
                        for text in (package.requires if package is not None else None) or ()
                        if "extra ==" not in text
                    ]
                ),
            }
        )
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "chimes",
                "version": project["version"],
                "purl": root,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": components,
        "dependencies": dependencies,
    }


def licence_list() -> str:
    rows = [
        f"| {each['name']} | {each['version']} | {each['licenses'][0]['expression']} |"
        for each in bill()["components"]
    ]
    head = ("# Licences of the packages that Chimes uses", "", "| package | version | licence |")
    return "\n".join([*head, "|---|---|---|", *rows]) + "\n"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chimes.cdx.json").write_text(json.dumps(bill(), indent=2) + "\n")
    (folder / "licences.md").write_text(licence_list())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
