"""Images in sellers' HTML."""

from html.parser import HTMLParser
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.marketplace.markup import image_sources, read_sources


@pytest.mark.parametrize(
    ("markup", "sources"),
    [
        ('<p><img src="a.jpg"><img src="b.jpg"></p>', ("a.jpg", "b.jpg")),
        ("<img src='a b.jpg'>", ("a b.jpg",)),
        ("<img src=a.jpg>", ("a.jpg",)),
        ("<img src=a/b.jpg/>", ("a/b.jpg/",)),
        ('<IMG SRC="a.jpg"/>', ("a.jpg",)),
        ('<img\n  alt="x > y"\tsrc = "a.jpg" width=5>', ("a.jpg",)),
        ('<img src="a.jpg"><img src="a.jpg">', ("a.jpg", "a.jpg")),
        ('<img src="/a?x=1&amp;y=2&#44;&eacute;">', ("/a?x=1&y=2,é",)),
        ('<img src="a.jpg" src="b.jpg">', ("a.jpg",)),
        ('<img alt="b.jpg" width="5" src="a.jpg">', ("a.jpg",)),
        ('<img SRC="a.jpg" src="b.jpg">', ("a.jpg",)),
        ('<img alt="x src=" src="a.jpg">', ("a.jpg",)),
        ("<img=x src=a.jpg>", ()),
        ('<img x= y="z src="> a.jpg">', ("> a.jpg",)),
        ('<img data-src="a.jpg">', ()),
        ("<img><img src><img src=''><img src=' '>", ()),
        ('<image src="a.jpg"><imgx src="b.jpg">', ()),
        ('<!-- <img src="a.jpg"> --><img src="b.jpg">', ("b.jpg",)),
        ('<!--><img src="a.jpg"><!-- never closed <img src="b.jpg">', ("a.jpg",)),
        ("<script>x='<img src=a.jpg>'</script><img src=b.jpg>", ("b.jpg",)),
        ("<STYLE>/*<img src=a.jpg>*/</sTyle ><img src=b.jpg>", ("b.jpg",)),
        ('<a title="<img src=a.jpg>"><img src=b.jpg></a>', ("b.jpg",)),
        ("</p <img src=a.jpg><img src=b.jpg>", ("b.jpg",)),
        ("1 < 2 <3 <img src=a.jpg>", ("a.jpg",)),
        ('<img src="a.jpg', ()),
        ('<img src="&#' + "9" * 5000 + ';">', ("&#" + "9" * 5000 + ";",)),
        ("", ()),
        ("글만 있습니다", ()),
    ],
)
def test_images_are_found_where_a_browser_would_load_them(markup: str, sources: tuple[str, ...]) -> None:
    assert image_sources(markup) == sources


class Reference(HTMLParser):
    """The standard library's reading, which is right wherever the markup is well formed."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = [value for name, value in attrs if name == "src" and value]
        if tag == "img":
            self.sources.extend(found[:1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)


VALUE = st.text("ab/.<> &;=-가", min_size=1, max_size=8).filter(str.strip)
QUOTED = VALUE.map('"{}"'.format) | VALUE.map("'{}'".format) | st.text("ab.가", min_size=1, max_size=5)
ATTRIBUTES = st.dictionaries(st.sampled_from(["src", "alt", "class", "SRCSET"]), QUOTED, max_size=3)
TAG = st.tuples(st.sampled_from(["img", "p", "IMG", "a", "div"]), ATTRIBUTES).map(
    lambda tag: f"<{tag[0]} {' '.join(f'{name}={value}' for name, value in tag[1].items())} >"
)
PIECE = TAG | st.sampled_from(["</p>", "글", "<br/>", "<!-- <img src=c> -->", "<script>'<img src=d>'</script>", "\n"])


@given(pieces=st.lists(PIECE, max_size=8))
@settings(max_examples=100, deadline=None)
def test_well_formed_markup_is_read_as_the_standard_library_reads_it(pieces: list[str]) -> None:
    reference = Reference()
    reference.feed("".join(pieces))
    reference.close()
    assert image_sources("".join(pieces)) == tuple(reference.sources)


@given(pieces=st.lists(PIECE | st.text("<>!-/ =\"'imgsrcpt&;\n", max_size=12), max_size=6))
@settings(max_examples=500, deadline=None)
def test_plain_markup_is_read_as_any_other(pieces: list[str]) -> None:
    assert image_sources("".join(pieces)) == read_sources("".join(pieces))


@given(markup=st.text("<>!-/ =\"'imgsrcpt&;\n", max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_markup_at_all_has_an_answer(markup: str) -> None:
    assert all(source and not source.isspace() for source in image_sources(markup))


@pytest.mark.parametrize("unit", ["<a ", "<!--", '<img "', "<img src='", "<img src=x ", "<script></scrip", "<img   ="])
def test_hostile_markup_costs_time_in_proportion_to_its_length(unit: str) -> None:
    """html.parser takes minutes for these; the bound is a hundred times what they need."""
    started = process_time()
    image_sources(unit * 50_000)
    assert process_time() - started < 5
