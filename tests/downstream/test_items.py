"""The embedded tasks: answers computed anew, nothing from the training text, blind at chance."""

import json
import random
from collections import Counter

import pytest

from small_init.data.corpus.problems import normalise, question_split
from small_init.downstream import continuation, knowledge, reasoning, tasks
from small_init.downstream.items import Item, balanced, with_wrong_answers
from small_init.downstream.training_text import TrainingText, copied, signature
from small_init.errors import UserError
from tests.downstream.conftest import ROOT


def document(key: str, text: str, **more) -> dict:
    base = {"id": key, "text": text, "split": "train", "language": "en", "domain": "prose",
            "fields": {}, "source": key.split("/")[0]}  # fmt: skip
    return base | more


def math(key: str, question: str, text: str) -> dict:
    return document(key, text, domain="math", fields={"question": question, "answer": "?"})


def training(*documents: dict) -> TrainingText:
    text = TrainingText()
    for one in documents:
        text.add(one)
    return text


def test_what_is_trained_on_is_not_asked():
    text = training(
        math("math-en/1-chain_sum", "Calculate 27 + 5.", "Question: Calculate 27 + 5."),
        math(
            "math-zh/2-shopping",
            "小明买了 3 支铅笔，每支 5 元。",
            "解答：3 × 5 = 15，8 + 15 = 23。",
        ),
        math("math-zh/3-reversals", "把“金山西”倒过来写。", "把“金山西”倒过来写。"),
    )
    assert text.asks("sums", "求 27 + 5 的值。"), "the same sum in the other language"
    assert text.asks("chain_sum", "Calculate 5 + 27."), "the other order"
    assert text.asks("chain_sum", "Calculate 15 + 8."), "on the way of another question"
    assert text.asks("products", "计算：5 × 3。")
    assert text.asks("shopping", "小红买了 5 支钢笔，每支 3 元。"), "the same numbers"
    assert text.asks("reversals", "把“金山西”倒过来写。")
    assert not text.asks("chain_sum", "Calculate 15 - 8.")
    assert not text.asks("sums", "求 27 + 6 的值。")
    assert not text.asks("reversals", "把“西山金”倒过来写。")


def test_signature_of_a_text_with_numbers_is_the_text():
    question = 'How many times does the letter "e" appear in the text: "paragraph 1 E 8"?'
    assert signature("letter_counting", question) == ("letter_counting", "paragraph 1 E 8")


def test_copied_runs_are_found_across_punctuation_and_case():
    long = "a b c d e f g h i j k l m n o p"
    texts = [
        f"X {long} y",
        "a b c d e f g",
        "中华人民共和国各级人民法院依法独立审判",
        "nothing here",
    ]
    corpus = [
        "before. " + long.upper().replace(" ", ", "),
        "又，中华人民共和国各级人民法院依法独立审判。",
    ]
    assert copied(texts, corpus, 13) == [True, False, True, False]
    assert copied([f"{long}"], ["a b c d e f g h", "i j k l m n o p"], 13) == [False]


def test_wrong_answers_are_others_right_ones_so_a_blind_model_is_at_chance():
    values = [f"{n % 50}" for n in range(1000)]
    items = [("all", Item(str(n), "", value, group=str(n // 10))) for n, value in enumerate(values)]
    made = list(with_wrong_answers(items, random.Random(0)))
    assert len(made) == 1000
    assert all(len({item.right, *item.wrong}) == 4 for item in made)
    # A model with a favourite order of the answers, whatever is asked.
    hits = sum(item.right == max(item.right, *item.wrong) for item in made)
    assert hits / 1000 == pytest.approx(0.25, abs=0.04)


def test_balance():
    items = [Item(str(n), "", "Yes" if n % 4 else "No") for n in range(100)]
    assert Counter(item.right for item in balanced(items, 60)) == {"Yes": 25, "No": 25}
    assert len(balanced(items, 20)) == 20


@pytest.mark.parametrize("name", ["arithmetic_zh", "orders_zh", "syllogisms_en", "symbols_zh"])
def test_reasoning_items(name, monkeypatch):
    monkeypatch.setattr(reasoning, "ITEMS", 24)
    known = [item.key.partition("/")[2] for item in reasoning.reasoning(name, training(), bool)]
    family = reasoning.FAMILIES[name][-1]
    asked = [
        p.question for p, _ in zip(
            reasoning.questions(name[-2:], family, training(), random.Random(0)), range(5),
            strict=False,
        )
    ]  # fmt: skip
    assert len(known) == len(set(known)) > 0
    assert all(question_split(question) == "test" for question in asked)
    text = training(*(math(f"m/{n}-{family}", q, q) for n, q in enumerate(asked)))
    again = reasoning.questions(name[-2:], family, text, random.Random(0))
    assert next(again).question not in asked


LEADS = [
    document(
        f"wiki-leads/{name}",
        f"{name} is a {colour} animal of the {place} with very many names. It eats.",
        fields={"title": name, "topic": topic},
    )
    for name, colour, place, topic in (
        (f"Xy{n}", f"colour{n} and tall", f"land{n}", f"Topic {n % 5}") for n in range(40)
    )
]


def test_knowledge_items_ask_in_new_words():
    for name, cue in (("titles_en", "In one phrase"), ("topics_en", "belongs to the topic")):
        items = knowledge.knowledge(name, LEADS)
        assert len(items) == 40
        texts = " ".join(one["text"] for one in LEADS)
        for item in items:
            assert cue in item.context
            assert item.context + item.right not in texts
    topics = Counter(item.right for item in knowledge.knowledge("topics_en", LEADS))
    assert set(topics.values()) == {8}


def test_words_are_asked_in_words_that_the_dictionary_has_not():
    entries = [
        document(
            f"cedict/词{n}",
            f"词{n}（ci2）：{meaning}",
            fields={"word": f"词{n}", "meaning": meaning},
        )
        for n, meaning in enumerate(
            ["meaning " + "abcdefghij"[n % 10] * (n % 7) for n in range(70)]
        )
    ]
    items = knowledge.knowledge("words_zh", entries)
    texts = " ".join(one["text"] for one in entries)
    assert len(items) > 30
    assert all(item.context + item.right not in texts for item in items)
    assert len({item.right for item in items}) == len(items)


def test_continuations_come_from_validation_and_other_documents():
    words = random.Random(0)
    held = [
        document(
            f"wiki-leads/T{n}",
            " ".join(f"w{words.randrange(10**6)}" for _ in range(80)),
            split="val",
        )
        for n in range(12)
    ]
    text = training(*held, document("wiki-leads/train", held[0]["text"]))
    found = continuation.continuations("en", text, bool)
    cut = continuation.CUTS["en"]
    assert found["local_en"]
    by_text = {one["text"]: one["id"].split("/")[1] for one in held}
    for short, long in zip(found["local_en"], found["long_en"], strict=True):
        assert long.context.endswith(short.context)
        assert (short.right, short.wrong) == (long.right, long.wrong)
        assert {len(choice) for choice in (long.right, *long.wrong)} == {cut.continuation}
        assert long.group != "T0", "this document is in the training text, too"
        homes = [
            home
            for choice in (long.right, *long.wrong)
            for t, home in by_text.items()
            if choice in t
        ]
        assert homes[0] == long.group
        assert long.group not in homes[1:]


def test_a_corpus_of_too_few_texts_is_one_sentence(tmp_path, monkeypatch, tokenizer):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr(tasks.TrainingText, "read", lambda corpus: training(*LEADS))
    monkeypatch.setattr(tasks, "PackedTokens", lambda folder: None)
    monkeypatch.setattr(tasks, "packed_texts", lambda *_: {one["text"] for one in LEADS})
    monkeypatch.setattr(reasoning, "FAMILIES", {"orders_zh": ("orders",)})
    monkeypatch.setattr(knowledge, "NAMES", ("titles_en",))
    monkeypatch.setattr(continuation, "CUTS", {})
    monkeypatch.setattr(reasoning, "ITEMS", 8)
    with pytest.raises(UserError, match="gives 8 items for the task orders_zh, and 500 are needed"):
        tasks.build_tasks(tmp_path)
    assert not (tmp_path / "tasks").exists()
    contents = []
    for _ in range(2):
        tasks.build_tasks(tmp_path, least=8)
        contents.append({p.name: p.read_bytes() for p in (tmp_path / "tasks").iterdir()})
    assert contents[0] == contents[1]
    manifest = json.loads(contents[0]["manifest.json"])["tasks"]
    assert manifest["orders_zh"]["items"] == 8
    assert manifest["orders_zh"]["chance"] == 0.25
    row = json.loads(contents[0]["titles_en.jsonl"].splitlines()[0])
    assert row["choices"][row["answer"]] == row["target"]


@pytest.mark.skipif(not (ROOT / "data/cpu/tasks").is_dir(), reason="the text is not in git")
def test_no_item_of_the_published_tasks_stands_in_the_training_text():
    """Reasoning by hash of the question and by its numbers, language by runs of 13 words or
    characters, over the whole corpus of the cpu profile."""
    home = ROOT / "data/cpu"
    text = TrainingText.read(home / "corpus")
    lines = {hash(normalise(line)) for one in text.documents for line in one["text"].splitlines()}
    for name in reasoning.FAMILIES:
        for row in map(json.loads, (home / f"tasks/{name}.jsonl").open(encoding="utf-8")):
            asked = row["context"].splitlines()[0]
            family, question = row["id"].split("/", 1)
            assert hash(normalise(asked)) not in lines, asked
            assert not text.asks(family, question), asked
    for language, cut in continuation.CUTS.items():
        own = training(*(one for one in text.documents if one["source"] in cut.sources))
        path = home / f"tasks/local_{language}.jsonl"
        rows = [json.loads(line) for line in path.open(encoding="utf-8")]
        assert not any(own.copied([row["context"] + row["target"] for row in rows]))
