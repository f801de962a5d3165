"""The images of a seller's HTML, found in linear time.

`html.parser` needs quadratic time on unclosed tags (20 s for 90 KB) and may raise, and sellers write this markup.
"""

import re
from html import unescape

_NEXT = re.compile(r"<(?:([a-zA-Z][^\s/>]*+)|(!--)|[!?/])")
# Possessive quantifiers only: no input causes backtracking.
_ATTRIBUTE = re.compile(
    r"""[\s/]*+(?:(>)|(=?+[^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"'][^\s>]*+)?+))?+)"""
)
# Markup of plain tags alone, as almost all of it is: quotes only around whole values, and neither < nor > inside. If
# none of the tags holds raw text, the images are found without reading attribute by attribute.
_PLAIN = re.compile(
    r"""(?:[^<]*+</?[a-zA-Z][^\s/<>"'=]*+(?=[\s/>])"""
    r"""[^<>"'=]*+(?:=\s*+(?:"[^"<>]*+"|'[^'<>]*+'|[^\s<>"'=]++(?=[\s>]))[^<>"'=]*+)*+>)*+[^<]*+"""
)
# In plain markup, each image's first `src` where it is nearly always, after none but other quoted attributes; else all
# of its attributes.
_PLAIN_IMAGE = re.compile(
    r"""<[iI][mM][gG](?=[\s/>])(?:"""
    r"""(?:\s++(?![sS][rR][cC]=)[^\s/<>"'=]++=(?:"[^"<>]*+"|'[^'<>]*+'))*+"""
    r"""\s++[sS][rR][cC]=(?:"([^"&<>]*+)"|'([^'&<>]*+)')|([^<>]*+))"""
)
_COMMENT_END = re.compile(r"--!?>")
_RAW_NAMES = ("script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes")
_RAW_TEXT = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW_NAMES}
_RAW_TAG = re.compile(rf"<(?:{'|'.join(_RAW_NAMES)})(?=[\s/>])", re.IGNORECASE)


def image_sources(markup: str) -> tuple[str, ...]:
    """Every `<img src>` in order, entities decoded, duplicates kept; comments and scripts are skipped."""
    if not _PLAIN.fullmatch(markup) or _RAW_TAG.search(markup):
        return read_sources(markup)
    images: list[tuple[str, str, str]] = _PLAIN_IMAGE.findall(markup)
    sources = [double or single or (other and _read_tag(f"{other}>", 0)[0]) for double, single, other in images]
    return tuple(source for source in sources if source and not source.isspace())


def read_sources(markup: str) -> tuple[str, ...]:
    """The sources in any markup, read tag by tag and attribute by attribute."""
    found: list[str] = []
    position = 0
    while position >= 0 and (opening := _NEXT.search(markup, position)):
        name = opening[1]
        if name is None:
            position = _end_of_other(markup, opening)
            continue
        source, position = _read_tag(markup, opening.end())
        name = name.lower()
        if name == "img":
            if source and not source.isspace():
                found.append(source)
        elif position >= 0 and (closing := _RAW_TEXT.get(name)):
            end = closing.search(markup, position)
            position = end.end() if end else -1
    return tuple(found)


def _end_of_other(markup: str, opening: re.Match[str]) -> int:
    """The end of a comment, declaration or closing tag; -1 if it is unclosed."""
    if opening[2]:
        # From its own dashes on, because <!--> is a complete comment.
        end = _COMMENT_END.search(markup, opening.end() - 2)
        return end.end() if end else -1
    return markup.find(">", opening.end())


def _read_tag(markup: str, position: int) -> tuple[str, int]:
    """The tag's first `src` and the end of the tag; -1 if it is unclosed."""
    source: str | None = None
    length = len(markup)
    while position < length and (attribute := _ATTRIBUTE.match(markup, position)):
        position = attribute.end()
        if attribute[1]:
            return source or "", position
        if source is None and attribute[2].lower() == "src":
            source = _decoded(attribute[3] or attribute[4] or attribute[5] or "")
    return "", -1


def _decoded(value: str) -> str:
    if "&" not in value:
        return value
    try:
        return unescape(value)
    except ValueError:
        # A character reference of thousands of digits.
        return value
