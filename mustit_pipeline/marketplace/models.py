"""The marketplace's data as typed values: absent text is "", a list (), a number or a category None."""

from msgspec import Struct

BANNERS = "ProductBannersModule"
INFO = "ProductInfoModule"
SHIPPING = "ShippingModule"
DETAIL_INFO = "ProductDetailInfoModule"


class ListingEntry(Struct, frozen=True):
    """A product as a seller's listing shows it."""

    item_no: int
    name: str
    brand_name: str
    price: int | None
    original_price: int | None
    normal_price: int | None
    discount_rate: int | None
    app_price: int | None
    app_discount_rate: int | None
    image_urls: tuple[str, ...]
    tags: tuple[str, ...]
    landing_url: str

    @property
    def is_whole(self) -> bool:
        """Whether no required price is missing."""
        return self.price is not None and self.original_price is not None and self.normal_price is not None


class ListingPage(Struct, frozen=True):
    """One listing page; a sweep with `skipped` items, which could not be read, is not complete."""

    count: int
    entries: tuple[ListingEntry, ...]
    skipped: int


class Category(Struct, frozen=True):
    """One level of a product's category."""

    code: str
    name: str


class Shipping(Struct, frozen=True):
    """How a product is shipped."""

    type: str
    fee: int | None
    fee_type: str
    average_delivery: str
    free: bool


class ProductDetail(Struct, frozen=True):
    """A product's detail page; fields of a module that is not in `modules` are unknown."""

    modules: frozenset[str]
    seller_no: int | None
    seller_id: str
    item_no: int
    item_name: str
    brand_name: str
    brand_name_kr: str
    brand_code: int | None
    header_category: Category | None
    large_category: Category | None
    medium_category: Category | None
    small_category: Category | None
    normal_price: int | None
    selling_price: int | None
    discount_price: int | None
    discount_rate: int | None
    stock: int | None
    is_sold_out: bool | None
    banner_images: tuple[str, ...]
    shipping: Shipping | None
    origin_country: str
    item_status: str
    shipping_location: str
    sales_method: str
    description_markup: str

    @property
    def is_whole(self) -> bool:
        """Whether no module and no required price is missing."""
        return (
            self.shipping is not None
            and self.normal_price is not None
            and self.selling_price is not None
            and self.discount_price is not None
            and {BANNERS, SHIPPING, DETAIL_INFO} <= self.modules
        )

    def is_of(self, seller_id: str) -> bool:
        """Whether it is this seller's product; the marketplace writes one id in upper and lower case."""
        return self.seller_id == seller_id or self.seller_id.casefold() == seller_id.casefold()


class ProductOption(Struct, frozen=True):
    """One variant of a product that can be bought."""

    option_no: int
    item_no: int
    color: str
    size: str
    stock: int | None
    size_guide: str
    shipping_type: str
