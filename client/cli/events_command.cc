// larderctl events: what comes and goes on a node.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/cluster.h"

namespace larder::cli {
namespace {

using control::v1::BlockEvent;
using control::v1::EventsResponse;
using nlohmann::ordered_json;

struct Asked {
  std::string node;  // id; empty: the only one there is
  std::string from;  // INCARNATION:NEXT
  bool once = false;
};

std::string HexOf(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

const char* KindName(BlockEvent::Kind kind) {
  switch (kind) {
    case BlockEvent::KIND_STORED:
      return "stored";
    case BlockEvent::KIND_MOVED:
      return "moved";
    case BlockEvent::KIND_REMOVED:
      return "removed";
    case BlockEvent::KIND_CLEARED:
      return "cleared";
    default:
      return "unknown";  // a newer node's
  }
}

ordered_json Json(const BlockEvent& event) {
  ordered_json out = {{"sequence", event.sequence()},
                      {"unix_ms", event.unix_ms()},
                      {"kind", KindName(event.kind())},
                      {"namespace", event.hex()}};
  if (event.kind() == BlockEvent::KIND_CLEARED) {
    out["clear_epoch"] = event.clear_epoch();
    return out;
  }
  out["hash"] = HexOf(event.hash());
  out["group"] = event.group();
  out["layers"] = {event.layer_begin(), event.layer_end()};
  out["heads"] = {event.head_begin(), event.head_end()};
  out["whole"] = event.whole();
  if (!event.tier().empty()) out["tier"] = event.tier();
  if (!event.from().empty()) out["from"] = event.from();
  if (!event.reason().empty()) out["reason"] = event.reason();
  if (event.constituents_size() != 0) {
    ordered_json list = ordered_json::array();
    for (const std::string& hash : event.constituents()) list.push_back(HexOf(hash));
    out["constituents"] = list;
  }
  return out;
}

void PrintJson(const EventsResponse& step) {
  ordered_json events = ordered_json::array(), present = ordered_json::array();
  for (const BlockEvent& event : step.events()) events.push_back(Json(event));
  for (const BlockEvent& event : step.present()) present.push_back(Json(event));
  const ordered_json out = {{"incarnation", step.incarnation()},
                            {"reset", step.reset()},
                            {"events", events},
                            {"present", present},
                            {"next", step.next()},
                            {"complete", step.complete()}};
  std::printf("%s\n", out.dump().c_str());
}

void PrintLine(const BlockEvent& event, const char* kind) {
  std::printf("%10" PRIu64 "  %-8s %s", event.sequence(), kind, event.hex().substr(0, 16).c_str());
  if (event.kind() != BlockEvent::KIND_CLEARED) {
    std::printf("  %s/%u", HexOf(event.hash()).substr(0, 16).c_str(), event.group());
    if (!event.whole()) {
      std::printf("  layers %u-%u heads %u-%u", event.layer_begin(), event.layer_end(), event.head_begin(),
                  event.head_end());
    }
    if (!event.from().empty()) std::printf("  from %s (%s)", event.from().c_str(), event.reason().c_str());
    if (!event.tier().empty()) std::printf("  in %s", event.tier().c_str());
  }
  std::printf("\n");
}

void PrintText(const EventsResponse& step, bool was_complete) {
  if (step.reset()) std::printf("-- what is there:\n");
  for (const BlockEvent& event : step.events()) PrintLine(event, KindName(event.kind()));
  for (const BlockEvent& event : step.present()) PrintLine(event, "present");
  if (step.complete() && !was_complete) std::printf("-- that is all; from here on what changes:\n");
}

// "INCARNATION:NEXT".
bool ParseFrom(const std::string& text, control::v1::EventsRequest* request) {
  uint64_t incarnation = 0, next = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, incarnation);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') return false;
  const auto second = std::from_chars(first.ptr + 1, end, next);
  if (second.ec != std::errc{} || second.ptr != end) return false;
  request->set_incarnation(incarnation);
  request->set_next(next);
  return true;
}

int Events(const Globals& globals, const Asked& asked) {
  control::v1::EventsRequest request;
  if (!asked.from.empty() && !ParseFrom(asked.from, &request)) {
    return Fail(Invalid("--from: INCARNATION:NEXT, as the last line of --json has them"), kExitUsage);
  }
  std::string address;
  const std::vector<NodeView> nodes = LookAtCluster(globals);
  for (const NodeView& view : nodes) {
    if (asked.node.empty() ? nodes.size() == 1 : view.record.id == asked.node) {
      address = view.record.control_address;
    }
  }
  if (address.empty()) {
    const bool choose = asked.node.empty() && nodes.size() > 1;
    return Fail(
        Status(Code::kNotFound, choose ? "there are several nodes: name one (larderctl status lists them)"
                                       : "no node " + asked.node + " answers; larderctl status lists them"));
  }
  bool complete = false;
  const Status status = FollowEvents(address, globals, request, [&](const EventsResponse& step) {
    globals.json() ? PrintJson(step) : PrintText(step, complete);
    std::fflush(stdout);
    complete = step.complete();
    return !(asked.once && complete);
  });
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace

void AddEvents(CLI::App* app, Run* run) {
  CLI::App* events =
      app->add_subcommand("events", "what is in a node, then what comes and goes, until it is interrupted");
  auto asked = std::make_shared<Asked>();
  events->add_option("node", asked->node, "its id; may be left out when there is only one");
  events->add_option("--from", asked->from, "INCARNATION:NEXT where an earlier stream ended");
  events->add_flag("--once", asked->once, "end once all that is there has been told");
  events->callback(
      [run, asked] { *run = [asked](const Globals& globals) { return Events(globals, *asked); }; });
}

}  // namespace larder::cli
