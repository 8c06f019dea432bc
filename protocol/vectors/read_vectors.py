#!/usr/bin/env python3
"""Reads the vectors by SPEC.md alone, with the standard library, and compares. Exit 1 on a difference.

Written as another implementer would: no code is shared with the Rust crate.
`read_vectors.py print` shows the fields of each frame.
"""
import json, struct, sys
from pathlib import Path

HERE = Path(__file__).parent
MASK = (1 << 64) - 1


def mix(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def partition(user, count):
    return ((mix((user + 0x9E3779B97F4A7C15) & MASK) >> 32) * count) >> 32


def fold(text):
    raw = text.encode()
    h = len(raw)
    for i in range(0, len(raw), 8):
        h = mix(h ^ int.from_bytes(raw[i : i + 8], "little"))
    return h & (1 << 62) - 1 | 1 << 62


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Short(Exception):
    pass


class Range(Exception):
    pass


class Reader:
    def __init__(self, data):
        self.data = data

    def take(self, n):
        if len(self.data) < n:
            raise Short
        head, self.data = self.data[:n], self.data[n:]
        return head

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def u8(self): return self.number("B")
    def u16(self): return self.number("H")
    def u32(self): return self.number("I")
    def u64(self): return self.number("Q")
    def i64(self): return self.number("q")

    def id(self):
        value = self.u64()
        if not 0 < value < 1 << 63:
            raise Range
        return value

    def text(self):
        return self.take(self.u16()).decode()

    def request(self):
        key, text = self.u64(), self.text()
        if text and fold(text) != key or not text and not 0 < key < 1 << 62:
            raise Range
        return text or str(key)

    def lines(self):
        count = self.u16()
        if count > 64:
            raise Range
        return [[self.id(), self.u32()] for _ in range(count)]


def reserve(r):
    f = {"sale": r.id(), "user": r.id(), "not_after": r.u64(), "request": r.request(), "lines": r.lines()}
    f["data"] = r.take(r.u16()).decode()
    return f


def return_units(r):
    f = {"order": r.id(), "restock": r.u8(), "right": r.u8(), "request": r.request()}
    f["lines"] = r.lines()
    return f


def reserve_reply(r):
    f = {"outcome": r.u16(), "again": r.u8()}
    r.take(5)
    f.update(order=r.u64(), expires_at=r.u64(), retry_after_ms=r.i64(), left=r.i64())
    return f


def order_reply(r):
    f = {"outcome": r.u16(), "state": r.u8()}
    r.take(5)
    f["order"] = r.u64()
    return f


def hello(r):
    f = {"version_min": r.u16(), "version_max": r.u16()}
    r.take(4)
    f.update(features=r.u64(), name=r.text(), token=r.text())
    return f


def welcome(r):
    f = {"version": r.u16(), "durability": r.u8()}
    r.take(1)
    f.update(body_bytes_max=r.u32(), features=r.u64(), epoch=r.u64(), server_time=r.u64())
    f.update(in_flight_max=r.u32(), partition_count=r.u16())
    f["ports"] = [r.u16() for _ in range(r.u16())]
    f["server"] = r.text()
    return f


def view(r):
    f = {"order": r.u64(), "state": r.u8(), "sale": r.u64(), "user": r.u64(), "expires_at": r.u64()}
    f.update(payment=r.text(), lines=r.lines(), returned=r.lines())
    return f


def sku_view(r):
    names = ["sku", "total", "free", "held", "confirmed", "state"]
    return dict(zip(names, [r.u64() for _ in names]))


def run(r):
    f = {"partition": r.u16()}
    r.take(6)
    f.update(first=r.u64(), last=r.u64())
    return f


def entries(r):
    f = run(r)
    length = r.u32()
    r.take(4)
    f["entries"] = [entry(e) for e in split_entries(r.take(length))]
    return f


def split_entries(data):
    while data:
        length = int.from_bytes(data[:4], "little")
        yield data[:length]
        data = data[length:]


def entry(data):
    r = Reader(data)
    f = {"len": r.u32(), "kind": r.u8(), "version": r.u8(), "partition": r.u16(), "lsn": r.u64(), "at": r.u64()}
    if f["kind"] in (1, 3):
        f.update(order=r.id(), sale=r.id(), user=r.id(), expires_at=r.u64(), request=r.request(), lines=r.lines())
        f["data"] = r.take(r.u16()).decode()
    elif f["kind"] == 2:
        f.update(order=r.id(), sale=r.u64(), user=r.u64(), payment=r.text())
    return f


BODIES = {
    0x01: hello,
    0x02: lambda r: {},
    0x10: reserve,
    0x11: lambda r: {"order": r.id(), "payment": r.text()},
    0x13: lambda r: {"sale": r.id(), "user": r.id(), "request": r.request()},
    0x15: return_units,
    0x34: lambda r: {"sale": r.id(), "sku": r.id(), "delta": r.i64(), "request": r.request()},
    0x42: lambda r: {"consumer": r.text(), "cursors": [[r.u16(), r.u64()] for _ in range(r.u16())]},
    0x8001: welcome,
    0x8010: reserve_reply,
    0x8011: order_reply,
    0x8020: view,
    0x8024: sku_view,
    0x8034: lambda r: {"outcome": r.u16(), "applied": r.i64(), "total": r.u64(), "free": r.u64()},
    0x4000: entries,
    0x4001: run,
    0xFFFF: lambda r: {"code": r.u16(), "message": r.text()},
}


def frame(data, limit=4 << 20):
    """What the bytes say: the fields, or one word for what is wrong."""
    if len(data) < 16:
        return "wait"
    length, kind, version, flags, correlation = struct.unpack("<IHBBQ", data[:16])
    if length > limit:
        return "too_large"
    if length % 8 or flags & ~1:
        return "header"
    body = data[16 : 16 + length]
    if len(body) < length:
        return "wait"
    if flags & 1:
        if length < 8:
            return "header"
        body, trailer = body[:-8], body[-8:]
        if struct.unpack("<II", trailer) != (crc32c(body), 0):
            return "header"
    if kind not in BODIES:
        return "unknown_kind"
    try:
        fields = BODIES[kind](Reader(body))
    except Short:
        return "protocol"
    except (Range, UnicodeDecodeError):
        return "out_of_range"
    return {"kind": kind, "version": version, "correlation": correlation, **fields}


def rows(name):
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield [part.strip() for part in line.split(" | ")]


def main():
    bad = 0
    for name, hexes, expected in rows("frames.txt"):
        found = frame(bytes.fromhex(hexes))
        if len(sys.argv) > 1:
            print(name, "|", hexes, "|", json.dumps(found))
        elif found != json.loads(expected):
            bad += 1
            print(f"{name}: {json.dumps(found)} instead of {expected}")
    for kind, *row in rows("routing.txt"):
        found = str(partition(int(row[0]), int(row[1])) if kind == "partition" else fold(row[0]))
        if found != row[-1]:
            bad += 1
            print(f"{kind} {row}: {found}")
    if bad:
        sys.exit(1)
    print("vectors read")


if __name__ == "__main__":
    main()
