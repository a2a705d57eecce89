import json
import os
import socket
import threading
import time
import unittest
import unittest.mock
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import counterfoil_client
from counterfoil_client import (
    AdmissionUnknown,
    BadArguments,
    Counterfoil,
    CounterfoilError,
    InDoubt,
    KeyConflict,
    Limited,
    NoAnswer,
    Refused,
    Unauthorized,
    Unavailable,
    UsageError,
)
from counterfoil_client.errors import BY_KIND, error_of

from .gateway import REFUND, Gateway, refund

DONE = (200, {"outcome": "result", "isError": False, "result": {"content": [{"type": "text", "text": "ok"}]}}, {})


class Scripted:
    """An HTTP server that answers with what it is given, in this order, and keeps what it was sent."""

    def __init__(self, answers):
        bodies = self.bodies = []
        self.quiet = threading.Event()
        quiet = self.quiet

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                bodies.append({**body, "authorization": self.headers.get("authorization")})
                answer = answers[min(len(bodies), len(answers)) - 1]
                if answer == "cut":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if answer == "hang":
                    quiet.wait(30)
                    return
                if answer == "trickle":
                    # A header without an end, each piece in time.
                    self.connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                    try:
                        for _ in range(120):
                            if quiet.wait(0.05):
                                break
                            self.connection.sendall(b"x")
                    except OSError:
                        pass
                    return
                status, document, headers = answer
                text = (document if isinstance(document, str) else json.dumps(document)).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", "content-length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.quiet.set()
        self.server.shutdown()
        self.server.server_close()


def coded(status, code):
    return (status, {"error": {"code": code, "message": "m"}}, {})


def error(status, kind, **more):
    return (status, {"outcome": "error", "error": {"kind": kind, "message": "m", "advice": "a", **more}}, {})


class WithAGateway(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway()
        cls.client = Counterfoil(cls.gateway.url)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.stop()

    def test_a_step_of_a_run_is_executed_once_however_often_the_run_is(self):
        first = self.client.exec(REFUND, refund("run"), operation="order-run")
        again = self.client.exec(REFUND, refund("run"), operation="order-run")
        self.assertFalse(first.replayed)
        self.assertTrue(again.replayed)
        self.assertEqual(again.operation_id, first.operation_id)
        self.assertEqual(again.structured, first.structured)
        # Wanted twice: two names.
        self.client.exec(REFUND, refund("run"), operation="order-run", step="one")
        self.client.exec(REFUND, refund("run"), operation="order-run", step="two")
        self.assertEqual(self.gateway.effects("run"), 3)
        # A named step does not change its arguments.
        with self.assertRaises(KeyConflict):
            self.client.exec(REFUND, refund("run", 300), operation="order-run", step="one")
        self.assertEqual(self.gateway.effects("run"), 3)

    def test_a_reply_of_the_provider_that_is_lost_is_one_effect(self):
        self.gateway.arm({"on": "POST /v1/refunds", "do": "apply_then_cut", "times": 1})
        done = self.client.exec(REFUND, refund("cut"), operation="order-cut")
        self.assertFalse(done.replayed)
        self.assertEqual(self.gateway.effects("cut"), 1)

    def test_a_gateway_that_is_killed_in_the_middle_is_one_effect(self):
        self.gateway.arm({"on": "POST /v1/refunds", "do": "apply_then_hang", "times": 1})
        came = []
        run = threading.Thread(
            target=lambda: came.append(self.client.exec(REFUND, refund("kill"), operation="order-kill"))
        )
        run.start()
        until = time.monotonic() + 10
        # The effect is there and nobody knows of it yet.
        while self.gateway.effects("kill") == 0:
            self.assertLess(time.monotonic(), until, "the request never arrived")
            time.sleep(0.025)
        self.gateway.kill()
        self.gateway.begin()
        run.join(60)
        self.assertEqual(len(came), 1)
        self.assertEqual(came[0].structured["payment"], "pay_demo_kill")
        self.assertEqual(self.gateway.effects("kill"), 1)

    def test_what_the_provider_refuses_is_a_result_and_kept(self):
        refused = []
        for _ in range(2):
            with self.assertRaises(Refused) as caught:
                self.client.exec(REFUND, refund("much", 1_000_001), operation="order-much")
            self.assertIn("amount_too_large", str(caught.exception))
            refused.append(caught.exception.result)
        self.assertEqual([r.replayed for r in refused], [False, True])

    def test_errors_are_told_apart(self):
        with self.assertRaises(UsageError) as caught:
            self.client.exec("no.such")
        self.assertEqual(caught.exception.kind, "unknown_method")
        with self.assertRaises(BadArguments):
            self.client.exec(REFUND, {"payment": 1})
        for wrong in ({"key": "a b"}, {"key": "k", "operation": "o"}, {"step": "s"}):
            with self.assertRaises(UsageError, msg=wrong):
                self.client.exec(REFUND, refund("x"), **wrong)
        self.assertEqual(self.gateway.effects("x"), 0)

    def test_every_kind_of_the_gateway_has_an_error_of_its_own(self):
        with urllib.request.urlopen(f"{self.gateway.url}/api/openapi.json", timeout=10) as response:
            document = json.load(response)
        kinds = document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["kind"]["enum"]
        self.assertGreaterEqual(len(kinds), 15)
        for kind in kinds:
            self.assertIn(kind, BY_KIND)
            self.assertIn(BY_KIND[kind].__name__, counterfoil_client.__all__)
            self.assertIs(type(error_of({"error": {"kind": kind, "message": "m"}}, 409)), BY_KIND[kind])

    def test_a_dry_run_shows_the_request_and_sends_nothing(self):
        shown = self.client.dry_run(REFUND, refund("dry"))
        self.assertTrue(shown["wouldSend"]["summary"].startswith("POST "))
        self.assertEqual(self.gateway.effects("dry"), 0)


class Alone(unittest.TestCase):
    def test_the_same_key_goes_with_every_send_and_only_what_is_safe_is_sent_again(self):
        lists = [
            ["cut", (502, "<html>bad gateway</html>", {}), (200, '{"outcome": "res', {}), DONE],
            [(200, "{}", {"content-length": "100", "connection": "close"}), error(503, "unavailable", retryAfterMs=1), DONE],
            [(503, {"error": {"code": "unavailable", "message": "draining"}}, {"retry-after": "0"}), DONE],
            [error(503, "admission_unknown"), error(409, "still_running", retryAfterMs=1), DONE],
        ]
        for answers in lists:
            with Scripted(answers) as server:
                done = Counterfoil(server.url, api_key="cfk_x").exec("a.b", {"n": 1})
                self.assertEqual(done.text, "ok")
                self.assertEqual(len(server.bodies), len(answers))
                self.assertEqual(len({b["key"] for b in server.bodies}), 1)
                self.assertRegex(server.bodies[0]["key"], "^[0-9a-f-]{36}$")
                self.assertTrue(all(b["authorization"] == "Bearer cfk_x" for b in server.bodies))
        for status, kind in [(409, "in_doubt"), (409, "twin"), (422, "key_conflict"), (403, "denied")]:
            with Scripted([error(status, kind, retryKey="op_1")]) as server:
                with self.assertRaises(BY_KIND[kind]) as caught:
                    Counterfoil(server.url).exec("a.b")
                self.assertEqual(caught.exception.retry_key, "op_1")
                self.assertEqual(len(server.bodies), 1)

    def test_a_pause_of_hours_is_the_callers_to_decide_about(self):
        with Scripted([error(429, "limited", retryAfterMs=3_600_000)]) as server:
            with self.assertRaises(Limited) as caught:
                Counterfoil(server.url).exec("a.b")
            self.assertEqual(caught.exception.retry_after, 3600)
            self.assertEqual(len(server.bodies), 1)

    def test_time_and_tries_end_it_and_say_what_is_safe(self):
        with Scripted(["hang"]) as server:
            with self.assertRaises(NoAnswer) as caught:
                Counterfoil(server.url, timeout=0.8, send_timeout=0.1).exec("a.b")
            self.assertIn("with this error's `key`, the same again is safe: nothing is done twice", str(caught.exception))
            self.assertEqual(caught.exception.key, server.bodies[0]["key"])
            self.assertGreaterEqual(len(server.bodies), 2)
        with Scripted(["cut"]) as server:
            with self.assertRaises(NoAnswer):
                Counterfoil(server.url, retries=2).exec("a.b", operation="o")
            self.assertEqual(len(server.bodies), 3)

    def failed(self, server, **options):
        """The error of an execution there."""
        with self.assertRaises(CounterfoilError) as caught:
            Counterfoil(server.url, **options).exec("a.b")
        return caught.exception

    def test_nothing_follows_a_redirect_and_it_is_asked_once(self):
        with Scripted([DONE]) as elsewhere:
            for status in (301, 302, 303, 307, 308):
                for location in (f"{elsewhere.url}/api/v1/exec", "http://[", "file:///etc/passwd"):
                    with Scripted([(status, "", {"location": location})]) as server:
                        error = self.failed(server, api_key="cfk_x")
                    self.assertEqual((error.kind, error.status), ("redirected", status))
                    self.assertEqual([b["key"] for b in server.bodies], [error.key])
            self.assertEqual(elsewhere.bodies, [])

    def test_every_error_has_the_key_that_was_sent_also_a_made_one(self):
        cases = [
            (["cut", error(503, "admission_unknown")], AdmissionUnknown),
            (["cut", error(503, "unavailable")], NoAnswer),
            (["cut", error(503, "unavailable", operationId="op_1")], Unavailable),
            ([error(503, "unavailable"), error(503, "unavailable")], Unavailable),
            ([coded(503, "unavailable")], Unavailable),
            (["cut", coded(500, "internal")], NoAnswer),
            (["cut", coded(504, "upstream_timeout")], NoAnswer),
            (["cut", (*coded(503, "unavailable")[:2], {"retry-after": "3600"})], NoAnswer),
            ([error(409, "in_doubt")], InDoubt),
            ([error(422, "key_conflict")], KeyConflict),
            ([error(409, "of_a_newer_version")], CounterfoilError),
            ([coded(401, "unauthorized")], Unauthorized),
            ([(404, "<html>", {})], NoAnswer),
            ([(404, "[" * 100_000, {})], NoAnswer),
            ([(200, {**DONE[1], "isError": True, "result": {"content": 1}}, {})], Refused),
        ]
        for answers, of in cases:
            with self.subTest(answers[-1][:1], of=of), Scripted(answers) as server:
                came = self.failed(server, retries=len(answers) - 1)
                self.assertIs(type(came), of)
                self.assertRegex(came.key, "^[0-9a-f-]{36}$")
                self.assertEqual([b["key"] for b in server.bodies], [came.key] * len(answers))
        with Scripted([error(409, "in_doubt")]) as server:
            with self.assertRaises(InDoubt) as caught:
                Counterfoil(server.url).exec("a.b", operation="o")
            self.assertIsNone(caught.exception.key)

    def test_nothing_ran_is_not_said_where_an_earlier_send_may_have(self):
        firsts = [
            "cut",
            (502, "<html>", {}),
            coded(500, "internal"),
            error(503, "admission_unknown"),
            error(409, "still_running", retryAfterMs=1),
        ]
        lasts = [
            (coded(401, "unauthorized"), Unauthorized),
            (coded(404, "unknown_method"), UsageError),
            (error(400, "bad_arguments"), BadArguments),
            (error(429, "limited", retryAfterMs=3_600_000), Limited),
            (error(503, "unavailable", retryAfterMs=3_600_000), Unavailable),
            ((*coded(503, "unavailable")[:2], {"retry-after": "3600"}), Unavailable),
            ((307, "", {"location": "/"}), CounterfoilError),
        ]
        for first in firsts:
            for last, of in lasts:
                with self.subTest(first=first, last=last), Scripted([first, last]) as server:
                    came = self.failed(server)
                    self.assertIs(type(came), NoAnswer)
                    self.assertEqual(came.kind, "no_answer")
                    self.assertIs(type(came.__cause__), of)
                    self.assertRegex(str(came), "^An earlier send got no clear answer; .* It may have been carried out\\.")
                    self.assertEqual([b["key"] for b in server.bodies], [came.key] * 2)
        # What says that nothing ran leaves the next one as it is.
        clear = [error(429, "limited", retryAfterMs=1), error(503, "unavailable", retryAfterMs=1), coded(503, "unavailable")]
        for first in clear:
            with self.subTest(first=first), Scripted([first, coded(401, "unauthorized")]) as server:
                self.assertIs(type(self.failed(server)), Unauthorized)

    def test_whatever_becomes_of_a_dry_run_is_an_error_of_this_client_and_says_that_nothing_is_sent(self):
        effect = "It may have taken effect."
        cases = [
            ("cut", NoAnswer),
            ("hang", NoAnswer),
            ((404, "<html>", {}), NoAnswer),
            ((502, "<html>", {}), NoAnswer),
            ((200, '{"outcome": "dry', {}), NoAnswer),
            ((500, {"error": {"code": "internal", "message": effect}}, {}), NoAnswer),
            ((504, {"error": {"code": "upstream_timeout", "message": effect}}, {}), NoAnswer),
            (coded(401, "unauthorized"), Unauthorized),
            (error(503, "unavailable"), Unavailable),
            ((*coded(503, "unavailable")[:2], {"retry-after": "7"}), Unavailable, 7.0),
            ((502, "<html>", {"retry-after": "3"}), NoAnswer, 3.0),
            (error(403, "of_a_newer_version"), CounterfoilError),
        ]
        for answer, of, *after in cases:
            with self.subTest(answer=answer), Scripted([answer]) as server:
                with self.assertRaises(CounterfoilError) as caught:
                    Counterfoil(server.url, send_timeout=0.5).dry_run("a.b")
                self.assertIs(type(caught.exception), of)
                self.assertEqual(caught.exception.retry_after, after[0] if after else None)
                self.assertNotIn("may have", str(caught.exception))
                if of is NoAnswer:
                    self.assertTrue(str(caught.exception).endswith("Nothing is sent by a dry run."))
                self.assertEqual(len(server.bodies), 1)
        with self.assertRaises(NoAnswer) as caught:
            Counterfoil("http://127.0.0.1:1").dry_run("a.b")
        self.assertIsInstance(caught.exception.__cause__, OSError)

    def test_no_operation_is_no_operation(self):
        with Scripted(["cut", DONE]) as server:
            Counterfoil(server.url).exec("a.b", operation=None, key=None, step=None)
            self.assertRegex(server.bodies[0]["key"], "^[0-9a-f-]{36}$")
            self.assertEqual(server.bodies[1]["key"], server.bodies[0]["key"])

    def test_large_results_are_read_and_larger_ones_are_not_asked_for_again(self):
        text = "x" * (20 << 20)
        with Scripted([(200, {**DONE[1], "result": {"content": [{"type": "text", "text": text}]}}, {})]) as server:
            self.assertEqual(len(Counterfoil(server.url).exec("a.b").text), len(text))
        with Scripted([(200, "x" * ((64 << 20) + 1), {})]) as server:
            came = self.failed(server)
            self.assertIs(type(came), NoAnswer)
            self.assertIn("larger than 64 MiB", str(came))
            self.assertEqual([b["key"] for b in server.bodies], [came.key])

    def test_what_trickles_in_ends_too(self):
        with Scripted(["trickle"]) as server:
            begun = time.monotonic()
            came = self.failed(server, send_timeout=0.5, retries=1)
            self.assertIs(type(came), NoAnswer)
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual(len(server.bodies), 2)

    def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(self):
        with Scripted([DONE]) as proxy, Scripted([DONE]) as server:
            env = {"HTTP_PROXY": proxy.url, "http_proxy": proxy.url, "NO_PROXY": "", "no_proxy": ""}
            with unittest.mock.patch.dict(os.environ, env):
                for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
                    Counterfoil(url, api_key="cfk_x").exec("a.b")
                self.assertEqual((len(server.bodies), len(proxy.bodies)), (2, 0))
                # Others are asked through it.
                Counterfoil("http://gateway.invalid").exec("a.b")
                self.assertEqual(len(proxy.bodies), 1)

    def test_times_that_are_none_are_refused_before_anything_is_sent(self):
        with Scripted([DONE]) as server:
            for timeout in (1234.5, 1e12, float("inf")):
                Counterfoil(server.url, timeout=timeout, send_timeout=timeout).exec("a.b")
            for wrong in (float("nan"), -1, "5"):
                for name in ("timeout", "send_timeout", "retries"):
                    with self.assertRaises(ValueError):
                        Counterfoil(server.url, **{name: wrong})
                with self.assertRaises(ValueError):
                    Counterfoil(server.url).exec("a.b", timeout=wrong)
            with self.assertRaises(ValueError):
                Counterfoil(server.url, api_key="a\nb")
            self.assertEqual(len(server.bodies), 3)

    def test_a_wrong_key_is_said(self):
        with Scripted([(401, {"error": {"code": "unauthorized", "message": "no"}}, {})]) as server:
            with self.assertRaises(Unauthorized):
                Counterfoil(server.url).exec("a.b")

    def test_what_is_no_json_is_refused_before_it_is_sent(self):
        with Scripted([DONE]) as server:
            for n in (float("nan"), float("inf"), float("-inf")):
                with self.assertRaises(ValueError):
                    Counterfoil(server.url).exec("a.b", {"list": [{"n": n}]})
            self.assertEqual(server.bodies, [])


if __name__ == "__main__":
    unittest.main()
