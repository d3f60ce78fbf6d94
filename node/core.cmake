# The owner and what it is made of: a pure state machine. Included by node/CMakeLists.txt.
# Policies apart, so that the trace simulator links them alone.
add_library(larder_eviction STATIC
  ${CMAKE_CURRENT_LIST_DIR}/eviction/arc.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/chain_history.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/ghost_list.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/grouped_order.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/leaf_first_lru.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/lfu_aging.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/lru2.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/policy.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/reuse_hazard.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/reuse_model.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/s3_fifo.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction/tournament.cc
)
# Each policy has its own small words for its own flags.
set_target_properties(larder_eviction PROPERTIES UNITY_BUILD OFF)
add_library(larder::eviction ALIAS larder_eviction)
target_include_directories(larder_eviction PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_eviction PUBLIC larder_proto larder_node_base PRIVATE larder_warnings larder_no_exceptions)

add_library(larder_node_core STATIC
  ${CMAKE_CURRENT_LIST_DIR}/arena.cc
  ${CMAKE_CURRENT_LIST_DIR}/clears.cc
  ${CMAKE_CURRENT_LIST_DIR}/cover.cc
  ${CMAKE_CURRENT_LIST_DIR}/homecoming.cc
  ${CMAKE_CURRENT_LIST_DIR}/event_log.cc
  ${CMAKE_CURRENT_LIST_DIR}/hot_blocks.cc
  ${CMAKE_CURRENT_LIST_DIR}/index.cc
  ${CMAKE_CURRENT_LIST_DIR}/miss_memory.cc
  ${CMAKE_CURRENT_LIST_DIR}/moved_slots.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_admin.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_check.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_clears.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_cold.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_evict.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_expire.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_events.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_explain.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_hand_over.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_homecoming.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_hot.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_quarantine.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_quota.cc
  ${CMAKE_CURRENT_LIST_DIR}/quarantine.cc
  ${CMAKE_CURRENT_LIST_DIR}/reader_memory.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_get.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_match.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_pieces.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_places.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_put.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_report.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_scrub.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_spill.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_wait.cc
  ${CMAKE_CURRENT_LIST_DIR}/place_times.cc
  ${CMAKE_CURRENT_LIST_DIR}/replica_places.cc
  ${CMAKE_CURRENT_LIST_DIR}/tenants.cc
  ${CMAKE_CURRENT_LIST_DIR}/waits.cc
)
add_library(larder::node_core ALIAS larder_node_core)
target_include_directories(larder_node_core PUBLIC ${PROJECT_SOURCE_DIR})
# transport for its header's types only; block_name.h, which tests see, has xxhash in it.
target_link_libraries(larder_node_core
  PUBLIC larder_eviction larder_ssd_core larder_proto larder_transport PkgConfig::XXHASH
  PRIVATE larder_warnings larder_no_exceptions)
