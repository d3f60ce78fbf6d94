# The owner and what it is made of: a pure state machine. Included by node/CMakeLists.txt.
add_library(larder_node_core STATIC
  ${CMAKE_CURRENT_LIST_DIR}/arena.cc
  ${CMAKE_CURRENT_LIST_DIR}/clears.cc
  ${CMAKE_CURRENT_LIST_DIR}/cover.cc
  ${CMAKE_CURRENT_LIST_DIR}/event_log.cc
  ${CMAKE_CURRENT_LIST_DIR}/homecoming.cc
  ${CMAKE_CURRENT_LIST_DIR}/hot_blocks.cc
  ${CMAKE_CURRENT_LIST_DIR}/index.cc
  ${CMAKE_CURRENT_LIST_DIR}/miss_memory.cc
  ${CMAKE_CURRENT_LIST_DIR}/moved_slots.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_admin.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_check.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_clears.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_cold.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_events.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_evict.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_expire.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_explain.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_get.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_hand_over.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_homecoming.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_hot.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_match.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_pieces.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_places.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_put.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_quarantine.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_quota.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_report.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_scrub.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_spill.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_wait.cc
  ${CMAKE_CURRENT_LIST_DIR}/place_times.cc
  ${CMAKE_CURRENT_LIST_DIR}/quarantine.cc
  ${CMAKE_CURRENT_LIST_DIR}/reader_memory.cc
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
