// What etcd holds of a cluster, as last seen, and what follows from it. Pure: no clock, no thread, no socket.
//
// Keys under /larder/CLUSTER/: `members/ID` a node's record, kept; `live/ID` its incarnation, under its
// lease; `epoch` the table's version in decimal. Every transaction that changes a member raises `epoch` with
// it, so that all nodes have the same table under the same version, also after etcd was set up anew (a node
// that knows a higher one goes on from there).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/placement.h"

namespace larder::node {

class ClusterState {
 public:
  explicit ClusterState(const std::string& cluster);

  struct Member {
    NodeRecord record;
    int64_t mod_revision = 0;
    std::string live;            // value of its live key; empty: none
    uint64_t missing_since = 0;  // when it was first seen without one
  };

  std::string prefix() const { return prefix_; }
  std::string MemberKey(std::string_view id) const { return prefix_ + "members/" + std::string(id); }
  std::string LiveKey(std::string_view id) const { return prefix_ + "live/" + std::string(id); }
  std::string EpochKey() const { return prefix_ + "epoch"; }

  // Everything is read anew: BeginSync, Put for each key, EndSync. Whoever is missing is missing from now on:
  // while nobody looked, nobody's absence counts.
  void BeginSync();
  void EndSync(uint64_t now_us);
  void Put(std::string_view key, std::string_view value, int64_t mod_revision, uint64_t now_us);
  void Delete(std::string_view key, uint64_t now_us);

  uint64_t epoch() const { return epoch_; }
  int64_t epoch_revision() const { return epoch_revision_; }  // 0: there is none
  const std::map<std::string, Member>& members() const { return members_; }
  const Member* Find(std::string_view id) const;
  uint32_t live() const;
  NodeTable Table() const;
  // Members in force that have been missing for `grace_us`; none while most are (absence.h).
  std::vector<std::string> Absent(uint64_t now_us, uint64_t grace_us) const;

 private:
  std::string prefix_;
  std::map<std::string, Member> members_;
  std::map<std::string, std::string> live_;  // also of those without a record yet
  uint64_t epoch_ = 0;
  int64_t epoch_revision_ = 0;
};

// It has a place: slots are its own.
bool InForce(const NodeRecord& record);

// A member's value: a table of one node.
std::string EncodeMember(const NodeRecord& record);
Result<NodeRecord> DecodeMember(std::string_view value);

}  // namespace larder::node
