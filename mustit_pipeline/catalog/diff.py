"""The differences between two states of a product, typed and field by field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from mustit_pipeline.domain.states import ChangeType

ProductData = Mapping[str, Any]

FIELD_TYPES: Mapping[str, ChangeType] = {
    "name": ChangeType.PRODUCT_INFO,
    "brandName": ChangeType.PRODUCT_INFO,
    "brandNameKr": ChangeType.PRODUCT_INFO,
    "brandCode": ChangeType.PRODUCT_INFO,
    "normalPrice": ChangeType.PRICE,
    "sellingPrice": ChangeType.PRICE,
    "discountPrice": ChangeType.PRICE,
    "discountRate": ChangeType.PRICE,
    "stock": ChangeType.STOCK,
    "soldOut": ChangeType.STOCK,
    "images": ChangeType.IMAGE,
    "tags": ChangeType.PRODUCT_INFO,
    "description": ChangeType.DESCRIPTION,
    "descriptionImages": ChangeType.DESCRIPTION,
    "originCountry": ChangeType.PRODUCT_INFO,
    "itemStatus": ChangeType.PRODUCT_INFO,
}
NESTED = ("category", "shipping")
OPTION_TYPES: Mapping[str, ChangeType] = {
    "color": ChangeType.OPTION,
    "size": ChangeType.OPTION,
    "stock": ChangeType.STOCK,
    "sizeGuide": ChangeType.OPTION,
}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field's old and new value."""

    type: ChangeType
    field: str
    old: object
    new: object

    def as_json(self) -> dict[str, object]:
        """The JSON form in events and change sets."""
        return {"type": self.type.value, "field": self.field, "old": self.old, "new": self.new}


def diff(old: ProductData, new: ProductData) -> list[FieldChange]:
    """Every field whose value differs, in a stable order."""
    changes = [
        FieldChange(kind, field, old.get(field), new.get(field))
        for field, kind in FIELD_TYPES.items()
        if old.get(field) != new.get(field)
    ]
    for group in NESTED:
        before, after = _mapping(old.get(group)), _mapping(new.get(group))
        if before != after:
            changes.extend(
                FieldChange(ChangeType.PRODUCT_INFO, f"{group}.{key}", before.get(key), after.get(key))
                for key in dict.fromkeys((*before, *after))
                if before.get(key) != after.get(key)
            )
    if old.get("options") != new.get("options"):
        changes.extend(_option_changes(_options(old), _options(new)))
    return changes


def _option_changes(
    before: Mapping[int, Mapping[str, Any]], after: Mapping[int, Mapping[str, Any]]
) -> Iterator[FieldChange]:
    for number in sorted(before.keys() | after.keys()):
        was, now = before.get(number), after.get(number)
        if was is None or now is None:
            yield FieldChange(ChangeType.OPTION, f"options[{number}]", was, now)
            continue
        for field, kind in OPTION_TYPES.items():
            if was.get(field) != now.get(field):
                yield FieldChange(kind, f"options[{number}].{field}", was.get(field), now.get(field))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _options(data: ProductData) -> Mapping[int, Mapping[str, Any]]:
    options: list[Mapping[str, Any]] = data.get("options") or []
    return {option["optionNo"]: option for option in options}
