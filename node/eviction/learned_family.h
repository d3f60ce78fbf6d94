// The family behind the learned policies: every class is a grouped order; what is worth keeping is learned
// from sampled chains, whose blocks are remembered whether they are resident or not.
#pragma once

#include <vector>

#include "node/eviction/chain_history.h"
#include "node/eviction/chain_sampler.h"
#include "node/eviction/grouped_order.h"

namespace larder::node {

class LearnedFamily : public PolicyFamily {
 public:
  LearnedFamily();

  std::unique_ptr<EvictionPolicy> Make() override { return MakeGroupedOrder(&shared_); }
  bool observes() const override { return true; }
  void Observe(const ChainTouch& touch) override;
  void ObserveEnd(const ChainTouch& touch) override;
  void Prefetch(uint32_t entry) const override { shared_.store.Prefetch(entry); }
  void PrefetchNeighbours(uint32_t entry) const override { shared_.store.PrefetchNeighbours(entry); }
  uint64_t metadata_bytes() const override;
  std::string_view following() const override { return PolicyName(PolicyKind::kHazard); }

 protected:
  // A block of a sampled request, root first: its number in the history, and how often it was used before, up
  // to two.
  struct Use {
    uint32_t entry = 0;
    uint32_t before = 0;
  };
  virtual void Play(const ChainTouch&, const std::vector<Use>&) {}
  virtual void PlayEnd(uint32_t, Retention) {}
  virtual void Forget(uint32_t) {}  // an entry whose number goes to another block
  virtual void Restart() {}         // all of them

  // This node sees less than half of the chains that it watches: the rest is other nodes'.
  bool sees_shares() const { return chains_ > 2 * observed_; }

  GroupedShared shared_;
  ReuseModel model_;
  SeenMemory seen_;
  ChainHistory history_;
  ChainSampler sampler_;

 private:
  void StartAnew(uint64_t now_us);
  void Learn(uint64_t now_us);

  std::vector<Use> uses_;  // of the request at hand
  uint64_t observed_ = 0;  // references of sampled chains
  uint64_t chains_ = 0;    // blocks of those chains, other nodes' included
  uint64_t learn_at_ = 64;
};

}  // namespace larder::node
