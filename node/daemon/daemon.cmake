# The daemon around a node: configuration, control service, HTTP, metrics. Exceptions of CLI11, toml++ and spdlog
# end in these files. Included by node/CMakeLists.txt.
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(prometheus-cpp REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)

# Apart, so that its fuzzer links nothing else.
add_library(larder_http_request STATIC ${CMAKE_CURRENT_LIST_DIR}/http_request.cc)
add_library(larder::http_request ALIAS larder_http_request)
target_include_directories(larder_http_request PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_http_request PRIVATE larder_warnings larder_no_exceptions)

add_library(larder_daemon STATIC
  ${CMAKE_CURRENT_LIST_DIR}/cluster_link.cc
  ${CMAKE_CURRENT_LIST_DIR}/../cluster/cluster_match.cc
  ${CMAKE_CURRENT_LIST_DIR}/config.cc
  ${CMAKE_CURRENT_LIST_DIR}/config_check.cc
  ${CMAKE_CURRENT_LIST_DIR}/config_file.cc
  ${CMAKE_CURRENT_LIST_DIR}/config_load.cc
  ${CMAKE_CURRENT_LIST_DIR}/config_print.cc
  ${CMAKE_CURRENT_LIST_DIR}/control_service.cc
  ${CMAKE_CURRENT_LIST_DIR}/daemon_options.cc
  ${CMAKE_CURRENT_LIST_DIR}/endpoints.cc
  ${CMAKE_CURRENT_LIST_DIR}/../events/event_streams.cc
  ${CMAKE_CURRENT_LIST_DIR}/../cluster/hear_rules.cc
  ${CMAKE_CURRENT_LIST_DIR}/http_server.cc
  ${CMAKE_CURRENT_LIST_DIR}/../events/kv_event_format.cc
  ${CMAKE_CURRENT_LIST_DIR}/../events/kv_event_outbox.cc
  ${CMAKE_CURRENT_LIST_DIR}/../events/kv_event_publisher.cc
  ${CMAKE_CURRENT_LIST_DIR}/../events/kv_event_replay.cc
  ${CMAKE_CURRENT_LIST_DIR}/../events/kv_event_view.cc
  ${CMAKE_CURRENT_LIST_DIR}/machine.cc
  ${CMAKE_CURRENT_LIST_DIR}/metrics.cc
)
add_library(larder::daemon ALIAS larder_daemon)
target_include_directories(larder_daemon PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_definitions(larder_daemon PUBLIC LARDER_VERSION="${PROJECT_VERSION}")
target_link_libraries(larder_daemon
  PUBLIC larder_node larder_membership larder_http_request larder_proto prometheus-cpp::core Threads::Threads
  PRIVATE larder_warnings larder_control_proto CLI11::CLI11 PkgConfig::TOMLPLUSPLUS PkgConfig::ZMQ nlohmann_json::nlohmann_json)

add_executable(larder-node
  ${CMAKE_CURRENT_LIST_DIR}/logging.cc
  ${CMAKE_CURRENT_LIST_DIR}/main.cc
)
target_link_libraries(larder-node PRIVATE
  larder_daemon larder_warnings spdlog::spdlog nlohmann_json::nlohmann_json)
