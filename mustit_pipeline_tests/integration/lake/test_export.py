"""A day of the lake: what its files hold, on a path and on S3."""

from datetime import UTC, timedelta
from urllib.parse import quote

import pytest
from pyarrow import concat_tables, parquet

from mustit_pipeline.aws.policy import work_policy
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake import export
from mustit_pipeline.lake.columns import PRODUCT_CATALOG, PRODUCT_CHANGES
from mustit_pipeline.lake.examination import CATALOG_KEY, CHANGES_KEY, Found, examine
from mustit_pipeline.lake.export import export_catalog, export_changes
from mustit_pipeline.lake.place import seller_folder
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.lake.conftest import KOREAN, Lake
from mustit_pipeline_tests.integration.lake.history import DAY, EXECUTION, change, in_seoul, publish
from mustit_pipeline_tests.s3_permissions import just_what_is_allowed

BEFORE, AFTER = DAY - timedelta(days=1), DAY + timedelta(days=1)
FOLDER = f"product_catalog/day={DAY}"
CHANGES_FILE = f"product_changes/day={DAY}/changes.parquet"


def file_of(seller_id: str) -> str:
    return f"{FOLDER}/seller={quote(seller_id, safe='')}/products.parquet"


def test_a_product_has_every_column_that_the_lake_describes(sellers: Database, lake: Lake) -> None:
    at = in_seoul(DAY, "12:00")
    publish(sellers, KOREAN, 1, 1, at, "CREATED")

    exported = export_catalog(sellers, lake.place, DAY)

    assert lake.names() == [file_of(KOREAN)]
    [row] = lake.rows()
    assert list(row) == [column.name for column in PRODUCT_CATALOG]
    assert row == {
        "seller_id": KOREAN,
        "item_no": 1,
        "version": 1,
        "version_at": at.astimezone(UTC),
        "name": "백팩 1\n새 상품",
        "brand_name": "GUCCI",
        "brand_name_kr": "구찌",
        "brand_code": 153,
        "category_header_code": "W",
        "category_header_name": "여성",
        "category_large_code": "16",
        "category_large_name": "여성가방",
        "category_medium_code": "16r05",
        "category_medium_name": "백팩",
        "category_small_code": None,
        "category_small_name": None,
        "normal_price": 1083000,
        "selling_price": 621000,
        "discount_price": 540000,
        "discount_rate": 48,
        "stock": 3,
        "sold_out": False,
        "images": ["https://example.com/1.jpg", "https://example.com/2.jpg"],
        "tags": ["무료배송"],
        "description": "<p>설명</p>",
        "description_images": [],
        "origin_country": "케냐",
        "item_status": "새상품",
        "shipping_type": "DOMESTIC",
        "shipping_fee": 0,
        "shipping_fee_type": "FREE",
        "shipping_average_delivery": "1일",
        "shipping_free": True,
        "options": [{"option_no": 4134224619, "color": "", "size": "US 4", "stock": None, "size_guide": "≒ 36"}],
    }
    assert (exported.written.rows, exported.stored_rows, exported.files) == (1, 1, 1)
    with lake.place.filesystem.open_input_file(f"{lake.place.root}/{file_of(KOREAN)}") as opened:
        schema = parquet.read_schema(opened)
    assert {field.name: field.metadata[b"description"].decode() for field in schema} == {
        column.name: column.description for column in PRODUCT_CATALOG
    }


def test_the_catalogue_is_as_it_was_at_the_end_of_its_day_in_seoul(sellers: Database, path_lake: Lake) -> None:
    publish(sellers, "a", 1, 1, in_seoul(BEFORE, "00:00"), "CREATED", stock=1)
    publish(sellers, "a", 1, 2, in_seoul(DAY, "23:59:59.999999"), stock=2)
    publish(sellers, "a", 1, 3, in_seoul(AFTER, "00:00"), stock=3)
    publish(sellers, "a", 2, 1, in_seoul(BEFORE, "12:00"), "CREATED")
    publish(sellers, "a", 2, 2, in_seoul(DAY, "12:00"), "DELETED")
    publish(sellers, "a", 2, 3, in_seoul(AFTER, "12:00"), "RESTORED")
    publish(sellers, "b", 3, 1, in_seoul(AFTER, "12:00"), "CREATED")

    for day, expected in (
        (BEFORE - timedelta(days=1), []),
        (BEFORE, [("a", 1, 1, 1), ("a", 2, 1, 3)]),
        (DAY, [("a", 1, 2, 2)]),
        (AFTER, [("a", 1, 3, 3), ("a", 2, 3, 3), ("b", 3, 1, 3)]),
    ):
        exported = export_catalog(sellers, path_lake.place, day)
        names = [name for name in path_lake.names() if f"day={day}" in name]
        rows = path_lake.rows(*names) if names else []
        assert [(row["seller_id"], row["item_no"], row["version"], row["stock"]) for row in rows] == expected
        assert exported.stored_rows == len(expected)


def test_changes_are_rows_of_their_fields_and_a_version_without_one_is_a_row_too(sellers: Database, lake: Lake) -> None:
    publish(sellers, "b", 2, 1, in_seoul(DAY, "00:00"), "CREATED")
    publish(sellers, "b", 2, 2, in_seoul(DAY, "23:59:59"), "DELETED")
    at = in_seoul(DAY, "09:00")
    fields = [
        change("PRICE", "discountPrice", 565100, 540000),
        change("IMAGE", "images", ["1"], []),
        change("PRODUCT_INFO", "name", "가", ""),
        change("OPTION", "options[41]", None, {"optionNo": 41}),
        change("STOCK", "soldOut", False, True),
    ]
    publish(sellers, KOREAN, 1, 2, at, changes=fields)
    for outside in (in_seoul(BEFORE, "23:59:59.999999"), in_seoul(AFTER, "00:00")):
        publish(sellers, "a", 9, outside.day, outside, "CREATED")

    exported = export_changes(sellers, lake.place, DAY)

    assert lake.names() == [CHANGES_FILE]
    rows = lake.rows()
    assert [list(row) for row in rows] == [[column.name for column in PRODUCT_CHANGES]] * 7
    assert (rows[3]["execution_id"], rows[3]["detected_at"]) == (str(EXECUTION), at.astimezone(UTC))
    assert [row["change_type"] for row in rows[2:4]] == ["PRICE", "IMAGE"]
    told = ("seller_id", "version", "life_cycle", "field", "old_value", "new_value", "old_number", "new_number")
    assert [tuple(row[name] for name in told) for row in rows] == [
        ("b", 1, "CREATED", None, None, None, None, None),
        ("b", 2, "DELETED", None, None, None, None, None),
        (KOREAN, 2, "UPDATED", "discountPrice", "565100", "540000", 565100, 540000),
        (KOREAN, 2, "UPDATED", "images", '["1"]', "[]", None, None),
        (KOREAN, 2, "UPDATED", "name", "가", "", None, None),
        (KOREAN, 2, "UPDATED", "options[41]", None, '{"optionNo": 41}', None, None),
        (KOREAN, 2, "UPDATED", "soldOut", "false", "true", None, None),
    ]
    assert exported.written.rows == exported.stored_rows == 7


def test_a_day_without_a_change_is_a_file_without_a_row(sellers: Database, lake: Lake) -> None:
    exported = export_changes(sellers, lake.place, DAY)

    assert (lake.names(), lake.rows(), exported.stored_rows) == ([CHANGES_FILE], [], 0)


def test_a_day_that_is_written_again_leaves_nothing_of_sellers_that_are_gone(sellers: Database, lake: Lake) -> None:
    for seller_id in ("a", KOREAN):
        publish(sellers, seller_id, 1, 1, in_seoul(BEFORE, "12:00"), "CREATED")
    first = export_catalog(sellers, lake.place, DAY)
    other = export_catalog(sellers, lake.place, BEFORE)
    assert [name for name in lake.names() if str(DAY) in name] == [file_of(KOREAN), file_of("a")]
    publish(sellers, "a", 1, 2, in_seoul(DAY, "12:00"), "DELETED")

    again = export_catalog(sellers, lake.place, DAY)

    assert [name for name in lake.names() if str(DAY) in name] == [file_of(KOREAN)]
    assert len([name for name in lake.names() if str(BEFORE) in name]) == 2
    assert first.written.fingerprint == other.written.fingerprint != again.written.fingerprint


def test_the_lake_does_on_s3_just_what_its_policy_allows(
    sellers: Database, s3_lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    publish(sellers, KOREAN, 1, 1, in_seoul(DAY, "12:00"), "CREATED")

    def write_and_break_off() -> None:
        with s3_lake.place.replace(FOLDER) as fresh:
            with fresh.file("seller=a/products.parquet") as path:
                path.write_bytes(b"new")
            raise ValueError("in the middle")

    with just_what_is_allowed(work_policy(s3_lake.settings), caplog):
        export_catalog(sellers, s3_lake.place, DAY)
        assert examine(s3_lake.place, FOLDER, CATALOG_KEY) == Found(1, 0)
        publish(sellers, KOREAN, 1, 2, in_seoul(DAY, "13:00"), "DELETED")
        assert export_catalog(sellers, s3_lake.place, DAY).files == 0
        assert examine(s3_lake.place, FOLDER, CATALOG_KEY) == Found(0, 0)
        with pytest.raises(ValueError, match="in the middle"):
            write_and_break_off()


def test_row_groups_are_small_however_many_products_a_seller_has(
    sellers: Database, path_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "BATCH_CHARACTERS", 5_000)
    monkeypatch.setattr(export, "GROUP_BYTES", 15_000)
    for item_no in range(1, 21):
        publish(sellers, "a", item_no, 1, in_seoul(DAY, "12:00"), "CREATED", description="설" * 1_000)

    export_catalog(sellers, path_lake.place, DAY)

    file = parquet.ParquetFile(f"{path_lake.place.root}/{file_of('a')}")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [6, 6, 6, 2]
    assert [row["item_no"] for row in path_lake.rows()] == list(range(1, 21))


def test_an_id_that_no_file_system_takes_as_a_name_is_a_hash_there_and_itself_in_the_file(
    sellers: Database, path_lake: Lake
) -> None:
    longest = "긴" * 200
    register(sellers, longest)
    publish(sellers, longest, 1, 1, in_seoul(DAY, "12:00"), "CREATED")

    export_catalog(sellers, path_lake.place, DAY)

    [name] = path_lake.names()
    assert name == f"{FOLDER}/{seller_folder(longest)}/products.parquet"
    assert "seller=sha256-" in name
    assert [row["seller_id"] for row in path_lake.rows()] == [longest]


def test_the_examination_counts_rows_and_keys_that_come_twice(sellers: Database, lake: Lake) -> None:
    publish(sellers, "a", 1, 1, in_seoul(DAY, "12:00"), "CREATED")
    publish(sellers, KOREAN, 1, 1, in_seoul(DAY, "12:00"), "CREATED")
    publish(sellers, KOREAN, 2, 1, in_seoul(DAY, "12:00"), "CREATED")
    exported = export_catalog(sellers, lake.place, DAY)
    assert examine(lake.place, exported.folder, CATALOG_KEY) == Found(3, 0)
    with lake.place.filesystem.open_input_file(f"{lake.place.root}/{file_of(KOREAN)}") as opened:
        twice = parquet.read_table(opened)

    with lake.place.replace(exported.folder) as fresh, fresh.file("seller=x/products.parquet") as path:
        parquet.write_table(twice, path)
    assert examine(lake.place, exported.folder, CATALOG_KEY) == Found(2, 0)
    with lake.place.replace(exported.folder) as fresh, fresh.file("seller=x/products.parquet") as path:
        parquet.write_table(concat_tables([twice, twice]), path)
    assert examine(lake.place, exported.folder, CATALOG_KEY) == Found(4, 1)

    changes = export_changes(sellers, lake.place, DAY)
    assert examine(lake.place, changes.folder, CHANGES_KEY) == Found(3, 0)
