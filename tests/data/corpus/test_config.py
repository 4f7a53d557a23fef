from pathlib import Path

import pytest

from small_init.data.corpus.config import CorpusConfig, HubSource, check, load_corpus_config
from small_init.errors import UserError
from tests import ROOT


@pytest.mark.parametrize("profile", ["smoke", "cpu"])
def test_profiles_load_and_read_only_known_sources(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from small_init.data.corpus.sources import EMBEDDED

    monkeypatch.chdir(ROOT)
    config = load_corpus_config(profile)
    assert config.profile == profile
    assert set(config.embedded) <= set(EMBEDDED)


@pytest.mark.parametrize("profile", ["gpu", "paper"])
def test_hub_profiles_ask_for_a_revision(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match="revision"):
        load_corpus_config(profile)


def write(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "configs/corpus"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profile: mine\ntrain_tokns: 3\n", "train_tokns"),
        ("profile: mine\ntrain_tokens: many\n", "train_tokens"),
        ("profile: mine\ntrain_tokens: 9\nval_tokens: 9\nmixture: {zh: 0.5}\n", "sum to 0.5"),
        ("profile: mine\nmixture: {zh: 1.0}\n", "train_tokens"),
        ("profile: [unclosed\n", "mine.yaml"),
    ],
)
def test_a_bad_file_names_key_and_file(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, text, monkeypatch)
    with pytest.raises(UserError, match=said) as fault:
        load_corpus_config("mine")
    assert "mine.yaml" in str(fault.value)


def test_an_unknown_profile_lists_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "", monkeypatch)
    with pytest.raises(UserError, match="mine"):
        load_corpus_config("other")


def test_a_hub_group_without_weight_is_refused(config: CorpusConfig, tmp_path: Path) -> None:
    config.hub = [HubSource("web", str(tmp_path), language="zh", group="web")]
    with pytest.raises(UserError, match="group 'web'"):
        check(config)
