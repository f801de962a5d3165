"""The groupResult of a listing: how a seller's products spread over categories, brands and prices."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import orjson

from mustit_pipeline.simulator import catalogue
from mustit_pipeline.simulator.catalogue import CategoryPath


@lru_cache(maxsize=256)
def group_result(count: int) -> bytes:
    """As large as a real one; its counts follow the number of products, and are not exact."""
    spread = _Spread(count)
    smalls = [path for path in catalogue.PATHS if path.small]
    mediums = [path for path in catalogue.PATHS if path.small is None]
    return orjson.dumps(
        {
            "headerCategoryGroupResult": spread.categories(_unique(mediums, lambda p: p.header.code), 1),
            "largeCategoryGroupResult": spread.categories(_unique(mediums, lambda p: p.header.code + p.large.code), 2),
            "mediumCategoryGroupResult": spread.categories(mediums, 3),
            "smallCategoryGroupResult": spread.categories(smalls, 4),
            "brandGroupResult": [
                {"brandCode": b.code, "brandName": b.name, "brandNameKor": b.name_kr, "brandCount": spread.part(n)}
                for n, b in enumerate(catalogue.BRANDS)
            ],
            "priceRangeResult": [
                {"startPrice": start, "endPrice": end}
                for start, end in (
                    (27_200, 99_999),
                    (100_000, 199_999),
                    (200_000, 299_999),
                    (300_000, 399_999),
                    (400_000, 599_999),
                    (600_000, 4_869_300),
                )
            ],
            "colorCodeResult": [
                {"imgColorCode": color, "imgColorCodeCount": spread.part(n)}
                for n, color in enumerate(catalogue.IMAGE_COLORS)
            ],
            "recommendKeywordGroupResult": [
                {"keyword": word, "count": spread.part(n)} for n, word in enumerate(catalogue.KEYWORDS)
            ],
            "usedStatusGroupResult": [{"usedStatus": status, "count": 1} for status in ("NEW", "USED", "REFURB")],
        }
    )


class _Spread:
    """Shares of a total that fall as the position grows."""

    def __init__(self, total: int) -> None:
        self._total = total

    def part(self, position: int) -> int:
        return self._total // (position + 2) + (1 if self._total else 0)

    def categories(self, paths: Iterable[CategoryPath], depth: int) -> list[dict[str, Any]]:
        return [_category(path, depth) | {"categoryCount": self.part(n)} for n, path in enumerate(paths)]


def _category(path: CategoryPath, depth: int) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    levels = (("header", path.header), ("large", path.large), ("medium", path.medium), ("small", path.small))
    for name, level in levels[:depth]:
        if level is not None:
            entry[f"{name}CategoryCode"] = level.code
            entry[f"{name}CategoryName"] = level.name
    return entry


def _unique(paths: Iterable[CategoryPath], key: Callable[[CategoryPath], str]) -> list[CategoryPath]:
    return list({key(path): path for path in paths}.values())
