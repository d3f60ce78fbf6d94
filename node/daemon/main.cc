// larder-node: a node of the cluster as a process. Reads its configuration, starts the node with its control
// service and HTTP endpoints, serves until SIGTERM, ends what is in flight, exits 0.
//
// Exit codes: 0 stopped as asked; 1 failed while running, or told twice to stop; 2 configuration or machine
// at fault, with one line on standard error.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "node/cluster/bring_home.h"
#include "node/cluster/hand_over.h"
#include "node/cluster/hot_copies.h"
#include "node/cluster/repair.h"
#include "node/daemon/cluster_link.h"
#include "node/daemon/config.h"
#include "node/daemon/control_service.h"
#include "node/daemon/daemon_options.h"
#include "node/daemon/endpoints.h"
#include "node/daemon/http_server.h"
#include "node/daemon/logging.h"
#include "node/daemon/machine.h"
#include "node/events/kv_event_publisher.h"
#include "node/node.h"
#include "node/version.h"
#include "proto/units.h"

namespace larder::node {
namespace {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitConfig = 2;
constexpr long kSignalPollNs = 50'000'000;
constexpr uint64_t kStragglersUs = 1'000'000;
constexpr uint64_t kTellEndUs = 3'000'000;
constexpr auto kStragglerPoll = std::chrono::milliseconds(5);

int Refuse(const Status& status) {
  std::fprintf(stderr, "larder-node: %s\n", status.text().c_str());
  const bool ours = status.code() == Code::kInvalid || status.code() == Code::kUnsupported;
  return ours ? kExitConfig : kExitFailed;
}

// What can't run here is said before anything is started.
Status CheckMachine(const Config& config, std::string* warning) {
  LARDER_RETURN_IF_ERROR(CheckMemory(config, ReadMachineMemory(), warning));
  LARDER_RETURN_IF_ERROR(CheckPortFree("data_listen", config.data_listen));
  LARDER_RETURN_IF_ERROR(CheckPortFree("control_listen", config.control_listen));
  LARDER_RETURN_IF_ERROR(CheckPortFree("http_listen", config.http_listen));
  if (!config.kv_events_listen.empty()) {
    LARDER_RETURN_IF_ERROR(CheckPortFree("kv_events_listen", config.kv_events_listen));
  }
  if (!config.kv_events_replay_listen.empty()) {
    LARDER_RETURN_IF_ERROR(CheckPortFree("kv_events_replay_listen", config.kv_events_replay_listen));
  }
  return Status::Ok();
}

std::string Report(const NodeInfo& info, const KvEventPublisher* kv_events) {
  nlohmann::ordered_json report = {
      {"node_id", info.record.id},        {"pid", getpid()},
      {"data", info.record.data_address}, {"control", info.record.control_address},
      {"http", info.record.http_address}, {"shm", info.record.shm_path},
      {"ucx", info.record.ucx_address},   {"transports", info.transports},
      {"version", LARDER_VERSION}};
  if (kv_events != nullptr) {
    report["kv_events"] = kv_events->address();
    report["kv_events_replay"] = kv_events->replay_address();
  }
  return report.dump();
}

// Whoever waits for the file sees all of it or nothing.
Status WriteReport(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  std::ofstream out(draft);
  out << text << "\n";
  out.close();
  if (!out || std::rename(draft.c_str(), path.c_str()) != 0) {
    return Invalid("report: cannot write " + path + ": " + std::strerror(errno) +
                   "; choose another place with --report");
  }
  return Status::Ok();
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// The same, and the one by which a drain wakes the main thread.
sigset_t WithDrainSignal(sigset_t signals) {
  sigaddset(&signals, SIGUSR1);
  return signals;
}

void TellHeard(const HeardRules& heard) {
  if (!heard.status.ok()) spdlog::warn("quarantine, heard of from other nodes: {}", heard.status.text());
  if (heard.taken != 0) spdlog::info("quarantine: {} rules heard of from other nodes", heard.taken);
  if (heard.cleared != 0) spdlog::info("{} namespaces were cleared meanwhile, and now here", heard.cleared);
  if (heard.answered < heard.asked) {
    spdlog::info("quarantine: {} of {} other nodes did not say what was ruled out or cleared meanwhile",
                 heard.asked - heard.answered, heard.asked);
  }
}

struct Daemon {
  explicit Daemon(LoadedConfig loaded_config) : loaded(std::move(loaded_config)) {}

  LoadedConfig loaded;
  Endpoints endpoints;
  std::atomic<bool> leaving{false};  // drained on demand: the place in the table goes too
  // Destroyed from the last to the first: whoever asks the node goes before it.
  std::unique_ptr<Node> node;
  std::unique_ptr<ClusterLink> cluster;
  std::unique_ptr<BringHome> bring_home;  // nodes that come and go move slots
  std::unique_ptr<Repair> repair;         // and places of copies
  std::unique_ptr<HotCopies> hot_copies;  // what is read much is read elsewhere too
  std::unique_ptr<KvEventPublisher> kv_events;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<ControlService> control;

  Status Start(const sigset_t& signals) {
    const Config& config = loaded.config;
    auto cluster_opened = ClusterLink::Open(config, loaded.credentials);
    if (!cluster_opened.ok()) return cluster_opened.status();
    cluster = std::move(cluster_opened).value();
    std::string shm_path;
    if (config.shm) {
      Result<std::string> prepared = PrepareShmPath(config);
      if (!prepared.ok()) return prepared.status();
      shm_path = std::move(prepared).value();
    }
    HttpOptions http_options;
    http_options.listen = config.http_listen;
    auto http_started =
        HttpServer::Start(http_options, [this](std::string_view path) { return endpoints.Handle(path); });
    if (!http_started.ok()) return Invalid("http_listen: " + http_started.status().text());
    http = std::move(http_started).value();
    auto control_started = ControlService::Start(config.control_listen, loaded.credentials);
    if (!control_started.ok()) return Invalid("control_listen: " + control_started.status().text());
    control = std::move(control_started).value();
    control->SetExchange(
        [this](const auto& request, auto* response) { return cluster->AnswerExchange(request, response); });
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) return Status(Code::kInternal, "no random numbers");
    NodeOptions options = NodeOptionsOf(loaded, shm_path, seed);
    options.control_address = AdvertisedAddress(config, control->address());
    options.http_address = AdvertisedAddress(config, http->address());
    LARDER_RETURN_IF_ERROR(cluster->Prepare(&options));
    auto node_started = Node::Start(options);
    if (!node_started.ok()) return node_started.status();
    node = std::move(node_started).value();
    if (const auto kv_options = KvEventOptionsOf(config, node->info().record.id)) {
      auto kv_started = KvEventPublisher::Start(*kv_options, node.get());
      if (!kv_started.ok()) return kv_started.status();
      kv_events = std::move(kv_started).value();
    }
    if (config.membership != "static")
      bring_home = std::make_unique<BringHome>(node.get(), loaded.credentials);
    endpoints.SetCluster(cluster.get());
    const timespec at_once{};
    LARDER_RETURN_IF_ERROR(cluster->Join(
        node.get(), [&] { return sigtimedwait(&signals, nullptr, &at_once) > 0; }, TellHeard));
    const bool copies = std::any_of(loaded.tenants.begin(), loaded.tenants.end(),
                                    [](const TenantLimits& tenant) { return tenant.replicas > 1; });
    if (config.membership != "static" && copies) {
      const RepairOptions how{.bytes_per_second = config.repair_rate, .credentials = loaded.credentials};
      repair = std::make_unique<Repair>(node.get(), how);
    }
    if (config.hot_copies != 0 || config.near_share != 0) {
      hot_copies =
          std::make_unique<HotCopies>(node.get(), HotCopiesOptions{config.hot_rate, loaded.credentials});
    }
    endpoints.SetNode(node.get());
    control->SetDrain(
        [this] {
          if (!leaving.exchange(true)) kill(getpid(), SIGUSR1);
        },
        config.hand_over_budget + config.drain_budget);
    control->SetNode(node.get());
    control->SetServing(true);
    return Status::Ok();
  }

  // Gives the blocks in memory to the other nodes, as far as the budget goes. What it returns goes on
  // carrying removes to them.
  std::unique_ptr<HandOver> HandOverBlocks() {
    const Config& config = loaded.config;
    auto hand_over =
        std::make_unique<HandOver>(node.get(), HandOverOptions{.budget_us = config.hand_over_budget,
                                                               .bytes_per_second = config.hand_over_rate,
                                                               .credentials = loaded.credentials});
    hand_over->Wait();
    const HandOverProgress told = node->info().hand_over;
    const std::string so_far = std::to_string(told.handed_blocks) + " of " + std::to_string(told.blocks) +
                               " blocks, " + PrettyBytes(static_cast<double>(told.handed_bytes));
    if (told.reason.empty()) {
      spdlog::info("handed over {}", so_far);
    } else {
      spdlog::warn("handed over {}, then ended: {}", so_far, told.reason);
    }
    return hand_over;
  }

  // The place in the table is gone. Serves until every client may have heard of it, and whoever watches a
  // drain how the hand-over ended.
  void ServeStragglers() const {
    const uint64_t begin_us = transport::NowUs();
    for (;; std::this_thread::sleep_for(kStragglerPoll)) {
      const uint64_t passed_us = transport::NowUs() - begin_us;
      const bool told = !leaving || control->hand_over_end_told();
      if (passed_us >= (told ? kStragglersUs : kTellEndUs)) return;
    }
  }

  // Hands over when the node leaves for good, then ends what is in flight within the budget. A second signal
  // ends the process at once.
  void StopGracefully(const sigset_t& signals) {
    const Config& config = loaded.config;
    const bool gives =
        config.hand_over_budget != 0 && (leaving || (config.hand_over_on_stop && HasHeir(node->info())));
    const bool for_good = leaving || gives;
    node->BeginDrain(!gives);  // whoever hears that the node stops finds it so
    endpoints.SetStopping();
    control->SetServing(false);
    cluster->Drain();
    std::atomic<bool> done{false};
    std::thread drain([&, this] {
      bring_home.reset();
      repair.reset();
      const std::unique_ptr<HandOver> hand_over = gives ? HandOverBlocks() : nullptr;
      node->Drain(config.drain_budget);
      if (!for_good) {
        cluster->Leave();
      } else if (const Status resigned = cluster->Resign(); !resigned.ok()) {
        spdlog::warn("still in the table: {}", resigned.text());
      }
      if (gives) {
        ServeStragglers();
        node->Drain(config.drain_budget);
      }
      hot_copies.reset();  // until now it has told of what was removed
      node->Stop();
      done = true;
    });
    const timespec poll{0, kSignalPollNs};
    bool asked = !leaving;  // by a signal: after larderctl drain the first one is no second
    while (!done) {
      if (sigtimedwait(&signals, nullptr, &poll) < 0) continue;
      if (!std::exchange(asked, true)) {
        spdlog::info("it drains already; once more to exit at once");
        continue;
      }
      spdlog::warn("told twice to stop: exits at once");
      spdlog::shutdown();
      _exit(kExitFailed);
    }
    drain.join();
  }
};

int Serve(LoadedConfig loaded, const std::string& warning, const sigset_t& signals) {
  const std::string report_path = loaded.config.report;
  const bool strangers = OpenToStrangers(loaded);
  const uint64_t memory_bytes = loaded.config.memory_bytes;
  Daemon daemon(std::move(loaded));
  if (Status status = daemon.Start(signals); !status.ok()) {
    if (status.code() != Code::kCancelled) return Refuse(status);
    spdlog::info("{}", status.text());
    return kExitOk;
  }
  const std::string report = Report(daemon.node->info(), daemon.kv_events.get());
  if (!report_path.empty()) {
    if (Status status = WriteReport(report_path, report); !status.ok()) return Refuse(status);
  }
  if (!warning.empty()) spdlog::warn("{}", warning);
  for (const std::string& remark : daemon.node->info().remarks) spdlog::warn("ssd: {}", remark);
  if (strangers)
    spdlog::warn(
        "no credentials are set and the data port is not on loopback: everybody who reaches it may use it");
  spdlog::info("serves {} of blocks: {}", PrettyBytes(static_cast<double>(memory_bytes)), report);

  int signal = 0;
  const sigset_t awaited = WithDrainSignal(signals);
  do {
    while (sigwait(&awaited, &signal) != 0) {
    }
  } while (signal == SIGUSR1 && !daemon.leaving);
  spdlog::info("{}: ends what is in flight", daemon.leaving ? "drain" : strsignal(signal));
  daemon.StopGracefully(signals);
  if (!report_path.empty()) unlink(report_path.c_str());
  spdlog::info("stopped");
  return kExitOk;
}

int Main(int argc, char** argv, char** environment) {
  Result<LoadedConfig> loaded = LoadConfig(argc, argv, environment);
  if (!loaded.ok()) return Refuse(Invalid(loaded.status().text()));
  if (loaded->asked == Asked::kPrint) {
    std::fputs(loaded->output.c_str(), stdout);
    return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
  }
  RaiseOpenFiles();
  signal(SIGPIPE, SIG_IGN);
  // Blocked before any thread is made: they all inherit it, and only this one waits for them.
  const sigset_t signals = StopSignals();
  const sigset_t blocked = WithDrainSignal(signals);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  std::string warning;
  if (Status status = CheckMachine(loaded->config, &warning); !status.ok()) return Refuse(status);
  if (!loaded->config.report.empty()) unlink(loaded->config.report.c_str());  // of an earlier run
  StartLogging(loaded->config.log_level, loaded->config.log_format, loaded->config.node_id);
  return Serve(std::move(loaded).value(), warning, signals);
}

}  // namespace
}  // namespace larder::node

int main(int argc, char** argv, char** environment) {
  try {
    return larder::node::Main(argc, argv, environment);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "larder-node: %s\n", error.what());
    return larder::node::kExitFailed;
  }
}
