#include "client/host.h"

#include <dirent.h>

#include <fstream>

namespace larder::client {

std::string HostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

bool HasRdmaDevice() {
  DIR* folder = opendir("/sys/class/infiniband");
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(folder)) found |= entry->d_name[0] != '.';
  closedir(folder);
  return found;
}

}  // namespace larder::client
