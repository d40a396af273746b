"""Draws the icon: a cell with its prompt, and three tools that it is connected to; and a sign for each tool of the server.

`draw.py FILE [--size PIXELS] [--sign NAME]` writes a PNG. Those in `src/faces/mcp_server/icons/` have 48 pixels, the signs 32. Standard library only; edges are smoothed by drawing larger and averaging.
"""

import argparse
import functools
import struct
import zlib

BACKGROUND = (24, 34, 56)
CELL = (246, 243, 235)
PROMPT = (214, 92, 52)
TOOLS = ((92, 178, 146), (236, 178, 72), (108, 156, 222))
UNIT = 64
"""The drawing's own coordinates go from 0 to this."""
SAMPLES = 4
"""The number of points that a pixel's colour is averaged from, along each side."""


def rounded(x, y, box, radius):
    """True if the point is in a box with round corners."""
    left, top, right, bottom = box
    if not (left <= x <= right and top <= y <= bottom):
        return False
    dx = max(left + radius - x, x - right + radius, 0)
    dy = max(top + radius - y, y - bottom + radius, 0)
    return dx * dx + dy * dy <= radius * radius


def on_line(x, y, start, end, width):
    """True if the point is on a line with round ends."""
    (ax, ay), (bx, by) = start, end
    length = (bx - ax) ** 2 + (by - ay) ** 2
    along = max(0, min(1, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length))
    dx, dy = x - ax - along * (bx - ax), y - ay - along * (by - ay)
    return dx * dx + dy * dy <= (width / 2) ** 2


def colour(x, y):
    """The colour of a point; `None` is nothing at all."""
    if not rounded(x, y, (0, 0, UNIT, UNIT), 14):
        return None
    for middle, tool in zip((16, 32, 48), TOOLS):
        if (x - 51) ** 2 + (y - middle) ** 2 <= 5.2**2:
            return tool
    if rounded(x, y, (8, 14, 36, 50), 5):
        if on_line(x, y, (14, 24), (20, 32), 3.6) or on_line(
            x, y, (20, 32), (14, 40), 3.6
        ):
            return PROMPT
        return PROMPT if on_line(x, y, (24, 40), (30, 40), 3.6) else CELL
    for middle, tool in zip((16, 32, 48), TOOLS):
        if on_line(x, y, (34, 32), (51, middle), 2.2):
            return tool
    return BACKGROUND


SIGNS = {
    # Each a colour and lines: from, to, width.
    "execute": (PROMPT, [((18, 18), (32, 32), 7), ((32, 32), (18, 46), 7), ((36, 46), (48, 46), 7)]),
    "register": (TOOLS[0], [((32, 16), (32, 48), 7), ((16, 32), (48, 32), 7)]),
    "install": (TOOLS[2], [((32, 14), (32, 38), 7), ((21, 28), (32, 39), 7), ((43, 28), (32, 39), 7), ((16, 50), (48, 50), 7)]),
    "reset": (TOOLS[1], [((20, 20), (44, 44), 7), ((44, 20), (20, 44), 7)]),
    "wait": (TOOLS[1], [((32, 14), (32, 34), 7), ((32, 34), (44, 42), 7)]),
}  # fmt: skip


def sign_colour(name, x, y):
    """The colour of a point of a tool's sign."""
    if not rounded(x, y, (0, 0, UNIT, UNIT), 14):
        return None
    colour, lines = SIGNS[name]
    if any(on_line(x, y, start, end, width) for start, end, width in lines):
        return CELL
    return colour


def pixel(column, row, size, colour):
    """The average over the pixel, as RGBA."""
    red = green = blue = seen = 0
    for sample in range(SAMPLES * SAMPLES):
        x = (column + (sample % SAMPLES + 0.5) / SAMPLES) * UNIT / size
        y = (row + (sample // SAMPLES + 0.5) / SAMPLES) * UNIT / size
        if found := colour(x, y):
            red, green, blue, seen = (
                red + found[0],
                green + found[1],
                blue + found[2],
                seen + 1,
            )
    if not seen:
        return bytes(4)
    return bytes((red // seen, green // seen, blue // seen, 255 * seen // SAMPLES**2))


def chunk(kind, content):
    """A chunk of a PNG file."""
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def png(size, colour):
    """The whole file."""
    # 8 bits for each of red, green, blue and alpha.
    header = struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)
    rows = (
        b"\0" + b"".join(pixel(column, row, size, colour) for column in range(size))
        for row in range(size)
    )
    pixels = zlib.compress(b"".join(rows), 9)
    signature = b"\x89PNG\r\n\x1a\n"
    return (
        signature
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--sign", choices=SIGNS)
    options = parser.parse_args()
    with open(options.file, "wb") as file:
        sign = options.sign and functools.partial(sign_colour, options.sign)
        file.write(png(options.size, sign or colour))


if __name__ == "__main__":
    main()
