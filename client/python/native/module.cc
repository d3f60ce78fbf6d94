// The extension larder_kv._native: queues, hashes, and everything together.
#include <nanobind/stl/shared_ptr.h>

#include "client/python/native/handles.h"

namespace larder::python {

QueueHandle::QueueHandle(std::shared_ptr<ClientHandle> client) : client_(std::move(client)) {
  client_->Call(
      [&](larder_client* raw, larder_error* error) { return larder_queue_open(raw, &raw_, error); });
}

QueueHandle::~QueueHandle() {
  larder_queue_close(raw_);
  if (client_->closed()) return;
  for (auto& [user_data, pending] : pending_) client_->Keep(std::move(pending));
}

namespace {

nb::object ResultOf(const larder_completion* done, const Pending& pending,
                    const larder_completion_info& info) {
  if (pending.kind == LARDER_COMPLETED_MATCH) {
    MatchResult result(pending.count, pending.groups);
    larder_match_result raw = result.Raw();
    if (larder_completion_match(done, &raw, nullptr) == LARDER_OK) {
      result.usable = raw.usable;
      result.pin = raw.pin;
    }
    return nb::cast(std::move(result));
  }
  if (pending.kind == LARDER_COMPLETED_GET) {
    GetResult result(pending.count);
    larder_get_result raw = result.Raw();
    if (larder_completion_get(done, &raw, nullptr) == LARDER_OK) {
      result.hits = raw.hits;
      result.leading = raw.leading;
    }
    return nb::cast(std::move(result));
  }
  if (pending.kind == LARDER_COMPLETED_PUT) {
    PutResult result(pending.count);
    larder_put_result raw = result.Raw();
    if (larder_completion_put(done, &raw, nullptr) == LARDER_OK) {
      result.there = raw.there;
      result.why = raw.why;
    }
    return nb::cast(std::move(result));
  }
  if (pending.kind == LARDER_COMPLETED_PREFETCH) return nb::cast(info.count);
  return nb::cast(info.leading);
}

}  // namespace

nb::list QueueHandle::Poll(size_t max, uint64_t timeout_us) {
  constexpr size_t kAtOnce = 64;
  larder_completion* done[kAtOnce];
  size_t count = 0;
  {
    const nb::gil_scoped_release released;
    count = larder_queue_poll(raw_, timeout_us, done, std::min(max, kAtOnce));
  }
  nb::list list;
  for (size_t i = 0; i < count; ++i) {
    larder_completion_info info{};
    info.size = sizeof info;
    larder_completion_describe(done[i], &info, nullptr);
    auto entry = pending_.extract(info.user_data);
    if (!entry.empty()) {
      CompletionHandle completion;
      completion.operation = info.operation;
      completion.code = info.code;
      completion.result = ResultOf(done[i], entry.mapped(), info);
      completion.token = std::move(entry.mapped().token);
      list.append(nb::cast(std::move(completion)));
    }
    larder_completion_free(done[i]);
  }
  return list;
}

namespace {

// Tokens and results are anybody's objects and may lead back to us: the garbage collector has to see through.
int VisitCompletion(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* completion = nb::inst_ptr<CompletionHandle>(self);
  Py_VISIT(completion->token.ptr());
  Py_VISIT(completion->result.ptr());
  return 0;
}
int ClearCompletion(PyObject* self) {
  auto* completion = nb::inst_ptr<CompletionHandle>(self);
  completion->token.reset();
  completion->result.reset();
  return 0;
}
PyType_Slot kCompletionSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(VisitCompletion)},
                                  {Py_tp_clear, reinterpret_cast<void*>(ClearCompletion)},
                                  {0, nullptr}};

int VisitQueue(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<QueueHandle>(self)->Visit(visit, arg) : 0;
}
PyType_Slot kQueueSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(VisitQueue)}, {0, nullptr}};

}  // namespace

int QueueHandle::Visit(visitproc visit, void* arg) const {
  for (const auto& [user_data, pending] : pending_) Py_VISIT(pending.token.ptr());
  return 0;
}

void BindQueue(nb::module_& module) {
  nb::class_<CompletionHandle>(module, "Completion", nb::type_slots(kCompletionSlots))
      .def_ro("token", &CompletionHandle::token)
      .def_ro("operation", &CompletionHandle::operation)
      .def_ro("code", &CompletionHandle::code)
      .def_ro("result", &CompletionHandle::result);
  nb::class_<QueueHandle>(module, "Queue", nb::type_slots(kQueueSlots))
      .def(nb::init<std::shared_ptr<ClientHandle>>())
      .def("fileno", [](const QueueHandle& self) { return larder_queue_event_fd(self.raw()); })
      .def("poll", &QueueHandle::Poll)
      .def("__len__", &QueueHandle::pending);
}

namespace {

nb::bytes HashTokens(nb::handle tokens, uint32_t block_tokens) {
  std::vector<uint32_t> numbers;
  for (const nb::handle token : tokens) numbers.push_back(nb::cast<uint32_t>(token));
  std::vector<uint8_t> hashes(block_tokens == 0 ? 0 : numbers.size() / block_tokens * LARDER_HASH_BYTES);
  larder_error error{};
  const larder_code code =
      larder_hash_tokens(numbers.data(), numbers.size(), block_tokens, hashes.data(), &error);
  if (code != LARDER_OK) Raise(code, error.text);
  return nb::bytes(reinterpret_cast<const char*>(hashes.data()), hashes.size());
}

nb::bytes HashLink(nb::handle parent, nb::handle content) {
  std::unique_ptr<Hashes> from;
  if (!parent.is_none()) from = std::make_unique<Hashes>(parent);
  if (from != nullptr && from->count() != 1) RaiseInvalid("the parent is one hash of 32 bytes");
  const View bytes(content, false);
  uint8_t hash[LARDER_HASH_BYTES];
  larder_hash_link(from == nullptr ? nullptr : from->data(), bytes.data(), bytes.bytes(), hash);
  return nb::bytes(reinterpret_cast<const char*>(hash), sizeof hash);
}

}  // namespace
}  // namespace larder::python

NB_MODULE(_native, module) {
  using namespace larder::python;  // NOLINT
  nanobind::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const nanobind::cast_error&) {
      PyErr_SetString(PyExc_TypeError,
                      "a number is negative or too large, or something else stands where one should");
    }
  });
  module.attr("version") = larder_version();
  BindMemory(module);
  BindResults(module);
  BindClient(module);
  BindNamespace(module);
  BindQueue(module);
  module.def("hash_tokens", &HashTokens);
  module.def("hash_link", &HashLink, nanobind::arg("parent").none(), nanobind::arg("content"));
}
