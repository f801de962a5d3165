"""What a sample says of the whole."""

import math

# Of the normal distribution: 95 in 100 intervals hold the true share.
Z = 1.959964


def wilson_interval(hits: int, number: int) -> tuple[float, float]:
    """Between which shares the true one lies with 95 % certainty, by Wilson's score; anything without a sample."""
    if not number:
        return 0.0, 1.0
    share, spread = hits / number, Z * Z / number
    middle = share + spread / 2
    reach = Z * math.sqrt((share * (1 - share) + spread / 4) / number)
    return max(0.0, (middle - reach) / (1 + spread)), min(1.0, (middle + reach) / (1 + spread))
