#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "client/python/native/binding.h"

namespace larder::python {
namespace {

nb::bytes BytesOf(const std::vector<uint8_t>& bytes) {
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

MatchResult::MatchResult(size_t blocks, size_t group_count)
    : count(blocks),
      groups(group_count),
      presence(blocks * group_count),
      bitmaps((blocks + 7) / 8 * group_count),
      estimate_us(blocks) {}

larder_match_result MatchResult::Raw() {
  larder_match_result raw{};
  raw.size = sizeof raw;
  raw.presence = presence.data();
  raw.bitmaps = bitmaps.data();
  raw.estimate_us = estimate_us.data();
  return raw;
}

GetResult::GetResult(size_t blocks)
    : outcomes(blocks),
      reasons(blocks),
      writers(blocks * LARDER_HASH_BYTES),
      bytes(blocks),
      created_ms(blocks) {}

larder_get_result GetResult::Raw() {
  larder_get_result raw{};
  raw.size = sizeof raw;
  raw.outcomes = outcomes.data();
  raw.reasons = reasons.data();
  raw.bytes = bytes.data();
  raw.created_ms = created_ms.data();
  raw.writers = writers.data();
  return raw;
}

PutResult::PutResult(size_t blocks) : states(blocks), copies(blocks) {}

larder_put_result PutResult::Raw() {
  larder_put_result raw{};
  raw.size = sizeof raw;
  raw.states = states.data();
  raw.copies = copies.data();
  return raw;
}

void BindResults(nb::module_& module) {
  nb::class_<MatchResult>(module, "MatchResult")
      .def_ro("usable", &MatchResult::usable)
      .def_ro("pin", &MatchResult::pin)
      .def("__len__", [](const MatchResult& self) { return self.count; })
      .def_prop_ro("presence", [](const MatchResult& self) { return BytesOf(self.presence); })
      .def_prop_ro(
          "bitmaps",
          [](const MatchResult& self) {
            nb::list rows;
            const size_t row_bytes = (self.count + 7) / 8;
            for (size_t group = 0; group < self.groups; ++group) {
              rows.append(nb::bytes(reinterpret_cast<const char*>(self.bitmaps.data()) + group * row_bytes,
                                    row_bytes));
            }
            return rows;
          })
      .def_prop_ro("estimates_us", [](const MatchResult& self) { return self.estimate_us; });
  nb::class_<GetResult>(module, "GetResult")
      .def_ro("hits", &GetResult::hits)
      .def_ro("leading", &GetResult::leading)
      .def("__len__", [](const GetResult& self) { return self.outcomes.size(); })
      .def_prop_ro("outcomes", [](const GetResult& self) { return BytesOf(self.outcomes); })
      .def_prop_ro("reasons", [](const GetResult& self) { return BytesOf(self.reasons); })
      .def_prop_ro("sizes", [](const GetResult& self) { return self.bytes; })
      .def_prop_ro("created_ms", [](const GetResult& self) { return self.created_ms; })
      .def_prop_ro("writers", [](const GetResult& self) { return BytesOf(self.writers); });
  nb::class_<PutResult>(module, "PutResult")
      .def_ro("there", &PutResult::there)
      .def_ro("why", &PutResult::why)
      .def("__len__", [](const PutResult& self) { return self.states.size(); })
      .def_prop_ro("states", [](const PutResult& self) { return BytesOf(self.states); })
      .def_prop_ro("copies", [](const PutResult& self) { return self.copies; });
}

}  // namespace larder::python
