"""What a chaos run has seen, as tables for people."""
import collections


def table(run, stats):
    totals = collections.Counter()
    for each in stats:
        totals.update(each["counts"])
    by_kind = collections.Counter(span[0].kind for span in run.fault_spans)
    print("\nfaults    " + (", ".join(f"{kind} {count}" for kind, count in sorted(by_kind.items())) or "none"))
    for what in ("gets", "puts", "matches", "waits", "removes"):
        print(f"{what:24}{totals[what]:>10}")
    print_group("blocks that hit, by tier", totals, "hit ")
    print_group("blocks that missed, by reason", totals, "miss ")
    print_group("blocks put, by answer", totals, "put ")
    print(f"{'corrupt copies reported':24}{sum(each['corrupt_reported'] for each in stats):>10}")
    print(f"{'wrong blocks':24}{sum(each['wrong_blocks'] for each in stats):>10}")
    longest = max(stats, key=lambda each: each["longest_get_ms"], default=None)
    if longest is None:
        return
    print(f"{'longest get':24}{longest['longest_get_ms']:>10.1f} ms of {longest['longest_get_bound_ms']:.0f} ms")
    latest = max(stats, key=lambda each: each["latest_get_ms"])
    print(f"{'latest get, by deadline':24}{latest['latest_get_ms']:>+10.1f} ms "
          f"(beside late ones the control timer was late by {latest['worst_timer_ms']:.1f} ms at most)")
    print(f"{'gets that overran':24}{sum(each['gets_overran'] for each in stats):>10}")
    print(f"{'other calls that overran':24}{sum(each['others_overran'] for each in stats):>10}")


def print_group(title, totals, prefix):
    group = {name.removeprefix(prefix): count for name, count in totals.items() if name.startswith(prefix)}
    print(title + ": " + (", ".join(f"{name} {count}" for name, count in sorted(group.items())) or "none"))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def figures(run, epochs):
    """What single faults cost; only those that no other fault was near to."""
    print()
    for kind, how, wanted in (
            ("kill", "took_ms", "<= 100 ms"),
            ("stop", "beyond_quarter_ms", "<= 50 ms, beyond a quarter of the deadline")):
        windows = [window for name, _, _, window in run.windows if name == kind]
        values = [value for window in windows for value in window[how]]
        if not values:
            print(f"gets at a {kind}: none measured alone")
            continue
        failed, items = sum(window["failed"] for window in windows), sum(window["items"] for window in windows)
        print(f"gets in flight or begun within half a second after {kind}: {len(values)} gets, p50 "
              f"{percentile(values, 0.5):.1f} ms, p99 {percentile(values, 0.99):.1f} ms (wanted {wanted}), longest "
              f"{max(values):.1f} ms; blocks that nobody answered in time: {failed} of {items}")
    membership(run, epochs)


def membership(run, epochs):
    # Versions that etcd got while nothing that was wrong could keep a client from hearing of them.
    quiet = run.options.figures
    if not quiet:
        return
    lags = []
    for version, when in run.watch.epochs:
        for seen in epochs:
            later = [at for number, at in seen if number >= version]
            if later and when > seen[0][1]:
                lags.append((min(later) - when) / 1000)
    if lags:
        print(f"membership change seen by clients after etcd has it: {len(lags)} seen, p50 "
              f"{percentile(lags, 0.5):.0f} ms, longest {max(lags):.0f} ms (wanted <= 1000 ms)")
    gone = []
    for kind, node, begin in {(kind, node, begin) for kind, node, begin, _ in run.windows}:
        if kind in ("kill", "stop"):
            after = [when for name, when in run.watch.gone if name == node and when > begin]
            if after:
                gone.append((min(after) - begin) / 1000)
    if gone:
        print(f"etcd and with it the nodes know that a node is dead: {len(gone)} times, longest {max(gone):.0f} ms after "
              f"(lease of 1 s; wanted <= 3000 ms)")
