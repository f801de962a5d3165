"""Sellers and their products, stored in a journal so that a second run continues with the same world."""

from bisect import insort
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from mustit_pipeline.simulator.generation import generate, item_no_of, ordinal_of
from mustit_pipeline.simulator.journal import Journal, JournalError
from mustit_pipeline.simulator.mutation import changed_fields
from mustit_pipeline.simulator.product import Product
from mustit_pipeline.simulator.product_data import with_fields
from mustit_pipeline.simulator.truth import changes_between, product_data

Record = dict[str, Any]

# The seed if none is given: `simulate`, `up` and `demo` share one world per home.
DEFAULT_SEED = 20261116
_REMEMBERED_PRODUCTS = 8_000


class MissingError(LookupError):
    """The world has no such seller or product."""


class ExistsError(Exception):
    """The world has it already."""


class Seller:
    """One seller's products, oldest first as the marketplace sorts them."""

    def __init__(self, seller_id: str) -> None:
        self.seller_id = seller_id
        self.order: list[int] = []
        self.removed: set[int] = set()
        self._bumped: dict[int, int] = {}

    def rank(self, item_no: int) -> int:
        """What LATEST sorts by: the item number until the seller refreshes the entry."""
        return self._bumped.get(item_no, item_no)

    def insert(self, item_no: int) -> None:
        """Put it where its rank belongs."""
        insort(self.order, item_no, key=self.rank)

    def bump(self, item_no: int, rank: int) -> None:
        """Move it to the front of the listing."""
        self.order.remove(item_no)
        self._bumped[item_no] = rank
        self.order.append(item_no)

    def page(self, start: int, size: int) -> list[int]:
        """Newest first."""
        end = len(self.order) - start
        return self.order[max(0, end - size) : max(0, end)][::-1]


class World:
    """Every change is one journal record, written first and applied then, live and at a restart alike."""

    def __init__(self, journal_path: Path, seed: int | None = None) -> None:
        self.sellers: dict[str, Seller] = {}
        self._owners: dict[int, str] = {}
        self._changed: dict[int, Product] = {}
        self._generated: OrderedDict[int, Product] = OrderedDict()
        self._ordinal = 0
        self._journal = Journal(journal_path)
        stored: int | None = None
        for record in self._journal.replay():
            if record["op"] == "world":
                stored = record["seed"]
                self.seed: int = record["seed"]
            else:
                self._apply(record)
        if stored is None:
            self.seed = DEFAULT_SEED if seed is None else seed
            self._journal.append({"op": "world", "seed": self.seed})
        elif seed not in (None, stored):
            self._journal.close()
            raise JournalError(
                f"{journal_path} holds the world of seed {stored}: leave --seed out to go on with it, "
                "or set MUSTIT_HOME to another folder"
            )

    def close(self) -> None:
        """Release the journal."""
        self._journal.close()

    def add_seller(self, seller_id: str, products: int) -> None:
        """A new seller with so many products."""
        if seller_id in self.sellers:
            raise ExistsError(f"seller {seller_id!r} exists already")
        self._happen({"op": "seller", "sellerId": seller_id, "products": products})

    def seller(self, seller_id: str) -> Seller:
        """The seller, or a MissingError that names it."""
        if seller_id not in self.sellers:
            raise MissingError(f"no seller {seller_id!r}")
        return self.sellers[seller_id]

    def owner(self, item_no: int) -> str | None:
        """Whose product this number is or was."""
        return self._owners.get(item_no)

    def on_sale(self, item_no: int) -> Product | None:
        """The product if it can be bought now."""
        owner = self._owners.get(item_no)
        if owner is None or item_no in self.sellers[owner].removed:
            return None
        return self.product(item_no)

    def product(self, item_no: int) -> Product:
        """The product in its present state, removed or not."""
        changed = self._changed.get(item_no)
        if changed is not None:
            return changed
        known = self._generated.get(item_no)
        if known is None:
            known = generate(self.seed, self._owners[item_no], ordinal_of(item_no))
            self._generated[item_no] = known
            if len(self._generated) > _REMEMBERED_PRODUCTS:
                self._generated.popitem(last=False)
        return known

    def add_products(self, seller_id: str, count: int) -> list[int]:
        """New products, which the listing shows first."""
        seller = self.seller(seller_id)
        before = len(seller.order)
        self._happen({"op": "add", "sellerId": seller_id, "count": count})
        return seller.order[before:]

    def change(self, seller_id: str, item_no: int, fields: Record) -> list[Record]:
        """Set fields of a product; returns what that changed."""
        self._live(seller_id, [item_no])
        before = self.product(item_no)
        after = with_fields(before, fields)
        self._happen({"op": "set", "itemNo": item_no, "fields": fields})
        return changes_between(product_data(before), product_data(after))

    def random_change(self, seller_id: str, item_no: int, kind: str) -> list[Record]:
        """One change of that type, chosen by the seed and by how much has happened so far."""
        self._live(seller_id, [item_no])
        fields = changed_fields(self.product(item_no), kind, self._chance())
        return self.change(seller_id, item_no, fields)

    def choose(self, seller_id: str, count: int) -> list[int]:
        """So many different live products."""
        order = self.seller(seller_id).order
        if count > len(order):
            raise MissingError(f"seller {seller_id!r} has {len(order)} products, not {count}")
        return sorted(self._chance().sample(order, count))

    def remove(self, seller_id: str, item_nos: Sequence[int]) -> None:
        """Take products off sale."""
        self._live(seller_id, item_nos)
        self._happen({"op": "remove", "sellerId": seller_id, "itemNos": list(dict.fromkeys(item_nos))})

    def restore(self, seller_id: str, item_nos: Sequence[int]) -> None:
        """Put removed products back where they were."""
        gone = self.seller(seller_id).removed
        if missing := [number for number in item_nos if number not in gone]:
            raise MissingError(f"not removed from seller {seller_id!r}: {missing}")
        self._happen({"op": "restore", "sellerId": seller_id, "itemNos": list(dict.fromkeys(item_nos))})

    def shift(self, seller_id: str, count: int) -> list[int]:
        """The seller refreshes the oldest entries: they come first, and every other one moves down the pages."""
        moved = self.seller(seller_id).order[:count]
        self._happen({"op": "shift", "sellerId": seller_id, "itemNos": moved})
        return moved

    def _live(self, seller_id: str, item_nos: Sequence[int]) -> None:
        seller = self.seller(seller_id)
        for number in item_nos:
            if self._owners.get(number) != seller_id or number in seller.removed:
                raise MissingError(f"seller {seller_id!r} has no product {number} on sale")

    def _chance(self) -> Random:
        return Random(f"{self.seed}/{self._journal.count}")

    def _happen(self, record: Record) -> None:
        self._journal.append(record)
        self._apply(record)

    def _apply(self, record: Record) -> None:
        op = record["op"]
        if op == "set":
            number = record["itemNo"]
            self._changed[number] = with_fields(self.product(number), record["fields"])
            return
        if op == "seller":
            self.sellers[record["sellerId"]] = Seller(record["sellerId"])
        seller = self.sellers[record["sellerId"]]
        if op in ("seller", "add"):
            for _ in range(record["products"] if op == "seller" else record["count"]):
                number = item_no_of(self._next_ordinal())
                self._owners[number] = seller.seller_id
                seller.order.append(number)
        elif op == "remove":
            gone = set(record["itemNos"])
            seller.removed |= gone
            seller.order = [number for number in seller.order if number not in gone]
        elif op == "restore":
            for number in record["itemNos"]:
                seller.removed.discard(number)
                seller.insert(number)
        elif op == "shift":
            for number in record["itemNos"]:
                seller.bump(number, item_no_of(self._next_ordinal()))

    def _next_ordinal(self) -> int:
        self._ordinal += 1
        return self._ordinal
