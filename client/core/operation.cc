#include "client/core/operation.h"

#include <algorithm>

namespace larder::client {
namespace {

Status CheckNamespace(const NamespaceHandle& ns) {
  if (!ns.valid()) return Invalid("the namespace handle is empty: use the one that OpenNamespace returned");
  return Status::Ok();
}

Status CheckChain(size_t hashes) {
  if (hashes > kHashesMax) {
    return Invalid("chain of " + std::to_string(hashes) + " hashes; the limit is " +
                   std::to_string(kHashesMax));
  }
  return Status::Ok();
}

Status CheckGroups(size_t groups) {
  if (groups == 0 || groups > kGroupsMax) {
    return Invalid(std::to_string(groups) + " groups; from 1 to " + std::to_string(kGroupsMax) +
                   " can be asked");
  }
  return Status::Ok();
}

Status PickRectangle(const NamespaceHandle& ns, bool whole, const Rectangle& asked, Rectangle* rectangle) {
  const Rectangle grid = WholeOf(ns.grid);
  *rectangle = whole ? grid : asked;
  if (!rectangle->valid() || !grid.Contains(*rectangle)) {
    return Invalid("the rectangle is empty or reaches beyond the namespace's grid of " +
                   std::to_string(ns.grid.layers) + " layers x " + std::to_string(ns.grid.head_groups) +
                   " head groups");
  }
  return Status::Ok();
}

Status CheckParts(const PutItem& item, const Rectangle& rectangle, uint64_t bytes,
                  std::vector<PartRun>* parts) {
  const uint32_t count = rectangle.parts();
  if (count > kPartsMax) {
    return Invalid("a piece of " + std::to_string(count) + " parts; the limit is " +
                   std::to_string(kPartsMax));
  }
  if (bytes == 0 || bytes > kPieceBytesMax) {
    return Invalid("a piece of " + std::to_string(bytes) + " bytes; from 1 to " +
                   std::to_string(kPieceBytesMax) + " can be stored");
  }
  if (item.parts.empty()) {
    if (bytes % count != 0 || bytes / count > UINT32_MAX) {
      return Invalid(std::to_string(bytes) + " bytes are not " + std::to_string(count) +
                     " equal parts: give the sizes in `parts`");
    }
    parts->assign(1, {count, static_cast<uint32_t>(bytes / count)});
    return Status::Ok();
  }
  uint64_t part_count = 0, part_bytes = 0;
  for (const PartRun& run : item.parts) {
    part_count += run.count;
    part_bytes += uint64_t{run.count} * run.bytes;
  }
  if (part_count != count || part_bytes != bytes) {
    return Invalid("`parts` name " + std::to_string(part_count) + " parts of " + std::to_string(part_bytes) +
                   " bytes; the rectangle has " + std::to_string(count) + ", the extents " +
                   std::to_string(bytes));
  }
  *parts = item.parts;
  return Status::Ok();
}

Status SetChain(const NamespaceHandle& ns, const WaitRequest& request, ChainOperation* operation) {
  LARDER_RETURN_IF_ERROR(CheckNamespace(ns));
  LARDER_RETURN_IF_ERROR(CheckChain(request.chain.size()));
  LARDER_RETURN_IF_ERROR(CheckGroups(request.groups.size()));
  LARDER_RETURN_IF_ERROR(PickRectangle(ns, request.whole, request.rectangle, &operation->rectangle));
  operation->name_space = ns.index;
  operation->chain = std::make_shared<std::vector<ChainHash>>(request.chain.begin(), request.chain.end());
  for (const GroupSpec& group : request.groups) operation->groups.push_back(group.group);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Operation>> MakeMatch(const NamespaceHandle& ns, const MatchRequest& request) {
  LARDER_RETURN_IF_ERROR(CheckNamespace(ns));
  LARDER_RETURN_IF_ERROR(CheckChain(request.chain.size()));
  LARDER_RETURN_IF_ERROR(CheckGroups(request.groups.size()));
  auto operation = std::make_unique<MatchOperation>();
  LARDER_RETURN_IF_ERROR(PickRectangle(ns, request.whole, request.rectangle, &operation->rectangle));
  operation->name_space = ns.index;
  operation->chain = std::make_shared<std::vector<ChainHash>>(request.chain.begin(), request.chain.end());
  operation->groups = request.groups;
  for (const GroupSpec& group : request.groups) operation->group_numbers.push_back(group.group);
  operation->pin_us = static_cast<uint32_t>(std::min<uint64_t>(request.pin_us, kPinUsMax));
  operation->presence.assign(request.chain.size() * request.groups.size(), Presence::kTimedOut);
  operation->estimate_us.assign(request.chain.size(), 0);
  return std::unique_ptr<Operation>(std::move(operation));
}

Result<std::unique_ptr<Operation>> MakeGet(const NamespaceHandle& ns, std::span<const GetItem> items) {
  LARDER_RETURN_IF_ERROR(CheckNamespace(ns));
  LARDER_RETURN_IF_ERROR(CheckChain(items.size()));
  auto operation = std::make_unique<GetOperation>();
  operation->name_space = ns.index;
  operation->targets.reserve(items.size());
  operation->extents.reserve(items.size());
  for (const GetItem& item : items) {
    GetTarget target;
    target.ref.hash = item.hash;
    target.ref.group = item.group;
    LARDER_RETURN_IF_ERROR(PickRectangle(ns, item.whole, item.rectangle, &target.ref.rectangle));
    target.first_extent = static_cast<uint32_t>(operation->extents.size());
    target.extent_count = static_cast<uint32_t>(item.extents.size());
    for (const MutableExtent& extent : item.extents) {
      if (extent.data == nullptr && extent.bytes != 0) return Invalid("an extent without memory");
      operation->extents.push_back({static_cast<std::byte*>(extent.data), extent.bytes});
      target.bytes += extent.bytes;
    }
    if (target.bytes == 0) return Invalid("a get without memory to land in");
    operation->targets.push_back(target);
  }
  BlockResult unknown;
  unknown.reason = Presence::kUnreachable;  // until a node says better
  operation->results.assign(items.size(), unknown);
  return std::unique_ptr<Operation>(std::move(operation));
}

Result<std::unique_ptr<Operation>> MakePut(const NamespaceHandle& ns, std::span<const PutItem> items) {
  LARDER_RETURN_IF_ERROR(CheckNamespace(ns));
  LARDER_RETURN_IF_ERROR(CheckChain(items.size()));
  auto operation = std::make_unique<PutOperation>();
  operation->name_space = ns.index;
  operation->sources.reserve(items.size());
  operation->extents.reserve(items.size());
  for (const PutItem& item : items) {
    PutSource source;
    source.ref.hash = item.hash;
    source.ref.group = item.group;
    LARDER_RETURN_IF_ERROR(PickRectangle(ns, item.whole, item.rectangle, &source.ref.rectangle));
    source.first_extent = static_cast<uint32_t>(operation->extents.size());
    source.extent_count = static_cast<uint32_t>(item.extents.size());
    for (const ConstExtentRef& extent : item.extents) {
      if (extent.data == nullptr && extent.bytes != 0) return Invalid("an extent without memory");
      operation->extents.push_back({static_cast<const std::byte*>(extent.data), extent.bytes});
      source.bytes += extent.bytes;
    }
    LARDER_RETURN_IF_ERROR(CheckParts(item, source.ref.rectangle, source.bytes, &source.parts));
    if (item.constituents.size() > kConstituentsMax) {
      return Invalid(std::to_string(item.constituents.size()) + " constituents; the limit is " +
                     std::to_string(kConstituentsMax));
    }
    source.constituents = item.constituents;
    source.depth = item.depth;
    source.retention = item.retention;
    operation->sources.push_back(std::move(source));
  }
  operation->results.resize(items.size());
  return std::unique_ptr<Operation>(std::move(operation));
}

Result<std::unique_ptr<Operation>> MakeWait(const NamespaceHandle& ns, const WaitRequest& request) {
  auto operation = std::make_unique<WaitOperation>();
  LARDER_RETURN_IF_ERROR(SetChain(ns, request, operation.get()));
  operation->leading = static_cast<uint32_t>(request.chain.size());
  return std::unique_ptr<Operation>(std::move(operation));
}

Result<std::unique_ptr<Operation>> MakePrefetch(const NamespaceHandle& ns, const WaitRequest& request) {
  auto operation = std::make_unique<PrefetchOperation>();
  LARDER_RETURN_IF_ERROR(SetChain(ns, request, operation.get()));
  return std::unique_ptr<Operation>(std::move(operation));
}

Result<std::unique_ptr<Operation>> MakeRemove(const NamespaceHandle& ns, std::span<const ChainHash> hashes,
                                              std::span<const uint16_t> groups) {
  LARDER_RETURN_IF_ERROR(CheckNamespace(ns));
  LARDER_RETURN_IF_ERROR(CheckChain(hashes.size()));
  LARDER_RETURN_IF_ERROR(CheckGroups(groups.size()));
  auto operation = std::make_unique<RemoveOperation>();
  operation->name_space = ns.index;
  operation->hashes.assign(hashes.begin(), hashes.end());
  operation->groups.assign(groups.begin(), groups.end());
  return std::unique_ptr<Operation>(std::move(operation));
}

Result<std::vector<BlockRef>> BlocksOf(const NamespaceHandle& ns, const ReportRequest& request) {
  LARDER_RETURN_IF_ERROR(CheckNamespace(ns));
  LARDER_RETURN_IF_ERROR(CheckGroups(request.groups.size()));
  if (request.hashes.size() * request.groups.size() > kBlocksMax) {
    return Invalid("a report of more than " + std::to_string(kBlocksMax) + " blocks: send several");
  }
  BlockRef block;
  LARDER_RETURN_IF_ERROR(PickRectangle(ns, request.whole, request.rectangle, &block.rectangle));
  std::vector<BlockRef> blocks;
  for (const ChainHash& hash : request.hashes) {
    for (const uint16_t group : request.groups) {
      block.hash = hash;
      block.group = group;
      blocks.push_back(block);
    }
  }
  return blocks;
}

}  // namespace larder::client
