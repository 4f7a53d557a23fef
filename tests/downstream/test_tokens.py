"""The fixed set of validation tokens, its units and kinds, and the models' words on them."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from small_init.config import ArmConfig, differences
from small_init.data.corpus.tokenizer import END_OF_TEXT
from small_init.data.packed import PackedTokens
from small_init.downstream import tokens
from small_init.errors import UserError
from small_init.files import sha256, write_bytes
from small_init.launch import reproduce
from small_init.measure import targets
from small_init.measure.targets import Frequency, Kind
from small_init.measure.validation import validate
from small_init.model.init import initialise_
from small_init.model.transformer import Transformer
from small_init.runs.paths import (
    PARAMS,
    packed_folder,
    targets_file,
    tokens_file,
    weights_file,
)
from small_init.runs.plan import load_plan
from small_init.runs.record import Data
from tests import records, tiny

ARM = "test-tiny"
FILE = tokens_file("test", ARM, 0)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """As in tests/conftest.py: packed tokens of the profile `test`, and no trained run."""
    monkeypatch.chdir(tmp_path)
    tiny.write_packed(tmp_path / "data/test/packed")
    return tmp_path


def byte_tokenizer() -> Tokenizer:
    """A byte-level vocabulary of 257: end of text and every byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=257, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([""], trainer)
    return tokenizer


def publish(arm: ArmConfig, seeds: tuple[int, ...] = (0,)) -> None:
    """What training would have left: a plan, records and weights, in the current directory."""
    overrides = differences(arm, ArmConfig()) | {"seeds": [*seeds]}
    params = {
        "profile": "test",
        "arms": {"pretrain": {ARM: overrides}},
        "objects": {tokens.OBJECT: [ARM]},
    }
    PARAMS.write_text(json.dumps(params))
    for seed in seeds:
        data = Data(sha256(packed_folder("test") / "meta.json"), "1" * 64)
        records.write(records.metrics_of(arm, ARM, seed, profile="test", data=data))
        path = weights_file(ARM, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        model = Transformer(arm.model)
        with torch.no_grad():
            initialise_(model, arm.init, arm.model, seed)
        save_file({name: p.detach() for name, p in model.named_parameters()}, path)


def test_a_vocabulary_is_turned_into_bytes() -> None:
    tokenizer = byte_tokenizer()
    pieces = tokens.token_bytes(tokenizer)
    assert len(pieces) == 257
    assert pieces[0] == b""
    text = "Naïve 汉字\n\t\x00"
    assert b"".join(pieces[i] for i in tokenizer.encode(text).ids) == text.encode()
    assert sorted(pieces[1:]) == [bytes([byte]) for byte in range(256)]


@pytest.mark.parametrize(
    ("text", "before", "count", "kind"),
    [
        ("", "a", 1, Kind.end_of_text),
        ("汉", "，", 3, Kind.cjk_pieces),
        ("，每", "。", 1, Kind.cjk_whole),
        ("。", "字", 1, Kind.punctuation),
        ("\n    ", "a", 1, Kind.space),
        (" the", "a", 1, Kind.word),
        ("def", "\n", 1, Kind.word),
        ("_name", "my", 1, Kind.word),
        ("ing", "read", 1, Kind.continuation),
        ("é", "caf", 2, Kind.continuation),
        ("kg", "字", 1, Kind.word),
        ("a", "", 1, Kind.word),
        ("7", "1", 1, Kind.digit),
        (" ==", "x", 1, Kind.punctuation),
    ],
)
def test_kinds(text: str, before: str, count: int, kind: Kind) -> None:
    assert tokens.kind_of(text, before, count) is kind


def test_frequency_bands_count_from_the_most_frequent_on() -> None:
    bands = list(Frequency)
    found = [bands[band] for band in tokens.frequency_bands(np.array([10, 55, 35, 0]))]
    # 55 of 100 make the first half; the tenth and the never seen begin at 90 % and 100 %.
    assert found == [Frequency.rare, Frequency.frequent, Frequency.middle, Frequency.rare]


def write_text_corpus(folder, text: str, context: int) -> PackedTokens:
    """Validation tokens that are the bytes of `text`; "|" ends a document."""
    meta_file = tiny.write_packed(folder) / "meta.json"
    meta = json.loads(meta_file.read_text())
    ids = {piece: number for number, piece in enumerate(tokens.token_bytes(byte_tokenizer()))}
    stream = [0 if byte == ord("|") else ids[bytes([byte])] for byte in text.encode()]
    stream += [0] * (-len(stream) % context)
    content = np.array(stream, dtype=np.uint16).tobytes()
    (folder / "val.bin").write_bytes(content)
    lengths = np.ones(257, dtype=np.uint16)
    (folder / "token_bytes.bin").write_bytes(lengths.tobytes())
    meta["vocab_size"] = 257
    meta["token_bytes"]["sha256"] = sha256(folder / "token_bytes.bin")
    meta["val"] |= {"tokens": len(stream), "sha256": sha256(folder / "val.bin")}
    half = len(stream) // 2 // context * context
    segments = [(0, half, "a", "zh"), (half, len(stream), "b", "en")]
    meta["val"]["segments"] = [
        {"source": source, "language": language, "domain": "prose", "start": start, "end": end}
        for start, end, source, language in segments
    ]
    meta_file.write_text(json.dumps(meta))
    return PackedTokens(folder)


def test_a_character_in_pieces_is_one_unit_unless_a_window_cuts_it(tmp_path) -> None:
    # Windows of 4 bytes: "汉a" | "b汉" | "x字" with its last byte in the next window | …
    packed = write_text_corpus(tmp_path, "汉ab汉xy字|ok z|", context=4)
    found = tokens.choose(packed, tokens.token_bytes(byte_tokenizer()), 4, 20)
    assert found.unit_N.tolist()[:12] == [0, 0, 0, 1, 2, 3, 3, 3, 4, 5, -1, -1]
    assert found.unit_N[12] == -1
    kinds = [list(Kind)[kind] for kind in found.kind_U]
    assert kinds[:7] == [
        Kind.cjk_pieces, Kind.word, Kind.continuation, Kind.cjk_pieces, Kind.word,
        Kind.continuation, Kind.end_of_text,
    ]  # fmt: skip
    assert list(Frequency)[found.frequency_U[0]] is Frequency.pieces
    # The end-of-text token belongs to the document it ends.
    assert found.document_N[:15].tolist() == [0] * 14 + [1]
    assert found.first_U.tolist()[:5] == [0, 3, 4, 5, 8]
    sums = found.by_unit(np.arange(20))
    assert sums[:4].tolist() == [0 + 1 + 2, 3, 4, 5 + 6 + 7]
    assert len(sums) == len(found.kind_U)


def test_every_target_is_scored_as_validation_scores_it(packed_project, tiny_arm) -> None:
    packed = PackedTokens(packed_folder("test"))
    publish(tiny_arm)
    model = tokens.load_model(tiny_arm.model, weights_file(ARM, 0))
    found = tokens.log_probabilities(model, packed, 16, 512)
    assert found.shape == (512,)
    assert found.dtype == np.float16
    expected = validate(model, packed, 16, 512)["loss"]
    assert -found.astype(float).mean() == pytest.approx(expected, abs=2e-4)
    inputs, ids, _ = next(packed.validation_batches(16, 512))
    logits = model(inputs)[:1].log_softmax(-1)
    by_hand = logits.gather(-1, ids[:1, :, None])[0, :, 0].detach().numpy()
    assert found[:16].astype(float) == pytest.approx(by_hand, rel=1e-3)


def test_the_stage_writes_one_file_a_seed_and_the_same_bytes(packed_project, tiny_arm) -> None:
    publish(tiny_arm, (0, 1))
    plan = load_plan()
    stray = tokens_file("test", ARM, 7)
    write_bytes(stray, b"of a seed that is no longer planned")
    tokens.write_log_probabilities(plan, ARM)
    first = FILE.read_bytes()
    assert sorted(path.name for path in FILE.parent.iterdir()) == ["seed-0.npz", "seed-1.npz"]
    assert first != tokens_file("test", ARM, 1).read_bytes()
    tokens.write_log_probabilities(plan, ARM)
    assert FILE.read_bytes() == first


def test_a_tied_readout_is_loaded(packed_project, tiny_arm) -> None:
    tiny_arm.model.tied = True
    publish(tiny_arm)
    model = tokens.load_model(tiny_arm.model, weights_file(ARM, 0))
    assert torch.equal(model.readout.weight, model.embedding.weight)


def test_the_set_is_written_and_read_back(packed_project, tiny_arm) -> None:
    tiny_arm.model.vocab_size = 257
    folder = packed_folder("test")
    shutil.rmtree(folder)
    packed = write_text_corpus(folder, "汉ab汉xy字|ok z|" * 20, context=16)
    byte_tokenizer().save("data/test/tokenizer.json")
    publish(dataclasses.replace(tiny_arm))
    plan = load_plan()
    plan.arms[ARM].train.final_tokens = 100
    tokens.write_targets(plan)
    before = targets_file("test").read_bytes()
    found = targets.load_targets("test")
    assert len(found.token_N) == 96  # whole windows
    assert found.context == 16
    assert found.identity == tokens.set_identity(packed, 16, 96)
    assert found.languages.tolist() == ["zh", "en"]
    tokens.write_targets(plan)
    assert targets_file("test").read_bytes() == before

    foreign = targets.npz({"identity": "other", "log_probability_N": np.zeros(96)})
    write_bytes(FILE, foreign)
    with pytest.raises(UserError, match=r"other tokens than .*dvc repro targets tokens@test-tiny"):
        targets.load_log_probabilities("test", ARM, 0, found)


def test_wrong_input_is_one_sentence(packed_project, tiny_arm) -> None:
    publish(tiny_arm)
    plan = load_plan()
    with pytest.raises(UserError, match=r"'none' is not in params\.json"):
        tokens.write_log_probabilities(plan, "none")
    with pytest.raises(UserError, match=r"targets\.npz does not exist.*dvc repro targets"):
        targets.load_targets("test")
    write_bytes(targets_file("test"), b"PK\x03\x04 cut")
    with pytest.raises(UserError, match="cannot be read"):
        targets.load_targets("test")
    plan.objects[tokens.OBJECT] = []
    with pytest.raises(UserError, match="0 different contexts"):
        tokens.write_targets(plan)
    weights = weights_file(ARM, 0)
    content = weights.read_bytes()
    weights.write_bytes(content[:500])
    with pytest.raises(UserError, match="is broken"):
        tokens.write_log_probabilities(plan, ARM)
    weights.write_bytes(content)
    tiny_arm.model.d_ff = 48
    with pytest.raises(UserError, match="of another model"):
        tokens.load_model(tiny_arm.model, weights)
    weights.unlink()
    with pytest.raises(UserError, match=r"small-init pretrain --arm test-tiny"):
        tokens.write_log_probabilities(plan, ARM)
    tiny.write_packed(packed_folder("test"), val_tokens=1_500)
    with pytest.raises(UserError, match="another corpus"):
        tokens.write_log_probabilities(plan, ARM)


def test_a_stale_token_stage_trains_nothing(packed_project, tiny_arm, monkeypatch) -> None:
    publish(tiny_arm)
    trained = []
    monkeypatch.setattr(reproduce, "check_stages", lambda: None)
    monkeypatch.setattr(reproduce, "_dvc", lambda arguments: None)
    monkeypatch.setattr(reproduce, "train_runs", lambda specs, *_: trained.extend(specs))
    for stale in ([f"tokens@{ARM}"], [f"pretrain@{ARM}", f"tokens@{ARM}"]):
        monkeypatch.setattr(reproduce, "_stale", lambda arguments, stale=stale: stale)
        reproduce.reproduce([], 1, force=False)
    assert [(spec.arm_key, spec.seed) for spec in trained] == [(ARM, 0)]
