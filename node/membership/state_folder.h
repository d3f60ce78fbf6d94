// What a node keeps of its membership on disk: its id and the last node table, so that it serves, and tells
// its clients of the cluster, also when it restarts while etcd or DNS is away.
#pragma once

#include <optional>
#include <string>

#include "proto/placement.h"
#include "proto/status.h"

namespace larder::node {

class StateFolder {
 public:
  // Makes the folder. kInvalid: it can't be made or written, or another process uses it.
  static Result<StateFolder> Open(const std::string& path);
  StateFolder(StateFolder&& other) noexcept;
  StateFolder& operator=(StateFolder&&) = delete;
  ~StateFolder();

  // The id that was given before in this folder; else `wanted`, else `fallback`, which is kept from now on.
  // kInvalid: `wanted` is not what is kept.
  Result<std::string> NodeId(const std::string& wanted, const std::string& fallback);
  // The last one that was kept; none when there is none or it is damaged.
  std::optional<NodeTable> Table() const;
  // Replaced at once or not at all. A disk that is full or broken is no reason to stop: the caller logs it.
  Status Keep(const NodeTable& table);
  // What follows is kept as it is given; empty when there is none or it is damaged.
  std::string Facts() const;
  Status KeepFacts(const std::string& facts);

 private:
  StateFolder(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace larder::node
