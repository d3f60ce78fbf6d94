// From the structs of larder.h to the client's own, and results back into the caller's arrays. Every count is
// checked against its limit before anything is read or allocated.
#pragma once

#include <vector>

#include "client/c/handles.h"

namespace larder::c {

// A handle that is not NULL, and its client in this process.
template <typename Handle>
Result<Client*> ClientOf(const Handle* handle, const char* name) {
  if (handle == nullptr) return Invalid(std::string(name) + " is NULL");
  return handle->state->Use();
}

Status RetentionFrom(uint32_t given, Retention* out);
Status HashesFrom(const uint8_t* hashes, size_t count, std::vector<ChainHash>* out);

struct MatchAsk {
  std::vector<ChainHash> chain;
  MatchRequest request;  // its chain is the one above
  CallOptions options;
};
Status ReadMatch(const larder_match_request* given, MatchAsk* ask);
Status WriteMatch(const MatchResult& match, larder_match_result* result);

struct WaitAsk {  // of a prefetch too
  std::vector<ChainHash> chain;
  WaitRequest request;
  CallOptions options;
};
Status ReadWait(const larder_wait_request* given, WaitAsk* ask);

struct GetAsk {
  std::vector<GetItem> items;
  CallOptions options;
};
Status ReadGet(const larder_get_request* given, GetAsk* ask);
Status WriteGet(const std::vector<BlockResult>& blocks, larder_get_result* result);

struct PutAsk {
  std::vector<PutItem> items;
  CallOptions options;
};
Status ReadPut(const larder_put_request* given, PutAsk* ask);
Status WritePut(const std::vector<PutResult>& puts, larder_put_result* result);

}  // namespace larder::c
