#!/usr/bin/env python3
"""larderctl as people run it, against real nodes.

    tests/integration/tool_test.py [NAME...]   LARDER_BIN is the folder of the programs (build/release/bin)
"""
import hashlib
import json
import os
import resource
import signal
import unittest

from daemon import CTL, Case, HAVE_UCX, NODE, PATIENCE_S, run, until


class Tool(Case):
    def test_status_and_ping_of_a_healthy_node(self):
        node = self.node("--node-id", "alpha")
        done = node.ctl("status", "--json")
        self.assertEqual(done.returncode, 0, done.stdout)
        status = json.loads(done.stdout)
        self.assertTrue(status["well"])
        self.assertEqual(status["nodes"][0]["id"], "alpha")
        self.assertEqual(status["nodes"][0]["health"], "SERVING")
        self.assertEqual(status["nodes"][0]["memory"]["capacity_bytes"], 64 << 20)
        self.assertIn("larder_puts_total{outcome=\"stored\"}", status["nodes"][0]["counters"])
        text = node.ctl("status").stdout.decode()
        self.assertIn("alpha", text)
        self.assertIn("serving", text)
        ping = json.loads(node.ctl("ping", "-c", "3", "-o", "json").stdout)
        self.assertEqual(ping["nodes"][0]["answered"], 3)

    def test_endpoints_come_from_the_environment(self):
        node = self.node()
        done = run(CTL, "status", env={"LARDER_ENDPOINTS": "127.0.0.1:1," + node.report["data"]})
        self.assertIn(node.report["node_id"], done.stdout.decode())

    def test_doctor_finds_nothing_then_a_dead_node(self):
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
            self.skipTest("this machine's limit of open files is a finding of its own")
        first = self.node(name="a")
        peers = f"a@{first.report['data']},"
        ports = {name: first.report[name] for name in ("data", "control", "http")}
        first.end()
        second = self.node("--node-id", "b", name="b")
        peers += f"b@{second.report['data']}"
        other_ports = {name: second.report[name] for name in ("data", "control", "http")}
        second.end()
        first = self.node("--node-id", "a", "--peers", peers, name="a", ports=ports)
        second = self.node("--node-id", "b", "--peers", peers, name="b", ports=other_ports)
        done = first.ctl("doctor", "--json")
        self.assertEqual(json.loads(done.stdout)["findings"], [])
        self.assertEqual(json.loads(done.stdout)["nodes"], 2)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(json.loads(first.ctl("status", "--json").stdout)["nodes"]), 2)
        second.end(signal.SIGKILL)
        done = first.ctl("doctor", "--json")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"b: data port {other_ports['data']}", json.loads(done.stdout)["findings"][0]["what"])
        # The same list with another weight: a table that differs.
        second = self.node("--node-id", "b", "--peers", peers + "*3", name="b", ports=other_ports)
        findings = json.loads(first.ctl("doctor", "--json").stdout)["findings"]
        self.assertIn("different node tables", findings[0]["what"])
        self.assertIn("table_epoch", findings[0]["mend"])

    def three_nodes(self):
        nodes = [self.node(name=name) for name in "abc"]
        peers = ",".join(f"{name}@{node.report['data']}" for name, node in zip("abc", nodes))
        for name, node in zip("abc", nodes):
            node.end()
            node.argv += ["--node-id", name, "--peers", peers, "--data-listen", node.report["data"]]
            node.start()
        return nodes

    def test_three_nodes_with_one_static_list_agree(self):
        """Each knows sockets and ports of itself alone; that was a skew of tables."""
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
            self.skipTest("this machine's limit of open files is a finding of its own")
        nodes = self.three_nodes()
        for node in nodes:
            done = node.ctl("doctor", "--json")
            self.assertEqual(json.loads(done.stdout)["findings"], [])
            self.assertEqual(done.returncode, 0)
        views = json.loads(nodes[0].ctl("status", "--json").stdout)["nodes"]
        self.assertEqual(len(views), 3)
        self.assertEqual(len({view["table_digest"] for view in views}), 1, views)

    def test_locate_and_top_see_every_node(self):
        nodes = self.three_nodes()
        key = json.loads(nodes[0].ctl("--json", "put", "-", "--name", "n", stdin=b"one").stdout)["hash"]
        done = nodes[1].ctl("--json", "locate", key)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["nodes"]
        self.assertEqual([node["rank"] for node in found], [1, 2, 3])
        self.assertEqual([node["presence"] for node in found], ["ram", "never-stored", "never-stored"])
        for node in nodes:  # also those that a static list names without a control address
            self.assertEqual(node.ctl("explain", key).returncode, 0)
        self.assertEqual(nodes[1].ctl("locate", "cd" * 32).returncode, 1)
        self.assertEqual(nodes[1].ctl("locate", "short").returncode, 2)
        done = nodes[2].ctl("--json", "top", "-n", "2", "-i", "100ms")
        self.assertEqual(done.returncode, 0, done.stderr)
        looks = [json.loads(line)["nodes"] for line in done.stdout.splitlines()]
        self.assertEqual([[node["id"] for node in look] for look in looks], [["a", "b", "c"]] * 2)
        self.assertEqual(sum(node["pieces"] for node in looks[1]), 2)  # the bytes, and what says whose they are
        self.assertTrue(all(node["seconds"] > 0 and node["rates"]["put_bytes_per_s"] == 0 for node in looks[1]))
        nodes[0].end(signal.SIGKILL)
        done = nodes[2].ctl("top", "-n", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"a ", done.stdout)
        self.assertEqual(nodes[2].ctl("top", "-i", "1ms").returncode, 2)

    def test_the_hot_list_tells_what_is_read_much(self):
        nodes = self.three_nodes()
        key = json.loads(nodes[0].ctl("--json", "put", "-", "--name", "n", stdin=b"one").stdout)["hash"]
        for _ in range(36):
            self.assertEqual(nodes[0].ctl("get", "n").stdout, b"one")

        def hot():
            views = json.loads(nodes[1].ctl("status", "--json").stdout)["nodes"]
            return {each["hash"]: each for view in views for each in view["hot"]}

        until(lambda: hot().get(key, {"copies": 0})["copies"] == 2, "copies on both others")
        self.assertGreaterEqual(hot()[key]["reads"], 32)
        self.assertIn(key.encode(), nodes[1].ctl("status").stdout)
        self.assertIn(b"2 copies", nodes[1].ctl("top", "-n", "1").stdout)
        cold = self.node("--hot-copies", "0", name="d")
        self.assertEqual(json.loads(cold.ctl("status", "--json").stdout)["nodes"][0]["hot"], [])

    def test_nobody_there_is_exit_1_with_one_line(self):
        for command in ("status", "ping", "doctor", "namespaces"):
            done = run(CTL, "-e", "127.0.0.1:1", "--timeout", "1s", command)
            self.assertEqual(done.returncode, 1, command)
        done = run(CTL, "-e", "127.0.0.1:1", "--timeout", "1s", "get", "x")
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1), done.stderr)

    def test_files_go_in_and_come_out(self):
        node = self.node("--memory", "128MiB")
        for size in (0, 1, 1 << 20, (20 << 20) + 12345):
            path, out = self.folder / f"file-{size}", self.folder / "out"
            path.write_bytes(os.urandom(size))
            put = json.loads(node.ctl("put", str(path), "--json").stdout)
            self.assertEqual(put["bytes"], size)
            got = node.ctl("get", path.name, "--out", str(out), "--json")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(json.loads(got.stdout)["verified_bytes"], size)
            self.assertEqual(json.loads(got.stdout)["hash"], put["hash"])
            self.assertEqual(out.read_bytes(), path.read_bytes())
        self.assertEqual(node.ctl("get", path.name).stdout, path.read_bytes())
        self.assertIn(b"was there already", node.ctl("put", str(path)).stdout)
        match = node.ctl("match", put["hash"], "--json")
        self.assertEqual(json.loads(match.stdout)["usable_length"], 1)

    def test_files_go_over_every_transport(self):
        """Over ucx the bytes move by UCX's own shared memory here; each transport's own counters show who carried."""
        node = self.node("--memory", "128MiB", *(["--ucx-listen", "127.0.0.1:0"] if HAVE_UCX else []))
        self.assertEqual(node.report["transports"], ["tcp", "shm"] + ["ucx"] * HAVE_UCX)
        size = 9 << 20
        for transport in node.report["transports"]:
            path, out = self.folder / f"over-{transport}", self.folder / "out"
            path.write_bytes(os.urandom(size))
            for argv in (("put", str(path)), ("get", path.name, "--out", str(out))):
                done = node.ctl("--transport", transport, "--timeout", "30s", *argv)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(out.read_bytes(), path.read_bytes())
            for direction in ("received", "sent"):
                moved = node.metric(f'larder_transport_{direction}_bytes_total{{transport="{transport}"}}')
                self.assertGreaterEqual(moved, size, f"{direction} over {transport}")
                self.assertLess(moved, 2 * size)
        self.assertEqual(node.end(), 0, node.log())

    def test_a_transport_that_is_not_there_is_a_line_that_says_so(self):
        node = self.node("--shm", "false")
        for transport in ("shm", "ucx"):
            done = node.ctl("--transport", transport, "--timeout", "3s", "put", "-", "--name", "n", stdin=b"x")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
            self.assertIn(b"offers no " + transport.encode(), done.stderr)

    def test_a_miss_says_why_and_is_exit_1(self):
        node = self.node()
        done = node.ctl("get", "nothing", "--out", str(self.folder / "out"))
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"never-stored", done.stderr)
        self.assertFalse((self.folder / "out").exists())
        done = node.ctl("match", "ab" * 32)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"never-stored", done.stdout)

    def test_explain_says_where_a_block_is_or_why_not(self):
        node = self.node()
        put = json.loads(node.ctl("--json", "put", "-", "--name", "n", stdin=b"one").stdout)
        key = put["hash"]
        done = node.ctl("--json", "explain", key, "ab" * 32)
        self.assertEqual(done.returncode, 1, done.stderr)
        there, missing = json.loads(done.stdout)["blocks"]
        self.assertEqual((there["presence"], missing["presence"]), ("ram", "never-stored"))
        self.assertEqual(there["pieces"][0]["payload_bytes"], 64)  # the file and what larderctl keeps with it
        self.assertGreater(there["pieces"][0]["created_unix_ms"], missing["remembers_since_unix_ms"])
        done = node.ctl("explain", key)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"ram (in memory)", done.stdout)
        hex_name = json.loads(node.ctl("--json", "namespaces").stdout)["namespaces"][0]["hex"]
        node.ctl("clear", hex_name)
        gone = json.loads(node.ctl("--json", "explain", key).stdout)["blocks"][0]
        self.assertEqual(gone["presence"], "cleared")
        done = node.ctl("explain", "not-hex")
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (2, 1))
        other = json.loads(node.ctl("--json", "explain", "--tenant", "nobody", key).stdout)["blocks"][0]
        self.assertEqual(other["presence"], "never-stored")

    def test_quarantine_and_bypass_hold_over_a_kill(self):
        path = self.folder / "credentials.toml"
        path.write_text("".join(f"[[credentials]]\nname = '{name}'\ntoken = '{name * 4}'\n"
                                for name in ("writer", "reader", "operator")))
        (self.folder / "ssd").mkdir()
        node = self.node("--credentials", str(path), "--ssd", str(self.folder / "ssd"), "--ssd-bytes", "64MiB",
                         "--ssd-segment-bytes", "4MiB")
        as_ = {name: {"LARDER_TOKEN": name * 4} for name in ("writer", "reader", "operator")}
        operate = lambda *argv: node.ctl("--json", *argv, env=as_["operator"])
        state = lambda done: json.loads(done.stdout)["nodes"][0]
        self.assertEqual(node.ctl("put", "-", "--name", "n", stdin=b"bad", env=as_["writer"]).returncode, 0)
        self.assertEqual(node.ctl("put", "-", "--name", "m", stdin=b"good", env=as_["reader"]).returncode, 0)
        self.assertEqual(node.ctl("get", "n", env=as_["reader"]).stdout, b"bad")
        done = operate("quarantine", "--writer", "writer", "--since", "1h")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(state(done)["dropped_pieces"], 0)
        self.assertTrue(state(done)["kept"])
        readers = state(done)["rules"][0]["readers"]
        self.assertEqual([each["credential"] for each in readers], [hashlib.sha256(b"reader").hexdigest()])
        done = node.ctl("get", "n", env=as_["reader"])
        self.assertIn(b"quarantined", done.stderr)
        self.assertEqual(node.ctl("put", "-", "--name", "o", stdin=b"x", env=as_["writer"]).returncode, 1)
        self.assertEqual(operate("bypass", "on").returncode, 0)
        self.assertIn(b"bypassed", node.ctl("get", "m", env=as_["reader"]).stderr)
        node.end(signal.SIGKILL)
        node.start()
        now = state(operate("quarantine", "list"))
        self.assertTrue(now["bypass"])
        self.assertEqual(len(now["rules"]), 1)
        self.assertEqual(operate("bypass", "off").returncode, 0)
        self.assertEqual(node.ctl("put", "-", "--name", "o", stdin=b"x", env=as_["writer"]).returncode, 1)
        self.assertEqual(operate("quarantine", "lift", "--writer", "reader").returncode, 1)
        self.assertEqual(operate("quarantine", "lift", "--writer", "writer").returncode, 0)
        self.assertEqual(node.ctl("put", "-", "--name", "o", stdin=b"x", env=as_["writer"]).returncode, 0)
        self.assertEqual(node.ctl("quarantine", "list").returncode, 1, "without a credential")
        self.assertEqual(operate("quarantine", "--writer", "writer").returncode, 2)
        self.assertEqual(operate("quarantine", "--writer", "writer", "--since", "soon").returncode, 2)

    def test_a_damaged_quarantine_file_is_refused_with_a_line(self):
        (self.folder / "state").mkdir()
        (self.folder / "state" / "quarantine").write_text("nonsense\n")
        done = run(NODE, "--memory", "64MiB", "--data-listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0",
                   "--http-listen", "127.0.0.1:0", "--shm", "false", "--state-dir", str(self.folder / "state"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"remove it to serve without", done.stderr)

    def test_other_bytes_under_a_name_are_refused(self):
        node = self.node()
        node.ctl("put", "-", "--name", "n", stdin=b"one")
        done = node.ctl("put", "-", "--name", "n", stdin=b"two")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"other bytes", done.stderr)
        self.assertEqual(node.ctl("get", "n").stdout, b"one")

    def test_namespaces_and_clear(self):
        node = self.node()
        node.ctl("put", "-", "--name", "n", "--tenant", "t", stdin=b"bytes")
        spaces = json.loads(node.ctl("namespaces", "--json").stdout)["namespaces"]
        self.assertEqual([(space["tenant"], space["blocks"]) for space in spaces], [("t", 2)])
        self.assertIn("kind=opaque", spaces[0]["identity"])
        self.assertEqual(node.ctl("get", "n").returncode, 1, "another tenant")
        self.assertEqual(node.ctl("clear", "0123").returncode, 2)
        self.assertEqual(node.ctl("clear", "0" * 64).returncode, 1)
        done = node.ctl("clear", spaces[0]["hex"][:12], "--json")
        self.assertEqual(json.loads(done.stdout)["removed_blocks"], 2)
        done = node.ctl("get", "n", "--tenant", "t")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cleared", done.stderr)

    def test_tenants_have_limits(self):
        path = self.folder / "tenants.toml"
        path.write_text("[[tenants]]\nname = 'brief'\nttl = '1s'\n"
                        "[[tenants]]\nname = 'none'\nquota = '0'\n"
                        "[[tenants]]\nname = '*'\nquota = '1MiB'\npinned = '64KiB'\npin_max = '1s'\n")
        node = self.node("--tenants", str(path))
        self.assertEqual(node.ctl("put", "-", "--name", "n", "--tenant", "brief", stdin=b"bytes").returncode, 0)
        until(lambda: b"expired" in node.ctl("get", "n", "--tenant", "brief").stderr, "its end")
        done = node.ctl("put", "-", "--name", "n", "--tenant", "none", stdin=b"bytes")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"quota", done.stderr)
        for name in "abc":
            done = node.ctl("put", "-", "--name", name, "--tenant", "t", stdin=os.urandom(600 << 10))
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(node.ctl("get", "c", "--tenant", "t").returncode, 0)
        self.assertIn(b"over-quota", node.ctl("get", "a", "--tenant", "t").stderr)
        listed = json.loads(node.ctl("namespaces", "--json").stdout)["tenants"]
        tenants = {tenant["tenant"]: tenant for tenant in listed}
        self.assertEqual(tenants["brief"]["ttl_ms"], 1000)
        self.assertEqual((tenants["none"]["quota_bytes"], tenants["none"]["used_bytes"]), (0, 0))
        self.assertEqual((tenants["t"]["quota_bytes"], tenants["t"]["pinned_max_bytes"]), (1 << 20, 64 << 10))
        self.assertGreater(tenants["t"]["used_bytes"], 600 << 10)
        self.assertIn(b"IN MEMORY", node.ctl("namespaces").stdout)
        metrics = node.http("/metrics")[1]
        self.assertRegex(metrics, r'larder_tenant_left_pieces_total{tenant="\*",reason="over-quota"} [1-9]')
        self.assertRegex(metrics, r'larder_tenant_puts_refused_total{tenant="none"} [1-9]')
        self.assertRegex(metrics, r'larder_misses_total{reason="over-quota"} [1-9]')
        self.assertRegex(metrics, r'larder_misses_total{reason="expired"} [1-9]')

    def test_a_drain_is_no_tenants_to_ask_for(self):
        path = self.folder / "credentials.toml"
        path.write_text("[[credentials]]\nname = 'prefill'\ntoken = '0123456789abcdef'\ntenant = 't'\n"
                        "[[credentials]]\nname = 'operator'\ntoken = 'fedcba9876543210'\n")
        node = self.node("--credentials", str(path))
        drain = ("--control", node.report["control"], "drain", node.report["node_id"])
        for token in ((), ("--token", "0123456789abcdef")):
            self.assertEqual(node.ctl(*drain, *token).returncode, 1)
        self.assertEqual(node.http("/readyz")[0], 200)
        done = node.ctl(*drain, "--token", "fedcba9876543210")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(node.process.wait(PATIENCE_S), 0)

    def test_credentials_hold(self):
        path = self.folder / "credentials.toml"
        path.write_text("[[credentials]]\nname = 'prefill'\ntoken = '0123456789abcdef'\ntenant = 't'\n"
                        "[[credentials]]\nname = 'other'\ntoken = 'fedcba9876543210'\ntenant = 'u'\n")
        node = self.node("--credentials", str(path))
        self.assertEqual(node.ctl("ping").returncode, 1)
        self.assertEqual(node.ctl("ping", "--token", "wrong").returncode, 1)
        right = {"LARDER_TOKEN": "0123456789abcdef"}
        self.assertEqual(node.ctl("ping", env=right).returncode, 0)
        self.assertEqual(node.ctl("put", "-", "--name", "n", "--tenant", "t", stdin=b"x", env=right).returncode, 0)
        self.assertEqual(node.ctl("put", "-", "--name", "n", "--tenant", "u", stdin=b"x", env=right).returncode, 1)
        control = ("--control", node.report["control"])
        spaces = json.loads(node.ctl(*control, "namespaces", "--json", env=right).stdout)["namespaces"]
        self.assertEqual([space["tenant"] for space in spaces], ["t"])
        strangers = node.ctl(*control, "namespaces")
        self.assertEqual(strangers.returncode, 1)
        self.assertIn(b"credential", strangers.stderr)
        self.assertEqual(node.ctl(*control, "clear", spaces[0]["hex"]).returncode, 1)
        other = {"LARDER_TOKEN": "fedcba9876543210"}
        self.assertEqual(json.loads(node.ctl("namespaces", "--json", env=other).stdout)["namespaces"], [])
        self.assertEqual(node.ctl("clear", spaces[0]["hex"], env=other).returncode, 1)
        self.assertEqual(node.ctl(*control, "clear", spaces[0]["hex"], env=right).returncode, 0)

    def test_sizing_says_what_the_literature_says(self):
        opt = json.loads(run(CTL, "sizing", "opt-13b", "--tokens", "2048", "--json").stdout)
        self.assertEqual((opt["bytes_per_token"], opt["bytes"]), (800 * 1024, 2048 * 800 * 1024))
        self.assertIn(b"800 KiB", run(CTL, "sizing", "opt-13b").stdout)
        self.assertIn(b"320 KiB", run(CTL, "sizing", "llama-3-70b").stdout)
        self.assertIn(b"-93.3 %", run(CTL, "sizing", "deepseek-v2", "--compare", "deepseek-67b").stdout)
        config = self.folder / "config.json"
        config.write_text('{"hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 40, '
                          '"torch_dtype": "float16"}')
        read = json.loads(run(CTL, "sizing", "--config", str(config), "--tokens", "2048", "--json").stdout)
        self.assertEqual(read["bytes_per_token"], 800 * 1024)

    def test_wrong_usage_is_exit_2_with_one_line(self):
        for argv in ([], ["nonsense"], ["status", "--nonsense"], ["sizing"], ["sizing", "no-such-model"], ["match"],
                     ["match", "xyz"], ["get"], ["put"], ["--timeout", "5", "status"], ["-o", "yaml", "status"],
                     ["clear"], ["sizing", "--config", "/nowhere"], ["put", "/nowhere"]):
            done = run(CTL, *argv)
            self.assertEqual(done.returncode, 2, argv)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertEqual(run(CTL, "--help").returncode, 0)
        self.assertEqual(run(CTL, "get", "--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
