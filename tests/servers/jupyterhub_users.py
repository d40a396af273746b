"""A JupyterHub on loopback with its proxy, whose users have servers of their own: processes of whoever runs the tests.

Usage: jupyterhub_users.py HOME NODE PROXY KERNEL [HOST]. Users have subdomains of HOST, if it is given. It prints `{"url": …,
"api": …, "services": {…}}`: where the proxy is, where the Hub itself is, and the tokens of services: `tests` may do
everything, `ipybox` make tokens and users, `clerk` make tokens. Each line on standard input is a command that is answered by a line
`{}`: `stop hub`, `start hub`, and the same for `proxy`. At the end of standard input it kills all that it has started.

The users are made by its API. Servers of those whose names begin with `broken` never start, of those with `patient`
when there is a file `open` in HOME, and of those with `picky` with the option `profile`.

"""

import contextlib
import ctypes
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

PATIENCE = 300
PR_SET_CHILD_SUBREAPER = 36

CONFIG = """
import asyncio, json, os
from jupyterhub.spawner import SimpleLocalProcessSpawner

settings = json.loads(os.environ["HUB_SETTINGS"])


class FullLab(Exception):
    jupyterhub_message = "no seats are left in the lab"


class NoProfile(Exception):
    jupyterhub_message = "choose a profile: cpu or gpu"


class Spawner(SimpleLocalProcessSpawner):
    home_dir_template = settings["home"] + "/users/{username}"

    async def start(self):
        if self.user.name.startswith("broken"):
            raise FullLab()
        if self.user.name.startswith("picky") and self.user_options.get("profile") != "gpu":
            raise NoProfile()
        while self.user.name.startswith("patient") and not os.path.exists(settings["home"] + "/open"):
            await asyncio.sleep(0.05)
        return await super().start()

    async def progress(self):
        yield {"progress": 50, "message": "looking for a seat in the lab"}


hub = c.JupyterHub
hub.bind_url, hub.hub_bind_url = settings["proxy"], settings["hub"]
hub.db_url = "sqlite:///" + settings["home"] + "/hub.sqlite"
hub.cookie_secret = bytes.fromhex(settings["secret"])
hub.pid_file = settings["home"] + "/hub.pid"
hub.cleanup_servers = hub.cleanup_proxy = False
hub.allow_named_servers, hub.named_server_limit_per_user = True, 1
hub.authenticator_class, hub.spawner_class = "dummy", Spawner
hub.last_activity_interval = 1
# A request to start a server is answered when it has ended: its progress is told meanwhile.
hub.tornado_settings = {"slow_spawn_timeout": 600}
if settings["host"]:
    hub.subdomain_host = settings["subdomain_host"]
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = settings["api"]
c.ConfigurableHTTPProxy.auth_token = settings["secret"]
c.Authenticator.allow_all = True
hub.services = [
    {"name": name, "api_token": token} for name, token in settings["services"].items()
]
everything = ["admin:users", "admin:servers", "tokens", "access:servers"]
hub.load_roles = [
    {"name": "tests", "scopes": everything, "services": ["tests"]},
    # As docs/team.md says.
    {"name": "ipybox", "scopes": ["tokens", "admin:users"], "services": ["ipybox"]},
    {"name": "clerk", "scopes": ["tokens"], "services": ["clerk"]},
]
c.Spawner.cmd = [settings["singleuser"]]
c.Spawner.args = ["--allow-root", "--ZMQChannelsWebsocketConnection.limit_rate=False"]
c.Spawner.environment = {
    "JUPYTER_NO_CONFIG": "1",
    "JUPYTER_PATH": settings["home"] + "/data",
    "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",
}
c.Spawner.http_timeout = c.Spawner.start_timeout = 300
c.Spawner.poll_interval = 1
"""


def free_port():
    # Its program listens much later: no port that the system gives to others by itself.
    for port in random.sample(range(12_000, 32_000), 20_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


class Lab:
    def __init__(self, home, node, proxy, kernel, host=""):
        self.home, self.node, self.proxy_program = Path(home), node, proxy
        ports = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        self.secret = secrets.token_hex(32)
        names = ("tests", "ipybox", "clerk")
        self.services = {name: secrets.token_hex(32) for name in names}
        self.settings = {
            "home": home,
            "secret": self.secret,
            "services": self.services,
            "singleuser": str(Path(sys.executable).parent / "jupyterhub-singleuser"),
            **dict(zip(("proxy", "hub", "api"), ports)),
            "host": host,
        }
        self.settings["subdomain_host"] = self.settings["proxy"].replace(
            "127.0.0.1", host
        )
        spec = self.home / "data/kernels/python3"
        spec.mkdir(parents=True)
        argv = [kernel, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        text = {"argv": argv, "display_name": "python3", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(text))
        (self.home / "config.py").write_text(CONFIG)
        self.running = {}

    def run(self, name, command, **variables):
        with open(self.home / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                cwd=self.home,
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_for_hub(self):
        host = urlsplit(self.settings["proxy"]).netloc
        if self.settings["host"]:
            host = urlsplit(self.settings["subdomain_host"]).netloc
        self.wait("hub", self.settings["proxy"] + "/hub/api/", ("Host", host))

    def wait(self, name, url, *headers):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.running[name].poll() is not None:
                break
            with contextlib.suppress(OSError):
                urllib.request.urlopen(
                    urllib.request.Request(url, headers=dict(headers)), timeout=PATIENCE
                )
                return
            time.sleep(0.02)
        sys.exit(f"{name} does not answer:\n" + (self.home / f"{name}.log").read_text())

    def start(self, name):
        if name == "proxy":
            address, api = (self.settings[name].split(":") for name in ("proxy", "api"))
            command = [
                self.node,
                self.proxy_program,
                "--ip",
                "127.0.0.1",
                "--port",
                address[2],
                *(["--host-routing"] if self.settings["host"] else []),
            ]
            command += ["--api-ip", "127.0.0.1", "--api-port", api[2]]
            command += ["--error-target", self.settings["hub"] + "/hub/error"]
            self.run(name, command, CONFIGPROXY_AUTH_TOKEN=self.secret)
            self.wait(
                name,
                self.settings["api"] + "/api/routes",
                ("Authorization", f"token {self.secret}"),
            )
        else:
            program = Path(sys.executable).parent / "jupyterhub"
            command = [sys.executable, program, "-f", self.home / "config.py"]
            self.run(name, command, HUB_SETTINGS=json.dumps(self.settings))
            self.wait(name, self.settings["hub"] + "/hub/api/")

    def stop(self, name):
        self.running[name].kill()
        self.running.pop(name).wait()


def children(process):
    found = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in thread.read_text().split()]
    return found + [below for child in found for below in children(child)]


def end_all():
    """Those whose parents ended are ours by now."""
    while left := children(os.getpid()):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        reap()
        time.sleep(0.01)


def reap(*_):
    """A Hub that was restarted waits for the ends of its servers, which have become children of this process."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, reap)
    lab = Lab(*sys.argv[1:])
    try:
        lab.start("proxy")
        lab.start("hub")
        lab.wait_for_hub()
        ready = {
            "url": lab.settings["proxy"] + "/",
            "api": lab.settings["hub"] + "/hub/api/",
            "services": lab.services,
        }
        print(json.dumps(ready), flush=True)
        for line in sys.stdin:
            act, name = line.split()
            getattr(lab, act)(name)
            print("{}", flush=True)
    finally:
        end_all()
        shutil.rmtree(lab.home, ignore_errors=True)


if __name__ == "__main__":
    main()
