// Python objects as memory: hashes, extents, shapes.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "client/python/native/binding.h"

namespace larder::python {
namespace {

std::string TypeName(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

bool IsSequence(nb::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
}

// Whole numbers of a buffer, if it is one of 8-byte integers.
bool IsWords(const Py_buffer& buffer) {
  const char* format = buffer.format == nullptr ? "" : buffer.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  return buffer.itemsize == 8 && (*format == 'Q' || *format == 'q' || *format == 'L' || *format == 'l') &&
         format[1] == '\0';
}

// A table of whole numbers, from an integer array or nested sequences: rows of equal length.
struct Words {
  std::vector<uint64_t> values;
  size_t rows = 0, columns = 1;
};

void AddRow(nb::handle row, Words* words) {
  if (!IsSequence(row)) {
    words->values.push_back(nb::cast<uint64_t>(row));
    return;
  }
  for (const nb::handle value : row) words->values.push_back(nb::cast<uint64_t>(value));
}

Words WordsOf(nb::handle given) {
  Words words;
  if (IsSequence(given)) {
    words.rows = nb::len(given);
    for (const nb::handle row : given) {
      const size_t before = words.values.size();
      AddRow(row, &words);
      const size_t columns = words.values.size() - before;
      if (before != 0 && columns != words.columns)
        RaiseInvalid("every block needs as many addresses as the first");
      words.columns = columns;
    }
    return words;
  }
  const View view(given, false);
  const Py_buffer& buffer = view.raw();
  if (!IsWords(buffer) || buffer.ndim < 1 || buffer.ndim > 2) {
    RaiseInvalid("addresses and sizes are arrays of 64-bit integers with one or two dimensions");
  }
  const auto* values = static_cast<const uint64_t*>(view.data());
  words.values.assign(values, values + view.bytes() / 8);
  words.rows = static_cast<size_t>(buffer.shape[0]);
  words.columns = buffer.ndim == 2 ? static_cast<size_t>(buffer.shape[1]) : 1;
  return words;
}

}  // namespace

View::View(nb::handle object, bool writable) {
  const int flags =
      writable ? PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) nb::raise_python_error();
}

Hashes::Hashes(nb::handle given) {
  if (!IsSequence(given)) {
    view_ = std::make_unique<View>(given, false);
    if (view_->bytes() % LARDER_HASH_BYTES != 0) {
      RaiseInvalid("hashes are 32 bytes each; these are " + std::to_string(view_->bytes()) + " bytes");
    }
    data_ = static_cast<const uint8_t*>(view_->data());
    count_ = view_->bytes() / LARDER_HASH_BYTES;
    return;
  }
  count_ = nb::len(given);
  copied_.reserve(count_ * LARDER_HASH_BYTES);
  for (const nb::handle hash : given) {
    if (PyBytes_CheckExact(hash.ptr()) && PyBytes_Size(hash.ptr()) == LARDER_HASH_BYTES) {  // the usual case
      const auto* from = reinterpret_cast<const uint8_t*>(PyBytes_AsString(hash.ptr()));
      copied_.insert(copied_.end(), from, from + LARDER_HASH_BYTES);
      continue;
    }
    const View view(hash, false);
    if (view.bytes() != LARDER_HASH_BYTES) {
      RaiseInvalid("a hash has 32 bytes; one has " + std::to_string(view.bytes()));
    }
    const auto* from = static_cast<const uint8_t*>(view.data());
    copied_.insert(copied_.end(), from, from + LARDER_HASH_BYTES);
  }
  data_ = copied_.data();
}

void Extents::AddAddress(uint64_t address, uint64_t bytes) {
  extents_.push_back({reinterpret_cast<void*>(address), static_cast<size_t>(bytes)});
}

// A tensor is asked for its address: torch has no buffer protocol, and numpy no bfloat16.
void Extents::Add(nb::handle object) {
  if (!PyObject_CheckBuffer(object.ptr()) && nb::hasattr(object, "data_ptr")) {
    if (!nb::cast<bool>(object.attr("is_contiguous")())) RaiseInvalid("a tensor that is not contiguous");
    if (const auto device = nb::cast<std::string>(object.attr("device").attr("type")); device != "cpu") {
      RaiseInvalid("a tensor on " + device + ": only memory of the CPU can be used");
    }
    AddAddress(nb::cast<uint64_t>(object.attr("data_ptr")()), nb::cast<uint64_t>(object.attr("nbytes")));
    kept_.push_back(nb::borrow(object));
    return;
  }
  if (!PyObject_CheckBuffer(object.ptr())) {
    RaiseInvalid("a " + TypeName(object) + " is no memory: give buffers, arrays, tensors or Extents");
  }
  views_.push_back(std::make_unique<View>(object, writable_));
  extents_.push_back({views_.back()->data(), views_.back()->bytes()});
}

std::shared_ptr<Extents> Extents::Of(nb::handle blocks, bool writable) {
  auto made = std::make_shared<Extents>();
  made->writable_ = writable;
  for (const nb::handle block : blocks) {
    const size_t before = made->extents_.size();
    if (IsSequence(block)) {
      for (const nb::handle extent : block) made->Add(extent);
    } else {
      made->Add(block);
    }
    made->counts_.push_back(static_cast<uint32_t>(made->extents_.size() - before));
  }
  return made;
}

std::shared_ptr<Extents> Extents::At(nb::handle addresses, nb::handle sizes) {
  auto made = std::make_shared<Extents>();
  const Words places = WordsOf(addresses);
  Words lengths;
  if (PyLong_Check(sizes.ptr())) {
    lengths.values.push_back(nb::cast<uint64_t>(sizes));
  } else {
    lengths = WordsOf(sizes);
  }
  const size_t count = lengths.values.size();
  // One size for all, one for each extent of a block, or one for each address.
  const bool each = count == places.values.size();
  if (count != 1 && !each && count != places.columns) {
    RaiseInvalid(std::to_string(count) + " sizes for " + std::to_string(places.rows) + " blocks of " +
                 std::to_string(places.columns) +
                 " extents: give one, one for each extent of a block, or one each");
  }
  made->extents_.reserve(places.values.size());
  for (size_t i = 0; i < places.values.size(); ++i) {
    made->AddAddress(places.values[i], lengths.values[count == 1 ? 0 : each ? i : i % places.columns]);
  }
  made->counts_.assign(places.rows, static_cast<uint32_t>(places.columns));
  return made;
}

std::shared_ptr<Extents> Extents::Ragged(nb::handle addresses, nb::handle sizes) {
  auto made = std::make_shared<Extents>();
  if (nb::len(addresses) != nb::len(sizes)) RaiseInvalid("as many lists of addresses as of sizes");
  auto size_list = nb::iter(sizes);
  for (const nb::handle block : addresses) {
    const nb::object lengths = nb::borrow(*size_list);
    ++size_list;
    if (nb::len(block) != nb::len(lengths)) RaiseInvalid("as many addresses as sizes for each block");
    auto length = nb::iter(lengths);
    for (const nb::handle address : block) {
      made->AddAddress(nb::cast<uint64_t>(address), nb::cast<uint64_t>(*length));
      ++length;
    }
    made->counts_.push_back(static_cast<uint32_t>(nb::len(block)));
  }
  return made;
}

std::shared_ptr<Extents> Extents::From(nb::handle given, bool writable) {
  if (!nb::isinstance<Extents>(given)) return Of(given, writable);
  auto made = nb::cast<std::shared_ptr<Extents>>(given);
  if (writable && !made->writable_) RaiseInvalid("these Extents are of memory that may only be read");
  return made;
}

uint64_t Extents::bytes() const {
  uint64_t sum = 0;
  for (const larder_extent& extent : extents_) sum += extent.bytes;
  return sum;
}

bool RectangleOf(nb::handle given, larder_rectangle* rectangle) {
  if (given.is_none()) return false;
  if (!IsSequence(given) || nb::len(given) != 4) {
    RaiseInvalid("a rectangle is (first layer, end layer, first head group, end head group)");
  }
  uint16_t sides[4];
  for (size_t i = 0; i < 4; ++i) sides[i] = nb::cast<uint16_t>(given[i]);
  *rectangle = {sides[0], sides[1], sides[2], sides[3]};
  return true;
}

std::vector<uint16_t> GroupNumbersOf(nb::handle given) {
  if (given.is_none()) return {};
  if (PyLong_Check(given.ptr())) return {nb::cast<uint16_t>(given)};
  std::vector<uint16_t> groups;
  for (const nb::handle group : given) groups.push_back(nb::cast<uint16_t>(group));
  return groups;
}

Shapes::Shapes(nb::handle groups_given, nb::handle rectangles_given) : groups(GroupNumbersOf(groups_given)) {
  if (rectangles_given.is_none()) return;
  const bool many =
      IsSequence(rectangles_given) && nb::len(rectangles_given) != 0 && IsSequence(rectangles_given[0]);
  larder_rectangle rectangle{};
  if (!many) {
    if (RectangleOf(rectangles_given, &rectangle)) rectangles.push_back(rectangle);
    return;
  }
  for (const nb::handle each : rectangles_given) {
    if (!RectangleOf(each, &rectangle)) RaiseInvalid("a rectangle each, or one for all");
    rectangles.push_back(rectangle);
  }
}

std::vector<larder_group> GroupsOf(nb::handle given) {
  std::vector<larder_group> groups;
  if (given.is_none()) return groups;
  for (const nb::handle each : given) {
    if (IsSequence(each)) {
      groups.push_back({nb::cast<uint16_t>(each[0]), 0, nb::cast<uint32_t>(each[1])});
    } else {
      groups.push_back({nb::cast<uint16_t>(each), 0, 0});
    }
  }
  return groups;
}

void BindMemory(nb::module_& module) {
  nb::class_<Extents>(module, "Extents")
      .def_static("of", &Extents::Of, nb::arg("blocks"), nb::arg("writable") = true)
      .def_static("at", &Extents::At, nb::arg("addresses"), nb::arg("sizes"))
      .def_static("ragged", &Extents::Ragged, nb::arg("addresses"), nb::arg("sizes"))
      .def("address",
           [](const Extents& self, size_t extent) {
             if (extent >= self.extent_count()) RaiseInvalid("there are not so many extents");
             return reinterpret_cast<uint64_t>(self.extents()[extent].data);
           })
      .def("__len__", &Extents::blocks)
      .def_prop_ro("nbytes", &Extents::bytes)
      .def_prop_ro("writable", &Extents::writable);
}

}  // namespace larder::python
