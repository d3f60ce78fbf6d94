#include "transport/ucx/context.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
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

bool IsOfUcx(int signal) {
  struct sigaction action {};
  Dl_info info{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL &&
         action.sa_handler != SIG_IGN && dladdr(reinterpret_cast<void*>(action.sa_handler), &info) != 0 &&
         info.dli_fname != nullptr && strstr(info.dli_fname, "libucs") != nullptr;
}

// UCX takes over signals of its process when it is loaded, and prints what a cache takes in its stride (a
// peer that died). Neither suits a library inside an engine. UCX_LOG_LEVEL still works.
bool TameLibrary() {
  for (const int signal : {SIGHUP, SIGILL, SIGBUS, SIGFPE, SIGSEGV}) {
    if (IsOfUcx(signal)) ucs_debug_disable_signal(signal);
  }
  if (getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  return true;
}

std::string TlsOf(const TransportOptions& options) {
  if (!options.ucx_tls.empty()) return options.ucx_tls;
  return HasRdmaDevice() ? "rc,ud,dc,self" : "tcp,self,posix,sysv,cma";
}

bool Names(const std::string& tls, std::initializer_list<const char*> names) {
  const std::string list = "," + tls + ",";
  for (const char* name : names) {
    if (list.find("," + std::string(name) + ",") != std::string::npos) return true;
  }
  return false;
}

std::vector<std::pair<const char*, std::string>> Settings(const TransportOptions& options) {
  const std::string tls = TlsOf(options);
  std::string device = options.device;
  if (device.empty() && !HasRdmaDevice()) device = "lo";  // UCX over TCP stays on this host
  // Names as in UCX_NAME, but without the prefix of a transport: so ucp_config_modify wants them. It takes
  // any name; the first worker warns of those that nothing knows (UCX_LOG_LEVEL=warn shows it).
  std::vector<std::pair<const char*, std::string>> settings = {
      {"TLS", tls},
      {"SOCKADDR_TLS_PRIORITY", "rdmacm,tcp"},
      {"PROTO_ENABLE", "n"},  // the new protocols cut rendezvous into copied pieces
      {"CM_REUSEADDR", "y"},
      {"KEEPALIVE_INTERVAL", "2s"},
      {"WARN_UNUSED_ENV_VARS", "n"},
  };
  if (!device.empty()) settings.emplace_back("NET_DEVICES", device);
  // A close by force in mid-send aborts the process when TCP sends without a copy (uct_iface.h:884).
  if (Context::IsTcpOnly(options)) settings.emplace_back("ZCOPY_THRESH", "inf");
  // Without these, error handling moves same-host payload to TCP.
  if (Names(tls, {"posix", "sysv", "sm", "shm", "all"})) settings.emplace_back("MM_ERROR_HANDLING", "y");
  if (Names(tls, {"cma", "sm", "shm", "all"})) settings.emplace_back("MEMORY_INVALIDATE", "y");
  return settings;
}

}  // namespace

bool Context::IsTcpOnly(const TransportOptions& options) {
  const std::string tls = TlsOf(options);
  return tls == "tcp" || tls == "tcp,self" || tls == "self,tcp";
}

Error Context::Open(const TransportOptions& options) {
  static const bool tamed = TameLibrary();  // once a process
  (void)tamed;
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
