# Who is in the cluster. gRPC ends in these files. Included by node/CMakeLists.txt.
set(stem ${CMAKE_CURRENT_BINARY_DIR}/membership/etcd)
add_custom_command(
  OUTPUT ${stem}.pb.cc ${stem}.pb.h ${stem}.grpc.pb.cc ${stem}.grpc.pb.h
  COMMAND protobuf::protoc --proto_path=${PROJECT_SOURCE_DIR} --cpp_out=${PROJECT_BINARY_DIR}
    --grpc_out=${PROJECT_BINARY_DIR} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>
    node/membership/etcd.proto
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/etcd.proto
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  VERBATIM)
add_library(larder_etcd_proto STATIC ${stem}.pb.cc ${stem}.grpc.pb.cc)
set_target_properties(larder_etcd_proto PROPERTIES UNITY_BUILD OFF)
target_include_directories(larder_etcd_proto SYSTEM PUBLIC ${PROJECT_BINARY_DIR})
target_compile_options(larder_etcd_proto PRIVATE -w)
target_link_libraries(larder_etcd_proto PUBLIC gRPC::grpc++ protobuf::libprotobuf)

# DNS with real timeouts. gRPC brings it along.
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)

add_library(larder_membership STATIC
  ${CMAKE_CURRENT_LIST_DIR}/absence.cc
  ${CMAKE_CURRENT_LIST_DIR}/cluster_state.cc
  ${CMAKE_CURRENT_LIST_DIR}/dns_membership.cc
  ${CMAKE_CURRENT_LIST_DIR}/etcd_client.cc
  ${CMAKE_CURRENT_LIST_DIR}/etcd_membership.cc
  ${CMAKE_CURRENT_LIST_DIR}/facts_wire.cc
  ${CMAKE_CURRENT_LIST_DIR}/gossip.cc
  ${CMAKE_CURRENT_LIST_DIR}/control_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/peer_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/resolver.cc
  ${CMAKE_CURRENT_LIST_DIR}/roster.cc
  ${CMAKE_CURRENT_LIST_DIR}/state_folder.cc
)
add_library(larder::membership ALIAS larder_membership)
target_include_directories(larder_membership PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_membership
  PUBLIC larder_proto larder_node_base larder_transport larder_control_proto Threads::Threads
  PRIVATE larder_warnings larder_etcd_proto PkgConfig::CARES)
