// larderctl top: what every node does, a line each, again and again.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/cli/cluster.h"
#include "client/cli/hot_list.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Rate {
  const char* title;
  const char* name;  // in JSON
  const char* counter;
  bool bytes;
};
constexpr Rate kRates[] = {
    {"MATCHES/S", "matches", "larder_match_requests_total", false},
    {"GETS/S", "get_blocks", "larder_get_blocks_total", false},
    {"OUT/S", "get_bytes", "larder_get_bytes_total", true},
    {"IN/S", "put_bytes", "larder_put_bytes_total", true},
    {"EVICTED/S", "evicted_bytes", "larder_evicted_bytes_total", true},
    {"SSD IN/S", "ssd_written_bytes", "larder_ssd_written_bytes_total", true},
    {"SSD OUT/S", "ssd_hit_bytes", "larder_ssd_hit_bytes_total", true},
};

struct Sample {
  std::map<std::string, uint64_t> counters;
  Clock::time_point at;
};

uint64_t Since(const Sample* before, const Sample& now, const std::string& counter) {
  const auto found = now.counters.find(counter);
  if (before == nullptr || found == now.counters.end()) return 0;
  const auto old = before->counters.find(counter);
  const uint64_t was = old == before->counters.end() ? 0 : old->second;
  return found->second < was ? found->second : found->second - was;  // a node that was restarted counts anew
}

class Screen {
 public:
  explicit Screen(bool json) : json_(json) {}

  // False: some node did not answer.
  bool Show(const std::vector<NodeView>& views) {
    table_ = TextTable();
    std::string hot;
    std::vector<std::string> titles = {"NODE", "MEMORY", "BLOCKS", "HIT"};
    for (const Rate& rate : kRates) titles.emplace_back(rate.title);
    titles.insert(titles.end(), {"CONNECTIONS", "WAITS"});
    table_.Row(std::move(titles));
    nodes_ = ordered_json::array();
    bool well = true;
    for (const NodeView& view : views) {
      const bool answered = view.control_error.empty();
      well = well && answered;
      if (answered) {
        Add(view);
        hot += HotText(view);
      } else {
        table_.Row({view.record.id, view.control_error});
        nodes_.push_back({{"id", view.record.id}, {"error", view.control_error}});
      }
    }
    if (json_) {
      std::printf("%s\n", ordered_json{{"nodes", nodes_}}.dump().c_str());
    } else {
      std::printf("%s%s\n", table_.Text().c_str(), hot.c_str());
    }
    std::fflush(stdout);
    return well;
  }

 private:
  void Add(const NodeView& view) {
    Sample now{{view.stats.counters().begin(), view.stats.counters().end()}, Clock::now()};
    const auto found = before_.find(view.record.id);
    const Sample* before = found == before_.end() ? nullptr : &found->second;
    const double seconds = before == nullptr ? 0 : std::chrono::duration<double>(now.at - before->at).count();
    const uint64_t asked = Since(before, now, "larder_get_blocks_total");
    const uint64_t hits = Since(before, now, "larder_get_hits_total");
    const auto& memory = view.stats.memory();
    const uint64_t room = std::max<uint64_t>(memory.capacity_bytes(), 1);
    std::vector<std::string> row = {view.record.id, std::to_string(100 * memory.slot_bytes() / room) + " %",
                                    Grouped(view.stats.pieces()),
                                    asked == 0 ? "-" : std::to_string(100 * hits / asked) + " %"};
    ordered_json rates = ordered_json::object();
    for (const Rate& rate : kRates) {
      const double value = seconds > 0 ? static_cast<double>(Since(before, now, rate.counter)) / seconds : 0;
      row.push_back(rate.bytes ? PrettyBytes(value) : Grouped(static_cast<uint64_t>(value)));
      rates[std::string(rate.name) + "_per_s"] = value;
    }
    row.insert(row.end(), {std::to_string(view.stats.connections()), std::to_string(view.stats.waits())});
    table_.Row(std::move(row));
    nodes_.push_back({{"id", view.record.id},
                      {"seconds", seconds},
                      {"get_hits", hits},
                      {"slot_bytes", memory.slot_bytes()},
                      {"capacity_bytes", memory.capacity_bytes()},
                      {"pieces", view.stats.pieces()},
                      {"hot", HotJson(view)},
                      {"rates", rates}});
    before_[view.record.id] = std::move(now);
  }

  const bool json_;
  std::map<std::string, Sample> before_;
  TextTable table_;
  ordered_json nodes_;
};

int Top(const Globals& globals, const std::string& interval, uint32_t count) {
  const Result<uint64_t> interval_us = ParseDurationUs(interval);
  if (!interval_us.ok() || interval_us.value() < 100'000)
    return Fail(Invalid("--interval: a time of 100ms or more"), kExitUsage);
  Screen screen(globals.json());
  bool well = true;
  for (uint32_t shown = 0; count == 0 || shown < count; ++shown) {
    if (shown != 0) std::this_thread::sleep_for(std::chrono::microseconds(interval_us.value()));
    well = screen.Show(LookAtCluster(globals));
  }
  return well ? kExitOk : kExitFailed;
}

}  // namespace

void AddTop(CLI::App* app, Run* run) {
  CLI::App* command =
      app->add_subcommand("top", "rates of every node, again and again; the first line has none");
  auto interval = std::make_shared<std::string>("2s");
  auto count = std::make_shared<uint32_t>(0);
  command->add_option("-i,--interval", *interval, "between two looks")->capture_default_str();
  command->add_option("-n,--count", *count, "looks; 0: until it is interrupted")->capture_default_str();
  command->callback([run, interval, count] {
    *run = [interval, count](const Globals& globals) { return Top(globals, *interval, *count); };
  });
}

}  // namespace larder::cli
