"""A server that receives HTTP callbacks of nextfire and checks their signatures.

    pip install standardwebhooks
    export NEXTFIRE_WEBHOOK_SECRET=whsec_…
    python receiver.py 8080

It listens on the loopback interface only. A callback may arrive twice, so each execution id takes
effect once.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from standardwebhooks import Webhook, WebhookVerificationError

MAX_BODY = 1024 * 1024


class Receiver(BaseHTTPRequestHandler):
    """Responds 200 to a genuine callback, 401 to any other request."""

    webhook: Webhook
    seen: ClassVar[set[str]] = set()  # in a real service: a table with a unique key

    def do_POST(self) -> None:
        """Check the signature of the bytes that arrived, then work on them once."""
        size = int(self.headers.get("Content-Length", "0"))
        if size > MAX_BODY:
            self.reply(413, "too large")
            return
        body = self.rfile.read(size)
        try:
            self.webhook.verify(body, dict(self.headers.items()), json_parse=False)
        except WebhookVerificationError as error:
            self.reply(401, str(error))
            return
        execution = self.headers["Idempotency-Key"]
        if execution not in self.seen:
            self.seen.add(execution)
            print("received", execution, "attempt", self.headers["Nextfire-Attempt"], flush=True)
        self.reply(200, "ok")

    def reply(self, status: int, text: str) -> None:
        """Send a JSON response, which nextfire records as the result of the run."""
        data = json.dumps({"message": text}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: `do_POST` prints what was received."""


if __name__ == "__main__":
    Receiver.webhook = Webhook(os.environ["NEXTFIRE_WEBHOOK_SECRET"])
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with ThreadingHTTPServer(("127.0.0.1", port), Receiver) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
