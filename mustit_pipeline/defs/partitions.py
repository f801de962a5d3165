"""How the assets are cut: one partition per seller."""

import dagster as dg

SELLERS = "sellers"

sellers = dg.DynamicPartitionsDefinition(name=SELLERS)
