"""Charts as SVG, made here: no script draws them, and no style attribute, which the content policy refuses."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

WIDTH, RIGHT, TOP, BOTTOM = 480, 12, 10, 24
# The room that the texts of an axis need at the left, at the largest size that the stylesheet gives them on a phone.
LETTER, BESIDE, LEAST_LEFT = 9.5, 14, 44
# Of bars: room for names and texts, from one bar to the next, and how thick one is.
NAMES, TEXTS, PITCH, THICKNESS = 150, 60, 22, 14
# Lines of an axis, about.
STEPS = 4


@dataclass(frozen=True, slots=True)
class Mark:
    """A text on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a column."""

    x: float
    y: float
    width: float
    height: float
    series: int
    title: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A value of a line."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """Values that hold until the next one, as a path."""

    series: int
    path: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawing area and its axes."""

    height: int
    left: float
    rows: tuple[Mark, ...]
    columns: tuple[Mark, ...]

    @property
    def box(self) -> str:
        return f"0 0 {WIDTH} {self.height}"

    @property
    def right(self) -> int:
        return WIDTH - RIGHT

    @property
    def foot(self) -> int:
        return self.height - BOTTOM


@dataclass(frozen=True, slots=True)
class Columns:
    """A chart of stacked columns."""

    frame: Frame
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """A chart of values over time."""

    frame: Frame
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from left to right with a name before it and a text at its end."""

    y: float
    width: float
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart of bars, one below the other."""

    height: int
    left: int
    thickness: int
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]

    @property
    def box(self) -> str:
        return f"0 0 {WIDTH} {self.height}"


@dataclass(frozen=True, slots=True)
class Value:
    """A value from a time on, and what is said of it; None where there was none."""

    at: datetime
    value: float | None
    title: str


def columns(
    names: Sequence[str],
    stacks: Sequence[Sequence[tuple[int, int, str]]],
    rows: Sequence[tuple[float, str]],
    height: int,
) -> Columns:
    """Columns side by side, each of (series, number, title); `rows` are the values with a line of their own."""
    most = max((value for value, _ in rows), default=1) or 1
    left = _left(rows)
    inner, width = height - TOP - BOTTOM, (WIDTH - left - RIGHT) / max(1, len(stacks))
    blocks: list[Block] = []
    for place, stack in enumerate(stacks):
        y = float(height - BOTTOM)
        for series, number, title in stack:
            size = inner * number / most
            y -= size
            blocks.append(Block(left + place * width + width * 0.12, y, width * 0.76, size, series, title))
    every = max(1, len(names) // 6)
    marks = [Mark(left + (place + 0.5) * width, name) for place, name in enumerate(names) if place % every == 0]
    frame = Frame(height, left, tuple(Mark(_y(value, 0, most, height), text) for value, text in rows), tuple(marks))
    return Columns(frame, tuple(blocks))


def lines(
    series: Sequence[Sequence[Value]], rows: Sequence[tuple[float, str]], times: Sequence[tuple[datetime, str]],
    span: tuple[datetime, datetime], height: int,
) -> Lines:  # fmt: skip
    """Values over time as steps: a price holds until it is seen to be another one."""
    left = _left(rows)
    low, high = min((value for value, _ in rows), default=0), max((value for value, _ in rows), default=1)
    drawn: list[Line] = []
    for number, values in enumerate(series):
        path: list[str] = []
        dots: list[Dot] = []
        ends = [*values, Value(span[1], None, "")]
        down = False
        for one, following in pairwise(ends):
            if one.value is None:
                down = False
                continue
            x, y, until = _x(one.at, span, left), _y(one.value, low, high, height), _x(following.at, span, left)
            path.append(f"{'L' if down else 'M'}{x:.1f} {y:.1f}H{until:.1f}")
            dots.append(Dot(round(x, 1), round(y, 1), one.title))
            down = True
        drawn.append(Line(number, "".join(path), tuple(dots)))
    frame = Frame(
        height,
        left,
        tuple(Mark(_y(value, low, high, height), text) for value, text in rows),
        tuple(Mark(_x(at, span, left), text) for at, text in times),
    )
    return Lines(frame, tuple(drawn))


def bars(rows: Sequence[tuple[str, float, str]], low: float, high: float, marks: Sequence[tuple[float, str]]) -> Bars:
    """Bars of (name, value, text), one below the other, between two values."""
    width = WIDTH - NAMES - TEXTS

    def along(value: float) -> float:
        return width * (min(max(value, low), high) - low) / ((high - low) or 1)

    drawn = tuple(Bar(TOP + place * PITCH, along(value), name, text) for place, (name, value, text) in enumerate(rows))
    height = TOP + PITCH * len(rows) + BOTTOM
    return Bars(height, NAMES, THICKNESS, drawn, tuple(Mark(NAMES + along(value), text) for value, text in marks))


def round_steps(low: float, high: float) -> list[float]:
    """Round values from below the lowest to above the highest, for the lines of an axis."""
    if high <= low:
        low, high = (0, high) if high > 0 else (low, low + 1)
    raw = (high - low) / STEPS
    power = 10 ** len(str(int(raw))) / 10 if raw >= 1 else 1
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    first = int(low // step)
    values = [first * step]
    while values[-1] < high:
        values.append(values[-1] + step)
    return values


def _left(rows: Sequence[tuple[float, str]]) -> float:
    return max(LEAST_LEFT, BESIDE + LETTER * max((len(text) for _, text in rows), default=0))


def _x(at: datetime, span: tuple[datetime, datetime], left: float) -> float:
    length = (span[1] - span[0]).total_seconds() or 1.0
    return left + (WIDTH - left - RIGHT) * (at - span[0]).total_seconds() / length


def _y(value: float, low: float, high: float, height: int) -> float:
    return height - BOTTOM - (height - TOP - BOTTOM) * (value - low) / ((high - low) or 1)
