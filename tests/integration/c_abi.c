// larder.h as a C11 caller sees it. No C++ header is in here.
#include "tests/integration/c_abi.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/c/larder.h"

#define TEXT_OF(line) #line
#define LINE_TEXT(line) TEXT_OF(line)
#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) return __FILE__ ":" LINE_TEXT(__LINE__) ": " #condition; \
  } while (0)
#define CHECK_OK(call)                                    \
  do {                                                    \
    larder_error why_error;                               \
    memset(&why_error, 0, sizeof why_error);              \
    larder_error* error = &why_error;                     \
    if ((call) != LARDER_OK) {                            \
      fprintf(stderr, "%s\n", why_error.text);            \
      return __FILE__ ":" LINE_TEXT(__LINE__) ": " #call; \
    }                                                     \
  } while (0)

enum { kBlocks = 6, kBlockBytes = 16384, kHalf = kBlockBytes / 2 };

typedef struct Session {
  larder_client* client;
  larder_namespace* ns;
} Session;

static const char* OpenWith(const char* endpoint, uint32_t fork_mode, const char* transport,
                            const char* identity, Session* session) {
  larder_client_options options = {.size = sizeof options, .endpoints = endpoint, .ignore_environment = 1};
  options.fork_mode = fork_mode;
  options.transport = transport;
  options.deadline_us = 10000000;
  CHECK_OK(larder_client_open(&options, &session->client, error));
  larder_namespace_options space = {.size = sizeof space, .identity = identity, .tenant = "c"};
  CHECK_OK(larder_namespace_open(session->client, &space, &session->ns, error));
  return NULL;
}

static const char* OpenSession(const char* endpoint, const char* model, Session* session) {
  char identity[256];
  snprintf(identity, sizeof identity, "kind=kv,layers=2,kv_heads=2,head_groups=2,hash=sha256,model=%s",
           model);
  return OpenWith(endpoint, LARDER_FORK_ERROR, "tcp", identity, session);
}

static void CloseSession(Session* session) {
  larder_namespace_close(session->ns);
  larder_client_close(session->client);
}

static void MakeChain(unsigned seed, uint8_t hashes[kBlocks][LARDER_HASH_BYTES]) {
  for (unsigned i = 0; i < kBlocks; ++i) {
    const unsigned word[2] = {seed, i};
    larder_hash_link(i == 0 ? NULL : hashes[i - 1], word, sizeof word, hashes[i]);
  }
}

static void Fill(unsigned block, uint8_t* bytes) {
  uint32_t state = block * 2654435761u + 1;
  for (unsigned i = 0; i < kBlockBytes; ++i) {
    state = state * 1664525u + 1013904223u;
    bytes[i] = (uint8_t)(state >> 24);
  }
}

// Puts every block, in two extents each.
static const char* PutAll(larder_namespace* ns, uint8_t hashes[kBlocks][LARDER_HASH_BYTES],
                          uint8_t memory[kBlocks][kBlockBytes], uint8_t states[kBlocks]) {
  larder_extent extents[kBlocks * 2];
  for (unsigned i = 0; i < kBlocks; ++i) {
    Fill(i, memory[i]);
    extents[2 * i] = (larder_extent){memory[i], kHalf};
    extents[2 * i + 1] = (larder_extent){memory[i] + kHalf, kHalf};
  }
  larder_put_request put = {.size = sizeof put, .hashes = hashes[0], .count = kBlocks, .extents = extents};
  put.extents_per_block = 2;
  larder_put_result result = {.size = sizeof result, .states = states};
  CHECK_OK(larder_put(ns, &put, &result, error));
  CHECK(result.there == kBlocks);
  return NULL;
}

static const char* PutsMatchesGetsAndWaits(const char* endpoint) {
  static uint8_t memory[kBlocks][kBlockBytes], landed[kBlocks][kBlockBytes];
  Session session;
  const char* why = OpenSession(endpoint, "roundtrip", &session);
  if (why != NULL) return why;
  uint8_t hashes[kBlocks + 1][LARDER_HASH_BYTES], states[kBlocks];
  MakeChain(1, hashes);
  larder_hash_link(hashes[kBlocks - 1], "x", 1, hashes[kBlocks]);
  if ((why = PutAll(session.ns, hashes, memory, states)) != NULL) return why;
  for (unsigned i = 0; i < kBlocks; ++i) CHECK(states[i] == LARDER_PUT_STORED);
  if ((why = PutAll(session.ns, hashes, memory, states)) != NULL) return why;
  for (unsigned i = 0; i < kBlocks; ++i) CHECK(states[i] == LARDER_PUT_EXISTS);

  const larder_group groups[2] = {{0, 0, 0}, {3, 0, 1}};
  uint8_t presence[(kBlocks + 1) * 2], bitmaps[2] = {0xff, 0xff};
  uint32_t estimate_us[kBlocks + 1];
  larder_match_request match = {.size = sizeof match, .hashes = hashes[0], .count = kBlocks + 1};
  larder_match_result matched = {.size = sizeof matched, .presence = presence, .estimate_us = estimate_us};
  match.pin_us = 1000000;
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(matched.usable == kBlocks);
  CHECK(matched.pin != 0);
  CHECK(presence[0] == LARDER_IN_RAM && presence[kBlocks] == LARDER_NEVER_STORED);
  larder_release(session.client, matched.pin);
  match.groups = groups;
  match.group_count = 2;
  matched.bitmaps = bitmaps;
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(bitmaps[0] == (1u << kBlocks) - 1 && bitmaps[1] == 0);
  CHECK(matched.usable == 0);  // the window's group has nothing

  larder_extent extents[kBlocks + 1];
  for (unsigned i = 0; i < kBlocks; ++i) extents[i] = (larder_extent){landed[i], kBlockBytes};
  extents[kBlocks] = (larder_extent){landed[0], kBlockBytes};
  uint8_t outcomes[kBlocks + 1], reasons[kBlocks + 1], writers[kBlocks + 1][LARDER_HASH_BYTES];
  uint64_t bytes[kBlocks + 1], created_ms[kBlocks + 1];
  larder_get_request get = {
      .size = sizeof get, .hashes = hashes[1], .count = kBlocks, .extents = extents + 1};
  larder_get_result got = {.size = sizeof got, .outcomes = outcomes, .reasons = reasons, .bytes = bytes};
  got.created_ms = created_ms;
  got.writers = writers[0];
  CHECK_OK(larder_get(session.ns, &get, &got, error));
  CHECK(got.hits == kBlocks - 1 && got.leading == kBlocks - 1);
  for (unsigned i = 0; i + 1 < kBlocks; ++i) {
    CHECK(outcomes[i] == LARDER_HIT && bytes[i] == kBlockBytes && created_ms[i] != 0);
    CHECK(memcmp(landed[i + 1], memory[i + 1], kBlockBytes) == 0);
  }
  CHECK(outcomes[kBlocks - 1] == LARDER_MISS && reasons[kBlocks - 1] == LARDER_NEVER_STORED);

  larder_wait_request wait = {.size = sizeof wait, .hashes = hashes[0], .count = kBlocks};
  uint32_t leading = 0;
  CHECK_OK(larder_wait(session.ns, &wait, &leading, error));
  CHECK(leading == kBlocks);
  wait.count = kBlocks + 1;
  wait.deadline_us = 1000000;  // the answer is to be back by then, also on a busy machine
  CHECK_OK(larder_wait(session.ns, &wait, &leading, error));
  CHECK(leading == kBlocks);
  uint64_t there = 0;
  CHECK_OK(larder_prefetch(session.ns, &wait, &there, error));
  CHECK(there == kBlocks && larder_prefetch(session.ns, NULL, &there, NULL) == LARDER_INVALID);
  larder_stats stats = {.size = sizeof stats};
  CHECK_OK(larder_client_stats(session.client, &stats, error));
  CHECK(stats.hits == kBlocks - 1 && stats.stored == kBlocks && stats.nodes_connected == 1);
  CHECK(stats.miss_by_reason[LARDER_NEVER_STORED] == 1);
  uint64_t round_trip_us = 0;
  CHECK_OK(larder_client_ping(session.client, NULL, 0, &round_trip_us, error));
  CloseSession(&session);
  return NULL;
}

// The first head group of every layer, as one TP rank writes it, then the other; each is read back alone.
static const char* RectanglesAndParts(const char* endpoint) {
  static uint8_t memory[kBlockBytes], landed[kBlockBytes];
  Session session;
  const char* why = OpenSession(endpoint, "rectangles", &session);
  if (why != NULL) return why;
  larder_namespace_info info = {.size = sizeof info};
  CHECK_OK(larder_namespace_describe(session.ns, &info, error));
  CHECK(info.layers == 2 && info.head_groups == 2);
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES];
  MakeChain(2, hashes);
  Fill(7, memory);
  larder_rectangle half = {0, 2, 0, 1};
  // Two layers' parts of different sizes.
  const larder_part_run runs[2] = {{1, 1000}, {1, 3000}};
  larder_extent extent = {memory, 4000};
  larder_put_request put = {.size = sizeof put, .hashes = hashes[0], .count = 1, .extents = &extent};
  put.rectangles = &half;
  put.rectangle_count = 1;
  put.part_runs = runs;
  put.part_run_count = 2;
  larder_put_result result = {.size = sizeof result};
  CHECK_OK(larder_put(session.ns, &put, &result, error));
  CHECK(result.there == 1);
  larder_match_request match = {.size = sizeof match, .hashes = hashes[0], .count = 1};
  uint8_t presence = 0;
  larder_match_result matched = {.size = sizeof matched, .presence = &presence};
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(matched.usable == 0 && presence == LARDER_UNCOVERED);
  match.rectangle = &half;
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(matched.usable == 1);
  // One part of it: the second layer's.
  const larder_rectangle part = {1, 2, 0, 1};
  larder_extent into = {landed, 3000};
  larder_get_request get = {.size = sizeof get, .hashes = hashes[0], .count = 1, .extents = &into};
  get.rectangles = &part;
  get.rectangle_count = 1;
  larder_get_result got = {.size = sizeof got};
  CHECK_OK(larder_get(session.ns, &get, &got, error));
  CHECK(got.hits == 1 && memcmp(landed, memory + 1000, 3000) == 0);
  CloseSession(&session);
  return NULL;
}

static const char* RemovesClearsTouchesAndReports(const char* endpoint) {
  static uint8_t memory[kBlocks][kBlockBytes];
  Session session;
  const char* why = OpenSession(endpoint, "admin", &session);
  if (why != NULL) return why;
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES], states[kBlocks];
  MakeChain(3, hashes);
  if ((why = PutAll(session.ns, hashes, memory, states)) != NULL) return why;
  larder_keys keys = {.size = sizeof keys, .usable = kBlocks, .hashes = hashes[0], .count = kBlocks};
  CHECK_OK(larder_touch(session.ns, &keys, error));
  keys.retention = LARDER_RETENTION_CONTINUES;
  CHECK_OK(larder_finish_turn(session.ns, &keys, error));
  keys.retention = 4;
  larder_error refused = {0};
  CHECK(larder_finish_turn(session.ns, &keys, &refused) == LARDER_INVALID);
  keys.retention = LARDER_RETENTION_NONE;
  CHECK_OK(larder_report(session.ns, &keys, error));  // good blocks stay
  uint64_t removed = 0;
  keys.hashes = hashes[kBlocks - 1];
  keys.count = 1;
  CHECK_OK(larder_remove(session.ns, &keys, &removed, error));
  CHECK(removed == 1);
  larder_match_request match = {.size = sizeof match, .hashes = hashes[0], .count = kBlocks};
  uint8_t presence[kBlocks];
  larder_match_result matched = {.size = sizeof matched, .presence = presence};
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(matched.usable == kBlocks - 1 && presence[kBlocks - 1] == LARDER_REMOVED);
  CHECK_OK(larder_clear(session.ns, 0, &removed, error));
  CHECK(removed == kBlocks - 1);
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(matched.usable == 0 && presence[0] == LARDER_CLEARED);
  CloseSession(&session);
  return NULL;
}

// A get and a match at once: each completes once, with its own result.
static const char* GetAndMatchAtOnce(const Session* session, larder_queue* queue,
                                     uint8_t hashes[][LARDER_HASH_BYTES], const uint8_t* memory) {
  static uint8_t landed[kBlocks][kBlockBytes];
  larder_completion* done[4] = {NULL};
  larder_completion_info info = {.size = sizeof info};
  larder_extent extents[kBlocks];
  for (unsigned i = 0; i < kBlocks; ++i) extents[i] = (larder_extent){landed[i], kBlockBytes};
  larder_get_request get = {.size = sizeof get, .hashes = hashes[0], .count = kBlocks, .extents = extents};
  larder_match_request match = {.size = sizeof match, .hashes = hashes[0], .count = kBlocks};
  CHECK_OK(larder_submit_get(queue, session->ns, &get, 12, NULL, error));
  CHECK_OK(larder_submit_match(queue, session->ns, &match, 13, NULL, error));
  for (size_t seen = 0; seen < 2;) {
    const size_t count = larder_queue_poll(queue, 10000000, done, 4);
    CHECK(count != 0);
    for (size_t i = 0; i < count; ++i, ++seen) {
      larder_get_result got = {.size = sizeof got};
      larder_match_result matched = {.size = sizeof matched};
      larder_put_result put = {.size = sizeof put};
      CHECK_OK(larder_completion_describe(done[i], &info, error));
      CHECK(larder_completion_put(done[i], &put, NULL) == LARDER_INVALID);
      CHECK(info.count == kBlocks);
      if (info.user_data == 12) {
        CHECK_OK(larder_completion_get(done[i], &got, error));
        CHECK(got.hits == kBlocks && memcmp(landed, memory, sizeof landed) == 0);
      } else {
        CHECK_OK(larder_completion_match(done[i], &matched, error));
        CHECK(matched.usable == kBlocks);
      }
      larder_completion_free(done[i]);
    }
  }
  return NULL;
}

static const char* Asynchronous(const char* endpoint) {
  static uint8_t memory[kBlocks][kBlockBytes];
  Session session;
  const char* why = OpenSession(endpoint, "queue", &session);
  if (why != NULL) return why;
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES], states[kBlocks];
  MakeChain(4, hashes);
  larder_queue* queue = NULL;
  CHECK_OK(larder_queue_open(session.client, &queue, error));
  larder_completion* done[4] = {NULL};
  CHECK(larder_queue_poll(queue, 0, done, 4) == 0);

  // A wait for what nobody has written yet, then the put that ends it.
  larder_wait_request wait = {.size = sizeof wait, .hashes = hashes[0], .count = kBlocks};
  larder_operation waiting = 0;
  CHECK_OK(larder_submit_wait(queue, session.ns, &wait, 11, &waiting, error));
  CHECK(waiting != 0);
  if ((why = PutAll(session.ns, hashes, memory, states)) != NULL) return why;
  struct pollfd ready = {.fd = larder_queue_event_fd(queue), .events = POLLIN};
  CHECK(ready.fd >= 0 && poll(&ready, 1, 10000) == 1);
  CHECK(larder_queue_poll(queue, 0, done, 4) == 1);
  larder_completion_info info = {.size = sizeof info};
  CHECK_OK(larder_completion_describe(done[0], &info, error));
  CHECK(info.kind == LARDER_COMPLETED_WAIT && info.user_data == 11 && info.operation == waiting);
  CHECK(info.leading == kBlocks && info.code == LARDER_OK);
  larder_completion_free(done[0]);
  CHECK_OK(larder_submit_prefetch(queue, session.ns, &wait, 12, NULL, error));
  CHECK(larder_queue_poll(queue, 10000000, done, 4) == 1);
  CHECK_OK(larder_completion_describe(done[0], &info, error));
  CHECK(info.kind == LARDER_COMPLETED_PREFETCH && info.user_data == 12 && info.count == kBlocks);
  larder_completion_free(done[0]);
  CHECK(poll(&ready, 1, 0) == 0);

  if ((why = GetAndMatchAtOnce(&session, queue, hashes, memory[0])) != NULL) return why;

  // A wait that would last: cancelled, it completes.
  MakeChain(5, hashes);
  wait.deadline_us = 600000000;
  CHECK_OK(larder_submit_wait(queue, session.ns, &wait, 14, &waiting, error));
  CHECK_OK(larder_cancel(session.client, waiting, LARDER_CANCEL_ALL, error));
  CHECK(larder_queue_poll(queue, 10000000, done, 4) == 1);
  CHECK_OK(larder_completion_describe(done[0], &info, error));
  CHECK(info.code == LARDER_CANCELLED && info.leading == 0);
  larder_completion_free(done[0]);
  CHECK_OK(larder_cancel(session.client, waiting, LARDER_CANCEL_WAITING, error));  // gone: left alone
  larder_queue_close(queue);
  CloseSession(&session);
  return NULL;
}

static const char* BuffersAndRegisteredMemory(const char* endpoint) {
  static uint8_t memory[kBlocks][kBlockBytes];
  Session session;
  // auto: over shm, where library buffers move without a copy.
  const char* why = OpenWith(endpoint, LARDER_FORK_ERROR, "auto",
                             "{\"kind\": \"opaque\", \"model\": \"buffers\"}", &session);
  if (why != NULL) return why;
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES];
  MakeChain(6, hashes);
  larder_buffer* buffer = NULL;
  CHECK_OK(larder_buffer_allocate(session.client, kBlockBytes * 2, &buffer, error));
  CHECK(larder_buffer_bytes(buffer) == kBlockBytes * 2);
  uint8_t* data = larder_buffer_data(buffer);
  Fill(1, data);
  larder_extent extent = {data, kBlockBytes};
  larder_put_request put = {.size = sizeof put, .hashes = hashes[0], .count = 1, .extents = &extent};
  larder_put_result result = {.size = sizeof result};
  CHECK_OK(larder_put(session.ns, &put, &result, error));
  CHECK(result.there == 1);
  extent.data = data + kBlockBytes;
  larder_get_request get = {.size = sizeof get, .hashes = hashes[0], .count = 1, .extents = &extent};
  larder_get_result got = {.size = sizeof got};
  CHECK_OK(larder_get(session.ns, &get, &got, error));
  CHECK(got.hits == 1 && memcmp(data, data + kBlockBytes, kBlockBytes) == 0);
  larder_buffer_free(buffer);

  CHECK_OK(larder_memory_register(session.client, memory, sizeof memory, error));
  CHECK(larder_memory_register(session.client, memory[1], 1, NULL) == LARDER_INVALID);
  extent.data = memory[2];
  CHECK_OK(larder_get(session.ns, &get, &got, error));
  CHECK(got.hits == 1);
  CHECK_OK(larder_memory_unregister(session.client, memory, error));
  CHECK(larder_memory_unregister(session.client, memory, NULL) == LARDER_NOT_FOUND);
  CloseSession(&session);
  return NULL;
}

// Callers built against an older and a newer header.
static const char* OlderAndNewerCallers(const char* endpoint) {
  Session session;
  const char* why = OpenSession(endpoint, "sizes", &session);
  if (why != NULL) return why;
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES];
  MakeChain(7, hashes);
  larder_match_request match = {.hashes = hashes[0], .count = kBlocks};
  larder_match_result matched = {.size = sizeof matched};
  match.size = (uint32_t)offsetof(larder_match_request, groups);
  match.pin_us = UINT64_MAX;  // beyond what the older struct has
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(matched.pin == 0);

  struct {
    larder_match_request known;
    uint64_t unknown[2];
  } newer = {.known = {.hashes = hashes[0], .count = kBlocks}};
  newer.known.size = sizeof newer;
  CHECK_OK(larder_match(session.ns, &newer.known, &matched, error));
  newer.unknown[1] = 1;
  larder_error refused = {0};
  CHECK(larder_match(session.ns, &newer.known, &matched, &refused) == LARDER_UNSUPPORTED);
  CHECK(refused.code == LARDER_UNSUPPORTED && strstr(refused.text, "larder_match_request") != NULL);

  // A shorter result keeps its end as it was.
  struct {
    larder_stats known;
    uint8_t guard[16];
  } stats;
  memset(&stats, 0x5a, sizeof stats);
  stats.known.size = (uint32_t)offsetof(larder_stats, hits);
  CHECK_OK(larder_client_stats(session.client, &stats.known, error));
  CHECK(stats.known.size == offsetof(larder_stats, hits) && stats.known.gets == 0);
  CHECK(stats.known.hits == 0x5a5a5a5a5a5a5a5aull && stats.guard[0] == 0x5a);
  stats.known.size = 0;
  CHECK(larder_client_stats(session.client, &stats.known, &refused) == LARDER_INVALID);
  CloseSession(&session);
  return NULL;
}

static const char* BadInputIsRefused(const char* endpoint) {
  larder_error error = {0};
  larder_client* client = NULL;
  larder_client_options options = {.size = sizeof options, .ignore_environment = 1};
  CHECK(larder_client_open(&options, &client, &error) == LARDER_INVALID &&
        strstr(error.text, "endpoints") != NULL);
  options.endpoints = "127.0.0.1:1";
  options.open_deadline_us = 200000;
  CHECK(larder_client_open(&options, &client, &error) != LARDER_OK && client == NULL && error.text[0] != 0);
  options.endpoints = endpoint;
  options.transport = "pigeon";
  CHECK(larder_client_open(&options, &client, &error) == LARDER_INVALID &&
        strstr(error.text, "pigeon") != NULL);
  options.transport = NULL;
  options.config_file = "/nowhere/larder.toml";
  CHECK(larder_client_open(&options, &client, &error) == LARDER_INVALID &&
        strstr(error.text, "larder.toml") != NULL);

  Session session;
  const char* why = OpenSession(endpoint, "bad", &session);
  if (why != NULL) return why;
  larder_namespace* ns = NULL;
  larder_namespace_options space = {.size = sizeof space, .identity = "kind=fish"};
  CHECK(larder_namespace_open(session.client, &space, &ns, &error) == LARDER_INVALID && ns == NULL);
  space.identity = "{\"kind\": [1]}";
  CHECK(larder_namespace_open(session.client, &space, &ns, &error) == LARDER_INVALID);
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES], memory[64];
  MakeChain(8, hashes);
  larder_extent extents[2] = {{memory, 64}, {NULL, 64}};
  larder_get_request get = {.size = sizeof get, .hashes = hashes[0], .count = 2, .extents = extents};
  larder_get_result got = {.size = sizeof got};
  CHECK(larder_get(session.ns, &get, &got, &error) == LARDER_INVALID && strstr(error.text, "memory") != NULL);
  get.count = 65537;
  CHECK(larder_get(session.ns, &get, &got, &error) == LARDER_INVALID);
  get.count = 2;
  get.group_count = 3;
  CHECK(larder_get(session.ns, &get, &got, &error) == LARDER_INVALID);
  CHECK(larder_get(NULL, &get, &got, &error) == LARDER_INVALID);
  CHECK(larder_get(session.ns, NULL, &got, &error) == LARDER_INVALID);
  CHECK(larder_get(session.ns, &get, NULL, NULL) == LARDER_INVALID);
  // Any order of closing: the namespace outlives its client, and says so.
  larder_client_close(session.client);
  get.group_count = 0;
  get.count = 1;
  CHECK(larder_get(session.ns, &get, &got, &error) == LARDER_INVALID && strstr(error.text, "closed") != NULL);
  larder_namespace_close(session.ns);
  return NULL;
}

// What the child of `session` does; its exit code is 0 when all is as it should be.
static int InChild(Session* session, larder_queue* queue, int reopens) {
  static uint8_t landed[kBlockBytes], wanted[kBlockBytes];
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES];
  MakeChain(9, hashes);
  Fill(0, wanted);
  larder_error error = {0};
  larder_extent extent = {landed, kBlockBytes};
  larder_get_request get = {.size = sizeof get, .hashes = hashes[0], .count = 1, .extents = &extent};
  larder_get_result got = {.size = sizeof got};
  const larder_code code = larder_get(session->ns, &get, &got, &error);
  if (!reopens && (code != LARDER_FORKED || larder_queue_event_fd(queue) != -1)) return 1;
  if (reopens && (code != LARDER_OK || got.hits != 1 || memcmp(landed, wanted, kBlockBytes) != 0)) return 2;
  if (reopens) {
    larder_completion* done = NULL;
    memset(landed, 0, sizeof landed);
    if (larder_submit_get(queue, session->ns, &get, 5, NULL, &error) != LARDER_OK) return 3;
    if (larder_queue_poll(queue, 10000000, &done, 1) != 1) return 4;
    larder_completion_free(done);
    if (memcmp(landed, wanted, kBlockBytes) != 0) return 5;
  }
  larder_queue_close(queue);
  CloseSession(session);
  return 0;
}

static const char* ForkWith(const char* endpoint, uint32_t mode) {
  static uint8_t memory[kBlocks][kBlockBytes];
  Session session;
  const char* why = OpenWith(endpoint, mode, "tcp", "kind=opaque,model=fork", &session);
  if (why != NULL) return why;
  uint8_t hashes[kBlocks][LARDER_HASH_BYTES], states[kBlocks];
  MakeChain(9, hashes);
  if ((why = PutAll(session.ns, hashes, memory, states)) != NULL) return why;
  larder_queue* queue = NULL;
  CHECK_OK(larder_queue_open(session.client, &queue, error));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60);
    _exit(InChild(&session, queue, mode == LARDER_FORK_REOPEN));
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) fprintf(stderr, "the child ended with status %d\n", status);
  CHECK(status == 0);
  // The parent's client has not noticed.
  larder_match_request match = {.size = sizeof match, .hashes = hashes[0], .count = kBlocks};
  larder_match_result matched = {.size = sizeof matched};
  CHECK_OK(larder_match(session.ns, &match, &matched, error));
  CHECK(matched.usable == kBlocks);
  larder_queue_close(queue);
  CloseSession(&session);
  return NULL;
}

static const char* AForkedChildGetsACleanError(const char* endpoint) {
  return ForkWith(endpoint, LARDER_FORK_ERROR);
}

static const char* AForkedChildGetsAClientOfItsOwn(const char* endpoint) {
  return ForkWith(endpoint, LARDER_FORK_REOPEN);
}

static const char* InstallsNoSignalHandlers(const char* endpoint) {
  // Compared with what was there: a sanitizer has handlers of its own.
  struct sigaction before[32], now;
  memset(before, 0, sizeof before);
  for (int number = 1; number < 32; ++number) sigaction(number, NULL, &before[number]);
  Session session;
  const char* why = OpenWith(endpoint, LARDER_FORK_ERROR, "auto", "kind=opaque,model=signals", &session);
  if (why != NULL) return why;
  for (int number = 1; number < 32; ++number) {
    if (sigaction(number, NULL, &now) == 0) CHECK(now.sa_handler == before[number].sa_handler);
  }
  CloseSession(&session);
  return NULL;
}

static const char* HashesTokens(const char* endpoint) {
  (void)endpoint;
  const uint32_t tokens[5] = {1, 2, 3, 4, 5};
  uint8_t hashes[2][LARDER_HASH_BYTES], again[1][LARDER_HASH_BYTES];
  CHECK_OK(larder_hash_tokens(tokens, 5, 2, hashes[0], error));
  CHECK_OK(larder_hash_tokens(tokens, 3, 2, again[0], error));
  CHECK(memcmp(hashes[0], again[0], LARDER_HASH_BYTES) == 0);
  CHECK(memcmp(hashes[0], hashes[1], LARDER_HASH_BYTES) != 0);
  CHECK(larder_hash_tokens(tokens, 5, 0, hashes[0], NULL) == LARDER_INVALID);
  CHECK(strcmp(larder_code_name(LARDER_FORKED), "forked") == 0);
  CHECK(strcmp(larder_outcome_name(LARDER_HIT), "hit") == 0);
  CHECK(strcmp(larder_presence_name(LARDER_NEVER_STORED), "never-stored") == 0);
  CHECK(strcmp(larder_put_state_name(LARDER_PUT_EXISTS), "exists") == 0);
  return NULL;
}

#define CASE(function) \
  { #function, function }
const CAbiCase kCAbiCases[] = {
    CASE(PutsMatchesGetsAndWaits),
    CASE(RectanglesAndParts),
    CASE(RemovesClearsTouchesAndReports),
    CASE(Asynchronous),
    CASE(OlderAndNewerCallers),
    CASE(BuffersAndRegisteredMemory),
    CASE(BadInputIsRefused),
    CASE(HashesTokens),
    CASE(InstallsNoSignalHandlers),
    CASE(AForkedChildGetsACleanError),
    CASE(AForkedChildGetsAClientOfItsOwn),
};
const unsigned kCAbiCaseCount = sizeof kCAbiCases / sizeof kCAbiCases[0];
