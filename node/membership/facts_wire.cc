#include "node/membership/facts_wire.h"

#include "node/membership/cluster_state.h"
#include "proto/control.pb.h"

namespace larder::node {

namespace {

namespace api = larder::control::v1;

bool IsVersion(uint64_t version) {
  return version >= 1 && version <= Roster::kVersionMax;
}

void SetTable(const NodeTable& table, api::Facts* out) {
  Bytes bytes;
  EncodeTable(table, &bytes);
  out->set_table(bytes.data(), bytes.size());
}

}  // namespace

std::vector<api::Facts> FactsMessages(const Roster& roster, size_t most) {
  std::vector<api::Facts> out(1);
  NodeTable table;
  const auto finish = [&] {
    SetTable(table, &out.back());
    out.back().set_founded_unix_minutes(roster.founded_minutes());
    table.nodes.clear();
  };
  for (const auto& [id, fact] : roster.facts()) {
    if (table.nodes.size() + static_cast<size_t>(out.back().gone_size()) == most) {
      finish();
      out.emplace_back();
    }
    if (fact.gone) {
      api::Facts::Gone* gone = out.back().add_gone();
      gone->set_id(id);
      gone->set_version(fact.version);
      continue;
    }
    table.nodes.push_back(fact.record);
    out.back().add_versions(fact.version);
  }
  finish();
  return out;
}

Status MergeFacts(const api::Facts& facts, Roster* roster, bool* news) {
  const ByteView bytes{reinterpret_cast<const std::byte*>(facts.table().data()), facts.table().size()};
  Result<NodeTable> table = DecodeTable(bytes);
  if (!table.ok()) return table.status();
  const auto versions = static_cast<size_t>(facts.versions_size());
  const auto gone = static_cast<size_t>(facts.gone_size());
  if (versions != table->nodes.size() || versions + gone > kNodesMax ||
      facts.founded_unix_minutes() > Roster::kFoundedMinutesMax) {
    return Invalid("facts: the counts do not fit");
  }
  std::vector<Fact> all;
  for (size_t i = 0; i < versions; ++i) {
    all.push_back({std::move(table->nodes[i]), facts.versions(static_cast<int>(i)), false});
  }
  for (const api::Facts::Gone& each : facts.gone()) {
    Fact fact;
    fact.record.id = each.id();
    fact.version = each.version();
    fact.gone = true;
    // An id that no record could have would make this roster one that nobody takes.
    if (!DecodeMember(EncodeMember(fact.record)).ok()) return Invalid("facts: no id");
    all.push_back(std::move(fact));
  }
  for (const Fact& fact : all) {
    if (!IsVersion(fact.version)) return Invalid("facts: no version");
  }
  *news |= roster->MergeFounded(facts.founded_unix_minutes());
  for (const Fact& fact : all) *news |= roster->Merge(fact);
  return Status::Ok();
}

std::string RosterBytes(const Roster& roster) {
  return FactsMessages(roster, kNodesMax)[0].SerializeAsString();
}

Status MergeRosterBytes(std::string_view bytes, Roster* roster) {
  api::Facts facts;
  if (!facts.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return {Code::kCorrupt, "facts: they do not parse"};
  }
  bool news = false;
  return MergeFacts(facts, roster, &news);
}

}  // namespace larder::node
