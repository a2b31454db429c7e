"""Small SVG scatter plots with the same bytes for the same points."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

SIZE, MARGIN = 360, 46
POINT = tuple[float, float]


def scatter_svg(title: str, unit: str, points: Sequence[POINT]) -> str:
    """Predicted over measured on logarithmic axes, with the diagonal and a band of 20 % around it."""
    low = floor(min(log10(value) for point in points for value in point))
    high = ceil(max(log10(value) for point in points for value in point))
    high = max(high, low + 1)

    def at(value: float) -> float:
        return MARGIN + (value - low) / (high - low) * (SIZE - 2 * MARGIN)

    def x(value: float) -> str:
        return f"{at(value):.1f}"

    def y(value: float) -> str:
        return f"{SIZE - at(value):.1f}"

    band = log10(1.2)
    marks = "".join(f"M{x(log10(m))} {y(log10(p))}h0" for m, p in sorted(set(points)))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" font-family="sans-serif" font-size="11">',
        f'<rect width="{SIZE}" height="{SIZE}" fill="#fff"/>',
        f'<text x="{SIZE / 2:.0f}" y="20" text-anchor="middle" font-size="13">{title}</text>',
        f'<path d="M{x(low)} {y(low)}L{x(high - band)} {y(high)}H{x(high)}V{y(high - band)}Z" fill="#dde6f0"/>',
        f'<path d="M{x(low)} {y(low)}L{x(high)} {y(high)}" stroke="#789" fill="none"/>',
        f'<path d="M{x(low)} {y(high)}V{y(low)}H{x(high)}" stroke="#333" fill="none"/>',
    ]
    for power in range(low, high + 1):
        label = f"{10.0**power:g}"
        lines.append(f'<text x="{x(power)}" y="{SIZE - MARGIN + 15}" text-anchor="middle">{label}</text>')
        lines.append(
            f'<text x="{MARGIN - 5}" y="{y(power)}" text-anchor="end" dominant-baseline="middle">{label}</text>'
        )
    lines += [
        f'<path d="{marks}" stroke="#1f5fa8" stroke-opacity="0.45" stroke-width="3.5" stroke-linecap="round"/>',
        f'<text x="{SIZE / 2:.0f}" y="{SIZE - 10}" text-anchor="middle">measured, {unit}</text>',
        f'<text transform="translate(13 {SIZE / 2:.0f}) rotate(-90)" text-anchor="middle">predicted</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
