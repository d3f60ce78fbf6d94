// Clients, buffers, registered memory.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "client/python/native/handles.h"

namespace larder::python {

void Raise(larder_code code, const char* text) {
  const nb::object made =
      nb::module_::import_("larder_kv._errors").attr("error_of")(static_cast<int>(code), text);
  PyErr_SetObject(made.type().ptr(), made.ptr());
  nb::raise_python_error();
}

void RaiseInvalid(const std::string& text) {
  Raise(LARDER_INVALID, text.c_str());
}

ClientHandle::ClientHandle(larder_client* raw) : raw_(raw), owner_(getpid()) {}

void ClientHandle::Enter() {
  if (raw_ == nullptr) RaiseInvalid("the client is closed");
  calls_.fetch_add(1, std::memory_order_acquire);
}

void ClientHandle::Close() {
  larder_client* closing = std::exchange(raw_, nullptr);
  if (closing == nullptr) return;
  {
    const nb::gil_scoped_release released;
    while (getpid() == owner_ && calls_.load(std::memory_order_acquire) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    larder_client_close(closing);
  }
  kept_.clear();
}

namespace {

using Text = std::optional<std::string>;

const char* OrNull(const Text& text) {
  return text ? text->c_str() : nullptr;
}

uint64_t Number(nb::dict numbers, const char* name) {
  return numbers.contains(name) ? nb::cast<uint64_t>(numbers[name]) : 0;
}

std::shared_ptr<ClientHandle> Open(const Text& endpoints, const Text& config_file, const Text& transport,
                                   const Text& token, const Text& name, bool reopen, bool environment,
                                   nb::dict numbers) {
  larder_client_options options{};
  options.size = sizeof options;
  options.fork_mode = reopen ? LARDER_FORK_REOPEN : LARDER_FORK_ERROR;
  options.endpoints = OrNull(endpoints);
  options.config_file = OrNull(config_file);
  options.transport = OrNull(transport);
  options.token = OrNull(token);
  options.client_name = OrNull(name);
  options.ignore_environment = environment ? 0 : 1;
  options.io_threads = static_cast<uint32_t>(Number(numbers, "io_threads"));
  options.connections_per_peer = static_cast<uint32_t>(Number(numbers, "connections_per_peer"));
  options.replicas = static_cast<uint32_t>(Number(numbers, "replicas"));
  options.operations_max = static_cast<uint32_t>(Number(numbers, "operations_max"));
  options.bytes_in_flight_max = Number(numbers, "bytes_in_flight_max");
  options.peer_bytes_in_flight_max = Number(numbers, "peer_bytes_in_flight_max");
  options.deadline_us = Number(numbers, "deadline_us");
  options.open_deadline_us = Number(numbers, "open_deadline_us");
  larder_client* client = nullptr;
  larder_error error{};
  larder_code code = LARDER_OK;
  {
    const nb::gil_scoped_release released;
    code = larder_client_open(&options, &client, &error);
  }
  if (code != LARDER_OK) Raise(code, error.text);
  return std::make_shared<ClientHandle>(client);
}

nb::dict Stats(ClientHandle& self) {
  auto stats = std::make_unique<larder_stats>();
  stats->size = sizeof *stats;
  self.Call([&](larder_client* client, larder_error* error) {
    return larder_client_stats(client, stats.get(), error);
  });
  nb::dict out;
  const auto add = [&](const char* name, uint64_t value) { out[name] = value; };
  add("nodes", stats->nodes), add("nodes_connected", stats->nodes_connected);
  add("nodes_left_alone", stats->nodes_left_alone), add("gets", stats->gets), add("hits", stats->hits);
  add("misses", stats->misses), add("corrupt", stats->corrupt), add("refused", stats->refused);
  add("timed_out", stats->timed_out), add("bytes_pulled", stats->bytes_pulled), add("puts", stats->puts);
  add("stored", stats->stored), add("exists", stats->exists), add("differs", stats->differs);
  add("not_stored", stats->not_stored), add("bytes_put", stats->bytes_put), add("matches", stats->matches);
  add("waits", stats->waits), add("prefetches", stats->prefetches), add("reconnects", stats->reconnects),
      add("peers_down", stats->peers_down);
  add("reports", stats->reports), add("operations", stats->operations);
  add("bytes_in_flight", stats->bytes_in_flight), add("bytes_in_flight_peak", stats->bytes_in_flight_peak);
  nb::dict reasons;
  for (int reason = 0; reason < 256; ++reason) {
    if (stats->miss_by_reason[reason] != 0) {
      reasons[larder_presence_name(static_cast<uint8_t>(reason))] = stats->miss_by_reason[reason];
    }
  }
  out["misses_by_reason"] = reasons;
  return out;
}

uint64_t Ping(ClientHandle& self, const Text& node_id, uint64_t deadline_us) {
  uint64_t round_trip_us = 0;
  self.Call([&](larder_client* client, larder_error* error) {
    return larder_client_ping(client, OrNull(node_id), deadline_us, &round_trip_us, error);
  });
  return round_trip_us;
}

std::unique_ptr<BufferHandle> Allocate(ClientHandle& self, size_t bytes) {
  auto buffer = std::make_unique<BufferHandle>();
  self.Call([&](larder_client* client, larder_error* error) {
    return larder_buffer_allocate(client, bytes, &buffer->raw, error);
  });
  return buffer;
}

// memoryview(buffer), numpy.frombuffer(buffer): each keeps the buffer alive.
int GetBuffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* handle = nb::inst_ptr<BufferHandle>(self);
  return PyBuffer_FillInfo(view, self, larder_buffer_data(handle->raw),
                           static_cast<Py_ssize_t>(larder_buffer_bytes(handle->raw)), 0, flags);
}
PyType_Slot kBufferSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(GetBuffer)}, {0, nullptr}};

}  // namespace

void BindClient(nb::module_& module) {
  nb::class_<ClientHandle>(module, "Client")
      .def("close", &ClientHandle::Close)
      .def_prop_ro("closed", &ClientHandle::closed)
      .def("stats", &Stats)
      .def("ping", &Ping, nb::arg("node_id").none(), nb::arg("deadline_us"))
      .def("allocate", &Allocate)
      .def("register",
           [](ClientHandle& self, uint64_t address, size_t bytes) {
             self.Call([&](larder_client* client, larder_error* error) {
               return larder_memory_register(client, reinterpret_cast<void*>(address), bytes, error);
             });
           })
      .def("unregister",
           [](ClientHandle& self, uint64_t address) {
             self.Call([&](larder_client* client, larder_error* error) {
               return larder_memory_unregister(client, reinterpret_cast<void*>(address), error);
             });
           })
      .def("release",
           [](ClientHandle& self, uint64_t pin) {
             self.Call([&](larder_client* client, larder_error*) {
               larder_release(client, pin);
               return LARDER_OK;
             });
           })
      .def("cancel", [](ClientHandle& self, larder_operation operation, bool all) {
        self.Call([&](larder_client* client, larder_error* error) {
          return larder_cancel(client, operation, all ? LARDER_CANCEL_ALL : LARDER_CANCEL_WAITING, error);
        });
      });
  module.def("open", &Open, nb::arg("endpoints").none(), nb::arg("config_file").none(),
             nb::arg("transport").none(), nb::arg("token").none(), nb::arg("name").none(), nb::arg("reopen"),
             nb::arg("environment"), nb::arg("numbers"));
  nb::class_<BufferHandle>(module, "Buffer", nb::type_slots(kBufferSlots))
      .def("__len__", [](const BufferHandle& self) { return larder_buffer_bytes(self.raw); })
      .def_prop_ro("address", [](const BufferHandle& self) {
        return reinterpret_cast<uint64_t>(larder_buffer_data(self.raw));
      });
}

}  // namespace larder::python
