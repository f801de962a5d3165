"""Numbers, money and times as people in Seoul write them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from babel.dates import format_date, format_datetime, format_timedelta
from babel.numbers import format_currency, format_decimal, format_percent
from markupsafe import Markup

from mustit_pipeline.api.languages import Language
from mustit_pipeline.foundation.clock import utc_now

SEOUL = ZoneInfo("Asia/Seoul")
LOCALES = {Language.KOREAN: "ko_KR", Language.ENGLISH: "en_GB"}
_DAY = {Language.KOREAN: "M월 d일", Language.ENGLISH: "d MMM"}
_DAY_OF_YEAR = {Language.KOREAN: "y년 M월 d일", Language.ENGLISH: "d MMM y"}
NOTHING = "–"


class Formats:
    """The formats of one language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._locale = LOCALES[language]

    def number(self, value: float | None) -> str:
        """A number with its thousands apart."""
        return NOTHING if value is None else format_decimal(value, locale=self._locale)

    def percent(self, value: float | None, digits: int = 0) -> str:
        """A number of percent, as rates are kept."""
        if value is None:
            return NOTHING
        pattern = "#,##0.0%" if digits else "#,##0%"
        return format_percent(value / 100, pattern, locale=self._locale)

    def money(self, value: int | None) -> str:
        """Won."""
        return NOTHING if value is None else format_currency(value, "KRW", locale=self._locale)

    def day(self, value: datetime) -> str:
        """A day in Seoul, with its year where that is another one."""
        local = value.astimezone(SEOUL)
        this_year = local.year == utc_now().astimezone(SEOUL).year
        return format_date(local, (_DAY if this_year else _DAY_OF_YEAR)[self._language], locale=self._locale)

    def clock(self, value: datetime) -> str:
        """The time of a day in Seoul."""
        return format(value.astimezone(SEOUL), "%H:%M")

    def moment(self, value: datetime | None) -> Markup:
        """A time in Seoul: of today the clock alone, and always the whole of it for who asks."""
        if value is None:
            return Markup(NOTHING)
        local = value.astimezone(SEOUL)
        today = local.date() == utc_now().astimezone(SEOUL).date()
        short = format(local, "%H:%M:%S") if today else f"{self.day(value)} {local:%H:%M}"
        return self._time(value, short)

    def ago(self, value: datetime | None) -> Markup:
        """How long ago, or in how long."""
        if value is None:
            return Markup(NOTHING)
        distance = value - utc_now()
        text = format_timedelta(distance, add_direction=True, threshold=0.95, locale=self._locale)
        return self._time(value, text)

    def duration(self, seconds: float | None) -> str:
        """A length of time."""
        if seconds is None:
            return NOTHING
        return format_timedelta(timedelta(seconds=seconds), threshold=0.95, locale=self._locale)

    def _time(self, value: datetime, text: str) -> Markup:
        whole = format_datetime(value.astimezone(SEOUL), "long", tzinfo=SEOUL, locale=self._locale)
        iso = value.astimezone(UTC).isoformat(timespec="seconds")
        return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, whole, text)
