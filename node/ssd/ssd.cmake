# The SSD tier: a state machine (core), and the disks that it runs on. Included by node/CMakeLists.txt.
pkg_check_modules(ROCKSDB REQUIRED IMPORTED_TARGET rocksdb)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)

add_library(larder_ssd_core STATIC
  ${CMAKE_CURRENT_LIST_DIR}/record.cc
  ${CMAKE_CURRENT_LIST_DIR}/ssd_index.cc
  ${CMAKE_CURRENT_LIST_DIR}/ssd_tier.cc
  ${CMAKE_CURRENT_LIST_DIR}/ssd_tier_load.cc
  ${CMAKE_CURRENT_LIST_DIR}/ssd_tier_read.cc
  ${CMAKE_CURRENT_LIST_DIR}/ssd_tier_reclaim.cc
  ${CMAKE_CURRENT_LIST_DIR}/ssd_tier_write.cc
)
add_library(larder::ssd_core ALIAS larder_ssd_core)
target_include_directories(larder_ssd_core PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_ssd_core
  PUBLIC larder_proto larder_node_base PkgConfig::XXHASH
  PRIVATE larder_warnings larder_no_exceptions)

add_library(larder_ssd STATIC
  ${CMAKE_CURRENT_LIST_DIR}/directory.cc
  ${CMAKE_CURRENT_LIST_DIR}/file_disk.cc
  ${CMAKE_CURRENT_LIST_DIR}/head_reader.cc
  ${CMAKE_CURRENT_LIST_DIR}/index_store.cc
  ${CMAKE_CURRENT_LIST_DIR}/rebuild.cc
  ${CMAKE_CURRENT_LIST_DIR}/thread_engine.cc
  ${CMAKE_CURRENT_LIST_DIR}/uring_engine.cc
)
add_library(larder::ssd ALIAS larder_ssd)
target_link_libraries(larder_ssd
  PUBLIC larder_ssd_core
  PRIVATE larder_warnings larder_transport PkgConfig::ROCKSDB PkgConfig::URING Threads::Threads)
