"""Tables of raw bodies, products, versions, holds and drift."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from mustit_pipeline.domain.drift import DriftKind
from mustit_pipeline.domain.states import ChangeHoldStatus, LifeCycle, RawStatus, TaskType
from mustit_pipeline.foundation.tables import SELLER_BY_TIME, metadata, one_of, timestamp

# A deleted product counts again once a sweep has seen it, which sets absent_sweeps to 0. The condition does not use
# last_seen_execution_id: every crawl writes it, and no update of a product would be HOT.
UNPUBLISHED_PRODUCT = (
    "complete AND data_hash IS DISTINCT FROM published_hash AND (deleted_at IS NULL OR absent_sweeps = 0)"
)

# True for every row, for statements about the newest rows of all sellers: a statement about one seller cannot use that
# index.
OF_ALL_SELLERS = "item_no > 0"
# True of every body, and stated by statements that look for those of one product.
OF_ITEM = "raw_id > 0"


def sellers_in(name: str, table: str, which: str) -> str:
    """A part of WITH RECURSIVE: the sellers in a partial index and a NULL, one look-up for each, whatever it has."""
    first = f"SELECT seller_id FROM {table} WHERE {which} {{more}} ORDER BY seller_id LIMIT 1"
    return f"""{name} AS (
        ({first.format(more="")})
        UNION ALL
        SELECT ({first.format(more="AND seller_id > s.seller_id")}) FROM {name} s WHERE s.seller_id IS NOT NULL
    )"""


product_raw_data = Table(
    "product_raw_data",
    metadata,
    Column("raw_id", BigInteger, Identity(always=True), primary_key=True),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("execution_id", Uuid, nullable=False),
    Column("task_id", Uuid, nullable=False),
    Column("source", Text, nullable=False),
    Column("item_no", BigInteger),
    Column("page_no", Integer),
    Column("body", Text, nullable=False),
    # The body's canonical content, parsed by the worker; null once the catalog has it.
    Column("content", Text),
    Column("content_hash", Text),
    Column("status", Text, nullable=False),
    Column("attempts", SmallInteger, nullable=False, server_default="0"),
    Column("error_code", Text),
    Column("error_text", Text),
    timestamp("fetched_at", default=True),
    timestamp("processed_at", nullable=True),
    one_of("status", RawStatus),
    one_of("source", TaskType),
    # One index per state: a statement names the state, so only one index fits it.
    Index(
        "ix_product_raw_data_pending",
        "seller_id",
        "source",
        "item_no",
        "raw_id",
        postgresql_where=text("status = 'PENDING'"),
    ),
    Index("ix_product_raw_data_processed", "seller_id", "fetched_at", postgresql_where=text("status = 'PROCESSED'")),
    Index("ix_product_raw_data_failed", "seller_id", "fetched_at", postgresql_where=text("status = 'FAILED'")),
    Index("ix_product_raw_data_of_item", "seller_id", "item_no", "raw_id", postgresql_where=text(OF_ITEM)),
)

# When retention last examined a seller's bodies, and with which cut-offs: the next run skips sellers where no body
# arrived or became old since.
body_examinations = Table(
    "body_examinations",
    metadata,
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), primary_key=True),
    timestamp("examined_at"),
    timestamp("unchanged_before"),
    timestamp("aged_before"),
)

products = Table(
    "products",
    metadata,
    Column("product_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("item_no", BigInteger, nullable=False),
    Column("minishop_data_hash", Text),
    Column("detail_data_hash", Text),
    Column("option_data_hash", Text),
    # Each source's last data in canonical form: a source replaces a value only when its own has changed.
    Column("minishop_data", Text),
    Column("detail_data", Text),
    Column("option_data", Text),
    # The merged productData, and its hash; published_hash is that of the newest version.
    Column("data", Text),
    Column("data_hash", Text),
    Column("published_hash", Text),
    Column(
        "complete",
        Boolean,
        Computed(
            "minishop_data_hash IS NOT NULL AND detail_data_hash IS NOT NULL AND option_data_hash IS NOT NULL",
            persisted=True,
        ),
        nullable=False,
    ),
    Column("version", Integer, nullable=False, server_default="0"),
    # The newest version that the product server is known to have.
    Column("delivered_version", Integer, nullable=False, server_default="0"),
    Column("absent_sweeps", SmallInteger, nullable=False, server_default="0"),
    Column("last_seen_execution_id", Uuid),
    timestamp("last_seen_at", nullable=True),
    # When its detail named another seller; it is fetched again once its listing entry changes.
    timestamp("foreign_at", nullable=True),
    timestamp("deleted_at", nullable=True),
    timestamp("created_at", default=True),
    timestamp("updated_at", default=True),
    UniqueConstraint("seller_id", "item_no"),
    CheckConstraint("item_no > 0", name="item_positive"),
    CheckConstraint("delivered_version <= version", name="delivered_within_version"),
    # A hash index has no order, so no statement about one seller's products can walk it.
    Index(None, "item_no", postgresql_using="hash"),
    # Only for counting.
    Index("ix_products_live", "seller_id", postgresql_where=text("complete AND deleted_at IS NULL")),
    Index("ix_products_foreign", "seller_id", postgresql_where=text("foreign_at IS NOT NULL")),
    Index("ix_products_unpublished", "seller_id", "item_no", postgresql_where=text(UNPUBLISHED_PRODUCT)),
    Index(
        "ix_products_incomplete",
        "seller_id",
        "created_at",
        postgresql_where=text("NOT complete AND deleted_at IS NULL"),
    ),
)

product_change_sets = Table(
    "product_change_sets",
    metadata,
    Column("change_set_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, nullable=False),
    Column("item_no", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("life_cycle", Text, nullable=False),
    Column("change_types", ARRAY(Text), nullable=False),
    Column("changes", JSONB, nullable=False),
    # The whole product at this version, null once deleted: any two versions can be compared.
    Column("product_data", Text),
    Column("execution_id", Uuid, nullable=False),
    timestamp("detected_at", default=True),
    UniqueConstraint("seller_id", "item_no", "version"),
    one_of("life_cycle", LifeCycle),
    CheckConstraint("version > 0", name="version_positive"),
    CheckConstraint("(life_cycle = 'DELETED') = (product_data IS NULL)", name="data_unless_deleted"),
    # Many change sets have the same time: the id says where a page of them ends.
    Index("ix_product_change_sets_detected", text(SELLER_BY_TIME), "detected_at", "change_set_id"),
    Index("ix_product_change_sets_newest", "detected_at", "change_set_id", postgresql_where=text(OF_ALL_SELLERS)),
    Index(None, "execution_id"),
)

deletion_holds = Table(
    "deletion_holds",
    metadata,
    Column("hold_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("execution_id", Uuid, nullable=False),
    Column("status", Text, nullable=False),
    Column("live_count", Integer, nullable=False),
    Column("item_nos", ARRAY(BigInteger), nullable=False),
    timestamp("opened_at", default=True),
    timestamp("closed_at", nullable=True),
    CheckConstraint("status IN ('OPEN', 'APPROVED', 'REJECTED', 'CLOSED')", name="status_known"),
    Index("uq_deletion_holds_one_open_per_seller", "seller_id", unique=True, postgresql_where=text("status = 'OPEN'")),
)

change_holds = Table(
    "change_holds",
    metadata,
    Column("hold_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("status", Text, nullable=False),
    # The numbers of the last judgement.
    Column("jumped", Integer, nullable=False),
    Column("emptied", Integer, nullable=False),
    Column("suspicious", Integer, nullable=False),
    Column("looked_at", Integer, nullable=False),
    Column("examples", ARRAY(BigInteger), nullable=False),
    timestamp("opened_at", default=True),
    timestamp("closed_at", nullable=True),
    one_of("status", ChangeHoldStatus),
    Index("uq_change_holds_one_open_per_seller", "seller_id", unique=True, postgresql_where=text("status = 'OPEN'")),
)

# Fields of the marketplace's bodies that changed shape.
schema_drift = Table(
    "schema_drift",
    metadata,
    Column("path", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("observed", Text, nullable=False),
    Column("expected", Text, nullable=False),
    Column("sample", Text, nullable=False),
    # The number of bodies, and the last of them.
    Column("count", BigInteger, nullable=False),
    Column("seller_id", Text, nullable=False),
    Column("item_no", BigInteger),
    timestamp("first_seen_at", default=True),
    timestamp("last_seen_at", default=True),
    timestamp("accepted_at", nullable=True),
    PrimaryKeyConstraint("path", "kind", "observed"),
    one_of("kind", DriftKind),
)
