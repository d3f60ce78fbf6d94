// larderctl drain: a node leaves for good.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/cli/cluster.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using control::v1::HandOver;

constexpr auto kPoll = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(1);
constexpr uint64_t kLeaveMs = 15'000;  // for leaving the table, behind the budget

void PrintProgress(const std::string& id, const HandOver& now) {
  const bool early = now.ended() && !now.reason().empty();
  std::printf("%s: %" PRIu64 " of %" PRIu64 " blocks handed over, %s of %s%s%s\n", id.c_str(),
              now.handed_blocks(), now.blocks(), PrettyBytes(static_cast<double>(now.handed_bytes())).c_str(),
              PrettyBytes(static_cast<double>(now.bytes())).c_str(), early ? "; ended: " : "",
              early ? now.reason().c_str() : "");
  std::fflush(stdout);
}

// True once the node's control port answers no more. Until then it says how far it is.
bool WaitUntilGone(const std::string& id, const std::string& address, const Globals& globals,
                   uint64_t budget_ms, HandOver* last) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(budget_ms + kLeaveMs);
  auto next_line = Clock::now();
  for (; Clock::now() < end; std::this_thread::sleep_for(kPoll)) {
    control::v1::GetInfoResponse info;
    if (!AskInfo(address, globals.timeout_us, &info).ok()) return true;
    if (!info.has_hand_over()) continue;
    const bool news =
        info.hand_over().ended() != last->ended() ||
        (Clock::now() >= next_line && info.hand_over().handed_blocks() != last->handed_blocks());
    *last = info.hand_over();
    if (!news || globals.json()) continue;
    PrintProgress(id, *last);
    next_line = Clock::now() + kLineEvery;
  }
  return false;
}

nlohmann::ordered_json Json(const HandOver& last) {
  return {{"blocks", last.blocks()},
          {"bytes", last.bytes()},
          {"handed_blocks", last.handed_blocks()},
          {"handed_bytes", last.handed_bytes()},
          {"gone_blocks", last.gone_blocks()},
          {"stays_blocks", last.stays_blocks()},
          {"left_blocks", last.left_blocks()},
          {"ended", last.ended()},
          {"reason", last.reason()}};
}

int Drain(const Globals& globals, const std::string& id, bool wait) {
  for (const NodeView& view : LookAtCluster(globals)) {
    if (view.record.id != id) continue;
    const std::string& address = view.record.control_address;
    control::v1::DrainResponse response;
    if (const Status status = AskDrain(address, globals, &response); !status.ok()) return Fail(status);
    HandOver last;
    const bool ended = wait && WaitUntilGone(id, address, globals, response.budget_ms(), &last);
    if (globals.json()) {
      const nlohmann::ordered_json out = {{"node", id},
                                          {"budget_ms", response.budget_ms()},
                                          {"waited", wait},
                                          {"ended", ended},
                                          {"hand_over", Json(last)}};
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
      "drain", "a node takes no more puts, hands its blocks to the others, leaves the table, ends");
  auto id = std::make_shared<std::string>();
  auto no_wait = std::make_shared<bool>(false);
  drain->add_option("node", *id, "its id, as larderctl status shows it")->required();
  drain->add_flag("--no-wait", *no_wait, "return once the node has begun");
  drain->callback([run, id, no_wait] {
    *run = [id, no_wait](const Globals& globals) { return Drain(globals, *id, !*no_wait); };
  });
}

}  // namespace larder::cli
