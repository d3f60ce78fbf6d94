/*
 * Larder's C interface: find blocks of KV cache by the hash of the prefix that they encode, pull them,
 * verified, into the caller's memory, and put what a prefill computed. client/client.h is the same in C++ and
 * says more of why.
 *
 * Promises. Nothing here throws, logs, aborts, installs a signal handler or keeps state outside of its
 * handles. No call blocks past its deadline. When memory runs out the process ends, as a C++ program does.
 *
 * Errors. A call returns LARDER_OK or why it did nothing at all. A miss, a dead or a full node is no such
 * reason: those are outcomes of the blocks. `error` may be NULL; else it receives the code and a text that
 * says how to mend it. It is the caller's: it holds the last failure until the next one that it is passed to,
 * whatever other threads do.
 *
 * Structs that begin with `size` are set to zero and given `size = sizeof(struct)`. A shorter struct (an
 * older caller's) is taken, its missing fields are zero. A longer one (a newer caller's) is taken when what
 * this library does not know is zero, and refused with LARDER_UNSUPPORTED else. Zero always means "the
 * default".
 *
 * Arrays are read during the call alone. Hashes are 32 bytes each, one behind the other. Durations are
 * microseconds from now; 0 is the client's default deadline.
 *
 * Memory. What extents point to belongs to the library from the call until the blocking call returned or the
 * operation's completion was polled, also when it was cancelled or ran out of time. Sources of a put must not
 * change.
 *
 * Threads. "any thread": from several at the same time. Close and free functions end a handle: no other call
 * may be under way on it. Handles may be closed in any order; once its client is closed, calls on a handle
 * answer LARDER_INVALID.
 *
 * Fork. Threads and connections stay with the parent. In a child every call on an inherited handle answers
 * LARDER_FORKED at once, or, with LARDER_FORK_REOPEN, goes to a new connection that the child's first call
 * opens; queues are then empty and have another eventfd, pins and operations stay the parent's. Close
 * functions work in the child and leave the parent alone. Not from a signal handler; not in a vfork child.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LARDER_API __attribute__((visibility("default")))
#define LARDER_HASH_BYTES 32

/* ---- codes ---- */

typedef int32_t larder_code;
enum {
  LARDER_OK = 0,
  LARDER_INVALID = 1,     /* the caller's input is wrong; the text says how to mend it */
  LARDER_NOT_FOUND = 2,   /* no such node, memory, handle */
  LARDER_BUSY = 3,        /* a bound was reached; try again later */
  LARDER_FULL = 4,        /* no memory for this */
  LARDER_TIMED_OUT = 5,   /* the deadline passed */
  LARDER_UNAVAILABLE = 6, /* no node can be reached */
  LARDER_DENIED = 7,      /* wrong token */
  LARDER_CORRUPT = 8,     /* bytes that do not verify */
  LARDER_UNSUPPORTED = 9, /* an option that this library does not know */
  LARDER_CANCELLED = 10,
  LARDER_INTERNAL = 11, /* a system call failed in a way nobody planned for */
  LARDER_FORKED = 64,   /* the handle belongs to the parent process */
};

enum { /* of a block that was asked for */
       LARDER_HIT = 0,
       LARDER_MISS = 1,    /* its reason says why */
       LARDER_BAD = 2,     /* every copy that was read failed verification; the memory's content is garbage */
       LARDER_REFUSED = 3, /* the node said no: bound reached, denied, another size */
       LARDER_OUT_OF_TIME = 4,
};

enum { /* where a block is, or why not: below 64 it is there */
       LARDER_IN_RAM = 0,
       LARDER_IN_SSD = 1,
       LARDER_WRITING = 64, /* reserved by a writer, not whole yet */
       LARDER_NEVER_STORED = 65,
       LARDER_EVICTED = 66,
       LARDER_EXPIRED = 67,
       LARDER_CLEARED = 68,
       LARDER_REMOVED = 69,
       LARDER_NOT_ADMITTED = 70,
       LARDER_WAS_CORRUPT = 71,
       LARDER_QUARANTINED = 72,
       LARDER_UNCOVERED = 73, /* pieces are there, and don't cover the rectangle */
       LARDER_NO_TIME = 74,
       LARDER_UNREACHABLE = 75, /* its node did not answer, or nobody asked it any more */
       LARDER_NODE_BUSY = 76,
       LARDER_NODE_REFUSED = 77,
       LARDER_DISK_BEHIND = 78, /* evicted from memory: the SSD could not take it */
       LARDER_EVICTED_SSD = 79,
       LARDER_DISK_LOST = 80,
       LARDER_BYPASSED = 81,   /* an operator has everything answered as a miss */
       LARDER_OVER_QUOTA = 82, /* its tenant's quota has no room for it */
       LARDER_PLACE_LOST = 83, /* the node was not its home for a while, and may have missed its removal */
};

enum { /* of a block that was put */
       LARDER_PUT_STORED = 1,
       LARDER_PUT_EXISTS = 2,  /* somebody's copy is there already: as good */
       LARDER_PUT_DIFFERS = 3, /* the same, with other bits: as good (kernels are seldom batch-invariant) */
       LARDER_PUT_FULL = 4,
       LARDER_PUT_BUSY = 5,
       LARDER_PUT_EXPIRED = 6, /* too slow, or cancelled */
       LARDER_PUT_CORRUPT = 7,
       LARDER_PUT_CLEARED = 8,     /* the namespace was cleared meanwhile */
       LARDER_PUT_INVALID = 9,     /* sizes or rectangle make no sense for the namespace */
       LARDER_PUT_OVER_QUOTA = 10, /* it does not fit into its tenant's quota */
};

enum { LARDER_INTERACTIVE = 0, LARDER_BATCH = 1 }; /* priorities; interactive traffic is served first */

typedef struct larder_error {
  larder_code code;
  char text[508]; /* ends with 0, cut when longer */
} larder_error;

/* Any thread. Names for people: "ok", "hit", "never-stored", "exists"; "unknown" for others. Static texts. */
LARDER_API const char* larder_code_name(larder_code code);
LARDER_API const char* larder_outcome_name(uint8_t outcome);
LARDER_API const char* larder_presence_name(uint8_t presence);
LARDER_API const char* larder_put_state_name(uint8_t state);
LARDER_API const char* larder_version(void); /* of the library: "0.1.0" */

/* ---- client ---- */

typedef struct larder_client larder_client;
typedef struct larder_namespace larder_namespace;
typedef struct larder_queue larder_queue;
typedef struct larder_completion larder_completion;
typedef struct larder_buffer larder_buffer;

enum { LARDER_FORK_ERROR = 0, LARDER_FORK_REOPEN = 1 };

/* What is zero or NULL here comes from LARDER_* variables, else from the config file, else it is the default.
 * client/config/client_config.h lists variables and keys. */
typedef struct larder_client_options {
  uint32_t size;
  uint32_t fork_mode;            /* LARDER_FORK_ */
  const char* endpoints;         /* "host:port,host:port": any nodes */
  const char* config_file;       /* TOML; NULL: LARDER_CLIENT_CONFIG's, if set */
  const char* transport;         /* "auto", "tcp", "shm", "ucx" */
  const char* token;             /* credential */
  const char* client_name;       /* for people */
  uint32_t ignore_environment;   /* 1: no LARDER_* variable is read */
  uint32_t io_threads;           /* 1..16 */
  uint32_t connections_per_peer; /* 1..8 */
  uint32_t replicas;             /* 1..4 */
  uint32_t operations_max;       /* submitted and not completed; beyond it LARDER_BUSY */
  uint32_t spin_us;
  uint64_t bytes_in_flight_max;
  uint64_t peer_bytes_in_flight_max;
  uint64_t deadline_us;      /* default of every call */
  uint64_t open_deadline_us; /* of larder_client_open and of reopening in a child; 0: deadline_us */
  uint64_t connect_timeout_us;
  uint64_t backoff_min_us, backoff_max_us; /* how long a node that failed is left alone */
} larder_client_options;

/* Any thread. Blocks until a node handed out the node table. `options` may be NULL. Reads the environment
 * (getenv), so nobody may change it meanwhile. */
LARDER_API larder_code larder_client_open(const larder_client_options* options, larder_client** client,
                                          larder_error* error);
/* Ends the handle. Cancels what is under way and returns once no byte can land any more. NULL is fine. */
LARDER_API void larder_client_close(larder_client* client);

typedef struct larder_stats { /* since the client was opened; blocks unless it says otherwise */
  uint32_t size;
  uint32_t nodes, nodes_connected, nodes_left_alone; /* now */
  uint64_t gets, hits, misses, corrupt, refused, timed_out, bytes_pulled;
  uint64_t puts, stored, exists, differs, not_stored, bytes_put;
  uint64_t matches, waits;                  /* calls */
  uint64_t reconnects, peers_down, reports; /* events */
  uint64_t operations, bytes_in_flight, bytes_in_flight_peak;
  uint64_t miss_by_reason[256]; /* by LARDER_NEVER_STORED and so on */
  uint64_t prefetches;          /* calls */
} larder_stats;
/* Any thread. Does not ask the nodes. */
LARDER_API larder_code larder_client_stats(larder_client* client, larder_stats* stats, larder_error* error);

/* Any thread. Round trip to one node by its id, or to the first node of the table when node_id is NULL. */
LARDER_API larder_code larder_client_ping(larder_client* client, const char* node_id, uint64_t deadline_us,
                                          uint64_t* round_trip_us, larder_error* error);

/* ---- namespace ---- */

typedef struct larder_namespace_options {
  uint32_t size;
  uint32_t reserved;
  const char*
      identity; /* JSON object, or name=value lines (or comma-separated): proto/block_key.h has the names */
  const char* tenant; /* NULL: none */
  const void* salt;   /* the tenant's secret; it never leaves the process */
  size_t salt_bytes;
} larder_namespace_options;

typedef struct larder_namespace_info {
  uint32_t size;
  uint16_t layers, head_groups; /* the grid that rectangles lie in */
  uint8_t id[LARDER_HASH_BYTES];
} larder_namespace_info;

/* Any thread. Local: nodes are told on first use. */
LARDER_API larder_code larder_namespace_open(larder_client* client, const larder_namespace_options* options,
                                             larder_namespace** ns, larder_error* error);
LARDER_API larder_code larder_namespace_describe(const larder_namespace* ns, larder_namespace_info* info,
                                                 larder_error* error); /* any thread */
/* Ends the handle; operations that were submitted on it go on. NULL is fine. */
LARDER_API void larder_namespace_close(larder_namespace* ns);

/* Chain hashes for callers without their own (engines bring theirs). Any thread; nothing but arithmetic.
 * tokens: count / block_tokens hashes are written. link: one step of a chain from bytes of any kind; parent
 * NULL: the first one. */
LARDER_API larder_code larder_hash_tokens(const uint32_t* tokens, size_t count, uint32_t block_tokens,
                                          uint8_t* hashes, larder_error* error);
LARDER_API void larder_hash_link(const uint8_t* parent, const void* bytes, size_t count, uint8_t* hash);

/* ---- memory ---- */

/* Any thread. Page-aligned shared memory that moves without a copy over shm and RDMA. It lives until it was
 * freed and every operation on it has completed. After a fork parent and child share its content. */
LARDER_API larder_code larder_buffer_allocate(larder_client* client, size_t bytes, larder_buffer** buffer,
                                              larder_error* error);
LARDER_API void* larder_buffer_data(const larder_buffer* buffer);
LARDER_API size_t larder_buffer_bytes(const larder_buffer* buffer);
LARDER_API void larder_buffer_free(larder_buffer* buffer);

/* Any thread. Makes the caller's memory known to transports that gain by it (RDMA registers it once instead
 * of at each use; others do nothing). Optional. Between unregister and the end of the memory no operation may
 * use it. */
LARDER_API larder_code larder_memory_register(larder_client* client, void* data, size_t bytes,
                                              larder_error* error);
LARDER_API larder_code larder_memory_unregister(larder_client* client, void* data, larder_error* error);

/* ---- what is there ---- */

/* Layers x head groups, half open. Pieces are written by rectangle (a TP rank its heads, a PP rank its
 * layers, a stream a few layers at a time), reads ask for one; layer_end = layer_begin + 1 and one head group
 * is a single part. */
typedef struct larder_rectangle {
  uint16_t layer_begin, layer_end, head_begin, head_end;
} larder_rectangle;

/* A group of the engine's KV cache. window_blocks: 0 for full attention, else only the last so many blocks of
 * a prefix are needed. */
typedef struct larder_group {
  uint16_t group;
  uint16_t reserved;
  uint32_t window_blocks;
} larder_group;

typedef struct larder_match_request {
  uint32_t size;
  uint32_t priority;
  const uint8_t* hashes; /* of the chain, root first, at most 65,536 */
  size_t count;
  const larder_group* groups;        /* NULL: group 0, full attention */
  size_t group_count;                /* at most 16 */
  const larder_rectangle* rectangle; /* NULL: the whole grid */
  uint64_t pin_us;                   /* hits are not evicted for so long at most; 0: no pin */
  uint64_t deadline_us;
} larder_match_request;

typedef struct larder_match_result {
  uint32_t size;
  uint32_t usable;       /* out: blocks of the longest prefix that every group can use */
  uint64_t pin;          /* out: for larder_release; 0: nothing pinned */
  uint8_t* presence;     /* [count][group_count], tier or reason; NULL: not wanted */
  uint8_t* bitmaps;      /* [group_count][(count + 7) / 8], bit i % 8 of byte i / 8: block i is there; NULL */
  uint32_t* estimate_us; /* [count], until a get of the block would end, 0: unknown; NULL */
} larder_match_result;

/* Any thread; blocks until the deadline at most. Counts as no use of the blocks: see larder_touch. */
LARDER_API larder_code larder_match(larder_namespace* ns, const larder_match_request* request,
                                    larder_match_result* result, larder_error* error);
/* Any thread; returns at once. */
LARDER_API void larder_release(larder_client* client, uint64_t pin);

typedef struct larder_wait_request {
  uint32_t size;
  uint32_t priority;
  const uint8_t* hashes;
  size_t count;
  const larder_group* groups; /* windows count as full here; NULL: group 0 */
  size_t group_count;
  const larder_rectangle* rectangle;
  uint64_t deadline_us;
} larder_wait_request;

/* Any thread. Returns when every block is there (whoever writes it) or at the deadline: `leading` blocks are.
 */
LARDER_API larder_code larder_wait(larder_namespace* ns, const larder_wait_request* request,
                                   uint32_t* leading, larder_error* error);

/* Any thread. For a request that waits its turn: moves blocks from their nodes' SSDs into their memory. Takes
 * what a wait takes. Returns when all are there or at the deadline: `blocks` of them (hashes times groups)
 * are in memory then. Nothing is pinned; what is nowhere is not waited for. */
LARDER_API larder_code larder_prefetch(larder_namespace* ns, const larder_wait_request* request,
                                       uint64_t* blocks, larder_error* error);

typedef struct larder_keys { /* blocks by hash and group: every group of every hash */
  uint32_t size;
  uint32_t usable; /* touch: blocks of the chain that the request could use */
  const uint8_t* hashes;
  size_t count;
  const uint16_t* groups; /* NULL: group 0 */
  size_t group_count;
  const larder_rectangle* rectangle; /* report: of the bad bytes; NULL: the whole grid */
  uint64_t deadline_us;              /* remove */
  uint32_t retention;                /* touch, finish_turn: LARDER_RETENTION_ */
  uint32_t reserved;
} larder_keys;

/* What an engine knows of a chain's future. It moves blocks in the order in which they leave, fades as they
 * age, and ends with their next use; it pins nothing. */
enum {
  LARDER_RETENTION_NONE = 0,
  LARDER_RETENTION_ENDED = 1,     /* the turn ended: the next comes when a person has read and written */
  LARDER_RETENTION_CONTINUES = 2, /* a tool call follows: asked for again in seconds */
  LARDER_RETENTION_NEVER = 3      /* never again: gives way before all others */
};

/* Any thread; both return at once, nobody answers. touch: once a request, root first, when it knows what it
 * used; it decides the order of eviction. report: content that the caller found wrong, at most 1,024 blocks;
 * the nodes check their copies and drop what is bad. */
LARDER_API larder_code larder_touch(larder_namespace* ns, const larder_keys* keys, larder_error* error);
/* Any thread; returns at once, nobody answers. When a request ends whose use larder_touch told: `retention`
 * of its chain. No use of its own. */
LARDER_API larder_code larder_finish_turn(larder_namespace* ns, const larder_keys* keys, larder_error* error);
LARDER_API larder_code larder_report(larder_namespace* ns, const larder_keys* keys, larder_error* error);
/* Any thread; block. `removed` (may be NULL): blocks that were there. clear: the whole namespace on every
 * node; fails by naming the nodes that did not answer. */
LARDER_API larder_code larder_remove(larder_namespace* ns, const larder_keys* keys, uint64_t* removed,
                                     larder_error* error);
LARDER_API larder_code larder_clear(larder_namespace* ns, uint64_t deadline_us, uint64_t* removed,
                                    larder_error* error);

/* ---- blocks ---- */

/* A stretch of a block's packed payload, `[layer][head group][K/V][head][token][dim]` of its rectangle, in
 * order. */
typedef struct larder_extent {
  void* data;
  size_t bytes;
} larder_extent;

typedef struct larder_get_request {
  uint32_t size;
  uint32_t priority;
  const uint8_t* hashes;
  size_t count; /* blocks, at most 65,536 */
  const uint16_t* groups;
  size_t group_count; /* 0: group 0; 1: groups[0] for all; count: one each */
  const larder_rectangle* rectangles;
  size_t rectangle_count;        /* 0: the whole grid; 1: the same for all; count: one each */
  const larder_extent* extents;  /* of the first block, then of the second, ... */
  const uint32_t* extent_counts; /* one a block; NULL: extents_per_block for all */
  uint32_t extents_per_block;    /* 0: 1 */
  uint32_t reserved;
  uint64_t deadline_us;
} larder_get_request;

typedef struct larder_get_result { /* arrays of `count`, NULL where not wanted */
  uint32_t size;
  uint32_t hits;    /* out */
  uint32_t leading; /* out: hits before the first block that is none */
  uint32_t reserved;
  uint8_t* outcomes;    /* LARDER_HIT ... */
  uint8_t* reasons;     /* of a hit its tier, else why not */
  uint64_t* bytes;      /* of hits */
  uint64_t* created_ms; /* of hits: when, by the node's clock */
  uint8_t* writers;     /* of hits: 32 bytes each, who wrote it */
} larder_get_result;

typedef struct larder_part_run { /* so many parts of so many bytes */
  uint32_t count, bytes;
} larder_part_run;

typedef struct larder_put_request {
  uint32_t size;
  uint32_t priority;
  const uint8_t* hashes;
  size_t count;
  const uint16_t* groups;
  size_t group_count;
  const larder_rectangle* rectangles;
  size_t rectangle_count;
  const larder_extent* extents; /* only read */
  const uint32_t* extent_counts;
  uint32_t extents_per_block;
  uint32_t first_depth;             /* position of the first block in its chain; the others follow */
  const uint32_t* depths;           /* one a block instead; NULL: first_depth + i */
  const larder_part_run* part_runs; /* sizes of a block's parts in order; the same for all blocks */
  size_t part_run_count;            /* 0: all parts are equal */
  const uint8_t* constituents; /* the engine's own hashes when a block is made of several; 32 bytes each */
  uint32_t constituents_per_block;
  uint32_t retention; /* LARDER_RETENTION_ of all its blocks, told once they are there */
  uint64_t deadline_us;
} larder_put_request;

typedef struct larder_put_result { /* arrays of `count`, NULL where not wanted */
  uint32_t size;
  uint32_t there;   /* out: blocks that are stored, exist or differ */
  uint8_t* states;  /* LARDER_PUT_ */
  uint32_t* copies; /* nodes that have it now */
  char why[256];    /* out: of the first block that is not there, for people */
} larder_put_result;

/* Any thread; block until the deadline at most. A get that runs out of time has what came in time: each
 * outcome holds. */
LARDER_API larder_code larder_get(larder_namespace* ns, const larder_get_request* request,
                                  larder_get_result* result, larder_error* error);
LARDER_API larder_code larder_put(larder_namespace* ns, const larder_put_request* request,
                                  larder_put_result* result, larder_error* error);

/* ---- the same, asynchronous ---- */

typedef uint64_t larder_operation; /* 0: none */

/* Any thread. Completions wait in the queue until they are polled; each operation has its place. */
LARDER_API larder_code larder_queue_open(larder_client* client, larder_queue** queue, larder_error* error);
/* Readable while a completion is there: for poll, epoll, asyncio. Not to be read or closed. -1 when there is
 * none: no file descriptor is left, or the queue is another process's. Any thread. */
LARDER_API int larder_queue_event_fd(larder_queue* queue);
/* Ends the handle. What was submitted to it goes on unheard: poll all of it first, or keep its memory until
 * the client is closed. NULL is fine. */
LARDER_API void larder_queue_close(larder_queue* queue);

/* Any thread; return at once, LARDER_BUSY at operations_max. `operation` may be NULL. Arrays of the request
 * are read before it returns; what extents point to belongs to the library until completion. */
LARDER_API larder_code larder_submit_match(larder_queue* queue, larder_namespace* ns,
                                           const larder_match_request* request, uint64_t user_data,
                                           larder_operation* operation, larder_error* error);
LARDER_API larder_code larder_submit_wait(larder_queue* queue, larder_namespace* ns,
                                          const larder_wait_request* request, uint64_t user_data,
                                          larder_operation* operation, larder_error* error);
LARDER_API larder_code larder_submit_prefetch(larder_queue* queue, larder_namespace* ns,
                                              const larder_wait_request* request, uint64_t user_data,
                                              larder_operation* operation, larder_error* error);
LARDER_API larder_code larder_submit_get(larder_queue* queue, larder_namespace* ns,
                                         const larder_get_request* request, uint64_t user_data,
                                         larder_operation* operation, larder_error* error);
LARDER_API larder_code larder_submit_put(larder_queue* queue, larder_namespace* ns,
                                         const larder_put_request* request, uint64_t user_data,
                                         larder_operation* operation, larder_error* error);

enum {
  LARDER_CANCEL_WAITING = 0, /* what of it no node was asked for yet; the rest goes on to its end */
  LARDER_CANCEL_ALL = 1,     /* everything: it completes soon, with what it already had */
};
/* Any thread; returns at once. The operation completes in any case; one that has completed is left alone. */
LARDER_API larder_code larder_cancel(larder_client* client, larder_operation operation, uint32_t how,
                                     larder_error* error);

/* Any thread. Up to `max` completions in their order; waits for the first one for timeout_us at most (0: not
 * at all). Returns how many. Each is the caller's until larder_completion_free. */
LARDER_API size_t larder_queue_poll(larder_queue* queue, uint64_t timeout_us, larder_completion** completions,
                                    size_t max);

enum {
  LARDER_COMPLETED_MATCH = 1,
  LARDER_COMPLETED_WAIT = 2,
  LARDER_COMPLETED_GET = 3,
  LARDER_COMPLETED_PUT = 4,
  LARDER_COMPLETED_PREFETCH = 6
};
typedef struct larder_completion_info {
  uint32_t size;
  uint32_t kind; /* LARDER_COMPLETED_: which of the functions below fits */
  larder_operation operation;
  uint64_t user_data;
  size_t count;     /* blocks; of a prefetch: in memory now */
  uint32_t leading; /* of a wait */
  larder_code code; /* of the operation as a whole: LARDER_OK, LARDER_CANCELLED, ... */
} larder_completion_info;
/* One thread at a time for each completion. They fill arrays as the blocking calls do. */
LARDER_API larder_code larder_completion_describe(const larder_completion* completion,
                                                  larder_completion_info* info, larder_error* error);
LARDER_API larder_code larder_completion_match(const larder_completion* completion,
                                               larder_match_result* result, larder_error* error);
LARDER_API larder_code larder_completion_get(const larder_completion* completion, larder_get_result* result,
                                             larder_error* error);
LARDER_API larder_code larder_completion_put(const larder_completion* completion, larder_put_result* result,
                                             larder_error* error);
LARDER_API void larder_completion_free(larder_completion* completion); /* NULL is fine */

#ifdef __cplusplus
}
#endif
