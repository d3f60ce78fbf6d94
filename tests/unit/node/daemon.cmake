# The daemon around the node. Included by this folder's CMakeLists.txt.
add_executable(daemon_test
  ${CMAKE_CURRENT_LIST_DIR}/daemon_config_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/daemon_http_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/daemon_metrics_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/daemon_options_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/kv_event_format_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/kv_event_view_test.cc
)
target_compile_definitions(daemon_test PRIVATE LARDER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(daemon_test PRIVATE larder_daemon larder_warnings GTest::gtest GTest::gtest_main)
gtest_discover_tests(daemon_test DISCOVERY_MODE PRE_TEST)
