"""A real gateway in a folder of its own, with the sandbox provider, which counts effects apart from its answers."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request

REFUND = "payments.refunds.create"


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def refund(order: str, amount: int = 200) -> dict:
    """The arguments of a refund of an order."""
    return {"payment": f"pay_demo_{order}", "amount": amount, "order_id": order}


class Gateway:
    """It keeps its addresses when it is started again."""

    def __init__(self) -> None:
        self.binary = os.environ["COUNTERFOIL_BIN"]
        self.folder = tempfile.mkdtemp(prefix="counterfoil-client-")
        self.listen = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.listen}"
        self.provider = f"http://127.0.0.1:{free_port()}"
        self.begin()

    def begin(self) -> None:
        sandbox = self.provider.removeprefix("http://")
        args = [self.binary, "serve", "--json", "--listen", self.listen, "--sandbox-listen", sandbox]
        self.process = subprocess.Popen(
            args, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the gateway did not start")
        self.ready = json.loads(line)

    def kill(self) -> None:
        """kill -9, by its own process id."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def arm(self, rule: dict) -> None:
        """Arms a fault at the provider."""
        request = urllib.request.Request(f"{self.provider}/_sandbox/rules", data=json.dumps(rule).encode(), method="POST")
        urllib.request.urlopen(request, timeout=10).close()

    def effects(self, order: str) -> int:
        """What really happened to an order."""
        with urllib.request.urlopen(f"{self.provider}/_sandbox/effects?object={order}", timeout=10) as response:
            return json.load(response)["total"]
