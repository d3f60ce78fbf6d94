// liblarder's own way to its transports: UCX is loaded when an RDMA peer is first met, and never otherwise.
// Loading it takes over signals of the process (its transport gives them back at once) and reads a
// process-wide configuration: neither may happen to an engine that merely loads a cache's library.
#include <dlfcn.h>

#include <string>

#include "client/c/ucx_module.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"

namespace larder::transport {
namespace {

// Beside this library first, then where the loader looks.
void* OpenModule(std::string* why) {
  Dl_info self{};
  std::string beside;
  if (dladdr(reinterpret_cast<void*>(&OpenModule), &self) != 0 && self.dli_fname != nullptr) {
    beside = self.dli_fname;
    beside.resize(beside.rfind('/') == beside.npos ? 0 : beside.rfind('/') + 1);
  }
  void* module = dlopen((beside + LARDER_UCX_MODULE).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) module = dlopen(LARDER_UCX_MODULE, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* text = dlerror();
    *why = text == nullptr ? "it can't be loaded" : text;
  }
  return module;
}

// The module stays loaded: UCX does not survive being unloaded.
std::unique_ptr<Transport> MakeUcx(const TransportOptions& options, Error* error) {
  std::string why;
  void* module = OpenModule(&why);
  const auto entry =
      module == nullptr ? nullptr : reinterpret_cast<UcxModuleEntry>(dlsym(module, kUcxModuleEntry));
  Transport* made = nullptr;
  if (module != nullptr && entry == nullptr) why = "it has no " + std::string(kUcxModuleEntry);
  if (entry != nullptr && entry(kUcxModuleBuild, &options, error, &made))
    return std::unique_ptr<Transport>(made);
  if (entry != nullptr) why = "it is of another build";
  if (error != nullptr) *error = {Failure::kUnsupported, std::string(LARDER_UCX_MODULE) + ": " + why};
  return nullptr;
}

}  // namespace

std::unique_ptr<Transport> MakeTransport(std::string_view name, const TransportOptions& options,
                                         Error* error) {
  if (name == "tcp") return MakeTcpTransport(options, error);
  if (name == "shm") return MakeShmTransport(options, error);
  if (name == "ucx") return MakeUcx(options, error);
  if (error != nullptr) {
    *error = {Failure::kInvalid, "unknown transport '" + std::string(name) + "'; there are tcp, shm and ucx"};
  }
  return nullptr;
}

}  // namespace larder::transport
