# The owner and its parts. Included by this folder's CMakeLists.txt.
add_executable(node_core_test
  ${CMAKE_CURRENT_LIST_DIR}/arena_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/cover_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/eviction_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/retention_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/hot_blocks_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/index_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/miss_memory_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/moved_slots_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/replica_places_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_quarantine_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_quota_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_admin_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_clears_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_events_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_evict_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_fixture.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_get_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_hand_over_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_homecoming_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_hot_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_match_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_near_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_parts_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_places_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_put_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_random_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_report_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_scrub_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_ssd_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_trace_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_ttl_test.cc
  ${PROJECT_SOURCE_DIR}/tests/support/sim_disk.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_wait_test.cc
)
target_compile_definitions(node_core_test PRIVATE LARDER_TRACES="${PROJECT_SOURCE_DIR}/../shared/data/traces")
target_link_libraries(node_core_test PRIVATE larder_node_core larder_warnings GTest::gtest GTest::gtest_main)
gtest_discover_tests(node_core_test DISCOVERY_MODE PRE_TEST)
