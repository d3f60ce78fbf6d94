# A running node: the owner's thread, sessions, slabs, transports. Included by node/CMakeLists.txt.
find_package(Git QUIET)
set(LARDER_BUILD "${PROJECT_VERSION}")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE git_hash ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(git_hash)
    string(APPEND LARDER_BUILD "+${git_hash}")
  endif()
endif()

add_library(larder_node STATIC
  ${CMAKE_CURRENT_LIST_DIR}/background.cc
  ${CMAKE_CURRENT_LIST_DIR}/cluster/bring_home.cc
  ${CMAKE_CURRENT_LIST_DIR}/cluster/courier.cc
  ${CMAKE_CURRENT_LIST_DIR}/cluster/hand_over.cc
  ${CMAKE_CURRENT_LIST_DIR}/cluster/hot_copies.cc
  ${CMAKE_CURRENT_LIST_DIR}/mailbox.cc
  ${CMAKE_CURRENT_LIST_DIR}/node.cc
  ${CMAKE_CURRENT_LIST_DIR}/node_cluster.cc
  ${CMAKE_CURRENT_LIST_DIR}/node_record.cc
  ${CMAKE_CURRENT_LIST_DIR}/owner_thread.cc
  ${CMAKE_CURRENT_LIST_DIR}/cluster/peer_link.cc
  ${CMAKE_CURRENT_LIST_DIR}/cluster/repair.cc
  ${CMAKE_CURRENT_LIST_DIR}/slab_memory.cc
)
add_library(larder::node ALIAS larder_node)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/node_record.cc
  PROPERTIES COMPILE_DEFINITIONS LARDER_BUILD="${LARDER_BUILD}")
target_include_directories(larder_node PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_node
  PUBLIC larder_session larder_node_core larder_transport larder_proto Threads::Threads
  PRIVATE larder_ssd larder_warnings)

# Apart, so that the simulation links it without threads.
add_library(larder_session STATIC
  ${CMAKE_CURRENT_LIST_DIR}/session.cc
  ${CMAKE_CURRENT_LIST_DIR}/session_data.cc
)
target_include_directories(larder_session PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_session PUBLIC larder_proto PRIVATE larder_warnings larder_no_exceptions)
