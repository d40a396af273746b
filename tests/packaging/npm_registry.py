"""An npm registry on loopback that serves a few tarballs: what `npm install` and `npx` ask a registry for, no more."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import tarfile
import threading
import urllib.parse


class NpmRegistry(http.server.ThreadingHTTPServer):
    """Serves `tarballs`; counts what it is asked for in `requests`. While `gate` is clear, it stops amid each tarball."""

    daemon_threads = True

    def __init__(self, tarballs):
        super().__init__(("127.0.0.1", 0), RegistryHandler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.requests = []
        self.gate = threading.Event()
        self.gate.set()
        self.pages = {}
        for tarball in tarballs:
            content = tarball.read_bytes()
            self.pages[f"/tarballs/{tarball.name}"] = content
            self._publish(
                manifest_of(content), f"{self.url}tarballs/{tarball.name}", content
            )

    def _publish(self, manifest, address, content):
        sha512 = base64.b64encode(hashlib.sha512(content).digest()).decode()
        dist = {
            "tarball": address,
            "integrity": f"sha512-{sha512}",
            "shasum": hashlib.sha1(content).hexdigest(),
        }
        document = {
            "name": manifest["name"],
            "dist-tags": {"latest": manifest["version"]},
            "versions": {manifest["version"]: {**manifest, "dist": dist}},
        }
        self.pages[f"/{manifest['name']}"] = json.dumps(document).encode()


class RegistryHandler(http.server.BaseHTTPRequestHandler):
    """Answers with a page or 404."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urllib.parse.unquote(self.path)
        self.server.requests.append(path)
        page = self.server.pages.get(path)
        self.send_response(404 if page is None else 200)
        kind = "octet-stream" if path.startswith("/tarballs/") else "json"
        self.send_header("Content-Type", f"application/{kind}")
        body = b"{}" if page is None else page
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # Who is ended amid a download closes the connection.
        with contextlib.suppress(ConnectionError):
            middle = len(body) // 2 if path.startswith("/tarballs/") else 0
            self.wfile.write(body[:middle])
            if middle:
                self.server.gate.wait()
            self.wfile.write(body[middle:])

    def log_message(self, *_):
        """Requests are counted, not logged."""


def manifest_of(content):
    """The package.json in a tarball."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return json.load(archive.extractfile("package/package.json"))


@contextlib.contextmanager
def serving(tarballs):
    """A registry while the block runs."""
    registry = NpmRegistry(tarballs)
    thread = threading.Thread(target=registry.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        thread.join()
        registry.server_close()
