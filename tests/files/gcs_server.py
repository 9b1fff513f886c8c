"""Google's storage as far as reading goes: a server of this machine that lists objects and hands them out."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlparse


class Handler(BaseHTTPRequestHandler):
    bucket = ""
    objects: ClassVar[Mapping[str, bytes]] = {}

    def do_GET(self) -> None:
        place = urlparse(self.path)
        query = {name: values[0] for name, values in parse_qs(place.query).items()}
        of_bucket, _, rest = place.path.partition("/o")
        name = unquote(rest.lstrip("/"))
        if not of_bucket.endswith(f"/b/{self.bucket}"):
            self.answer(404, b"{}")
        elif name in self.objects and ("/download/" in place.path or query.get("alt") == "media"):
            self.media(self.objects[name])
        elif name in self.objects:
            self.answer(200, json.dumps(self.about(name)).encode())
        elif name:
            self.answer(404, b"{}")
        else:
            self.answer(200, json.dumps(self.listed(query)).encode())

    def about(self, name: str) -> dict[str, str]:
        content = self.objects[name]
        facts = {"kind": "storage#object", "name": name, "bucket": self.bucket, "size": str(len(content))}
        return {**facts, "generation": "1", "updated": "2026-01-01T00:00:00Z", "timeCreated": "2026-01-01T00:00:00Z"}

    def listed(self, query: Mapping[str, str]) -> dict[str, object]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        held = [name for name in self.objects if name.startswith(prefix)]
        below = {name for name in held if delimiter and delimiter in name[len(prefix) :]}
        folders = {prefix + name[len(prefix) :].partition(delimiter)[0] + delimiter for name in below if delimiter}
        return {"items": [self.about(name) for name in held if name not in below], "prefixes": sorted(folders)}

    def media(self, content: bytes) -> None:
        begin, _, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        self.answer(206 if "Range" in self.headers else 200, content[int(begin) : int(end) + 1 if end else None])

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(bucket: str, objects: Mapping[str, bytes]) -> Iterator[str]:
    """The server's address while it has these objects."""
    own = type("Own", (Handler,), {"bucket": bucket, "objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), own)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
