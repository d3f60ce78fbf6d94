#include "node/eviction/policy.h"

namespace larder::node {

std::string_view PolicyName(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kTournament:
      return "tournament";
    case PolicyKind::kHazard:
      return "hazard";
    case PolicyKind::kLru:
      return "lru";
    case PolicyKind::kS3Fifo:
      return "s3-fifo";
    case PolicyKind::kArc:
      return "arc";
    case PolicyKind::kLru2:
      return "lru-2";
    case PolicyKind::kLfu:
      return "lfu";
  }
  return "";
}

std::optional<PolicyKind> PolicyOfName(std::string_view name) {
  for (const PolicyKind kind : kPolicyKinds) {
    if (PolicyName(kind) == name) return kind;
  }
  return std::nullopt;
}

std::unique_ptr<PolicyFamily> MakePolicyFamily(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kTournament:
      return MakeTournament();
    case PolicyKind::kHazard:
      return MakeReuseHazard();
    case PolicyKind::kLru:
      return MakeLeafFirstLru();
    case PolicyKind::kS3Fifo:
      return MakeS3Fifo();
    case PolicyKind::kArc:
      return MakeArc();
    case PolicyKind::kLru2:
      return MakeLru2();
    case PolicyKind::kLfu:
      return MakeLfuAging();
  }
  return nullptr;
}

}  // namespace larder::node
