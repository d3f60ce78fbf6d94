// larderctl drain: a node leaves for good.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/cli/cluster.h"

namespace larder::cli {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(100);
constexpr uint64_t kLeaveMs = 15'000;  // for leaving the table, behind the budget

// True once the node's control port answers no more.
bool WaitUntilGone(const std::string& address, const Globals& globals, uint64_t budget_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(budget_ms + kLeaveMs);
  while (std::chrono::steady_clock::now() < end) {
    control::v1::GetInfoResponse info;
    if (!AskInfo(address, globals.timeout_us, &info).ok()) return true;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

int Drain(const Globals& globals, const std::string& id, bool wait) {
  for (const NodeView& view : LookAtCluster(globals)) {
    if (view.record.id != id) continue;
    const std::string& address = view.record.control_address;
    control::v1::DrainResponse response;
    if (const Status status = AskDrain(address, globals, &response); !status.ok()) return Fail(status);
    const bool ended = wait && WaitUntilGone(address, globals, response.budget_ms());
    if (globals.json()) {
      const nlohmann::ordered_json out = {
          {"node", id}, {"budget_ms", response.budget_ms()}, {"waited", wait}, {"ended", ended}};
      std::printf("%s\n", out.dump().c_str());
    } else {
      std::printf("%s %s\n", id.c_str(), ended ? "has ended" : "drains");
    }
    return ended || !wait ? kExitOk : kExitFailed;
  }
  return Fail(Status(Code::kNotFound, "no node " + id + " in the table; larderctl status lists them"));
}

}  // namespace

void AddDrain(CLI::App* app, Run* run) {
  CLI::App* drain = app->add_subcommand(
      "drain", "a node takes no more puts, ends what is in flight, leaves the table, ends");
  auto id = std::make_shared<std::string>();
  auto no_wait = std::make_shared<bool>(false);
  drain->add_option("node", *id, "its id, as larderctl status shows it")->required();
  drain->add_flag("--no-wait", *no_wait, "return once the node has begun");
  drain->callback([run, id, no_wait] {
    *run = [id, no_wait](const Globals& globals) { return Drain(globals, *id, !*no_wait); };
  });
}

}  // namespace larder::cli
