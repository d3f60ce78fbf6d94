#include "transport/ucx/context.h"

#include <dirent.h>
#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <string>
#include <utility>
#include <vector>

#include "transport/ucx/worker.h"

namespace larder::transport::ucx {

namespace {

bool HasRdmaDevice() {
  DIR* directory = opendir("/sys/class/infiniband");
  if (directory == nullptr) return false;
  bool any = false;
  while (const dirent* entry = readdir(directory)) any = any || entry->d_name[0] != '.';
  closedir(directory);
  return any;
}

// UCX takes over signals of its host process and prints what a cache takes in its stride (a peer that died).
void TameLibrary() {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
  ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

std::vector<std::pair<const char*, std::string>> Settings(const TransportOptions& options) {
  const bool rdma = HasRdmaDevice();
  std::string tls = options.ucx_tls;
  if (tls.empty()) tls = rdma ? "rc,ud,dc,self,posix,sysv,cma" : "tcp,self,posix,sysv,cma";
  std::string device = options.device;
  if (device.empty() && !rdma) device = "lo";  // UCX over TCP stays on this host
  std::vector<std::pair<const char*, std::string>> settings = {
      {"TLS", tls},
      {"SOCKADDR_TLS_PRIORITY", "rdmacm,tcp"},
      {"PROTO_ENABLE", "n"},  // the new protocols cut rendezvous into copied pieces
      {"TCP_CM_REUSEADDR", "y"},
      {"RDMA_CM_REUSEADDR", "y"},
      {"POSIX_ERROR_HANDLING", "y"},
      {"SYSV_ERROR_HANDLING", "y"},
      {"CMA_MEMORY_INVALIDATE", "y"},  // else error handling moves same-host payload to TCP
      {"KEEPALIVE_INTERVAL", "2s"},
      {"WARN_UNUSED_ENV_VARS", "n"},
  };
  if (!device.empty()) settings.emplace_back("NET_DEVICES", device);
  return settings;
}

}  // namespace

Error Context::Open(const TransportOptions& options) {
  TameLibrary();
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return {Failure::kUnsupported, "UCX has no configuration: " + StatusText(status)};
  std::string text;
  for (const auto& [name, value] : Settings(options)) {
    if (status != UCS_OK) break;
    status = ucp_config_modify(config, name, value.c_str());
    text = std::string(name) + "=" + value;
  }
  if (status != UCS_OK) {
    ucp_config_release(config);
    return {Failure::kUnsupported, "UCX refuses UCX_" + text + ": " + StatusText(status)};
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = "larder";
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return {Failure::kUnsupported,
            "UCX finds no usable device (see ucx_info -d; check the device and ucx_tls settings): " +
                StatusText(status)};
  }
  return {};
}

Context::~Context() {
  for (const auto& [base, handle] : regions_) ucp_mem_unmap(context_, handle);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Error Context::AddRegion(const Region& region) {
  if (region.base == nullptr || region.bytes == 0) return {Failure::kInvalid, "empty region"};
  std::lock_guard<std::mutex> lock(mutex_);
  if (regions_.count(region.base) != 0) return {Failure::kInvalid, "region added twice"};
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = region.base;
  params.length = region.bytes;
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    return {Failure::kSystem, "cannot register " + std::to_string(region.bytes) +
                                  " bytes with UCX (ulimit -l?): " + StatusText(status)};
  }
  regions_[region.base] = handle;
  return {};
}

void Context::RemoveRegion(const std::byte* base) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end()) return;
  ucp_mem_unmap(context_, found->second);
  regions_.erase(found);
}

}  // namespace larder::transport::ucx
