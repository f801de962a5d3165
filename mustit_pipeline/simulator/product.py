"""The model of one product, from which every body and the expected productData are made."""

from dataclasses import dataclass

from mustit_pipeline.simulator.catalogue import Brand, CategoryPath

BANNER_SIZE = "/_dims_/resize/500x500/extent/500x500"
LISTING_SIZE = "/_dims_/resize/300x300/extent/300x400"


@dataclass(frozen=True, slots=True)
class Option:
    """One purchasable variant."""

    option_no: int
    color: str
    size: str
    stock: int
    size_guide: str


@dataclass(frozen=True, slots=True)
class Shipping:
    """How and for how much it is sent."""

    type: str
    fee: int
    fee_type: str
    average_delivery: str

    @property
    def free(self) -> bool:
        """Nothing is charged for shipping."""
        return self.fee_type == "FREE" or self.fee == 0


@dataclass(frozen=True, slots=True)
class Product:
    """Everything the marketplace knows about a product."""

    item_no: int
    seller_id: str
    seller_no: int
    name: str
    brand: Brand
    category: CategoryPath
    normal_price: int
    selling_price: int
    discount_price: int
    discount_rate: int
    stock: int
    sold_out: bool
    images: tuple[str, ...]
    has_banner: bool
    tags: tuple[str, ...]
    description: str
    description_images: tuple[str, ...]
    origin_country: str
    item_status: str
    shipping: Shipping
    shipping_location: str
    sales_method: str | None
    options: tuple[Option, ...]

    @property
    def banner_images(self) -> tuple[str, ...]:
        """What the detail shows; some products have pictures only in the listing."""
        return self.images if self.has_banner else ()

    @property
    def listing_images(self) -> tuple[str, ...]:
        """What the listing shows: the first three, smaller, or all where the detail shows none."""
        if not self.has_banner:
            return self.images
        return tuple(url.replace(BANNER_SIZE, LISTING_SIZE) for url in self.images[:3])
