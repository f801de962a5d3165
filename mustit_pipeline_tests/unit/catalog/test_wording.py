"""Long texts compared word by word."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.catalog.wording import Piece, PieceKind, whole_diff, word_diff

SAME, REMOVED, ADDED, ELIDED = PieceKind.SAME, PieceKind.REMOVED, PieceKind.ADDED, PieceKind.ELIDED
WORDS = st.lists(st.sampled_from(["가방", "new", "<b>", "</b>", "\n", " ", "<", "정품만"]), max_size=12).map("".join)


def joined(pieces: list[Piece], *kinds: PieceKind) -> str:
    return "".join(piece.text for piece in pieces if piece.kind in kinds)


@given(WORDS, WORDS)
def test_without_elision_both_texts_can_be_read_back(old: str, new: str) -> None:
    pieces = word_diff(old, new, context=10_000)

    assert not [piece for piece in pieces if piece.kind is ELIDED] or old == new
    if old != new:
        assert joined(pieces, SAME, REMOVED) == old
        assert joined(pieces, SAME, ADDED) == new


def test_only_the_words_that_differ_are_marked_and_neighbours_are_one_change() -> None:
    pieces = word_diff("정품만 판매 합니다 오늘", "정품만 팔고 삽니다 오늘")

    assert pieces == [
        Piece(SAME, "정품만 "),
        Piece(REMOVED, "판매 합니다"),
        Piece(ADDED, "팔고 삽니다"),
        Piece(SAME, " 오늘"),
    ]


def test_a_tag_is_one_word_and_an_added_line_leaves_the_one_before_it_alone() -> None:
    pieces = word_diff('<p a="1">x</p>', '<p a="2">x</p>\n<i>')

    assert [piece.text for piece in pieces if piece.kind is REMOVED] == ['<p a="1">']
    assert [piece.text for piece in pieces if piece.kind is ADDED] == ['<p a="2">', "\n<i>"]


def test_long_unchanged_stretches_are_left_out_but_for_the_words_around_a_change() -> None:
    words = [f"word{n}" for n in range(300)]
    changed = [*words[:150], "NEW", *words[151:]]

    pieces = word_diff(" ".join(words), " ".join(changed), context=20)

    assert [piece.kind for piece in pieces] == [ELIDED, SAME, REMOVED, ADDED, SAME, ELIDED]
    assert (pieces[0].text, pieces[-1].text) == ("147", "146")
    assert (pieces[2].text, pieces[3].text) == ("word150", "NEW")
    assert len(pieces[1].text) < 40
    assert len(pieces[4].text) < 40


def test_of_a_text_that_is_another_one_both_ends_are_shown_and_the_rest_is_counted() -> None:
    old, new = (" ".join(f"{name}{n}" for n in range(3_000)) for name in ("old", "new"))

    pieces = word_diff(old, new)

    assert [piece.kind for piece in pieces] == [REMOVED, ELIDED, REMOVED, ADDED, ELIDED, ADDED]
    assert old.startswith(pieces[0].text)
    assert old.endswith(pieces[2].text)
    shown = sum(len(pieces[n].text.split()) for n in (0, 2))
    assert int(pieces[1].text) == 3_000 - shown
    assert max(len(piece.text) for piece in pieces) < 300


@settings(deadline=None)
@given(WORDS, WORDS)
def test_a_whole_comparison_leaves_nothing_out(old: str, new: str) -> None:
    long_old, long_new = f"{old} {'가방 ' * 90} {new}", f"{new} {'new ' * 90} {old}"

    pieces = whole_diff(long_old, long_new)

    assert joined(pieces, SAME, REMOVED) == long_old
    assert joined(pieces, SAME, ADDED) == long_new


def test_very_long_texts_are_compared_in_reasonable_time() -> None:
    old = " ".join(f"w{n % 50}" for n in range(8_000))
    new = " ".join(f"w{n % 49}" for n in range(8_000))
    started = time.monotonic()

    word_diff(old, new)

    # Without its bound the matcher needs minutes for this.
    assert time.monotonic() - started < 10
