"""What a corpus profile says, and how `configs/corpus/<profile>.yaml` becomes plain objects."""

from dataclasses import dataclass, field
from pathlib import Path

import yaml
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from small_init.errors import UserError

CONFIG_FOLDER = Path("configs/corpus")
DTYPES = ("auto", "uint16", "uint32")


@dataclass
class HubSource:
    """One data set read as a stream through `datasets`, from the hub or from a local folder."""

    name: str = MISSING  # the name of the .jsonl file and of the validation segment
    path: str = MISSING  # hub id, or a local folder of parquet or jsonl files in the same schema
    revision: str = ""  # hub: the commit; the text changes under a moving branch
    config: str = ""  # hub: configuration name, empty = the data set's default
    data_dir: str = ""  # folder inside the data set, empty = its root
    split: str = "train"  # the data set's own split that is read
    text_column: str = "text"
    language: str = MISSING  # zh, en or code
    domain: str = "prose"  # prose, dictionary, code or math
    group: str = MISSING  # the mixture group whose weight this text counts towards
    licence: str = ""
    max_documents: int = 0  # most documents read, 0 = all


@dataclass
class Generated:
    """Problems written by the project, in training and validation together (test comes on top)."""

    english: int = 0  # problems
    chinese: int = 0  # problems
    seed: int = 0


@dataclass
class CorpusConfig:
    """One profile: what is read, how it is mixed, and how it is cut into tokens."""

    profile: str = MISSING
    embedded: dict[str, int] = field(default_factory=dict)  # source: most documents, 0 = all
    hub: list[HubSource] = field(default_factory=list)
    generated: Generated = field(default_factory=Generated)
    val_fraction: float = 0.06  # share of the real documents held out, by hash
    max_characters: int = 8000  # longer documents are cut at paragraph boundaries
    near_duplicate_threshold: float = 0.8  # Jaccard similarity of shingle sets

    mixture: dict[str, float] = field(default_factory=dict)  # group: share of tokens, sum 1
    dictionary_share: float = 0.10  # most of a group's tokens that may be dictionary entries
    train_tokens: int = MISSING  # tokens, end-of-text tokens included
    val_tokens: int = MISSING
    shard_tokens: int = 100_000_000  # tokens in one train-*.bin
    dtype: str = "auto"  # auto = uint16 where the vocabulary fits, else uint32
    seed: int = 1234  # order of documents

    vocab_size: int = 2048  # tokens, 256 bytes and the end-of-text token included
    tokenizer_bytes: int = 8_000_000  # bytes of training text the merges are learned from
    mirror: str = ""  # folder with the pinned wheels, used before the network


def load_corpus_config(profile: str) -> CorpusConfig:
    """Read `configs/corpus/<profile>.yaml` below the current directory.

    Raises:
        UserError: no such profile, a key the profile does not have, or a value out of range.
    """
    file = CONFIG_FOLDER / f"{profile}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(found.stem for found in CONFIG_FOLDER.glob("*.yaml"))) or "none"
        raise UserError(
            f"There is no corpus profile '{profile}' ({file}): choose one of {known}, and run "
            "from the repository root."
        )
    try:
        merged = OmegaConf.merge(OmegaConf.structured(CorpusConfig), OmegaConf.load(file))
        config = OmegaConf.to_object(merged)
    except yaml.YAMLError as fault:
        raise UserError(f"{file} is not valid YAML ({_first_line(fault)}): correct it.") from fault
    except OmegaConfBaseException as fault:
        key = fault.full_key or "a value"
        raise UserError(
            f"{file}: {key} is not right ({_first_line(fault)}): set, correct or remove that key."
        ) from fault
    assert isinstance(config, CorpusConfig)
    check(config, str(file))
    return config


def _first_line(fault: Exception) -> str:
    return " ".join(str(fault).split("\n", 1)[0].split())


def check(config: CorpusConfig, file: str = "the corpus configuration") -> None:
    """Refuse values that no stage could use, with the key to change."""
    total = sum(config.mixture.values())
    if abs(total - 1) > 1e-6 or min(config.mixture.values(), default=0) < 0:
        raise UserError(
            f"{file}: the weights of mixture sum to {total:.4f}: make them positive and sum to 1."
        )
    for key in ("val_fraction", "dictionary_share", "near_duplicate_threshold"):
        value = getattr(config, key)
        if not 0 <= value <= 1:
            raise UserError(f"{file}: {key} is {value}: set it between 0 and 1.")
    for key in ("train_tokens", "val_tokens", "shard_tokens", "max_characters", "tokenizer_bytes"):
        if getattr(config, key) < 1:
            raise UserError(f"{file}: {key} is {getattr(config, key)}: set it to 1 or more.")
    if config.vocab_size < 257:
        raise UserError(
            f"{file}: vocab_size is {config.vocab_size}: the 256 bytes and the end-of-text "
            "token need at least 257."
        )
    if config.dtype not in DTYPES:
        raise UserError(f"{file}: dtype is '{config.dtype}': choose one of {', '.join(DTYPES)}.")
    for source in config.hub:
        if not source.revision and not Path(source.path).exists():
            raise UserError(
                f"{file}: hub source '{source.name}' ({source.path}) is neither a local folder nor "
                "pinned: set its revision to the commit you want to train on."
            )
        if source.group not in config.mixture:
            raise UserError(
                f"{file}: hub source '{source.name}' counts towards group '{source.group}', which "
                "mixture does not weigh: add the group there or change the source's group."
            )
