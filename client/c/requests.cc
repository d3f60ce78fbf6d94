#include "client/c/requests.h"

#include <cstdio>

namespace larder::c {
namespace {

Status CheckPriority(uint32_t priority, uint64_t deadline_us, CallOptions* options) {
  if (priority > LARDER_BATCH) return Invalid("priority: LARDER_INTERACTIVE or LARDER_BATCH");
  options->priority = static_cast<Priority>(priority);
  options->deadline_us = deadline_us;
  return Status::Ok();
}

Status GroupsFrom(const larder_group* groups, size_t count, std::vector<GroupSpec>* out) {
  if (groups == nullptr) {
    if (count != 0) return Invalid("groups is NULL, group_count is not 0");
    return Status::Ok();  // the default: group 0
  }
  if (count == 0 || count > kGroupsMax) {
    return Invalid("group_count " + std::to_string(count) + ": from 1 to " + std::to_string(kGroupsMax));
  }
  out->clear();
  for (size_t i = 0; i < count; ++i) out->push_back({groups[i].group, groups[i].window_blocks});
  return Status::Ok();
}

Rectangle RectangleFrom(const larder_rectangle& given) {
  return {given.layer_begin, given.layer_end, given.head_begin, given.head_end};
}

// One value for all blocks, one for each, or none.
Status CheckShared(const void* values, size_t value_count, size_t count, const char* name) {
  if (value_count != 0 && value_count != 1 && value_count != count) {
    return Invalid(std::string(name) + "_count " + std::to_string(value_count) + " for " +
                   std::to_string(count) + " blocks: give none, one for all, or one each");
  }
  if (value_count != 0 && values == nullptr)
    return Invalid(std::string(name) + "s is NULL, its count is not 0");
  return Status::Ok();
}

// What gets and puts have in common: hash, group, rectangle and memory of every block.
template <typename Request, typename Item>
Status ReadItems(const Request& given, std::vector<Item>* items) {
  if (given.count > kHashesMax) {
    return Invalid(std::to_string(given.count) + " blocks; the limit is " + std::to_string(kHashesMax));
  }
  if (given.count == 0) return Status::Ok();
  if (given.hashes == nullptr) return Invalid("hashes is NULL");
  if (given.extents == nullptr) return Invalid("extents is NULL");
  LARDER_RETURN_IF_ERROR(CheckShared(given.groups, given.group_count, given.count, "group"));
  LARDER_RETURN_IF_ERROR(CheckShared(given.rectangles, given.rectangle_count, given.count, "rectangle"));
  items->resize(given.count);
  const larder_extent* extent = given.extents;
  for (size_t i = 0; i < given.count; ++i) {
    Item& item = (*items)[i];
    std::memcpy(item.hash.bytes.data(), given.hashes + i * LARDER_HASH_BYTES, LARDER_HASH_BYTES);
    if (given.group_count != 0) item.group = given.groups[given.group_count == 1 ? 0 : i];
    if (given.rectangle_count != 0) {
      item.rectangle = RectangleFrom(given.rectangles[given.rectangle_count == 1 ? 0 : i]);
      item.whole = false;
    }
    const uint32_t shared = given.extents_per_block == 0 ? 1 : given.extents_per_block;
    const uint32_t extents = given.extent_counts == nullptr ? shared : given.extent_counts[i];
    if (extents > kExtentsMax) {
      return Invalid(std::to_string(extents) + " extents of one block; the limit is " +
                     std::to_string(kExtentsMax));
    }
    item.extents.reserve(extents);
    for (uint32_t k = 0; k < extents; ++k, ++extent) item.extents.push_back({extent->data, extent->bytes});
  }
  return Status::Ok();
}

}  // namespace

Status HashesFrom(const uint8_t* hashes, size_t count, std::vector<ChainHash>* out) {
  if (count > kHashesMax) {
    return Invalid(std::to_string(count) + " hashes; the limit is " + std::to_string(kHashesMax));
  }
  if (count != 0 && hashes == nullptr) return Invalid("hashes is NULL");
  out->resize(count);
  if (count != 0) std::memcpy(static_cast<void*>(out->data()), hashes, count * LARDER_HASH_BYTES);
  return Status::Ok();
}

namespace {

// What a match and a wait ask for alike.
template <typename Given, typename Ask>
Status ReadChain(const Given& given, Ask* ask) {
  LARDER_RETURN_IF_ERROR(HashesFrom(given.hashes, given.count, &ask->chain));
  LARDER_RETURN_IF_ERROR(GroupsFrom(given.groups, given.group_count, &ask->request.groups));
  ask->request.chain = ask->chain;
  if (given.rectangle != nullptr) {
    ask->request.rectangle = RectangleFrom(*given.rectangle);
    ask->request.whole = false;
  }
  return CheckPriority(given.priority, given.deadline_us, &ask->options);
}

}  // namespace

Status ReadMatch(const larder_match_request* given_by_caller, MatchAsk* ask) {
  larder_match_request given{};
  LARDER_RETURN_IF_ERROR(ReadSized(given_by_caller, "larder_match_request", &given));
  ask->request.pin_us = given.pin_us;
  return ReadChain(given, ask);
}

Status WriteMatch(const MatchResult& match, larder_match_result* result) {
  larder_match_result out{};
  LARDER_RETURN_IF_ERROR(ReadSized(result, "larder_match_result", &out));
  const size_t count = match.estimate_us.size();
  const size_t groups = count == 0 ? 0 : match.presence.size() / count;
  out.usable = match.usable_length;
  out.pin = match.pin;
  if (out.presence != nullptr && count != 0) std::memcpy(out.presence, match.presence.data(), count * groups);
  if (out.estimate_us != nullptr)
    std::copy(match.estimate_us.begin(), match.estimate_us.end(), out.estimate_us);
  if (out.bitmaps != nullptr) {
    const size_t row_bytes = (count + 7) / 8;
    std::fill_n(out.bitmaps, groups * row_bytes, uint8_t{0});
    for (size_t i = 0; i < count * groups; ++i) {
      const size_t key = i / groups;
      if (IsHit(match.presence[i])) {
        uint8_t& byte = out.bitmaps[i % groups * row_bytes + key / 8];
        byte = static_cast<uint8_t>(byte | 1u << key % 8);
      }
    }
  }
  WriteSized(out, result);
  return Status::Ok();
}

Status ReadWait(const larder_wait_request* given_by_caller, WaitAsk* ask) {
  larder_wait_request given{};
  LARDER_RETURN_IF_ERROR(ReadSized(given_by_caller, "larder_wait_request", &given));
  return ReadChain(given, ask);
}

Status ReadGet(const larder_get_request* given_by_caller, GetAsk* ask) {
  larder_get_request given{};
  LARDER_RETURN_IF_ERROR(ReadSized(given_by_caller, "larder_get_request", &given));
  LARDER_RETURN_IF_ERROR(ReadItems(given, &ask->items));
  return CheckPriority(given.priority, given.deadline_us, &ask->options);
}

Status WriteGet(const std::vector<BlockResult>& blocks, larder_get_result* result) {
  larder_get_result out{};
  LARDER_RETURN_IF_ERROR(ReadSized(result, "larder_get_result", &out));
  out.hits = 0;
  out.leading = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockResult& block = blocks[i];
    const bool hit = block.outcome == Outcome::kHit;
    if (hit && out.leading == i) ++out.leading;
    out.hits += hit;
    if (out.outcomes != nullptr) out.outcomes[i] = static_cast<uint8_t>(block.outcome);
    if (out.reasons != nullptr) out.reasons[i] = static_cast<uint8_t>(block.reason);
    if (out.bytes != nullptr) out.bytes[i] = block.bytes;
    if (out.created_ms != nullptr) out.created_ms[i] = block.created_ms;
    if (out.writers != nullptr) {
      std::memcpy(out.writers + i * LARDER_HASH_BYTES, block.writer.data(), LARDER_HASH_BYTES);
    }
  }
  WriteSized(out, result);
  return Status::Ok();
}

Status RetentionFrom(uint32_t given, Retention* out) {
  if (given >= kRetentions) return Invalid("retention: one of LARDER_RETENTION_");
  *out = static_cast<Retention>(given);
  return Status::Ok();
}

Status ReadPut(const larder_put_request* given_by_caller, PutAsk* ask) {
  larder_put_request given{};
  LARDER_RETURN_IF_ERROR(ReadSized(given_by_caller, "larder_put_request", &given));
  LARDER_RETURN_IF_ERROR(ReadItems(given, &ask->items));
  const size_t constituents = given.constituents == nullptr ? 0 : given.constituents_per_block;
  if (constituents > kConstituentsMax) {
    return Invalid(std::to_string(constituents) + " constituents; the limit is " +
                   std::to_string(kConstituentsMax));
  }
  if (given.part_run_count != 0 && (given.part_runs == nullptr || given.part_run_count > kPartsMax)) {
    return Invalid("part_run_count: from 1 to " + std::to_string(kPartsMax) + ", with part_runs");
  }
  Retention retention = Retention::kNone;
  LARDER_RETURN_IF_ERROR(RetentionFrom(given.retention, &retention));
  for (size_t i = 0; i < ask->items.size(); ++i) {
    PutItem& item = ask->items[i];
    item.retention = retention;
    item.depth = given.depths == nullptr ? given.first_depth + static_cast<uint32_t>(i) : given.depths[i];
    for (size_t run = 0; run < given.part_run_count; ++run) {
      item.parts.push_back({given.part_runs[run].count, given.part_runs[run].bytes});
    }
    if (constituents == 0) continue;
    LARDER_RETURN_IF_ERROR(HashesFrom(given.constituents + i * constituents * LARDER_HASH_BYTES, constituents,
                                      &item.constituents));
  }
  return CheckPriority(given.priority, given.deadline_us, &ask->options);
}

Status WritePut(const std::vector<PutResult>& puts, larder_put_result* result) {
  larder_put_result out{};
  LARDER_RETURN_IF_ERROR(ReadSized(result, "larder_put_result", &out));
  out.there = 0;
  out.why[0] = '\0';
  for (size_t i = 0; i < puts.size(); ++i) {
    const PutResult& put = puts[i];
    if (put.there()) {
      ++out.there;
    } else if (out.why[0] == '\0') {
      std::snprintf(out.why, sizeof out.why, "%s", put.why.text().c_str());
    }
    if (out.states != nullptr) out.states[i] = static_cast<uint8_t>(put.state);
    if (out.copies != nullptr) out.copies[i] = put.copies;
  }
  WriteSized(out, result);
  return Status::Ok();
}

}  // namespace larder::c
