"""Products out of nothing but a seed, a seller and a number."""

from hashlib import blake2b
from random import Random
from urllib.parse import quote

from mustit_pipeline.simulator import catalogue
from mustit_pipeline.simulator.product import BANNER_SIZE, Option, Product, Shipping

_FIRST_ITEM_NO = 117_000_000
_SPREAD = 7
_FIRST_OPTION_NO = 4_134_000_000
_OPTIONS_EACH = 20


def item_no_of(ordinal: int) -> int:
    """Numbers grow with time and have gaps, as real ones do."""
    return _FIRST_ITEM_NO + ordinal * _SPREAD + ordinal * ordinal % _SPREAD


def ordinal_of(item_no: int) -> int:
    """The inverse of item_no_of."""
    return (item_no - _FIRST_ITEM_NO) // _SPREAD


def seller_no_of(seller_id: str) -> int:
    """A number for the seller that needs no memory."""
    return int.from_bytes(blake2b(seller_id.encode(), digest_size=3).digest(), "big") + 1


def money(amount: float) -> int:
    """Prices on the marketplace end in 00."""
    return max(100, round(amount / 100) * 100)


def discount_rate(normal_price: int, discount_price: int) -> int:
    """Whole percent, rounded down."""
    return (normal_price - discount_price) * 100 // normal_price


def image_url(rng: Random, seller_id: str) -> str:
    """A product picture in the banner's size."""
    folder = quote(seller_id, safe="")
    return (
        f"https://image.mustit.co.kr/lib/upload/product/{folder}/2025/11/{rng.getrandbits(128):032x}.jpeg{BANNER_SIZE}"
    )


def generate(seed: int, seller_id: str, ordinal: int) -> Product:
    """The product as it was first put up for sale."""
    rng = Random(f"{seed}/{seller_id}/{ordinal}")
    chance = rng.random
    brand = catalogue.BRANDS[int(chance() * len(catalogue.BRANDS))]
    category = catalogue.PATHS[int(chance() * len(catalogue.PATHS))]
    color = catalogue.COLORS[int(chance() * len(catalogue.COLORS))]
    model = f"{rng.getrandbits(28):08d} V{int(chance() * 9000) + 1000}"
    style = catalogue.STYLES[int(chance() * len(catalogue.STYLES))]
    normal = money(50_000 + chance() ** 2 * 3_000_000)
    selling = money(normal * (0.5 + chance() * 0.4))
    discount = money(selling * (0.85 + chance() * 0.15))
    item_no = item_no_of(ordinal)
    options = _options(rng, ordinal)
    stock = sum(option.stock for option in options) if options else int(chance() * 6)
    images = tuple(image_url(rng, seller_id) for _ in range(1 + int(chance() ** 2 * 8)))
    description_images = _description_images(rng, model)
    return Product(
        item_no=item_no,
        seller_id=seller_id,
        seller_no=seller_no_of(seller_id),
        name=f"{brand.name_kr} {category.header.name} {style} {category.medium.name}({color}) {model}",
        brand=brand,
        category=category,
        normal_price=normal,
        selling_price=selling,
        discount_price=discount,
        discount_rate=discount_rate(normal, discount),
        stock=stock,
        sold_out=stock == 0,
        images=images,
        has_banner=chance() > 0.03,
        tags=tuple(rng.sample(catalogue.TAGS, int(chance() * 5))),
        description=_description(description_images, model, ordinal),
        description_images=description_images,
        origin_country=catalogue.COUNTRIES[int(chance() * len(catalogue.COUNTRIES))],
        item_status=catalogue.STATUSES[int(chance() * len(catalogue.STATUSES))],
        shipping=_shipping(rng),
        shipping_location=catalogue.CITIES[int(chance() * len(catalogue.CITIES))],
        sales_method="재고보유" if chance() < 0.3 else None,
        options=options,
    )


def next_option_no(product: Product) -> int:
    """A number that no option of any product has had."""
    highest = max((option.option_no for option in product.options), default=0)
    return max(highest, _FIRST_OPTION_NO + ordinal_of(product.item_no) * _OPTIONS_EACH + 12) + 1


def _options(rng: Random, ordinal: int) -> tuple[Option, ...]:
    if rng.random() < 0.15:
        return ()
    first = _FIRST_OPTION_NO + ordinal * _OPTIONS_EACH
    color = catalogue.COLORS[int(rng.random() * len(catalogue.COLORS))] if rng.random() < 0.4 else ""
    sold_out = rng.random() < 0.1
    start = int(rng.random() * 6)
    return tuple(
        Option(
            option_no=first + n,
            color=color,
            size=catalogue.SIZES[start + n],
            stock=0 if sold_out or rng.random() < 0.4 else 1 + int(rng.random() * 5),
            size_guide="정사이즈" if rng.random() < 0.2 else "",
        )
        for n in range(1 + int(rng.random() * 7))
    )


def _shipping(rng: Random) -> Shipping:
    days = 1 + int(rng.random() * 12)
    kind = "DOMESTIC" if days < 6 else "OVERSEAS"
    fee = 0 if rng.random() < 0.7 else 2500 + 500 * int(rng.random() * 20)
    return Shipping(kind, fee, "PAID" if fee else "FREE", f"평균 배송 {days}일 소요")


def _description_images(rng: Random, model: str) -> tuple[str, ...]:
    host = "https://shop.openhost.example/web/product/image"
    folder = model.replace(" ", "")
    numbered = (f"{host}/{folder}/{n:02}.jpg" for n in range(1, 14 + int(rng.random() * 8)))
    return (f"{host}/notice.jpg", *numbered, f"{host}/shoppingguide.jpg")


def _description(images: tuple[str, ...], model: str, ordinal: int) -> str:
    """Sellers write their own HTML, so the same picture tag comes in several spellings."""
    opening, closing = (
        ('<p align="center"><img src="', '"></p>'),
        ("<div><IMG alt='' SRC='", "' /></div>"),
        ('<center><img\n width="860" src="', '"/></center>'),
    )[ordinal % 3]
    pictures = "\n".join(f"{opening}{url}{closing}" for url in images)
    return f"<p>정품만 판매합니다. 모델번호 {model}. 교환 &amp; 환불은 7일 이내.</p>\n{pictures}"
