"""The differences between two long texts, word by word."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

CONTEXT_CHARACTERS = 60
# Characters shown at either end of a long removed or added stretch.
CHANGE_CHARACTERS = 240
# Above this many pairs of words the matcher may take seconds, so it ignores very frequent words.
MOST_PAIRS = 4_000_000

# A tag of markup is one word, and so is the white space between two words.
_WORDS = re.compile(r"<[^<>]*>|[^\s<]+|\s+|<")


class PieceKind(StrEnum):
    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"
    ELIDED = "elided"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text of one kind; for an elided one the text is the number of omitted words."""

    kind: PieceKind
    text: str


def word_diff(old: str, new: str, *, context: int = CONTEXT_CHARACTERS, change: int = CHANGE_CHARACTERS) -> list[Piece]:
    """Removed and added text with some unchanged context; only both ends of a long stretch."""
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    pieces: list[Piece] = []
    for stretch in _stretches(before, after):
        if stretch.same:
            last = stretch.old_end == len(before) and stretch.new_end == len(after)
            same = before[stretch.old : stretch.old_end]
            pieces.extend(_unchanged(same, first=not pieces, last=last, context=context))
            continue
        removed, added = before[stretch.old : stretch.old_end], after[stretch.new : stretch.new_end]
        pieces.extend(_ends(PieceKind.REMOVED, removed, _reach(removed, change), _reach(removed[::-1], change)))
        pieces.extend(_ends(PieceKind.ADDED, added, _reach(added, change), _reach(added[::-1], change)))
    return pieces


def whole_diff(old: str, new: str) -> list[Piece]:
    """The same with nothing left out."""
    longest = len(old) + len(new)
    return word_diff(old, new, context=longest, change=longest)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Words of the old text against words of the new one."""

    same: bool
    old: int
    old_end: int
    new: int
    new_end: int


def _stretches(before: Sequence[str], after: Sequence[str]) -> list[_Stretch]:
    """The equal and the differing stretches; two changes with only white space between them are one change."""
    matcher = SequenceMatcher(None, before, after, autojunk=len(before) * len(after) > MOST_PAIRS)
    codes = matcher.get_opcodes()
    found: list[_Stretch] = []
    for position, (tag, a, b, c, d) in enumerate(codes):
        inside = 0 < position < len(codes) - 1
        same = tag == "equal" and not (inside and "".join(before[a:b]).isspace())
        if found and not same and not found[-1].same:
            found[-1] = _Stretch(False, found[-1].old, b, found[-1].new, d)
        else:
            found.append(_Stretch(same, a, b, c, d))
    return found


def _unchanged(words: Sequence[str], *, first: bool, last: bool, context: int) -> Iterator[Piece]:
    """Unchanged words; at the start and end of the text only the side towards a change is shown."""
    head = 0 if first else _reach(words, context)
    tail = 0 if last else _reach(words[::-1], context)
    yield from _ends(PieceKind.SAME, words, head, tail)


def _ends(kind: PieceKind, words: Sequence[str], head: int, tail: int) -> Iterator[Piece]:
    """The first and last words and the number between them; all words where at most one would be omitted."""
    left_out = sum(not word.isspace() for word in words[head : len(words) - tail])
    if left_out <= 1 or head + tail >= len(words):
        if words:
            yield Piece(kind, "".join(words))
        return
    if head:
        yield Piece(kind, "".join(words[:head]))
    yield Piece(PieceKind.ELIDED, str(left_out))
    if tail:
        yield Piece(kind, "".join(words[-tail:]))


def _reach(words: Sequence[str], context: int) -> int:
    """The number of words that fill the context."""
    length = 0
    for count, word in enumerate(words, start=1):
        length += len(word)
        if length >= context:
            return count
    return len(words)
