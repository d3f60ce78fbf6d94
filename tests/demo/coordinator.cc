#include "tests/demo/coordinator.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/bench/measure.h"
#include "tests/bench/process.h"

namespace larder::demo {

namespace {

using bench::NowUs;
using nlohmann::json;

constexpr uint64_t kProgressUs = 1'000'000;
constexpr uint64_t kReadyTimeoutUs = 15'000'000;
constexpr uint64_t kSilenceMaxUs = 120'000'000;  // no result for so long: something hangs

// A worker process and the two pipes to it.
class Worker {
 public:
  Worker(const char* role, const PlayOptions& options) : role_(role) {
    int input[2], output[2];
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) return;
    std::string nodes;
    for (const std::string& node : options.worker.nodes) nodes += (nodes.empty() ? "" : ",") + node;
    pid_ = bench::Spawn(
        {.argv = {options.program, role, "--nodes", nodes, "--transport", options.worker.transport,
                  "--block-bytes", std::to_string(options.worker.block_bytes), "--seed",
                  std::to_string(options.worker.seed)},
         .input_fd = input[0],
         .output_fd = output[1],
         .error_fd = STDERR_FILENO});
    close(input[0]);
    close(output[1]);
    to_ = input[1];
    from_ = output[0];
  }
  // Closing its input ends it; one that doesn't listen is ended by its id.
  ~Worker() {
    if (to_ >= 0) close(to_);
    const uint64_t end_us = NowUs() + 3'000'000;
    while (pid_ > 0 && bench::IsAlive(pid_) && NowUs() < end_us) usleep(5'000);
    if (pid_ > 0) bench::End(pid_, 500);
    if (from_ >= 0) close(from_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int from() const { return from_; }
  const std::string& role() const { return role_; }

  bool Send(const std::string& line) {
    size_t sent = 0;
    while (sent < line.size()) {
      const ssize_t bytes = write(to_, line.data() + sent, line.size() - sent);
      if (bytes < 0 && errno != EINTR) return false;
      if (bytes > 0) sent += size_t(bytes);
    }
    return true;
  }

  // Reads what is there; false once the worker has closed its end.
  bool Read() {
    char buffer[64 * 1024];
    const ssize_t bytes = read(from_, buffer, sizeof(buffer));
    if (bytes > 0) text_.append(buffer, size_t(bytes));
    return bytes > 0 || (bytes < 0 && errno == EINTR);
  }
  bool NextLine(json* object) {
    const size_t end = text_.find('\n');
    if (end == std::string::npos) return false;
    *object = json::parse(text_.substr(0, end), nullptr, false);
    text_.erase(0, end + 1);
    return true;
  }

 private:
  const std::string role_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string text_;
};

void AddCounts(const json& from, std::map<std::string, uint64_t>* to) {
  for (const auto& [name, count] : from.items()) (*to)[name] += count.get<uint64_t>();
}

class Player {
 public:
  Player(const PlayOptions& options, const std::vector<Request>& requests, const Ideal& ideal)
      : options_(options),
        requests_(requests),
        ideal_(ideal),
        prefill_("prefill", options),
        decode_("decode", options) {}

  Totals Run(const std::function<bool()>& stop) {
    start_us_ = heard_us_ = NowUs();
    while (totals_.failure.empty() && !Done() && !totals_.interrupted) {
      const uint64_t now_us = NowUs();
      if (ready_ == 2) Hand(now_us);
      Listen(now_us);
      Progress(NowUs());
      totals_.interrupted = stop();
    }
    totals_.seconds = double(NowUs() - start_us_) * 1e-6;
    ShowProgress(true);
    return std::move(totals_);
  }

 private:
  // The last result of decode may be here before that of prefill.
  bool Done() const { return std::min(totals_.requests, totals_.prefilled) == requests_.size(); }

  // Both workers get a request at the same moment: decode's waits meet prefill's writes.
  void Hand(uint64_t now_us) {
    while (handed_ < requests_.size() && handed_ < totals_.requests + options_.window &&
           now_us >= DueUs(handed_)) {
      const Request& request = requests_[handed_];
      const std::string line = json{{"id", handed_}, {"blocks", request.blocks}}.dump() + "\n";
      if (!prefill_.Send(line) || !decode_.Send(line)) {
        totals_.failure = "a worker process died";
        return;
      }
      heard_us_ = NowUs();
      ++handed_;
    }
  }

  uint64_t DueUs(size_t index) const {
    if (options_.speed <= 0) return 0;
    const double after_ms = double(requests_[index].at_ms - requests_[0].at_ms) / options_.speed;
    return start_us_ + uint64_t(after_ms * 1000);
  }

  void Listen(uint64_t now_us) {
    uint64_t until_us = now_us + 100'000;
    if (ready_ == 2 && handed_ < requests_.size() && handed_ < totals_.requests + options_.window) {
      until_us = std::min(until_us, std::max(now_us, DueUs(handed_)));
    }
    pollfd ends[] = {{prefill_.from(), POLLIN, 0}, {decode_.from(), POLLIN, 0}};
    const int ready = poll(ends, 2, int((until_us - now_us + 999) / 1000));
    for (int i = 0; ready > 0 && i < 2; ++i) {
      Worker& worker = i == 0 ? prefill_ : decode_;
      if (ends[i].revents == 0) continue;
      heard_us_ = NowUs();
      if (!worker.Read()) totals_.failure = "the " + worker.role() + " process died";
      for (json object; worker.NextLine(&object);) Take(&worker, object);
    }
    const uint64_t patience_us = ready_ == 2 ? kSilenceMaxUs : kReadyTimeoutUs;
    if (handed_ > std::min(totals_.requests, totals_.prefilled) || ready_ < 2) {
      if (NowUs() - heard_us_ > patience_us) totals_.failure = "the workers have gone silent";
    }
  }

  void Take(Worker* worker, const json& object) {
    if (!object.is_object()) {
      totals_.failure = "the " + worker->role() + " process talks nonsense";
    } else if (object.contains("ready")) {
      if (++ready_ == 2) start_us_ = NowUs();
    } else if (worker == &prefill_) {
      const size_t id = object.at("id").get<size_t>();
      ++totals_.prefilled;
      // Should decode have died, reading from it says so.
      (void)decode_.Send(json{{"prefilled", id}}.dump() + "\n");
      totals_.blocks += requests_[id].blocks.size();
      totals_.ideal_hit_blocks += ideal_.hits[id];
      totals_.hit_blocks += object.at("hit").get<uint64_t>();
      totals_.blocks_put += object.at("put").get<uint64_t>();
      totals_.bytes_put += object.at("put_bytes").get<uint64_t>();
      totals_.match_us.push_back(object.at("match_us").get<double>());
      totals_.put_seconds += object.at("put_us").get<double>() * 1e-6;
      AddCounts(object.at("tiers"), &totals_.hit_tiers);
      AddCounts(object.at("not_stored"), &totals_.not_stored);
    } else {
      ++totals_.requests;
      totals_.blocks_pulled += object.at("pulled").get<uint64_t>();
      totals_.bytes_pulled += object.at("bytes").get<uint64_t>();
      totals_.wrong_bytes += object.at("wrong_bytes").get<uint64_t>();
      totals_.wait_us.push_back(object.at("wait_us").get<double>());
      for (const json& us : object.at("pull_us")) totals_.pull_us.push_back(us.get<double>());
      AddCounts(object.at("tiers"), &totals_.pulled_tiers);
      AddCounts(object.at("missed"), &totals_.missed);
      totals_.peers = object.at("peers").get<std::map<std::string, uint64_t>>();
    }
  }

  void Progress(uint64_t now_us) {
    if (now_us < shown_us_ + kProgressUs * (terminal_ ? 1 : 5)) return;
    shown_us_ = now_us;
    ShowProgress(false);
  }
  void ShowProgress(bool last) {
    const std::string line = ProgressLine(totals_, requests_.size(), double(NowUs() - start_us_) * 1e-6);
    std::fprintf(stderr, "%s%-110s%s", terminal_ ? "\r" : "", line.c_str(), terminal_ && !last ? "" : "\n");
    std::fflush(stderr);
  }

  const PlayOptions& options_;
  const std::vector<Request>& requests_;
  const Ideal& ideal_;
  Worker prefill_, decode_;
  Totals totals_;
  size_t handed_ = 0;
  int ready_ = 0;
  uint64_t start_us_ = 0, heard_us_ = 0, shown_us_ = 0;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
};

}  // namespace

Totals Play(const PlayOptions& options, const std::vector<Request>& requests, const Ideal& ideal,
            const std::function<bool()>& stop) {
  signal(SIGPIPE, SIG_IGN);
  Player player(options, requests, ideal);
  return player.Run(stop);
}

}  // namespace larder::demo
