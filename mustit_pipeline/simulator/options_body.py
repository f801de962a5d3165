"""The options call's answer."""

import orjson

from mustit_pipeline.simulator.noise import Noise
from mustit_pipeline.simulator.product import Product


def options_body(product: Product, noise: Noise, item_no: int) -> bytes:
    """The product's options in no particular order; a product without any has an empty list."""
    return orjson.dumps(
        [
            noise.keys(
                {
                    "optionNo": option.option_no,
                    "itemNo": item_no,
                    "color": None if option.color == "" and noise.turn(4, 3) else option.color,
                    "size": noise.text(option.size),
                    "shippingType": "NONE",
                    "stock": noise.number(option.stock),
                    "sizeGuide": noise.text(option.size_guide),
                }
            )
            for option in noise.order(list(product.options))
        ]
    )
