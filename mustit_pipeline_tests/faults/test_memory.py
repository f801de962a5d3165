"""The short version of the memory benchmark."""

from benchmarks import memory

QUICK_PRODUCTS = 150


def test_ten_times_the_products_need_little_more_memory() -> None:
    assert memory.run(QUICK_PRODUCTS).ratio <= memory.MOST
