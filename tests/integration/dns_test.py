#!/usr/bin/env python3
"""Nodes that know each other through DNS, as behind a headless Service: one control port on addresses of their own.

    tests/integration/dns_test.py [NAME...]   LARDER_BIN is the folder of the programs (build/release/bin)
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from daemon import CLEAN_ENV, NODE, PATIENCE_S, Case, run, until  # noqa: E402
from free_port import free_port  # noqa: E402
from name_server import NameServer  # noqa: E402

NAME = "nodes.larder.test"


class Dns(Case):
    def setUp(self):
        super().setUp()
        self.names = NameServer()
        self.addCleanup(self.names.close)
        self.names.addresses[NAME] = []
        self.port = free_port()

    def host(self, number):
        return f"127.0.7.{number}"

    def listed(self, *numbers):
        self.names.addresses[NAME] = [self.host(number) for number in numbers]

    def flags(self, number, *flags):
        host = self.host(number)
        return ("--membership", "dns", "--dns-name", f"{NAME}:{self.port}", "--dns-servers",
                self.names.address, "--dns-period", "300ms", "--dns-probe", "500ms", "--state-dir",
                str(self.folder / f"state-{number}"), "--node-id", f"n{number}", *flags), {
                    "data": host + ":0", "control": f"{host}:{self.port}", "http": host + ":0"}

    def member(self, number, *flags, name=None):
        flags, ports = self.flags(number, *flags)
        return self.node(*flags, name=name or f"n{number}", ports=ports)

    def three(self, *flags):
        nodes = []
        for number in (1, 2, 3):
            self.listed(*range(1, number + 1))
            nodes.append(self.member(number, *flags))
        self.all_see(nodes, 3)
        return nodes

    def health(self, node):
        return json.loads(node.http("/healthz")[1])

    def all_see(self, nodes, count):
        def same():
            views = [self.health(node) for node in nodes]
            return (all(view["table_nodes"] == count for view in views)
                    and len({view["table_epoch"] for view in views}) == 1)
        until(same, f"one table of {count}")

    def takes_everything(self, node):
        """The homes of 16 blocks all take theirs: with one of three gone, its share of them would fail."""
        return all(node.ctl("put", "-", "--name", f"{os.urandom(8).hex()}", stdin=b"bytes").returncode == 0
                   for _ in range(16))

    def kill(self, node):
        node.process.kill()
        node.process.wait(PATIENCE_S)

    def connected(self, node):
        return self.health(node)["membership"]["connected"]

    def test_three_nodes_find_each_other_and_serve_a_client(self):
        nodes = self.three()
        self.assertEqual(len(json.loads(nodes[0].ctl("status", "--json").stdout)["nodes"]), 3)
        self.assertNotIn(b"different node tables", nodes[0].ctl("doctor").stdout)
        content = os.urandom(100_000)
        put = nodes[1].ctl("put", "-", "--name", "one", stdin=content)
        self.assertEqual(put.returncode, 0, put.stderr)
        self.assertEqual(nodes[2].ctl("get", "one").stdout, content)
        until(lambda: all(node.metric("larder_membership_live") == 3 for node in nodes), "all heard of")
        self.assertEqual(nodes[0].metric("larder_membership_connected"), 1)

    def test_nodes_that_start_together_found_one_cluster(self):
        self.listed(1, 2, 3)
        started = []
        for number in (1, 2, 3):
            flags, ports = self.flags(number)
            argv = [NODE, "--memory", "64MiB", "--shm", "false", "--report", str(self.folder / f"t{number}")]
            for listener, address in ports.items():
                argv += [f"--{listener}-listen", address]
            process = subprocess.Popen(argv + list(flags), env=CLEAN_ENV, stderr=subprocess.DEVNULL)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            started.append(self.folder / f"t{number}")
        until(lambda: all(path.exists() for path in started), "all serve")

        def one_table():
            reports = [json.loads(path.read_text()) for path in started]
            out = [run(str(pathlib.Path(NODE).parent / "larderctl"), "-e", report["data"], "status", "--json")
                   for report in reports]
            nodes = [json.loads(each.stdout)["nodes"] for each in out]
            return [len(each) for each in nodes] == [3, 3, 3] and len(
                {node.get("table_epoch") for each in nodes for node in each}) == 1
        until(one_table, "one table")

    def test_one_joins_one_drains(self):
        nodes = self.three()
        self.listed(1, 2, 3, 4)
        nodes.append(self.member(4))
        self.all_see(nodes, 4)
        drained = nodes[0].ctl("drain", "n3", "--json")
        self.assertEqual(drained.returncode, 0, drained.stderr)
        self.assertEqual(nodes[2].process.wait(PATIENCE_S), 0)
        left = [nodes[0], nodes[1], nodes[3]]
        self.all_see(left, 3)  # at once, not after the grace of minutes
        nodes[2].start()
        self.all_see(nodes, 4)

    def test_a_killed_node_keeps_its_place_and_returns_under_a_new_incarnation(self):
        a, b, c = self.three()
        before = self.health(a)["table_epoch"]
        self.kill(c)
        until(lambda: self.health(a)["membership"]["live"] == 2, "n3 is missed")
        self.assertEqual(self.health(a)["table_epoch"], before)
        c.start()
        self.assertEqual(c.report["node_id"], "n3")
        until(lambda: self.health(a)["table_epoch"] > before, "n3 as it is now")
        self.all_see([a, b, c], 3)
        self.assertIn(c.report["data"], a.ctl("status", "--json").stdout.decode())

    def test_beyond_the_grace_others_become_home_unless_most_are_gone(self):
        a, b, c = self.three("--away-grace", "2s")
        before = self.health(a)["table_epoch"]
        self.kill(c)
        until(lambda: self.health(a)["table_epoch"] > before, "n3 away")
        self.assertEqual(self.health(a)["table_epoch"], before + 1)
        self.all_see([a, b], 3)
        self.assertTrue(self.takes_everything(a))
        c.start()
        self.all_see([a, b, c], 3)
        before = self.health(a)["table_epoch"]
        self.kill(b)
        self.kill(c)
        until(lambda: self.health(a)["membership"]["live"] == 1, "both missed")
        rounds = self.names.asked
        until(lambda: self.names.asked > rounds + 20, "longer than the grace")  # 20 times 300 ms
        self.assertEqual(self.health(a)["table_epoch"], before)

    def test_what_was_removed_beyond_the_grace_of_a_stopped_node_is_not_there_when_it_goes_on(self):
        a, b, c = self.three("--away-grace", "2s")
        names = [f"file {number}" for number in range(12)]
        for name in names:
            self.assertEqual(a.ctl("put", "-", "--name", name, stdin=os.urandom(1000)).returncode, 0)
        held = c.metric("larder_pieces")
        self.assertGreater(held, 0)
        before = self.health(a)["table_epoch"]
        c.process.send_signal(signal.SIGSTOP)
        self.addCleanup(c.process.send_signal, signal.SIGCONT)
        until(lambda: self.health(a)["table_epoch"] > before, "n3 away")
        self.all_see([a, b], 3)
        for name in names:
            self.assertEqual(a.ctl("remove", name).returncode, 0)
        c.process.send_signal(signal.SIGCONT)
        until(lambda: c.metric("larder_place_lost_pieces_total") == held, "nothing of it stays")
        self.all_see([a, b, c], 3)
        for name in names:
            self.assertEqual(a.ctl("get", name).returncode, 1, name)

    def test_dns_away_the_last_table_stays_also_for_who_restarts(self):
        nodes = a, b, c = self.three()
        self.names.silent = True
        until(lambda: not self.connected(a), "a notices")
        self.assertEqual(a.metric("larder_membership_connected"), 0)
        self.assertEqual(self.health(a)["status"], "ok")
        self.assertIn("Timeout", self.health(a)["membership"]["error"])
        self.kill(b)
        b.start()  # they know each other's addresses
        self.all_see(nodes, 3)
        before = self.health(a)["table_epoch"]
        for node in nodes:
            self.kill(node)
        a.start()  # alone, from what it kept
        self.assertEqual(self.health(a)["table_nodes"], 3)
        self.assertGreater(self.health(a)["table_epoch"], before)
        b.start()
        c.start()
        self.names.silent = False
        until(lambda: all(self.connected(node) for node in nodes), "DNS again")
        self.all_see(nodes, 3)

    def test_dns_answers_nothing_the_last_table_stays(self):
        a, b, c = self.three()
        before = self.health(a)["table_epoch"]
        self.listed()
        until(lambda: not self.connected(a), "a notices")
        self.assertIn("has no addresses", self.health(a)["membership"]["error"])
        self.assertEqual(self.health(a)["table_epoch"], before)
        drained = a.ctl("drain", "n2", "--json")  # and what they tell each other comes through
        self.assertEqual(drained.returncode, 0, drained.stderr)
        self.all_see([a, c], 2)

    def test_a_node_that_has_never_seen_the_cluster_waits_for_dns(self):
        self.names.silent = True
        self.listed(1)
        flags, ports = self.flags(1)
        argv = [NODE, "--memory", "64MiB", "--shm", "false", "--report", str(self.folder / "report")]
        for listener, address in ports.items():
            argv += [f"--{listener}-listen", address]
        process = subprocess.Popen(argv + list(flags), env=CLEAN_ENV, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until(lambda: self.names.asked > 2, "DNS is asked")
        self.assertFalse((self.folder / "report").exists())
        self.names.silent = False
        until(lambda: (self.folder / "report").exists(), "it serves")

    def test_an_address_where_there_is_no_node_holds_nobody_up(self):
        nodes = self.three()
        stranger = socket.create_server((self.host(9), self.port))  # takes connections and says nothing
        self.addCleanup(stranger.close)
        other_flags, ports = self.flags(8, "--cluster", "other")
        self.listed(8)
        self.node(*other_flags, name="other", ports=ports)
        self.listed(1, 2, 3, 8, 9)
        until(lambda: self.host(8) in self.health(nodes[0])["membership"]["error"], "it is said")
        self.assertIn("cluster other", self.health(nodes[0])["membership"]["error"])
        self.listed(1, 2, 3, 4, 8, 9)
        nodes.append(self.member(4))
        self.all_see(nodes, 4)

    def test_an_address_that_another_node_has_taken(self):
        a, b, c = self.three("--away-grace", "2s")
        self.kill(c)
        flags, ports = self.flags(3, "--away-grace", "2s")
        flags = list(flags)
        flags[flags.index("n3")] = "n5"
        flags[flags.index(str(self.folder / "state-3"))] = str(self.folder / "state-5")
        d = self.node(*flags, name="n5", ports=ports)
        self.all_see([a, b, d], 4)
        before = self.health(a)["table_epoch"]
        until(lambda: self.health(a)["table_epoch"] > before, "n3 away though its address answers")
        self.assertTrue(self.takes_everything(a))
        self.assertTrue(self.takes_everything(d))

    def test_an_id_in_use_is_refused_with_a_line(self):
        self.three()
        self.listed(1, 2, 3, 4)
        flags, ports = self.flags(4)
        flags = list(flags)
        flags[flags.index("n4")] = "n2"
        done = run(NODE, "--memory", "64MiB", "--shm", "false", "--data-listen", ports["data"], "--control-listen",
                   ports["control"], "--http-listen", ports["http"], *flags)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"another live node, at 127.0.7.2:", done.stderr)

    def test_srv_records_bring_the_port(self):
        service = "_control._tcp.larder.test"
        ports = {number: free_port() for number in (1, 2)}
        self.names.services[service] = [(port, f"h{number}.larder.test") for number, port in ports.items()]
        for number in ports:
            self.names.addresses[f"h{number}.larder.test"] = [self.host(number)]
        nodes = []
        for number, port in ports.items():
            flags, listeners = self.flags(number)
            flags = list(flags)
            flags[flags.index(f"{NAME}:{self.port}")] = service
            listeners["control"] = f"{self.host(number)}:{port}"
            nodes.append(self.node(*flags, name=f"n{number}", ports=listeners))
        self.all_see(nodes, 2)

    def test_nodes_show_each_other_their_credential(self):
        path = self.folder / "credentials.toml"
        path.write_text("[[credentials]]\nname = 'nodes'\ntoken = '0123456789abcdef'\n")
        nodes = self.three("--credentials", str(path))
        self.all_see(nodes, 3)
        other = self.folder / "other.toml"
        other.write_text("[[credentials]]\nname = 'nodes'\ntoken = 'fedcba9876543210'\n")
        flags, ports = self.flags(4, "--credentials", str(other))
        done = run(NODE, "--memory", "64MiB", "--shm", "false", "--data-listen", ports["data"], "--control-listen",
                   ports["control"], "--http-listen", ports["http"], *flags)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"credential", done.stderr)
        self.assertEqual(self.health(nodes[0])["table_nodes"], 3)

    def test_what_was_ruled_out_while_a_node_was_away_holds_before_it_serves_again(self):
        path = self.folder / "credentials.toml"
        path.write_text("".join(f"[[credentials]]\nname = '{name}'\ntoken = '{name * 4}'\n"
                                for name in ("operator", "writer")))
        operator = {"LARDER_TOKEN": "operator" * 4}
        a, _, c = self.three("--credentials", str(path))
        self.kill(c)
        a.ctl("quarantine", "--writer", "writer", "--since", "1h", env=operator)  # c does not answer: exit 1
        a.ctl("bypass", "on", env=operator)
        c.start()
        nodes = json.loads(c.ctl("--json", "quarantine", "list", env=operator).stdout)["nodes"]
        self.assertEqual([(each["bypass"], len(each["rules"])) for each in nodes], 3 * [(True, 1)], nodes)
        self.assertIn("1 rules heard of from other nodes", c.log())


if __name__ == "__main__":
    unittest.main()
