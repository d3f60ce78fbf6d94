# Sessions, slabs and the running node. Included by this folder's CMakeLists.txt.
add_executable(node_shell_test
  ${CMAKE_CURRENT_LIST_DIR}/bring_home_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/hand_over_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/hot_copies_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/repair_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/mailbox_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/node_hostile_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/node_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/raw_client.cc
  ${CMAKE_CURRENT_LIST_DIR}/session_put_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/session_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/slab_memory_test.cc
)
target_link_libraries(node_shell_test PRIVATE larder_node larder_warnings GTest::gtest GTest::gtest_main)
gtest_discover_tests(node_shell_test DISCOVERY_MODE PRE_TEST)
