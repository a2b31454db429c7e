"""The Java class by which a master starts a driver: it has the run's tag as its name. Pure.

The master lists drivers by the name of their class, and by nothing else that a client may choose. Each submission
therefore has a class of its own, `tonnage.HOME.TOKEN.RUN`, whose `main` is that of org.apache.spark.deploy.SparkSubmit:
so a driver is found by its token whatever became of the answer, and while it waits for a worker too.

The format is that of the Java Virtual Machine Specification, chapter 4; version 49 (Java 5) needs no stack maps.
"""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Final

STARTED: Final = "org/apache/spark/deploy/SparkSubmit"
MAGIC, VERSION = 0xCAFEBABE, 49
PUBLIC_SUPER, PUBLIC_STATIC = 0x0021, 0x0009


def class_name(tag: str) -> str:
    """Of a run's tag. A colon would make an address of it.

    >>> class_name("tonnage:0a1b2c3d:0123456789ab:first.run")
    'tonnage.0a1b2c3d.0123456789ab.first.run'
    """
    return ".".join(tag.split(":", 3))


def tag_in(name: str) -> str:
    """The tag of a class's name; of any other name something that is no tag.

    >>> tag_in("tonnage.0a1b2c3d.0123456789ab.first.run")
    'tonnage:0a1b2c3d:0123456789ab:first.run'
    """
    return ":".join(name.split(".", 3))


def starter(tag: str) -> bytes:
    """A jar with the class: the same bytes for the same tag."""
    inside = class_name(tag).replace(".", "/")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{inside}.class"), _class(inside))
    return out.getvalue()


def _class(name: str) -> bytes:
    """`public class NAME { public static void main(String[] words) { SparkSubmit.main(words); } }`."""
    pool = [
        _text(name), b"\x07\x00\x01",  # 1, 2: this class
        _text("java/lang/Object"), b"\x07\x00\x03",  # 3, 4: what it extends
        _text(STARTED), b"\x07\x00\x05",  # 5, 6: what it calls
        _text("main"), _text("([Ljava/lang/String;)V"), b"\x0c\x00\x07\x00\x08",  # 7, 8, 9: the method's name and type
        b"\x0a\x00\x06\x00\x09", _text("Code"),  # 10: the method of the class; 11
    ]  # fmt: skip
    body = b"\x2a\xb8\x00\x0a\xb1"  # aload_0, invokestatic 10, return
    code = struct.pack(">HHI", 1, 1, len(body)) + body + struct.pack(">HH", 0, 0)
    method = struct.pack(">HHHHHI", PUBLIC_STATIC, 7, 8, 1, 11, len(code)) + code
    head = struct.pack(">IHHH", MAGIC, 0, VERSION, len(pool) + 1) + b"".join(pool)
    return head + struct.pack(">HHHHHH", PUBLIC_SUPER, 2, 4, 0, 0, 1) + method + struct.pack(">H", 0)


def _text(text: str) -> bytes:
    return b"\x01" + struct.pack(">H", len(text.encode())) + text.encode()
