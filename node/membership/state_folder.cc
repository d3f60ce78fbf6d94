#include "node/membership/state_folder.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "node/durable_file.h"
#include "proto/checksum.h"

namespace larder::node {

namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What stands behind its own checksum; empty: nothing whole.
std::string ReadChecked(const std::string& path) {
  std::string bytes = ReadAll(path);
  uint32_t crc = 0;
  if (bytes.size() <= sizeof crc) return "";
  std::memcpy(&crc, bytes.data(), sizeof crc);
  bytes.erase(0, sizeof crc);
  return Crc32c(0, AsBytes(bytes)) == crc ? bytes : "";
}

std::string WithChecksum(ByteView body) {
  const uint32_t crc = Crc32c(0, body);
  std::string bytes(sizeof crc, '\0');
  std::memcpy(bytes.data(), &crc, sizeof crc);
  bytes.append(reinterpret_cast<const char*>(body.data()), body.size());
  return bytes;
}

Status Mend(const Status& status) {
  if (status.ok()) return status;
  return {status.code(), "state_dir: " + status.text() + "; choose a folder that this user may write"};
}

}  // namespace

Result<StateFolder> StateFolder::Open(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  Result<int> lock = LockFolder(path);
  if (lock.status().code() == Code::kBusy) {
    return Invalid("state_dir: another process uses " + path + "; give each node a folder of its own");
  }
  if (!lock.ok()) return Invalid(Mend(lock.status()).text());
  return StateFolder(path, lock.value());
}

StateFolder::StateFolder(StateFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

StateFolder::~StateFolder() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

Result<std::string> StateFolder::NodeId(const std::string& wanted, const std::string& fallback) {
  const std::string path = path_ + "/node_id";
  std::string kept = ReadAll(path);
  while (!kept.empty() && kept.back() == '\n') kept.pop_back();
  if (!kept.empty()) {
    if (!wanted.empty() && wanted != kept) {
      return Invalid("node_id: " + path_ + " belongs to the node " + kept + ", not to " + wanted +
                     "; give it its own id or another state_dir");
    }
    return kept;
  }
  const std::string id = wanted.empty() ? fallback : wanted;
  LARDER_RETURN_IF_ERROR(Mend(ReplaceFile(path, id + "\n")));
  return id;
}

std::optional<NodeTable> StateFolder::Table() const {
  const std::string body = ReadChecked(path_ + "/table");
  if (body.empty()) return std::nullopt;
  Result<NodeTable> table = DecodeTable(AsBytes(body));
  if (!table.ok()) return std::nullopt;
  return std::move(table).value();
}

Status StateFolder::Keep(const NodeTable& table) {
  Bytes body;
  EncodeTable(table, &body);
  return Mend(ReplaceFile(path_ + "/table", WithChecksum(body)));
}

std::string StateFolder::Facts() const {
  return ReadChecked(path_ + "/facts");
}

Status StateFolder::KeepFacts(const std::string& facts) {
  return Mend(ReplaceFile(path_ + "/facts", WithChecksum(AsBytes(facts))));
}

}  // namespace larder::node
