// What this build is called.
#pragma once

#include <string>

#include "proto/message.h"

#ifndef LARDER_VERSION
#error "LARDER_VERSION comes from the build: see node/daemon.cmake"
#endif

namespace larder::node {

// "larder-node 0.1.0 (wire 1..1)"
inline std::string VersionText() {
  return "larder-node " LARDER_VERSION " (wire " + std::to_string(kWireVersionMin) + ".." +
         std::to_string(kWireVersionMax) + ")";
}

}  // namespace larder::node
