"""A picture with at most 256 colours: a page has few, and a repository keeps each picture for good.

The browser reads the pixels, which Python could only do with another package.
"""

import base64
import struct
import zlib

from playwright.sync_api import Page

COLOURS = 256
#: The colours used most that can be told apart, and of each pixel which of them it is nearest to. So edges of letters
#: share theirs, and what little there is of red and green keeps it.
INDEXED = """async ([source, most]) => {
    const image = new Image();
    image.src = `data:image/png;base64,${source}`;
    await image.decode();
    const {width, height} = image, canvas = Object.assign(document.createElement('canvas'), {width, height});
    canvas.getContext('2d').drawImage(image, 0, 0);
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer);
    const counts = new Map();
    for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
    const parts = colour => [colour & 255, colour >> 8 & 255, colour >> 16 & 255];
    const far = (one, other) => one.reduce((sum, part, at) => sum + (part - other[at]) ** 2, 0);
    const colours = [...counts].sort((a, b) => b[1] - a[1]).map(([colour]) => [colour, parts(colour)]);
    let palette = [], apart = 0;
    do {
        palette = [];
        for (const [, one] of colours) if (palette.every(other => far(one, other) > apart)) palette.push(one);
        apart = apart * 1.5 + 4;
    } while (palette.length > most);
    const nearest = one => palette.reduce((best, other, at) => far(one, other) < far(one, palette[best]) ? at : best, 0);
    const places = new Map(colours.map(([colour, one]) => [colour, nearest(one)]));
    const indices = Uint8Array.from(pixels, pixel => places.get(pixel)), reader = new FileReader();
    await new Promise(done => { reader.onload = done; reader.readAsDataURL(new Blob([indices])); });
    return {width, height, palette: palette.flat(), indices: reader.result.split(',')[1]};
}"""


def reduced(page: Page, png: bytes) -> bytes:
    """`page` is where it is worked out; it may be empty."""
    told = page.evaluate(INDEXED, [base64.b64encode(png).decode(), COLOURS])
    indices, width = base64.b64decode(told["indices"]), told["width"]
    lines = b"".join(b"\0" + indices[at : at + width] for at in range(0, len(indices), width))
    head = struct.pack(">IIBBBBB", width, told["height"], 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", head),
        (b"PLTE", bytes(told["palette"])),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
