// larder-chaos-client: one client of a chaos run (cluster.py starts and asks it). Commands on standard input,
// one a line; each is answered by one line of JSON.
//
//   begin                  the load begins
//   stats                  counts so far; how long the most overdue call is overdue
//   window FROM_US TO_US   the gets that were under way or begun between the two
//   epochs                 when which version of the node table was first seen
//   end                    the load ends; counts
//   settle BUDGET_MS       whether fresh blocks can be put and got and every node answers
//
// It ends when its standard input does.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>

#include "tests/chaos/load.h"

namespace larder::chaos {
namespace {

// Looks often which version of the node table the client has.
class TableWatch {
 public:
  explicit TableWatch(const Client* client) : thread_([this, client] { Run(client); }) {}
  ~TableWatch() {
    stopping_ = true;
    thread_.join();
  }

  nlohmann::json Json() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void Run(const Client* client) {
    for (uint64_t last = 0; !stopping_;) {
      const uint64_t epoch = client->table().epoch;
      if (epoch != last) {
        const std::lock_guard lock(mutex_);
        seen_.push_back({epoch, NowUs()});
        last = epoch;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  mutable std::mutex mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> seen_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

nlohmann::json Stats(const Tally& tally, const Load& load) {
  nlohmann::json json = tally.Json();
  json["overdue_us"] = load.OverdueUs();
  const ClientStats stats = load.client().stats();
  json["corrupt_reported"] = stats.reports;
  json["reconnects"] = stats.reconnects;
  return json;
}

nlohmann::json Answer(const std::string& line, const Tally& tally, Load* load, const TableWatch& table) {
  std::istringstream words(line);
  std::string command;
  uint64_t first = 0, second = 0;
  words >> command >> first >> second;
  if (command == "begin") {
    load->Begin();
    return {{"begun", true}};
  }
  if (command == "stats") return Stats(tally, *load);
  if (command == "window") return tally.Window(first, second);
  if (command == "epochs") return table.Json();
  if (command == "settle") {
    const uint64_t begin_us = NowUs();
    const std::string why = load->Settle(first * 1'000);
    return {{"why", why}, {"ms", double(NowUs() - begin_us) / 1'000}};
  }
  if (command == "end") {
    load->End();
    return Stats(tally, *load);
  }
  return {{"error", "unknown command: " + line}};
}

int Main(int argc, char** argv) {
  LoadOptions options;
  CLI::App app{"one client of a chaos run"};
  app.add_option("--seeds", options.seeds, "addresses of nodes")->delimiter(',')->required();
  app.add_option("--name", options.name);
  app.add_option("--transport", options.transport);
  app.add_option("--seed", options.seed, "of what it asks for");
  app.add_option("--content", options.content, "of what the blocks hold");
  app.add_option("--replicas", options.replicas);
  app.add_option("--workers", options.workers);
  app.add_option("--getters", options.getters);
  app.add_option("--blocks", options.blocks);
  app.add_option("--deadline-us", options.deadline_us);
  app.add_flag("!--unverified", options.verify, "do not verify what comes: wrong bytes must be seen");
  CLI11_PARSE(app, argc, argv);
  signal(SIGINT, SIG_IGN);  // Ctrl-C reaches the whole group; cluster.py ends its processes in order

  ControlTimer timer;
  Tally tally(&timer);
  auto load = Load::Open(options, &tally);
  if (!load.ok()) {
    std::cerr << "larder-chaos-client: " << load.status().ToString() << "\n";
    return 1;
  }
  TableWatch table(&load.value()->client());
  std::cout << nlohmann::json{{"ready", true}}.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Answer(line, tally, load.value().get(), table).dump() << std::endl;
  }
  load.value()->End();
  return 0;
}

}  // namespace
}  // namespace larder::chaos

int main(int argc, char** argv) {
  return larder::chaos::Main(argc, argv);
}
