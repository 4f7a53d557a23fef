"""Commands that make a run's data: text, tokenizer, tokens, downstream tasks."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def corpus_command(arguments: argparse.Namespace) -> None:
    from small_init.data.corpus.build import build_corpus
    from small_init.data.corpus.config import load_corpus_config

    downloads = Path(os.environ.get("SMALL_INIT_DOWNLOADS", "data/downloads"))
    out = Path("data") / arguments.profile / "corpus"
    build_corpus(load_corpus_config(arguments.profile), out, downloads)


def tokenizer_command(arguments: argparse.Namespace) -> None:
    from small_init.data.corpus.config import load_corpus_config
    from small_init.data.corpus.tokenizer import train_tokenizer

    home = Path("data") / arguments.profile
    config = load_corpus_config(arguments.profile)
    train_tokenizer(config, home / "corpus", home / "tokenizer.json")


def pack_command(arguments: argparse.Namespace) -> None:
    from small_init.data.corpus.config import load_corpus_config
    from small_init.data.corpus.pack import pack
    from small_init.data.manifest import keep_manifest

    home = Path("data") / arguments.profile
    config = load_corpus_config(arguments.profile)
    pack(config, home / "corpus", home / "tokenizer.json", home / "packed", Path("data/SOURCES.md"))
    keep_manifest(home / "packed")


def backcopy_command(arguments: argparse.Namespace) -> None:
    from small_init.config import Corpus
    from small_init.data.backcopy import load_backcopy_config, write_backcopy
    from small_init.data.manifest import keep_manifest
    from small_init.runs.paths import packed_folder

    config = load_backcopy_config(arguments.profile)
    folder = packed_folder(arguments.profile, Corpus.backcopy)
    write_backcopy(config, folder)
    keep_manifest(folder)


def composite_command(arguments: argparse.Namespace) -> None:
    from small_init.config import Corpus
    from small_init.data.composite import load_composite_config, write_composite
    from small_init.data.manifest import keep_manifest
    from small_init.runs.paths import packed_folder

    config = load_composite_config(arguments.profile)
    folder = packed_folder(arguments.profile, Corpus.composite)
    write_composite(config, folder)
    keep_manifest(folder)


def tasks_command(arguments: argparse.Namespace) -> None:
    from small_init.config_files import load_yaml
    from small_init.data.manifest import keep_manifest
    from small_init.downstream.tasks import LIMITS, build_tasks

    limits = load_yaml(LIMITS).get(arguments.profile, {})
    home = Path("data") / arguments.profile
    build_tasks(home, **limits)
    keep_manifest(home / "tasks")
