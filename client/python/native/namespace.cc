// Namespaces: what is asked of blocks, blocking and submitted.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "client/python/native/handles.h"

namespace larder::python {
namespace {

// A request with everything that its pointers point to.
struct KeyAsk {
  Hashes hashes;
  std::vector<larder_group> groups;
  larder_rectangle rectangle{};
  bool has_rectangle = false;
  uint64_t deadline_us = 0;
  uint32_t priority = 0;

  KeyAsk(nb::handle keys, nb::handle groups_given, nb::handle rectangle_given, uint64_t deadline,
         uint32_t class_of)
      : hashes(keys), groups(GroupsOf(groups_given)), deadline_us(deadline), priority(class_of) {
    has_rectangle = RectangleOf(rectangle_given, &rectangle);
  }
  template <typename Request>
  Request Raw() const {
    Request request{};
    request.size = sizeof request;
    request.priority = priority;
    request.hashes = hashes.data();
    request.count = hashes.count();
    request.groups = groups.empty() ? nullptr : groups.data();
    request.group_count = groups.size();
    request.rectangle = has_rectangle ? &rectangle : nullptr;
    request.deadline_us = deadline_us;
    return request;
  }
  size_t group_count() const { return groups.empty() ? 1 : groups.size(); }
};

struct BlockAsk {
  Hashes hashes;
  std::shared_ptr<Extents> memory;
  Shapes shapes;
  uint64_t deadline_us = 0;
  uint32_t priority = 0;

  BlockAsk(nb::handle keys, nb::handle blocks, bool writable, nb::handle groups, nb::handle rectangles,
           uint64_t deadline, uint32_t class_of)
      : hashes(keys),
        memory(Extents::From(blocks, writable)),
        shapes(groups, rectangles),
        deadline_us(deadline),
        priority(class_of) {
    if (memory->blocks() != hashes.count()) {
      RaiseInvalid("memory for " + std::to_string(memory->blocks()) + " blocks, hashes of " +
                   std::to_string(hashes.count()));
    }
  }
  template <typename Request>
  Request Raw() const {
    Request request{};
    request.size = sizeof request;
    request.priority = priority;
    request.hashes = hashes.data();
    request.count = hashes.count();
    request.groups = shapes.groups.data();
    request.group_count = shapes.groups.size();
    request.rectangles = shapes.rectangles.data();
    request.rectangle_count = shapes.rectangles.size();
    request.extents = memory->extents();
    request.extent_counts = memory->counts();
    request.deadline_us = deadline_us;
    return request;
  }
};

// What only puts have.
struct PutMore {
  std::vector<larder_part_run> runs;
  std::unique_ptr<Hashes> constituents;

  PutMore(nb::handle parts, nb::handle constituents_given) {
    if (!parts.is_none()) {
      for (const nb::handle run : parts)
        runs.push_back({nb::cast<uint32_t>(run[0]), nb::cast<uint32_t>(run[1])});
    }
    if (!constituents_given.is_none()) constituents = std::make_unique<Hashes>(constituents_given);
  }
  void AddTo(larder_put_request* request, uint32_t first_depth, uint32_t retention) const {
    request->first_depth = first_depth;
    request->retention = retention;
    request->part_runs = runs.data();
    request->part_run_count = runs.size();
    if (constituents == nullptr || request->count == 0) return;
    if (constituents->count() % request->count != 0)
      RaiseInvalid("every block has as many constituents as the others");
    request->constituents = constituents->data();
    request->constituents_per_block = static_cast<uint32_t>(constituents->count() / request->count);
  }
};

std::unique_ptr<NamespaceHandle> OpenNamespace(const std::shared_ptr<ClientHandle>& client,
                                               const std::string& identity,
                                               const std::optional<std::string>& tenant, nb::bytes salt) {
  auto made = std::make_unique<NamespaceHandle>();
  made->client = client;
  larder_namespace_options options{};
  options.size = sizeof options;
  options.identity = identity.c_str();
  options.tenant = tenant ? tenant->c_str() : nullptr;
  options.salt = salt.size() == 0 ? nullptr : salt.data();
  options.salt_bytes = salt.size();
  client->Call([&](larder_client* raw, larder_error* error) {
    const larder_code code = larder_namespace_open(raw, &options, &made->raw, error);
    made->info.size = sizeof made->info;
    return code != LARDER_OK ? code : larder_namespace_describe(made->raw, &made->info, error);
  });
  return made;
}

MatchResult Match(NamespaceHandle& self, nb::handle hashes, nb::handle groups, nb::handle rectangle,
                  uint64_t pin_us, uint64_t deadline_us, uint32_t priority) {
  const KeyAsk ask(hashes, groups, rectangle, deadline_us, priority);
  auto request = ask.Raw<larder_match_request>();
  request.pin_us = pin_us;
  MatchResult result(request.count, ask.group_count());
  larder_match_result raw = result.Raw();
  self.client->Call(
      [&](larder_client*, larder_error* error) { return larder_match(self.raw, &request, &raw, error); });
  result.usable = raw.usable;
  result.pin = raw.pin;
  return result;
}

uint32_t Wait(NamespaceHandle& self, nb::handle hashes, nb::handle groups, nb::handle rectangle,
              uint64_t deadline_us, uint32_t priority) {
  const KeyAsk ask(hashes, groups, rectangle, deadline_us, priority);
  const auto request = ask.Raw<larder_wait_request>();
  uint32_t leading = 0;
  self.client->Call(
      [&](larder_client*, larder_error* error) { return larder_wait(self.raw, &request, &leading, error); });
  return leading;
}

uint64_t Prefetch(NamespaceHandle& self, nb::handle hashes, nb::handle groups, nb::handle rectangle,
                  uint64_t deadline_us, uint32_t priority) {
  const KeyAsk ask(hashes, groups, rectangle, deadline_us, priority);
  const auto request = ask.Raw<larder_wait_request>();
  uint64_t blocks = 0;
  self.client->Call([&](larder_client*, larder_error* error) {
    return larder_prefetch(self.raw, &request, &blocks, error);
  });
  return blocks;
}

GetResult Get(NamespaceHandle& self, nb::handle hashes, nb::handle into, nb::handle groups,
              nb::handle rectangles, uint64_t deadline_us, uint32_t priority) {
  const BlockAsk ask(hashes, into, true, groups, rectangles, deadline_us, priority);
  const auto request = ask.Raw<larder_get_request>();
  GetResult result(request.count);
  larder_get_result raw = result.Raw();
  self.client->Call(
      [&](larder_client*, larder_error* error) { return larder_get(self.raw, &request, &raw, error); });
  result.hits = raw.hits;
  result.leading = raw.leading;
  return result;
}

PutResult Put(NamespaceHandle& self, nb::handle hashes, nb::handle from, nb::handle groups,
              nb::handle rectangles, nb::handle parts, nb::handle constituents, uint32_t first_depth,
              uint32_t retention, uint64_t deadline_us, uint32_t priority) {
  const BlockAsk ask(hashes, from, false, groups, rectangles, deadline_us, priority);
  const PutMore more(parts, constituents);
  auto request = ask.Raw<larder_put_request>();
  more.AddTo(&request, first_depth, retention);
  PutResult result(request.count);
  larder_put_result raw = result.Raw();
  self.client->Call(
      [&](larder_client*, larder_error* error) { return larder_put(self.raw, &request, &raw, error); });
  result.there = raw.there;
  result.why = raw.why;
  return result;
}

larder_operation SubmitMatch(NamespaceHandle& self, QueueHandle& queue, nb::object token, nb::handle hashes,
                             nb::handle groups, nb::handle rectangle, uint64_t pin_us, uint64_t deadline_us,
                             uint32_t priority) {
  const KeyAsk ask(hashes, groups, rectangle, deadline_us, priority);
  auto request = ask.Raw<larder_match_request>();
  request.pin_us = pin_us;
  return queue.Submit({LARDER_COMPLETED_MATCH, request.count, ask.group_count(), std::move(token), nullptr},
                      [&](uint64_t user_data, larder_operation* operation, larder_error* error) {
                        return larder_submit_match(queue.raw(), self.raw, &request, user_data, operation,
                                                   error);
                      });
}

larder_operation SubmitWait(NamespaceHandle& self, QueueHandle& queue, nb::object token, nb::handle hashes,
                            nb::handle groups, nb::handle rectangle, uint64_t deadline_us,
                            uint32_t priority) {
  const KeyAsk ask(hashes, groups, rectangle, deadline_us, priority);
  const auto request = ask.Raw<larder_wait_request>();
  return queue.Submit({LARDER_COMPLETED_WAIT, request.count, ask.group_count(), std::move(token), nullptr},
                      [&](uint64_t user_data, larder_operation* operation, larder_error* error) {
                        return larder_submit_wait(queue.raw(), self.raw, &request, user_data, operation,
                                                  error);
                      });
}

larder_operation SubmitPrefetch(NamespaceHandle& self, QueueHandle& queue, nb::object token,
                                nb::handle hashes, nb::handle groups, nb::handle rectangle,
                                uint64_t deadline_us, uint32_t priority) {
  const KeyAsk ask(hashes, groups, rectangle, deadline_us, priority);
  const auto request = ask.Raw<larder_wait_request>();
  return queue.Submit(
      {LARDER_COMPLETED_PREFETCH, request.count, ask.group_count(), std::move(token), nullptr},
      [&](uint64_t user_data, larder_operation* operation, larder_error* error) {
        return larder_submit_prefetch(queue.raw(), self.raw, &request, user_data, operation, error);
      });
}

larder_operation SubmitGet(NamespaceHandle& self, QueueHandle& queue, nb::object token, nb::handle hashes,
                           nb::handle into, nb::handle groups, nb::handle rectangles, uint64_t deadline_us,
                           uint32_t priority) {
  const BlockAsk ask(hashes, into, true, groups, rectangles, deadline_us, priority);
  const auto request = ask.Raw<larder_get_request>();
  return queue.Submit({LARDER_COMPLETED_GET, request.count, 0, std::move(token), ask.memory},
                      [&](uint64_t user_data, larder_operation* operation, larder_error* error) {
                        return larder_submit_get(queue.raw(), self.raw, &request, user_data, operation,
                                                 error);
                      });
}

larder_operation SubmitPut(NamespaceHandle& self, QueueHandle& queue, nb::object token, nb::handle hashes,
                           nb::handle from, nb::handle groups, nb::handle rectangles, nb::handle parts,
                           nb::handle constituents, uint32_t first_depth, uint32_t retention,
                           uint64_t deadline_us, uint32_t priority) {
  const BlockAsk ask(hashes, from, false, groups, rectangles, deadline_us, priority);
  const PutMore more(parts, constituents);
  auto request = ask.Raw<larder_put_request>();
  more.AddTo(&request, first_depth, retention);
  return queue.Submit({LARDER_COMPLETED_PUT, request.count, 0, std::move(token), ask.memory},
                      [&](uint64_t user_data, larder_operation* operation, larder_error* error) {
                        return larder_submit_put(queue.raw(), self.raw, &request, user_data, operation,
                                                 error);
                      });
}

enum class KeyWork { kTouch, kFinishTurn, kReport, kRemove };

uint64_t RunKeys(NamespaceHandle& self, KeyWork work, nb::handle hashes_given, nb::handle groups_given,
                 nb::handle rectangle_given, uint32_t usable, uint32_t retention, uint64_t deadline_us) {
  const Hashes hashes(hashes_given);
  const std::vector<uint16_t> groups = GroupNumbersOf(groups_given);
  larder_rectangle rectangle{};
  larder_keys keys{};
  keys.size = sizeof keys;
  keys.usable = usable;
  keys.retention = retention;
  keys.hashes = hashes.data();
  keys.count = hashes.count();
  keys.groups = groups.empty() ? nullptr : groups.data();
  keys.group_count = groups.size();
  keys.rectangle = RectangleOf(rectangle_given, &rectangle) ? &rectangle : nullptr;
  keys.deadline_us = deadline_us;
  uint64_t removed = 0;
  self.client->Call([&](larder_client*, larder_error* error) {
    return work == KeyWork::kTouch        ? larder_touch(self.raw, &keys, error)
           : work == KeyWork::kFinishTurn ? larder_finish_turn(self.raw, &keys, error)
           : work == KeyWork::kReport     ? larder_report(self.raw, &keys, error)
                                          : larder_remove(self.raw, &keys, &removed, error);
  });
  return removed;
}

uint64_t Clear(NamespaceHandle& self, uint64_t deadline_us) {
  uint64_t removed = 0;
  self.client->Call([&](larder_client*, larder_error* error) {
    return larder_clear(self.raw, deadline_us, &removed, error);
  });
  return removed;
}

}  // namespace

void BindNamespace(nb::module_& module) {
  module.def("open_namespace", &OpenNamespace, nb::arg("client"), nb::arg("identity"),
             nb::arg("tenant").none(), nb::arg("salt"));
  nb::class_<NamespaceHandle>(module, "Namespace")
      .def_prop_ro("layers", [](const NamespaceHandle& self) { return self.info.layers; })
      .def_prop_ro("head_groups", [](const NamespaceHandle& self) { return self.info.head_groups; })
      .def_prop_ro("id",
                   [](const NamespaceHandle& self) {
                     return nb::bytes(reinterpret_cast<const char*>(self.info.id), LARDER_HASH_BYTES);
                   })
      .def("match", &Match, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg())
      .def("wait", &Wait, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg())
      .def("prefetch", &Prefetch, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg())
      .def("get", &Get, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg())
      .def("put", &Put, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
           nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg())
      .def("submit_match", &SubmitMatch, nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(),
           nb::arg().none(), nb::arg(), nb::arg(), nb::arg())
      .def("submit_wait", &SubmitWait, nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(),
           nb::arg().none(), nb::arg(), nb::arg())
      .def("submit_prefetch", &SubmitPrefetch, nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(),
           nb::arg().none(), nb::arg(), nb::arg())
      .def("submit_get", &SubmitGet, nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::arg().none(), nb::arg(), nb::arg())
      .def("submit_put", &SubmitPut, nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg())
      .def(
          "touch",
          [](NamespaceHandle& self, nb::handle hashes, nb::handle groups, uint32_t usable,
             uint32_t retention) {
            RunKeys(self, KeyWork::kTouch, hashes, groups, nb::none(), usable, retention, 0);
          },
          nb::arg(), nb::arg().none(), nb::arg(), nb::arg())
      .def(
          "finish_turn",
          [](NamespaceHandle& self, nb::handle hashes, nb::handle groups, uint32_t retention) {
            RunKeys(self, KeyWork::kFinishTurn, hashes, groups, nb::none(), 0, retention, 0);
          },
          nb::arg(), nb::arg().none(), nb::arg())
      .def(
          "report",
          [](NamespaceHandle& self, nb::handle hashes, nb::handle groups, nb::handle rectangle) {
            RunKeys(self, KeyWork::kReport, hashes, groups, rectangle, 0, 0, 0);
          },
          nb::arg(), nb::arg().none(), nb::arg().none())
      .def(
          "remove",
          [](NamespaceHandle& self, nb::handle hashes, nb::handle groups, uint64_t deadline_us) {
            return RunKeys(self, KeyWork::kRemove, hashes, groups, nb::none(), 0, 0, deadline_us);
          },
          nb::arg(), nb::arg().none(), nb::arg())
      .def("clear", &Clear);
}

}  // namespace larder::python
