#!/usr/bin/env python3
"""Nodes that know each other through a real etcd: joining, restarts, etcd away.

    tests/integration/cluster_test.py [NAME...]   LARDER_BIN is the folder of the programs (build/release/bin)
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from daemon import CLEAN_ENV, CTL, NODE, Node, PATIENCE_S, run, until  # noqa: E402
from free_port import free_port  # noqa: E402


class Etcd:
    def __init__(self, folder):
        self.folder = folder
        self.client, self.peer = free_port(), free_port()
        self.address = f"127.0.0.1:{self.client}"
        self.start()

    def start(self):
        peer = f"http://127.0.0.1:{self.peer}"
        with open(self.folder / "etcd.log", "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", "http://" + self.address,
                 "--advertise-client-urls", "http://" + self.address, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer],
                stdout=log, stderr=log, env=CLEAN_ENV)
        until(self.healthy, "etcd")

    def healthy(self):
        done = run("etcdctl", "--endpoints", self.address, "endpoint", "health", env={"ETCDCTL_API": "3"})
        return done.returncode == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


class Cluster(unittest.TestCase):
    def setUp(self):
        for program in ("etcd", "etcdctl"):
            self.assertIsNotNone(shutil.which(program), program + " is not installed: ./deploy/install-packages")
        folder = tempfile.TemporaryDirectory(prefix="larder-cluster-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.etcd = Etcd(self.folder)
        self.addCleanup(self.etcd.kill)

    def node(self, name, *flags):
        started = Node(self.folder, "--membership", "etcd", "--etcd-endpoints", self.etcd.address, "--lease", "1s",
                       "--state-dir", str(self.folder / ("state-" + name)), *flags, name=name)
        self.addCleanup(self.end, started)
        return started

    @staticmethod
    def end(node):
        if node.process.poll() is None:
            node.process.kill()
        node.process.wait()

    @staticmethod
    def health(node):
        return json.loads(node.http("/healthz")[1])

    def sees(self, node, nodes):
        return until(lambda: self.health(node)["table_nodes"] == nodes, f"a table of {nodes}")

    def same_table(self, *nodes):
        until(lambda: len({self.health(node)["table_epoch"] for node in nodes}) == 1, "one version")

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

    def test_a_drained_node_is_gone_from_the_table(self):
        nodes = [self.node(name) for name in ("a", "b", "c")]
        for node in nodes:
            self.sees(node, 3)
        a, b, c = nodes
        drained = a.ctl("drain", c.report["node_id"], "--json")
        self.assertEqual(drained.returncode, 0, drained.stderr)
        self.assertTrue(json.loads(drained.stdout)["ended"], drained.stdout)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)
        for node in (a, b):  # at once, not after the grace of minutes
            self.sees(node, 2)
        c.start()
        for node in nodes:
            self.sees(node, 3)

    def three_with_files(self, *flags, credentials=False, files=12):
        """Nodes a, b, c, and files of one to two MiB that are spread over them."""
        if credentials:
            path = self.folder / "credentials.toml"
            path.write_text("[[credentials]]\nname = 'one'\ntoken = '0123456789abcdef'\n"
                            "[[credentials]]\nname = 'two'\ntoken = 'fedcba9876543210'\ntenant = 't'\n")
            flags += ("--credentials", str(path))
        nodes = self.nodes_with_one_table("a", "b", "c", flags=flags)
        self.put_files(nodes[0], credentials, files)
        return nodes

    def nodes_with_one_table(self, *names, flags=()):
        nodes = [self.node(name, "--node-id", name, *flags) for name in names]
        for node in nodes:
            self.sees(node, len(nodes))
        self.same_table(*nodes)
        return nodes

    def put_files(self, node, credentials=False, files=12):
        self.files = {}
        for number in range(files):
            how = ("--tenant", "t", "--salt", f"secret {number % 2}")
            if credentials:
                how += ("--token", ("0123456789abcdef", "fedcba9876543210")[number % 2])
            content = os.urandom(1_500_000)
            put = node.ctl("put", "-", "--name", f"file {number}", *how, stdin=content)
            self.assertEqual(put.returncode, 0, put.stderr)
            self.files[f"file {number}"] = (content, how)

    def missing(self, node):
        """Files that the cluster has not got any more. What it has must be right."""
        missing = []
        for name, (content, how) in self.files.items():
            got = node.ctl("get", name, *how)
            if got.returncode == 0:
                self.assertEqual(got.stdout, content)
            else:
                missing.append(name)
        return missing

    def drain(self, asked, node, *more):
        """Begins it; returns the running larderctl."""
        argv = [CTL, "-e", asked.report["data"], "drain", node.report["node_id"], *more]
        drain = subprocess.Popen(argv, env=CLEAN_ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(drain.stdout.close)
        self.addCleanup(drain.stderr.close)
        self.addCleanup(drain.kill)
        return drain

    def handed(self, node):
        return node.metric('larder_hand_over_blocks{kind="handed"}')

    def test_a_drained_node_hands_its_blocks_over_for_whoever_wrote_them(self):
        a, b, c = self.three_with_files(credentials=True)
        blocks = c.metric("larder_pieces")
        self.assertGreater(blocks, 0)
        drained = a.ctl("drain", "c", "--json", "--token", "0123456789abcdef")
        self.assertEqual(drained.returncode, 0, drained.stderr + c.log().encode())
        told = json.loads(drained.stdout)
        self.assertTrue(told["ended"], told)
        self.assertEqual(told["hand_over"]["reason"], "")
        self.assertEqual(told["hand_over"]["handed_blocks"], blocks)
        self.assertEqual(told["hand_over"]["left_blocks"], 0)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)
        for node in (a, b):
            self.sees(node, 2)
        self.assertEqual(self.missing(b), [])
        spaces = json.loads(a.ctl("namespaces", "--json", "--token", "0123456789abcdef").stdout)["namespaces"]
        self.assertEqual({space["tenant"] for space in spaces}, {"t"})

    def test_while_a_node_hands_over_slowly_it_is_read_and_says_how_far_it_is(self):
        a, b, c = self.three_with_files("--hand-over-rate", "4MiB")
        blocks = c.metric("larder_pieces")
        drain = self.drain(a, c)
        until(lambda: self.handed(c) > 0, "the first blocks handed over")
        self.assertLess(self.handed(c), blocks)
        while drain.poll() is None:
            self.assertEqual(self.missing(b), [])
        out, err = drain.communicate(timeout=PATIENCE_S)
        self.assertEqual(drain.returncode, 0, err)
        self.assertIn(f"c: {int(blocks)} of {int(blocks)} blocks handed over".encode(), out)
        self.assertGreater(out.count(b" blocks handed over"), 1, out)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)
        self.sees(b, 2)
        self.assertEqual(self.missing(b), [])

    def test_a_receiver_that_is_killed_ends_nobody(self):
        a, b, c = self.three_with_files("--hand-over-rate", "2MiB")
        drain = self.drain(a, c, "--json")
        until(lambda: self.handed(c) > 0, "the first blocks handed over")
        b.process.kill()
        b.process.wait()
        out, err = drain.communicate(timeout=PATIENCE_S)
        self.assertEqual(drain.returncode, 0, err)
        told = json.loads(out)["hand_over"]
        self.assertIn("the others take no more: b: ", told["reason"])
        self.assertGreater(told["left_blocks"], 0)
        self.assertGreater(told["handed_blocks"], 0)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)
        self.sees(a, 2)
        self.missing(a)  # some are; none is wrong

    def test_a_receiver_that_died_holds_up_no_clear_at_the_node_that_leaves(self):
        a, b, c = self.three_with_files("--hand-over-rate", "1MiB")
        space = json.loads(a.ctl("namespaces", "--json").stdout)["namespaces"][0]
        drain = self.drain(a, c, "--json")
        until(lambda: self.handed(c) > 3, "some blocks handed over")
        b.process.kill()
        b.process.wait()
        done = a.ctl("--timeout", "8s", "clear", space["hex"], "--json")
        unanswered = json.loads(done.stdout)["unanswered"]
        self.assertEqual(len(unanswered), 1, unanswered)
        self.assertIn(b.report["control"], unanswered[0])
        drain.communicate(timeout=PATIENCE_S)
        self.assertEqual(c.process.wait(PATIENCE_S), 0)
        self.assertGreaterEqual(len(self.missing(a)), len(self.files) // 2)

    def test_a_receiver_that_is_stopped_costs_the_budget_at_most(self):
        a, b, c = self.three_with_files("--hand-over-budget", "2s")
        for node in (a, b):
            node.process.send_signal(signal.SIGSTOP)
            self.addCleanup(node.process.send_signal, signal.SIGCONT)
        drain = subprocess.run([CTL, "-e", c.report["data"], "--control", c.report["control"], "drain", "c", "--json"],
                               env=CLEAN_ENV, capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(drain.returncode, 0, drain.stderr)
        self.assertIn("the budget was over", json.loads(drain.stdout)["hand_over"]["reason"])
        self.assertEqual(c.process.wait(PATIENCE_S), 0)

    def test_sigterm_hands_over_when_it_is_told_to_and_gives_up_the_place(self):
        a, b, c = self.three_with_files("--hand-over-on-stop", "true")
        self.assertEqual(c.end(), 0)
        self.assertIn("handed over", c.log())
        for node in (a, b):
            self.sees(node, 2)
        self.assertEqual(self.missing(a), [])

    def test_sigterm_of_itself_keeps_the_place_and_hands_over_nothing(self):
        a, _, c = self.three_with_files(files=3)
        self.assertEqual(c.end(), 0)
        self.assertNotIn("handed over", c.log())
        self.assertEqual(self.health(a)["table_nodes"], 3)

    def test_the_last_node_has_nobody_to_give_to(self):
        a = self.node("a")
        self.assertEqual(a.ctl("put", "-", "--name", "one", stdin=b"bytes").returncode, 0)
        drained = a.ctl("drain", a.report["node_id"], "--json")
        self.assertEqual(drained.returncode, 0, drained.stderr)
        told = json.loads(drained.stdout)["hand_over"]
        self.assertEqual((told["left_blocks"], told["reason"]), (2, "no other node in the table takes blocks"))
        self.assertEqual(a.process.wait(PATIENCE_S), 0)

    def test_drain_names_a_node_that_is_there(self):
        a = self.node("a")
        refused = a.ctl("drain", "nobody")
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"no node nobody", refused.stderr)
        a.process.send_signal(signal.SIGUSR1)  # a stray one: nobody asked for a drain
        self.assertEqual(self.health(a)["status"], "ok")
        self.sees(a, 1)

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
