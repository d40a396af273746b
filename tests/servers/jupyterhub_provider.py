"""A JupyterHub on loopback, without a proxy before it and without notebooks: only its users and their tokens.

Once it listens, it prints `{"api": …, "tokens": {…}}` as the only line on standard output. The tokens are `good` (the user
`alice`, for the service `ipybox`), `other` (for another service), `all` (for every service), and `service` (that of the
service itself). What comes on standard input, `revoke`, ends `good`, and is answered by a line `{}`.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import socket
import sys
import tempfile

from jupyterhub.app import JupyterHub
from jupyterhub.orm import APIToken
from jupyterhub.proxy import Proxy
from traitlets.config import Config


class NoProxy(Proxy):
    """Routes that lead nowhere."""

    should_start = False

    def __init__(self, **options):
        super().__init__(**options)
        self.routes = {}

    async def get_all_routes(self):
        return self.routes

    async def add_route(self, routespec, target, data):
        self.routes[routespec] = {
            "routespec": routespec,
            "target": target,
            "data": data,
        }

    async def delete_route(self, routespec):
        self.routes.pop(routespec, None)


def free_port():
    # The hub listens much later: no port that the system gives to others by itself.
    for port in random.sample(range(12_000, 32_000), 20_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def configured(port):
    config = Config()
    hub = config.JupyterHub
    hub.authenticator_class, hub.proxy_class = "dummy", NoProxy
    hub.hub_bind_url, hub.db_url = f"http://127.0.0.1:{port}", "sqlite:///:memory:"
    hub.bind_url = f"http://127.0.0.1:{port}"
    hub.cookie_secret, hub.log_level = os.urandom(32), logging.CRITICAL
    config.Authenticator.allowed_users = {"alice"}
    config.DummyAuthenticator.password = "pw"
    hub.load_groups = {"lab": {"users": ["alice"]}}
    redirect = "http://127.0.0.1/callback"
    hub.services = [
        {
            "name": name,
            "oauth_redirect_uri": redirect,
            "oauth_client_id": f"service-{name}",
            "api_token": f"the token of {name}".replace(" ", "-"),
        }
        for name in ("ipybox", "other")
    ]
    allowed = ["self", "access:services"]
    hub.load_roles = [{"name": "user", "scopes": allowed}]
    return config


async def main():
    # It writes a few files where it is.
    place = tempfile.TemporaryDirectory()
    os.chdir(place.name)
    port = free_port()
    app = JupyterHub.instance(config=configured(port))
    await app.initialize([])
    await app.start()
    alice = app.users["alice"]
    tokens = {
        name: alice.new_api_token(scopes=[scope])
        for name, scope in {
            "good": "access:services!service=ipybox",
            "other": "access:services!service=other",
            "all": "access:services",
        }.items()
    }
    tokens["service"] = "the-token-of-ipybox"
    api = f"http://127.0.0.1:{port}/hub/api"
    print(json.dumps({"api": api, "tokens": tokens}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        app.db.delete(APIToken.find(app.db, tokens["good"]))
        app.db.commit()
        print("{}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
