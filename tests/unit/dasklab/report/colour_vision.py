"""Colours as people with and without colour blindness see them: CIEDE2000 differences, and WCAG contrast.

Colour blindness is simulated with the matrices of Machado, Oliveira and Fernandes (2009), severity 1.0, on
linear RGB. The difference is CIEDE2000 in the notation of Sharma, Wu and Dalal (2005).
"""

from __future__ import annotations

import math

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]

VISION: dict[str, Matrix] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TO_XYZ: Matrix = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
WHITE = (0.95047, 1.0, 1.08883)


def linear_rgb(colour: str) -> Triple:
    """Return the linear RGB of ``#rrggbb``."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def _times(matrix: Matrix, vector: Triple) -> Triple:
    first, second, third = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return first, second, third


def lab(colour: str, vision: str = "normal") -> Triple:
    """Return the colour in CIELAB (D65) as a person with this vision sees it."""
    red, green, blue = (min(1.0, max(0.0, value)) for value in _times(VISION[vision], linear_rgb(colour)))
    x, y, z = (_root(v / w) for v, w in zip(_times(TO_XYZ, (red, green, blue)), WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _root(ratio: float) -> float:
    return float(ratio ** (1 / 3)) if ratio > 216 / 24389 else (24389 / 27 * ratio + 16) / 116


def ciede2000(one: Triple, other: Triple) -> float:
    """Return the difference between two colours in CIELAB."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_chroma7 = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    g = 0.5 * (1 - math.sqrt(mean_chroma7 / (mean_chroma7 + 25**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 if a or b else 0.0 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    if turn == -180 and h2 > h1:
        turn = 180.0
    d_hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    if c1 * c2 == 0:
        hue = h1 + h2
    elif abs(h1 - h2) <= 180:
        hue = (h1 + h2) / 2
    else:
        hue = (h1 + h2 + (360 if h1 + h2 < 360 else -360)) / 2
    t = (
        1
        - 0.17 * math.cos(math.radians(hue - 30))
        + 0.24 * math.cos(math.radians(2 * hue))
        + 0.32 * math.cos(math.radians(3 * hue + 6))
        - 0.20 * math.cos(math.radians(4 * hue - 63))
    )
    s_l = 1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    r_c = 2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    r_t = -math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2)))) * r_c
    terms = ((l2 - l1) / s_l, (c2 - c1) / s_c, d_hue / s_h)
    return math.sqrt(sum(term * term for term in terms) + r_t * terms[1] * terms[2])


def difference(one: str, other: str, vision: str) -> float:
    """Return the difference between two colours as a person with this vision sees them."""
    return ciede2000(lab(one, vision), lab(other, vision))


def contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG 2: from 1 (equal) to 21 (black on white)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear_rgb(colour), strict=True))
