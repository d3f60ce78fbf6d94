#include "node/daemon/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <string>

namespace larder::node {
namespace {

// One JSON object a line: time in RFC 3339, level, node, message.
class JsonFormatter final : public spdlog::formatter {
 public:
  explicit JsonFormatter(std::string node)
      : node_(std::move(node)), time_("%Y-%m-%dT%H:%M:%S.%eZ", spdlog::pattern_time_type::utc, "") {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    spdlog::memory_buf_t time;
    time_.format(message, time);
    const auto level = spdlog::level::to_string_view(message.level);
    const nlohmann::ordered_json line = {
        {"time", std::string(time.data(), time.size())},
        {"level", std::string(level.data(), level.size())},
        {"node", node_},
        {"message", std::string(message.payload.data(), message.payload.size())}};
    const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(node_); }

 private:
  std::string node_;
  spdlog::pattern_formatter time_;
};

}  // namespace

void StartLogging(std::string_view level, std::string_view format, std::string_view node_name) {
  auto logger = spdlog::stderr_logger_mt("larder-node");
  if (format == "json") {
    logger->set_formatter(std::make_unique<JsonFormatter>(std::string(node_name)));
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %v", spdlog::pattern_time_type::utc);
  }
  logger->set_level(spdlog::level::from_str(level == "warn" ? "warning" : std::string(level)));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace larder::node
