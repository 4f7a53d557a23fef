import subprocess
from pathlib import Path

import pytest

from small_init.data.corpus import wheels
from small_init.data.corpus.wheels import WHEELS, Archive, fetch
from small_init.errors import UserError
from tests.data.corpus.conftest import Put


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip that reaches no index; records its command lines."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_the_mirror_comes_before_the_network(
    put: Put, mirror: Path, tmp_path: Path, no_network: list[list[str]]
) -> None:
    path = put("networkx", {"networkx/a.py": b""})
    assert fetch(WHEELS["networkx"], tmp_path / "downloads", str(mirror)) == path
    assert no_network == []


def test_the_variable_names_a_mirror_too(
    put: Put, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put("networkx", {"networkx/a.py": b""})
    monkeypatch.setenv(wheels.MIRROR_VARIABLE, str(mirror))
    assert fetch(WHEELS["networkx"], tmp_path / "downloads") == path


def test_no_network_and_no_mirror_says_both_ways_out(
    put: Put, tmp_path: Path, no_network: list[list[str]]
) -> None:
    put("networkx", {})
    with pytest.raises(UserError, match=r"networkx 3.*index.*SMALL_INIT_MIRROR") as fault:
        fetch(WHEELS["networkx"], tmp_path / "downloads")
    assert "\n" not in str(fault.value)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_only_hashed_wheels_are_asked_for(
    put: Put, tmp_path: Path, no_network: list[list[str]]
) -> None:
    put("networkx", {})
    with pytest.raises(UserError):
        fetch(WHEELS["networkx"], tmp_path / "downloads")
    (command,) = no_network
    assert {"--only-binary=:all:", "--require-hashes", "--no-deps"} <= set(command)
    # The user's own index settings must hold.
    assert not [part for part in command if "index-url" in part or "trusted-host" in part]


@pytest.mark.parametrize("where", ["downloads", "mirror"])
def test_a_file_with_another_hash_is_named(
    where: str, put: Put, mirror: Path, tmp_path: Path
) -> None:
    path = put("networkx", {"networkx/a.py": b""})
    if where == "downloads":
        (tmp_path / "downloads").mkdir()
        path = path.rename(tmp_path / "downloads" / path.name)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(UserError, match=path.name):
        fetch(WHEELS["networkx"], tmp_path / "downloads", str(mirror))


def test_an_index_with_another_file_is_reported(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("networkx", {})
    said = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE"
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", said)
    )
    with pytest.raises(UserError, match="not the pinned file"):
        fetch(WHEELS["networkx"], tmp_path / "downloads")


def test_a_changed_member_is_refused(put: Put) -> None:
    (member,) = WHEELS["gensim"].members
    path = put("gensim", {member: b"text"})
    wheel = WHEELS["gensim"]
    wheel.members[member] = "0" * 64
    with pytest.raises(UserError, match="not the pinned text"):
        Archive(path, wheel).read(member)
