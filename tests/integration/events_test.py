#!/usr/bin/env python3
"""What larderctl events tells of a node, against what is there.

    tests/integration/events_test.py [NAME...]   LARDER_BIN is the folder of the programs (build/release/bin)
"""
import json
import os
import signal
import subprocess
import unittest

from daemon import CLEAN_ENV, CTL, Case, PATIENCE_S, until


class Following(Case):
    """Router's view: what events say against what a snapshot and the counters say."""

    def follow(self, node, name, *argv, env=None):
        path = self.folder / name
        with open(path, "wb") as out:
            process = subprocess.Popen([CTL, "--control", node.report["control"], "-e", node.report["data"],
                                        "events", "--json", *argv], env={**CLEAN_ENV, **(env or {})}, stdout=out)
        self.addCleanup(process.wait, PATIENCE_S)
        self.addCleanup(process.kill)
        return process, path

    @staticmethod
    def steps(path):
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]

    @staticmethod
    def replay(steps, there=()):
        """(namespace, group, hash, rectangle, tier) of all pieces once the steps are applied."""
        there = set(there)
        for step in steps:
            if step["reset"]:
                there.clear()
            for event in step["events"] + step["present"]:
                if event["kind"] == "cleared":
                    there = {piece for piece in there if piece[0] != event["namespace"]}
                    continue
                piece = (event["namespace"], event["group"], event["hash"], *event["layers"], *event["heads"])
                there.discard((*piece, event.get("from")))
                if "tier" in event:
                    there.add((*piece, event["tier"]))
        return there

    def snapshot(self, node, *argv, env=None):
        done = node.ctl("events", "--once", "--json", *argv, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_events_tell_exactly_what_is_there_also_after_a_kill(self):
        node = self.node("--memory", "16MiB", "--ssd", str(self.folder / "ssd"), "--ssd-segment-bytes", "4MiB",
                         "--ssd-bytes", "128MiB", "--spill-below", "20")
        process, path = self.follow(node, "followed")
        until(lambda: path.stat().st_size > 0, "the first step")
        for name in ("one", "two", "three"):
            file = self.folder / name
            file.write_bytes(os.urandom(12 << 20))
            self.assertEqual(node.ctl("put", str(file)).returncode, 0)
        for _ in range(3):  # what SSD has comes up; what it was too slow for is a miss
            node.ctl("get", "one", "--out", str(self.folder / "out"))
        # Busy while a slab of the full memory is made over to the tenant.
        until(lambda: node.ctl("put", "-", "--name", "n", "--tenant", "t", stdin=b"bytes").returncode == 0, "the put")
        spaces = json.loads(node.ctl("namespaces", "--json").stdout)["namespaces"]
        cleared = next(space["hex"] for space in spaces if space["tenant"] == "t")
        self.assertEqual(node.ctl("clear", cleared).returncode, 0)

        # What moves between the tiers may still be under way.
        until(lambda: self.replay(self.steps(path)) == self.replay(self.snapshot(node)), "the same view")
        there = self.replay(self.steps(path))
        self.assertFalse([piece for piece in there if piece[0] == cleared])
        spaces = json.loads(node.ctl("namespaces", "--json").stdout)["namespaces"]
        self.assertEqual(sum(piece[-1] == "ram" for piece in there), sum(space["blocks"] for space in spaces))
        self.assertEqual(sum(piece[-1] == "ssd" for piece in there), node.metric("larder_ssd_pieces"))
        kinds = {event["kind"] for step in self.steps(path) for event in step["events"]}
        self.assertLessEqual({"stored", "moved", "cleared"}, kinds)
        self.assertEqual(node.metric("larder_event_streams"), 1)
        self.assertEqual(node.metric("larder_event_gaps_total"), 0)

        # A stream that ended goes on where it was.
        process.kill()
        process.wait(PATIENCE_S)
        until(lambda: node.metric("larder_event_streams") == 0, "the end of the stream")
        last = self.steps(path)[-1]
        there = self.replay(self.steps(path))
        self.assertEqual(node.ctl("put", "-", "--name", "later", stdin=b"more").returncode, 0)
        more = self.snapshot(node, "--from", f"{last['incarnation']}:{last['next']}")
        self.assertFalse(any(step["reset"] for step in more))
        self.assertTrue(self.replay(more, there) > there)
        self.assertEqual(self.replay(more, there), self.replay(self.snapshot(node)))

        # Another life of the node is another stream.
        node.end(signal.SIGKILL)
        node.start()
        until(lambda: self.replay(self.snapshot(node)), "what SSD has")
        anew = self.snapshot(node, "--from", f"{last['incarnation']}:{last['next']}")
        self.assertTrue(anew[0]["reset"])
        self.assertNotEqual(anew[0]["incarnation"], last["incarnation"])
        self.assertEqual({piece[-1] for piece in self.replay(anew)}, {"ssd"})

    def test_a_tenant_hears_of_its_own_only_and_a_stranger_of_nothing(self):
        path = self.folder / "credentials.toml"
        path.write_text("[[credentials]]\nname = 'prefill'\ntoken = '0123456789abcdef'\ntenant = 't'\n"
                        "[[credentials]]\nname = 'operator'\ntoken = 'fedcba9876543210'\n")
        node = self.node("--credentials", str(path))
        tenant, operator = {"LARDER_TOKEN": "0123456789abcdef"}, {"LARDER_TOKEN": "fedcba9876543210"}
        _, heard = self.follow(node, "heard", env=tenant)
        until(lambda: heard.stat().st_size > 0, "the first step")
        for name, env in (("t", tenant), ("u", operator)):
            put = node.ctl("put", "-", "--name", "n", "--tenant", name, stdin=b"x", env=env)
            self.assertEqual(put.returncode, 0, put.stderr)
        spaces = {space["tenant"]: space["hex"] for space in
                  json.loads(node.ctl("namespaces", "--json", env=operator).stdout)["namespaces"]}
        every = self.replay(self.snapshot(node, env=operator))
        self.assertEqual({piece[0] for piece in every}, set(spaces.values()))
        own = self.replay(self.snapshot(node, env=tenant))
        self.assertEqual({piece[0] for piece in own}, {spaces["t"]})
        next_one = self.snapshot(node, env=operator)[-1]["next"]
        until(lambda: self.steps(heard)[-1]["next"] >= next_one, "all events")
        self.assertEqual(self.replay(self.steps(heard)), own)
        stranger = node.ctl("--control", node.report["control"], "events", "--once")
        self.assertEqual(stranger.returncode, 1)
        self.assertIn(b"credential", stranger.stderr)

    def test_without_events_and_with_too_many_followers_it_says_so(self):
        node = self.node("--events-max", "0")
        done = node.ctl("events", "--once")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"--events-max", done.stderr)
        node = self.node(name="second")
        for i in range(8):
            _, path = self.follow(node, f"follower-{i}")
            until(lambda path=path: path.stat().st_size > 0, "the first step")
        done = node.ctl("events", "--once")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"8 followers", done.stderr)


if __name__ == "__main__":
    unittest.main()
