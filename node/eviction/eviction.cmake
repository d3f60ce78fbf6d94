# Which piece leaves next. Included by node/CMakeLists.txt.
# Policies apart, so that the trace simulator links them alone.
add_library(larder_eviction STATIC
  ${CMAKE_CURRENT_LIST_DIR}/arc.cc
  ${CMAKE_CURRENT_LIST_DIR}/chain_history.cc
  ${CMAKE_CURRENT_LIST_DIR}/ghost_list.cc
  ${CMAKE_CURRENT_LIST_DIR}/grouped_order.cc
  ${CMAKE_CURRENT_LIST_DIR}/leaf_first_lru.cc
  ${CMAKE_CURRENT_LIST_DIR}/lfu_aging.cc
  ${CMAKE_CURRENT_LIST_DIR}/lru2.cc
  ${CMAKE_CURRENT_LIST_DIR}/policy.cc
  ${CMAKE_CURRENT_LIST_DIR}/reuse_hazard.cc
  ${CMAKE_CURRENT_LIST_DIR}/reuse_model.cc
  ${CMAKE_CURRENT_LIST_DIR}/s3_fifo.cc
  ${CMAKE_CURRENT_LIST_DIR}/tournament.cc
)
# Each policy has its own small words for its own flags.
set_target_properties(larder_eviction PROPERTIES UNITY_BUILD OFF)
add_library(larder::eviction ALIAS larder_eviction)
target_include_directories(larder_eviction PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_eviction PUBLIC larder_proto larder_node_base PRIVATE larder_warnings larder_no_exceptions)
