// larder-demo: conversations, or a trace, played through running nodes by a prefill and a decode process.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <filesystem>

#include "proto/units.h"
#include "tests/demo/coordinator.h"
#include "tests/demo/recovery.h"

namespace {

using namespace larder::demo;

constexpr uint64_t kDefaultBlockBytes = 1 << 20;
constexpr double kDefaultSpeed = 11.5;  // the own conversations in a little less than a minute

std::atomic<bool> stop_asked{false};
extern "C" void AskToStop(int) {
  stop_asked.store(true);
}

struct Arguments {
  PlayOptions play;
  std::vector<std::string> metrics;
  std::string trace;
  std::string json;
  uint64_t requests_max = 0;
  std::string block_bytes;
  std::string kill_node, kill_request;
  std::optional<double> speed;
};

void AddShared(CLI::App* app, Arguments* arguments) {
  app->add_option("--nodes", arguments->play.worker.nodes, "data addresses of running nodes, by comma")
      ->delimiter(',');
  app->add_option("--transport", arguments->play.worker.transport, "auto, tcp, shm or ucx")
      ->check(CLI::IsMember({"auto", "tcp", "shm", "ucx"}))
      ->capture_default_str();
  app->add_option("--block-bytes", arguments->block_bytes,
                  "size of a block, a multiple of 8 [1MiB; a trace: 64KiB]");
  app->add_option("--seed", arguments->play.worker.seed, "of the conversations and of the blocks' contents")
      ->capture_default_str();
}

void AddOptions(CLI::App* app, Arguments* arguments) {
  app->add_option("--metrics", arguments->metrics,
                  "HTTP addresses of the nodes, by comma, for the share of payload")
      ->delimiter(',');
  app->add_option("--trace", arguments->trace,
                  "play this trace (Mooncake format) instead of own conversations");
  app->add_option("--speed", arguments->speed,
                  "of the workload's own clock; 0: as fast as it goes [conversations: 11.5; a trace: 0]")
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--requests", arguments->requests_max, "only the first so many; 0: all")
      ->capture_default_str();
  app->add_option("--window", arguments->play.window, "requests that prefill may be ahead of decode")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option("--kill-node", arguments->kill_node,
                  "after the play, have this node killed and started again, and show what it still has");
  app->add_option("--kill-request", arguments->kill_request,
                  "file to ask for that by: whoever started the node removes it when the node is back");
  app->add_option("--json", arguments->json, "write the figures to this file; -: standard output");
}

int Fail(const std::string& text) {
  std::fprintf(stderr, "larder-demo: %s\n", text.c_str());
  return 2;
}

// Size of a block: at least a word, and at most what a piece may hold.
larder::Status SetBlockBytes(Arguments* arguments) {
  WorkerOptions* worker = &arguments->play.worker;
  worker->block_bytes = arguments->trace.empty() ? kDefaultBlockBytes : 64 * 1024;
  if (arguments->block_bytes.empty()) return {};
  const auto bytes = larder::ParseBytes(arguments->block_bytes);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() < 8 || bytes.value() % 8 != 0 || bytes.value() > 64ull << 20) {
    return larder::Invalid("--block-bytes is a multiple of 8 from 8 to 64MiB");
  }
  worker->block_bytes = bytes.value();
  return {};
}

larder::Result<std::vector<Request>> RequestsOf(const Arguments& arguments) {
  std::vector<Request> requests;
  if (arguments.trace.empty()) {
    requests = MakeConversations({.seed = arguments.play.worker.seed});
  } else {
    auto trace = ReadTrace(arguments.trace);
    if (!trace.ok()) return trace.status();
    requests = std::move(trace).value();
  }
  if (arguments.requests_max > 0 && requests.size() > arguments.requests_max) {
    requests.resize(arguments.requests_max);
  }
  return requests;
}

int PrintDistinct(const Arguments& arguments) {
  const auto requests = RequestsOf(arguments);
  if (!requests.ok()) return Fail(requests.status().text());
  std::printf("%llu\n", static_cast<unsigned long long>(IdealOf(requests.value()).distinct *
                                                        arguments.play.worker.block_bytes));
  return 0;
}

int PlayAll(Arguments* arguments) {
  if (arguments->play.worker.nodes.empty()) return Fail("--nodes is required");
  if (arguments->kill_node.empty() != arguments->kill_request.empty()) {
    return Fail("--kill-node and --kill-request go together");
  }
  larder::ClientOptions options;
  options.seeds = arguments->play.worker.nodes;
  options.client_name = "larder-demo";
  const auto client = larder::Client::Open(options);
  if (!client.ok()) return Fail("no node answers: " + client.status().text());
  auto read = RequestsOf(*arguments);
  if (!read.ok()) return Fail(read.status().text());
  const std::vector<Request> requests = std::move(read).value();
  arguments->play.speed = arguments->speed.value_or(arguments->trace.empty() ? kDefaultSpeed : 0);
  const Ideal ideal = IdealOf(requests);
  std::printf(
      "%zu requests refer to %llu blocks of %s, %llu of them distinct (%s)\n", requests.size(),
      static_cast<unsigned long long>(ideal.blocks),
      larder::PrettyBytes(double(arguments->play.worker.block_bytes)).c_str(),
      static_cast<unsigned long long>(ideal.distinct),
      larder::PrettyBytes(double(ideal.distinct) * double(arguments->play.worker.block_bytes)).c_str());
  std::fflush(stdout);
  const auto stop = [] { return stop_asked.load(); };
  Totals totals = Play(arguments->play, requests, ideal, stop);
  const NodeMemory memory = MemoryOf(arguments->metrics);
  PrintTable(&totals, memory);
  Recovery recovery;
  if (!arguments->kill_node.empty() && totals.failure.empty() && !totals.interrupted) {
    recovery = KillAndRecall({arguments->play.worker, arguments->kill_node, arguments->kill_request},
                             requests, stop);
    PrintRecovery(recovery);
  }
  if (!arguments->json.empty() && !WriteJson(&totals, memory, recovery, arguments->json)) {
    return Fail("can't write " + arguments->json);
  }
  if (totals.wrong_bytes + recovery.wrong_bytes > 0) return 1;
  if (stop()) return 130;
  return totals.failure.empty() && recovery.failure.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  arguments.play.program = std::filesystem::read_symlink("/proc/self/exe").string();
  CLI::App app{
      "Plays multi-turn conversations, or a trace, through running nodes; every byte pulled is checked.",
      "larder-demo"};
  AddShared(&app, &arguments);
  AddOptions(&app, &arguments);
  app.require_subcommand(0, 1);
  app.fallthrough();
  CLI::App* prefill = app.add_subcommand("prefill", "the process that puts; started by larder-demo itself");
  CLI::App* decode = app.add_subcommand("decode", "the process that pulls; started by larder-demo itself");
  CLI::App* distinct =
      app.add_subcommand("distinct", "prints the bytes of the distinct blocks, and plays nothing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const larder::Status status = SetBlockBytes(&arguments);
  if (!status.ok()) return Fail(status.text());
  if (distinct->parsed()) return PrintDistinct(arguments);
  if (prefill->parsed()) return RunPrefill(arguments.play.worker);
  if (decode->parsed()) return RunDecode(arguments.play.worker);
  struct sigaction action {};
  action.sa_handler = AskToStop;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return PlayAll(&arguments);
}
