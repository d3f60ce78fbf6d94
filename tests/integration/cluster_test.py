#!/usr/bin/env python3
"""Nodes that know each other through a real etcd: joining, restarts, etcd away, what was missed meanwhile.

    tests/integration/cluster_test.py [NAME...]   LARDER_BIN is the folder of the programs (build/release/bin)
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import CLEAN_ENV, NODE, PATIENCE_S, run, until  # noqa: E402
from etcd_case import EtcdCase  # noqa: E402


class Cluster(EtcdCase):
    def test_three_nodes_find_each_other_and_serve_a_client(self):
        nodes = [self.node(name) for name in ("a", "b", "c")]
        for node in nodes:
            self.sees(node, 3)
        self.same_table(*nodes)
        report = nodes[0].ctl("doctor", "--json")
        self.assertNotIn(b"skew", report.stdout, report.stdout)
        status = json.loads(nodes[0].ctl("status", "--json").stdout)
        self.assertEqual(len(status["nodes"]), 3, status)
        block = self.folder / "block"
        block.write_bytes(os.urandom(100_000))
        put = nodes[1].ctl("put", "--name", "one", str(block))
        self.assertEqual(put.returncode, 0, put.stderr)
        back = self.folder / "back"
        got = nodes[2].ctl("get", "one", "--out", str(back))
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(back.read_bytes(), block.read_bytes())

    def test_what_was_ruled_out_while_a_node_was_away_holds_before_it_serves_again(self):
        path = self.folder / "credentials.toml"
        path.write_text("".join(f"[[credentials]]\nname = '{name}'\ntoken = '{name * 4}'\n"
                                for name in ("operator", "writer")))
        operator = {"LARDER_TOKEN": "operator" * 4}
        a, _, c = self.nodes_with_one_table("a", "b", "c", flags=("--credentials", str(path)))
        c.process.kill()
        c.process.wait()
        a.ctl("quarantine", "--writer", "writer", "--since", "1h", env=operator)  # c does not answer: exit 1
        c.start()
        nodes = json.loads(c.ctl("--json", "quarantine", "list", env=operator).stdout)["nodes"]
        self.assertEqual([len(each["rules"]) for each in nodes], [1, 1, 1], nodes)

    def test_a_node_keeps_its_id_and_place_over_a_kill(self):
        a, b = self.node("a"), self.node("b")
        self.sees(a, 2)
        name = b.report["node_id"]
        b.process.kill()
        b.process.wait()
        b.start()
        self.assertEqual(b.report["node_id"], name)
        self.assertTrue(name.startswith("node-"), name)
        self.sees(a, 2)
        self.sees(b, 2)
        self.same_table(a, b)

    def test_an_id_in_use_is_refused_with_a_line(self):
        a = self.node("a", "--node-id", "one")
        self.assertEqual(a.report["node_id"], "one")
        second = run(NODE, "--memory", "64MiB", "--data-listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0",
                     "--http-listen", "127.0.0.1:0", "--shm", "false", "--membership", "etcd", "--etcd-endpoints",
                     self.etcd.address, "--lease", "1s", "--node-id", "one")
        self.assertEqual(second.returncode, 2, second.stderr)
        self.assertIn(b"another live node", second.stderr)

    def test_with_etcd_away_a_node_restarts_with_its_last_table(self):
        a, b = self.node("a"), self.node("b")
        self.sees(a, 2)
        self.sees(b, 2)
        self.etcd.kill()
        until(lambda: not self.health(a)["membership"]["connected"], "a notices")
        self.assertEqual(a.metric("larder_membership_connected"), 0)
        self.assertEqual(self.health(a)["status"], "ok")
        b.process.kill()
        b.process.wait()
        b.start()
        self.assertEqual(self.health(b)["table_nodes"], 2)
        self.assertEqual(self.health(b)["status"], "ok")
        self.etcd.start()
        until(lambda: self.health(b)["membership"]["connected"], "b joins again")
        self.sees(b, 2)
        self.same_table(a, b)

    def test_a_node_that_has_never_seen_the_cluster_waits_and_can_be_stopped(self):
        self.etcd.kill()
        process = subprocess.Popen(
            [NODE, "--memory", "64MiB", "--data-listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", "--shm", "false", "--membership", "etcd", "--etcd-endpoints",
             self.etcd.address, "--report", str(self.folder / "report")], env=CLEAN_ENV, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(2)
        self.assertFalse((self.folder / "report").exists())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 0)

    def joined(self, *others):
        """A node c beside others, once all know it."""
        c = self.node("c", "--node-id", "c")
        for node in (*others, c):
            self.sees(node, len(others) + 1)
        self.same_table(*others, c)
        return c

    @staticmethod
    def came(node):
        return node.metric('larder_home_answers_total{kind="came"}')

    @staticmethod
    def asked(node):
        return node.metric("larder_home_questions_total")

    def test_what_was_a_hit_stays_one_when_a_node_joins_and_comes_home(self):
        a, b = self.nodes_with_one_table("a", "b")
        self.put_files(a)
        blocks = a.metric("larder_pieces") + b.metric("larder_pieces")
        c = self.joined(a, b)
        self.assertGreater(c.metric("larder_moved_slots"), 65536 / 4)
        self.assertEqual(self.missing(b), [])
        came = self.came(c)
        self.assertGreater(came, 0)
        self.assertLess(came, blocks)
        self.assertEqual(came, c.metric("larder_pieces"))
        self.assertEqual(came, a.metric("larder_given_blocks_total") + b.metric("larder_given_blocks_total"))
        self.assertEqual(c.metric('larder_home_answers_total{kind="corrupt"}'), 0)
        asked = self.asked(c)
        self.assertEqual(self.missing(a), [])  # from where they belong now
        self.assertEqual((self.came(c), self.asked(c)), (came, asked))
        self.assertEqual(self.asked(a) + self.asked(b), 0)
        status = c.ctl("status").stdout.decode()
        self.assertIn(f"slots moved here; {int(came)} blocks", status)

    def test_a_previous_home_that_is_killed_costs_its_blocks_and_no_more(self):
        a, b = self.nodes_with_one_table("a", "b")
        self.put_files(a)
        c = self.joined(a, b)
        half = dict(list(self.files.items())[:6])
        files, self.files = self.files, half
        self.assertEqual(self.missing(b), [])
        came = self.came(c)
        a.process.kill()
        a.process.wait()
        self.files = files
        lost = self.missing(b)  # each get ends, and what it brings is right
        self.assertGreater(len(lost), 0)
        self.assertGreaterEqual(self.came(c), came)
        self.assertEqual(self.health(c)["status"], "ok")

    def test_a_node_that_came_back_empty_is_known_to_be_empty(self):
        a, b = self.nodes_with_one_table("a", "b")
        self.put_files(a)
        for node in (a, b):
            node.process.kill()
            node.process.wait()
            node.start()
        self.sees(a, 2)
        self.sees(b, 2)
        self.same_table(a, b)
        self.assertEqual(len(self.missing(a)), len(self.files))
        self.assertEqual(self.asked(a) + self.asked(b), 0)  # they kept their places: nothing has moved
        c = self.joined(a, b)
        self.assertEqual(len(self.missing(a)), len(self.files))
        asked = self.asked(c)
        for _ in range(5):
            self.assertEqual(len(self.missing(b)), len(self.files))
        self.assertEqual(self.asked(c), asked)

    def test_a_drained_node_that_returns_gets_its_blocks_back(self):
        a, b, c = self.three_with_files()
        blocks = c.metric("larder_pieces")
        self.assertEqual(a.ctl("drain", "c").returncode, 0)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)
        for node in (a, b):
            self.sees(node, 2)
        c.start()
        for node in (a, b, c):
            self.sees(node, 3)
        self.same_table(a, b, c)
        self.assertEqual(self.missing(a), [])
        self.assertEqual(c.metric("larder_pieces"), blocks)
        self.assertEqual(self.came(c), blocks)

    def test_any_node_answers_a_router_for_the_cluster(self):
        nodes = self.three_with_files(files=1)
        hashes = [os.urandom(32).hex() for _ in range(60)]
        how = ("--field", "kind=opaque", "--field", "model=m", "--tenant", "t")
        for number, block in enumerate(hashes[:50]):
            put = nodes[0].ctl("put", "-", "--hash", block, *how, stdin=os.urandom(100 + number))
            self.assertEqual(put.returncode, 0, put.stderr)
        chain = self.folder / "chain"
        chain.write_text(" ".join(hashes))

        def ask(node):
            answer = nodes[0].ctl("match", "--hashes", str(chain), *how, "--node", node.report["node_id"], "--json")
            self.assertIn(answer.returncode, (0, 1), answer.stderr)
            return json.loads(answer.stdout)
        answers = [ask(node) for node in nodes]
        for answer in answers:
            self.assertEqual(answer["leading"], 50)
            self.assertEqual([block["presence"] for block in answer["blocks"]], ["ram"] * 50 + ["never-stored"] * 10)
            self.assertEqual({node["id"] for node in answer["nodes"]}, {"a", "b", "c"})
            self.assertEqual(answer["blocks"], answers[0]["blocks"])
        nodes[2].process.kill()
        nodes[2].process.wait()
        answer = ask(nodes[1])
        for before, block in zip(answers[0]["blocks"], answer["blocks"]):
            self.assertEqual(block["presence"], "unreachable" if block["home"] == "c" else before["presence"])
        errors = {node["id"]: node.get("error") for node in answer["nodes"]}
        self.assertTrue(errors["c"], errors)
        self.assertIsNone(errors["a"], errors)

    def test_copies_of_a_killed_node_come_back_on_the_others(self):
        tenants = self.folder / "tenants.toml"
        tenants.write_text("[[tenants]]\nname = '*'\nreplicas = '2'\n")
        a, b, c = self.nodes_with_one_table("a", "b", "c", flags=("--tenants", str(tenants), "--away-grace", "2s"))
        files = {f"file {number}": os.urandom(700_000) for number in range(8)}
        for name, content in files.items():
            put = a.ctl("put", "-", "--name", name, "--replicas", "2", stdin=content)
            self.assertEqual(put.returncode, 0, put.stderr)
        copies = sum(node.metric("larder_pieces") for node in (a, b, c))
        lost = c.metric("larder_pieces")
        self.assertGreater(lost, 0)
        c.process.kill()
        c.process.wait()
        until(lambda: a.metric("larder_pieces") + b.metric("larder_pieces") == copies, "as many copies as before")
        until(lambda: a.metric("larder_restored_total") + b.metric("larder_restored_total") == lost, "each once")
        for node in (a, b):
            until(lambda: node.metric("larder_under_replicated") == 0, "nothing left to restore")
        b.process.kill()
        b.process.wait()
        for name, content in files.items():
            got = a.ctl("get", name, "--replicas", "2")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(got.stdout, content)

    def state(self, asked, node):
        status = json.loads(asked.ctl("status", "--json").stdout)
        return {each["id"]: each.get("state") for each in status["nodes"]}.get(node.report["node_id"])

    def remove(self, node, names):
        for name in names:
            removed = node.ctl("remove", name, *self.files[name][1])
            self.assertEqual(removed.returncode, 0, removed.stderr)

    def all_missed(self, node, names):
        """Each of them is a miss, for a good reason."""
        for name in names:
            got = node.ctl("get", name, *self.files[name][1])
            self.assertEqual((got.returncode, got.stdout), (1, b""), name)
            self.assertIn(b"a miss", got.stderr)

    def test_what_was_removed_while_a_node_was_stopped_is_not_there_when_it_is_back(self):
        a, b, c = self.three_with_files("--away-grace", "2s")
        held = c.metric("larder_pieces")
        self.assertGreater(held, 0)
        c.process.send_signal(signal.SIGSTOP)
        self.addCleanup(c.process.send_signal, signal.SIGCONT)
        until(lambda: self.state(a, c) == "away", "c is away")
        until(lambda: self.state(b, c) == "away", "c is away")
        gone = list(self.files)[:6]
        self.remove(a, gone)
        c.process.send_signal(signal.SIGCONT)
        until(lambda: self.state(a, c) == "serving", "c is back")
        self.same_table(a, b, c)
        self.all_missed(a, gone)
        self.missing(c)
        until(lambda: c.metric("larder_place_lost_pieces_total") == held, "nothing of it stays")

    def test_what_was_removed_at_a_node_that_joined_and_left_is_not_there_again(self):
        a, b = self.nodes_with_one_table("a", "b")
        self.put_files(a)
        c = self.joined(a, b)
        gone = list(self.files)[:6]
        self.remove(b, gone)
        drained = a.ctl("drain", "c")
        self.assertEqual(drained.returncode, 0, drained.stderr)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)
        for node in (a, b):
            self.sees(node, 2)
        self.all_missed(a, gone)
        self.all_missed(b, gone)
        self.missing(a)

    def ssd_node(self, name, *flags):
        return self.node(name, "--node-id", name, "--ssd", str(self.folder / ("ssd-" + name)), "--ssd-bytes", "256MiB",
                         "--ssd-segment-bytes", "16MiB", *flags)

    def test_a_node_that_was_away_brings_nothing_up_from_ssd_that_was_removed_meanwhile(self):
        a, b = (self.ssd_node(name, "--away-grace", "3s") for name in ("a", "b"))
        c = self.node("c", "--node-id", "c", "--away-grace", "3s")
        for node in (a, b, c):
            self.sees(node, 3)
        self.same_table(a, b, c)
        self.put_files(a)
        self.assertEqual(b.end(), 0)  # what it holds goes to SSD
        b.start()
        self.same_table(a, b, c)
        kept = until(lambda: b.metric("larder_ssd_pieces"), "what b kept")
        self.assertEqual(self.missing(a), [])  # a restart within the grace is warm
        self.assertEqual(b.metric("larder_place_lost_pieces_total"), 0)
        self.assertEqual(b.end(), 0)
        until(lambda: self.state(a, b) == "away", "b is away")
        until(lambda: self.state(c, b) == "away", "b is away")
        gone = list(self.files)[:6]
        self.remove(a, gone)
        b.start()
        self.same_table(a, b, c)
        self.all_missed(a, gone)
        until(lambda: b.metric("larder_place_lost_pieces_total") >= kept, "nothing of it stays")
        self.assertEqual(b.metric("larder_ssd_pieces"), 0)

    def put_one(self, node, model):
        """A block of a namespace of its own, on whichever node it belongs to."""
        how = ("--field", "kind=opaque", "--field", "model=" + model)
        names = [f"{model} {number}" for number in range(12)]
        for name in names:
            put = node.ctl("put", "-", "--name", name, *how, stdin=os.urandom(100_000))
            self.assertEqual(put.returncode, 0, put.stderr)
        return names, how

    def hits(self, node, names, how):
        return [name for name in names if node.ctl("get", name, *how).returncode == 0]

    def test_a_namespace_that_was_cleared_while_a_node_was_down_is_not_there_when_it_is_back(self):
        a, b = (self.ssd_node(name) for name in ("a", "b"))
        for node in (a, b):
            self.sees(node, 2)
        self.same_table(a, b)
        cleared, kept = self.put_one(a, "cleared"), self.put_one(a, "kept")
        self.assertEqual(b.end(), 0)  # what it holds goes to SSD
        spaces = json.loads(a.ctl("namespaces", "--json").stdout)["namespaces"]
        hex_of = {model: space["hex"] for space in spaces for model in ("cleared", "kept") if model in space["identity"]}
        done = a.ctl("clear", hex_of["cleared"])
        self.assertEqual(done.returncode, 1)  # b does not answer, and that is said
        self.assertIn(b.report["control"].encode(), done.stderr)
        b.start()
        self.same_table(a, b)
        self.assertIn("1 namespaces were cleared meanwhile", b.log())
        self.assertEqual(self.hits(a, *cleared), [])
        self.assertEqual(self.hits(a, *kept), kept[0])
        again = self.put_one(a, "cleared")
        self.assertEqual(b.end(), 0)
        b.start()
        self.same_table(a, b)
        self.assertEqual(self.hits(a, *again), again[0])  # a clear that was heard of once is not done again
        self.assertEqual(self.hits(a, *kept), kept[0])

    def test_what_was_ruled_out_and_cleared_while_a_node_was_stopped_holds_when_it_goes_on(self):
        a, b = self.nodes_with_one_table("a", "b")
        names = self.put_one(a, "m")
        self.assertEqual(self.hits(a, *names), names[0])
        b.process.send_signal(signal.SIGSTOP)
        self.addCleanup(b.process.send_signal, signal.SIGCONT)
        until(lambda: self.health(a)["membership"]["live"] == 1, "b's lease ends")
        space = json.loads(a.ctl("--timeout", "300ms", "namespaces", "--json").stdout)["namespaces"][0]
        self.assertEqual(a.ctl("--timeout", "300ms", "clear", space["hex"]).returncode, 1)
        self.assertEqual(a.ctl("--timeout", "300ms", "quarantine", "--writer", "w", "--since", "1h").returncode, 1)
        b.process.send_signal(signal.SIGCONT)
        until(lambda: b.metric("larder_quarantine_rules") == 1, "b hears of the rule")
        self.assertEqual(self.hits(a, *names), [])

    def test_a_node_that_stays_away_loses_its_place(self):
        a, b, c = (self.node(name, "--away-grace", "2s") for name in ("a", "b", "c"))
        for node in (a, b, c):
            self.sees(node, 3)
        c.process.send_signal(signal.SIGTERM)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)

        def state():
            status = json.loads(a.ctl("status", "--json").stdout)
            return {node["id"]: node.get("state") for node in status["nodes"]}[c.report["node_id"]]
        until(lambda: state() == "away", "c is away")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(f"Cluster.{name}" if "." not in name else name for name in sys.argv[1:])])
