#include "client/cli/findings.h"

#include <algorithm>
#include <map>
#include <set>

#include "proto/message.h"

namespace larder::cli {
namespace {

constexpr uint64_t kOpenFilesWanted = 4096;
constexpr uint64_t kLockedBytesWanted = 1ull << 30;
constexpr uint64_t kClockSkewMs = 2000;

class Judgement {
 public:
  void Problem(std::string what, std::string mend) {
    list_.push_back({true, std::move(what), std::move(mend)});
  }
  void Note(std::string what, std::string mend) {
    list_.push_back({false, std::move(what), std::move(mend)});
  }
  std::vector<Finding> Take() { return std::move(list_); }

 private:
  std::vector<Finding> list_;
};

void JudgeReach(const NodeView& view, const Probe& probe, Judgement* out) {
  const NodeRecord& record = view.record;
  if (!view.data_error.empty()) {
    out->Problem(record.id + ": data port " + record.data_address + ": " + view.data_error,
                 "see whether larder-node runs there and the port is open from here; its blocks are misses "
                 "until then");
  }
  if (!view.control_error.empty() && (view.data_error.empty() || !record.control_address.empty())) {
    out->Problem(
        record.id + ": control port " +
            (record.control_address.empty() ? "" : record.control_address + ": ") + view.control_error,
        "open the node's control_listen port from here; blocks move without it, larderctl sees less");
  }
  if (!probe.http_error.empty()) {
    out->Problem(record.id + ": HTTP port " + record.http_address + ": " + probe.http_error,
                 "open the node's http_listen port from here; metrics and probes need it");
  }
  if (!probe.shm_error.empty()) {
    out->Problem(record.id + ": shared memory socket " + record.shm_path + ": " + probe.shm_error,
                 "mount the socket's folder into this container and allow this user, or start the node with "
                 "--shm false; "
                 "until then this host uses TCP");
  }
  if (!view.control_error.empty()) return;
  if (view.info.draining()) {
    out->Problem(record.id + " is stopping", "wait for it to come back, or take it off the list of peers");
  } else if (view.health != "SERVING") {
    out->Problem(record.id + " says " + view.health,
                 "look at its log and at http://" + record.http_address + "/healthz");
  }
}

uint64_t Gauge(const NodeView& view, const std::string& name) {
  const auto it = view.stats.gauges().find(name);
  return it == view.stats.gauges().end() || it->second < 0 ? 0 : static_cast<uint64_t>(it->second);
}

// What a node counted that it should not have had to.
void JudgeCounters(const NodeView& view, Judgement* out) {
  const auto bad = view.stats.counters().find("larder_reports_dropped_total");
  if (bad != view.stats.counters().end() && bad->second != 0) {
    out->Problem(
        view.record.id + " found " + std::to_string(bad->second) + " blocks corrupt in its own memory",
        "no reader was served them, but the memory is suspect: look for ECC errors (dmesg, edac-util)");
  }
  const uint64_t open = Gauge(view, "process_open_fds"), max = Gauge(view, "process_max_fds");
  if (max != 0 && open * 10 > max * 9) {
    out->Problem(
        view.record.id + " has " + std::to_string(open) + " of " + std::to_string(max) + " files open",
        "raise its limit of open files (LimitNOFILE): each connection is one");
  }
}

void JudgeTables(const std::vector<NodeView>& views, Judgement* out) {
  std::map<uint64_t, std::map<Digest, std::vector<std::string>>> by_epoch;  // epoch -> table -> ids
  for (const NodeView& view : views) {
    if (view.data_error.empty()) by_epoch[view.table.epoch][view.table.digest()].push_back(view.record.id);
  }
  const auto names = [](const std::vector<std::string>& ids) {
    std::string text;
    for (const std::string& id : ids) text += (text.empty() ? "" : ", ") + id;
    return text;
  };
  for (const auto& [epoch, tables] : by_epoch) {
    if (tables.size() < 2) continue;
    std::string who;
    for (const auto& each : tables) who += (who.empty() ? "" : " against ") + names(each.second);
    out->Problem(
        "different node tables under epoch " + std::to_string(epoch) + ": " + who,
        "give every node the same peers (ids, addresses, weights) and raise table_epoch on all of them");
  }
  if (by_epoch.size() > 1) {
    std::string who;
    for (const auto& [epoch, tables] : by_epoch) {
      for (const auto& each : tables)
        who += (who.empty() ? "" : "; ") + std::string("epoch ") + std::to_string(epoch) + ": " +
               names(each.second);
    }
    out->Problem("nodes follow tables of different epochs: " + who,
                 "restart those of the lower epoch with the newer peers");
  }
}

void JudgeVersions(const std::vector<NodeView>& views, Judgement* out) {
  std::map<std::string, std::string> builds;
  for (const NodeView& view : views) {
    const NodeRecord& record = view.record;
    if (!record.build.empty()) builds[record.build] += (builds[record.build].empty() ? "" : ", ") + record.id;
    if (!view.data_error.empty()) continue;
    if (record.wire_min > kWireVersionMax || record.wire_max < kWireVersionMin) {
      out->Problem(record.id + " speaks wire versions " + std::to_string(record.wire_min) + ".." +
                       std::to_string(record.wire_max) + ", this program " + std::to_string(kWireVersionMin) +
                       ".." + std::to_string(kWireVersionMax),
                   "upgrade the older of the two");
    }
  }
  if (builds.size() > 1) {
    std::string text;
    for (const auto& [build, ids] : builds) text += (text.empty() ? "" : "; ") + build + ": " + ids;
    out->Problem("nodes run different builds: " + text, "finish the upgrade; it is fine while it goes on");
  }
}

void JudgeAddresses(const std::vector<NodeView>& views, Judgement* out) {
  std::set<std::string> hosts;
  for (const NodeView& view : views) {
    if (!view.record.host_id.empty()) hosts.insert(view.record.host_id);
  }
  for (const NodeView& view : views) {
    const bool loopback = view.record.data_address.rfind("127.", 0) == 0 ||
                          view.record.data_address.rfind("[::1]", 0) == 0 ||
                          view.record.data_address.rfind("localhost:", 0) == 0;
    if (loopback && hosts.size() > 1) {
      out->Problem(view.record.id + " tells others to reach it at " + view.record.data_address +
                       ", which is every host's own",
                   "start it with --data-listen and --advertise of an address that other hosts reach");
    }
    if (!view.control_error.empty()) continue;
    const uint64_t theirs = view.info.started_unix_ms() + view.info.uptime_ms();
    const uint64_t apart =
        theirs > view.info_unix_ms ? theirs - view.info_unix_ms : view.info_unix_ms - theirs;
    if (apart > kClockSkewMs) {
      out->Problem(view.record.id + "'s clock is " + std::to_string(apart / 1000) + " s " +
                       (theirs > view.info_unix_ms ? "ahead" : "behind"),
                   "keep the clocks together (chrony, systemd-timesyncd); creation times of blocks and "
                   "incarnations use them");
    }
  }
}

void JudgeLocal(const std::vector<NodeView>& views, const LocalFacts& local, Judgement* out) {
  const bool rdma = std::any_of(views.begin(), views.end(),
                                [](const NodeView& view) { return !view.record.ucx_address.empty(); });
  const bool here = std::any_of(views.begin(), views.end(),
                                [&](const NodeView& view) { return view.record.host_id == local.host_id; });
  if (local.open_files_max < kOpenFilesWanted) {
    out->Problem("this host allows a process " + std::to_string(local.open_files_max) + " open files",
                 "raise the hard limit (ulimit -Hn, LimitNOFILE) to " + std::to_string(kOpenFilesWanted) +
                     " or more: each connection is one");
  }
  if (rdma && local.locked_bytes_max < kLockedBytesWanted) {
    out->Problem("RDMA is on, but this host lets a process lock only " +
                     std::to_string(local.locked_bytes_max / 1024) + " KiB of memory",
                 "raise it (ulimit -l unlimited, LimitMEMLOCK=infinity, or CAP_IPC_LOCK in a container)");
  }
  if (here && local.huge_pages_total == 0 &&
      (local.shmem_huge.empty() || local.shmem_huge == "never" || local.shmem_huge == "deny")) {
    out->Note("no huge pages are set up on this host; nodes use pages of 4 KiB",
              "vm.nr_hugepages (for memory / 2 MiB pages), or echo advise > "
              "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  }
}

}  // namespace

std::vector<Finding> Judge(const std::vector<NodeView>& views, const std::vector<Probe>& probes,
                           const LocalFacts& local) {
  Judgement out;
  for (size_t i = 0; i < views.size(); i++) {
    JudgeReach(views[i], probes[i], &out);
    JudgeCounters(views[i], &out);
  }
  JudgeTables(views, &out);
  JudgeVersions(views, &out);
  JudgeAddresses(views, &out);
  JudgeLocal(views, local, &out);
  return out.Take();
}

}  // namespace larder::cli
