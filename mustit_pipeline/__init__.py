"""Crawls Mustit sellers, notices every product change and relays it, as Dagster assets."""
