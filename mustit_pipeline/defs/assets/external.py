"""The systems at both ends of the lineage, which are not ours."""

import dagster as dg

from mustit_pipeline.defs.metadata import OWNERS, columns, lineage
from mustit_pipeline.defs.partitions import sellers

mustit_marketplace = dg.AssetSpec(
    "mustit_marketplace",
    description="The Mustit marketplace (머스트잇): its sellers' minishop listings, product details and options. "
    "Its checks say each hour how well all sellers together are followed.",
    group_name="marketplace",
    owners=OWNERS,
    kinds={"http"},
    partitions_def=sellers,
    metadata=columns(
        sellerId=("string", "The seller's id"),
        listing=("json", "The pages of its minishop listing"),
        detail=("json", "The detail page of a product"),
        options=("json", "The options of a product"),
    ),
)

DELIVERED = lineage(
    sellerId="product_change_sets.seller_id",
    itemNo="product_change_sets.item_no",
    version="product_change_sets.version",
    productData="product_change_sets.product_data",
)
product_server = dg.AssetSpec(
    "product_server",
    deps=["product_change_sets"],
    description="The external product server: every version of a product, sent once and in order by the relay. "
    "Its checks say each hour whether what was published is sound and has arrived.",
    group_name="delivery",
    owners=OWNERS,
    kinds={"http"},
    partitions_def=sellers,
    metadata=columns(
        sellerId=("string", "The seller's id"),
        itemNo=("integer", "The product"),
        version=("integer", "The version that the server has; it only grows"),
        productData=("json", "The whole product at this version, null once it is deleted"),
    ),
)
