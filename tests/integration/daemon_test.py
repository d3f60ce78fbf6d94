#!/usr/bin/env python3
"""larder-node as people run it: real processes, real ports, bad input, signals.

    tests/integration/daemon_test.py [NAME...]   LARDER_BIN is the folder of the programs (build/release/bin)
"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import unittest

from daemon import CLEAN_ENV, CTL, Case, NODE, PATIENCE_S, ROOT, run, until


class Configuration(Case):
    def test_prints_version_help_and_reference(self):
        self.assertRegex(run(NODE, "--version").stdout.decode(), r"^larder-node \d+\.\d+\.\d+ ")
        self.assertIn("--ticket-stall", run(NODE, "--help").stdout.decode())
        reference = run(NODE, "--print-reference").stdout.decode()
        self.assertEqual(reference, (ROOT / "node/CONFIG.md").read_text())

    def test_print_config_is_a_config_file(self):
        first = run(NODE, "--print-config", "--memory", "96MiB", env={"LARDER_MOVERS": "3"})
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn(b"from LARDER_MOVERS", first.stdout)
        path = self.folder / "larder.toml"
        path.write_bytes(first.stdout)
        second = run(NODE, "--config", str(path), "--print-config")

        def strip(text):
            return [line for line in text.decode().splitlines() if line and not line.startswith("#")]
        self.assertEqual(strip(first.stdout), strip(second.stdout))

    def test_mistakes_are_one_line_and_exit_2(self):
        self.refused("--memroy", "1GiB", expect=["--memroy", "did you mean --memory?"])
        self.refused("--memory", "1Gib", expect=["--memory", "unknown unit"])
        self.refused("--ticket-stall", "5", expect=["--ticket-stall", "unit"])
        self.refused("--movers", "0", expect=["--movers", "1..64"])
        self.refused(expect=["LARDER_MEMROY", "LARDER_MEMORY"], env={"LARDER_MEMROY": "1GiB"})
        path = self.folder / "larder.toml"
        path.write_text("\nmemroy = '1GiB'\n")
        self.refused("--config", str(path), expect=[f"{path}:2", "did you mean memory?"])

    def test_memory_beyond_the_machine_says_how_much_there_is(self):
        self.refused("--memory", "63TiB", expect=["63TiB", "there is only", "GiB", "lower --memory"])

    def test_ports_in_use_are_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            for listener in ("data", "control", "http"):
                free = [word for other in ("data", "control", "http") if other != listener
                        for word in (f"--{other}-listen", "127.0.0.1:0")]
                self.refused("--memory", "64MiB", *free, f"--{listener}-listen", address,
                             expect=[f"{listener}_listen", address, "in use", f"--{listener}-listen"])

    def test_an_address_of_another_machine_is_refused(self):
        self.refused("--data-listen", "203.0.113.9:7400", expect=["data_listen", "203.0.113.9:7400"])

    def test_unwritable_places_are_refused(self):
        ports = ["--data-listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
                 "--memory", "64MiB"]
        self.refused(*ports, "--shm-path", "/proc/nowhere/x.sock", expect=["shm_path", "--shm false"])
        self.refused(*ports, "--report", "/nowhere/report.json", expect=["report", "/nowhere/report.json"])


class Serving(Case):
    def test_http_endpoints(self):
        node = self.node()
        self.assertEqual(node.http("/livez"), (200, "alive\n"))
        self.assertEqual(node.http("/readyz"), (200, "ready\n"))
        status, health = node.http("/healthz")
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(health)["status"], "ok")
        self.assertEqual(node.http("/nothing")[0], 404)
        self.assertEqual(node.http("/livez", "POST")[0], 405)

    def test_metrics_parse(self):
        text = self.node().http("/metrics")[1]
        sample = re.compile(r'([a-z][a-z0-9_]*)(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? [0-9.e+-]+')
        typed, seen = set(), set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                typed.add(line.split(" ")[2])
            elif not line.startswith("#"):
                match = sample.fullmatch(line)
                self.assertIsNotNone(match, line)
                self.assertIn(match[1], typed)
                self.assertNotIn((match[1], match[2]), seen)
                seen.add((match[1], match[2]))
        self.assertGreater(len(typed), 40)

    def test_the_log_says_where_it_serves(self):
        node = self.node("--log-format", "json")
        line = json.loads(node.log().splitlines()[-1])
        self.assertIn(node.report["data"], line["message"])
        self.assertEqual(line["level"], "info")

    def test_sigterm_and_sigint_exit_0_and_leave_nothing(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            node = self.node()
            self.assertEqual(node.end(number), 0, node.log())
            self.assertIn("stopped", node.log())
            self.assertFalse(node.report_path.exists())
            self.assertFalse((self.folder / "node.sock").exists())

    def test_garbage_on_every_port_harms_nothing(self):
        node = self.node()
        for port in ("data", "control", "http"):
            host, _, number = node.report[port].rpartition(":")
            for text in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096)):
                with socket.create_connection((host, int(number)), PATIENCE_S) as peer:
                    with contextlib.suppress(OSError):
                        peer.sendall(text)
        self.assertEqual(node.http("/readyz")[0], 200)
        self.assertEqual(node.ctl("status").returncode, 0)
        self.assertEqual(node.end(), 0, node.log())

    def test_who_connects_and_says_nothing_is_closed_on_every_port(self):
        node = self.node("--hello-timeout", "500ms")
        with contextlib.ExitStack() as stack:
            peers = []
            for port, begin in (("data", b""), ("data", b"LDR1"), ("control", b""), ("http", b""), ("http", b"GET /")):
                host, _, number = node.report[port].rpartition(":")
                peers.append(stack.enter_context(socket.create_connection((host, int(number)), PATIENCE_S)))
                peers[-1].sendall(begin)
            for peer in peers:
                peer.settimeout(PATIENCE_S)
                with contextlib.suppress(ConnectionResetError):
                    while peer.recv(4096):
                        pass
        self.assertEqual(node.metric("larder_hello_timeouts_total"), 2)
        self.assertEqual(node.http("/readyz")[0], 200)

    def test_kill_9_and_start_again_on_the_same_addresses(self):
        node = self.node()
        ports = {name: node.report[name] for name in ("data", "control", "http")}
        node.end(signal.SIGKILL)
        self.assertTrue((self.folder / "node.sock").exists(), "what a kill leaves behind must not be in the way")
        again = self.node(ports=ports)
        self.assertEqual(again.report["data"], ports["data"])
        self.assertEqual(again.ctl("ping", "-c", "1").returncode, 0)

    def test_sigterm_under_load_drains_and_exits_0(self):
        node = self.node("--memory", "256MiB")
        path = self.folder / "big"
        path.write_bytes(os.urandom(32 << 20))
        loads = [subprocess.Popen(["/bin/sh", "-c", 'i=0; while "$0" -e "$1" --timeout 5s put "$2" --name "$3.$i"; do '
                                   'i=$((i+1)); done', CTL, node.report["data"], str(path), str(number)],
                                  env=CLEAN_ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                 for number in range(2)]
        for load in loads:
            self.addCleanup(load.wait, PATIENCE_S)
            self.addCleanup(load.kill)
        until(lambda: node.metric('larder_puts_total{outcome="stored"}') > 40, "load")
        self.assertEqual(node.end(), 0, node.log())


if __name__ == "__main__":
    unittest.main()
