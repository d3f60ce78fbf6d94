#!/usr/bin/env python3
"""Nodes that leave a cluster: drains, hand-over, receivers that die.

    tests/integration/leaving_test.py [NAME...]   LARDER_BIN is the folder of the programs (build/release/bin)
"""
import json
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import CLEAN_ENV, CTL, PATIENCE_S, run, until  # noqa: E402
from etcd_case import EtcdCase  # noqa: E402


class Leaving(EtcdCase):
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(f"Leaving.{name}" if "." not in name else name for name in sys.argv[1:])])
