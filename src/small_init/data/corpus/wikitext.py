"""Wikitext to plain prose, as far as a training text needs it: no tables, notes or templates."""

import html
import re

# What follows these headings is references and link lists, not prose.
_BACK_MATTER = re.compile(
    r"^==\s*(references|notes|footnotes|citations|bibliography|sources|further reading|"
    r"external links|see also|notes and references)\s*==\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NOTE = re.compile(r"<ref[^>/]*/>|<ref[^>]*>.*?</ref>", re.DOTALL | re.IGNORECASE)
_BLOCK = re.compile(
    r"<(gallery|math|timeline|imagemap|source|code|pre|score)\b[^>]*>.*?</\1>",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-zA-Z][^>]*>")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_DROPPED_LINK = re.compile(
    r"\[\[(?:file|image|category|[a-z]{2,3}(?:-[a-z]+)?):[^\[\]]*\]\]", re.IGNORECASE
)
_WEB_LINK = re.compile(r"\[https?://\S+\s*([^\]]*)\]")
_HEADING = re.compile(r"^(=+)\s*(.*?)\s*\1\s*$", re.MULTILINE)
_LIST_MARK = re.compile(r"^[*#:;]+\s*", re.MULTILINE)


def plain(wikitext: str) -> str:
    """The prose of one article, headings on their own lines."""
    text = _COMMENT.sub("", wikitext)
    text = _NOTE.sub("", text)
    text = _BLOCK.sub("", text)
    text = _without(text, "{{", "}}")
    text = _without(text, "{|", "|}")
    found = _BACK_MATTER.search(text)
    if found:
        text = text[: found.start()]
    text = _links(text)
    text = _WEB_LINK.sub(r"\1", text)
    text = _TAG.sub("", text)
    text = re.sub(r"'{2,}", "", text)
    text = _HEADING.sub(r"\2", text)
    text = _LIST_MARK.sub("", text)
    text = html.unescape(text).replace("\xa0", " ").replace("__NOTOC__", "")
    # Removed templates leave holes: empty brackets and blanks before punctuation.
    text = re.sub(r"\(\s*[;,]*\s*\)", "", text)
    text = re.sub(r" +([,.;:)])", r"\1", text)
    text = re.sub(r"\((?:\s*[;,])+\s*", "(", text)
    text = re.sub(r"[;,\s]+\)", ")", text)
    return re.sub(r" {2,}", " ", text)


def _without(text: str, opening: str, closing: str) -> str:
    """Drop everything between nested brackets; an unclosed one drops to the end of its line."""
    kept: list[str] = []
    depth = 0
    for part in re.split(f"({re.escape(opening)}|{re.escape(closing)})", text):
        if part == opening:
            depth += 1
        elif part == closing:
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(part)
    return "".join(kept)


def _links(text: str) -> str:
    """Links to their label, pictures and categories to nothing; captions hold links themselves."""
    for _ in range(4):
        before = text
        # Innermost first: a picture's caption loses its links, then the picture goes.
        text = _DROPPED_LINK.sub("", text)
        text = re.sub(
            r"\[\[(?!(?:file|image|category):)(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]",
            r"\1",
            text,
            flags=re.IGNORECASE,
        )
        if text == before:
            break
    return _LINK.sub(r"\1", text)
