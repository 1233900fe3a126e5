// SPDX-License-Identifier: MIT
#include "index_plan.h"

#include <algorithm>
#include <limits>

#include "graph/known_values.h"
#include "ops/nonzero.h"
#include "selection.h"

namespace cermet::python {

namespace {

constexpr const char* kOp = "index";
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// One item of the expression, before it meets a shape.
struct Item {
  enum class Kind { integer, slice, newaxis, ellipsis, indices, mask };
  Kind kind;
  nb::object object;            // integer, slice
  std::optional<array> values;  // indices, mask
  int consumed() const {
    switch (kind) {
      case Kind::newaxis:
      case Kind::ellipsis: return 0;
      case Kind::mask: return values->ndim();
      default: return 1;
    }
  }
  bool is_scalar_mask() const { return kind == Kind::mask && values->ndim() == 0; }
};

[[noreturn]] void refuse(nb::handle object) {
  fail(ErrorKind::index, kOp,
       "{} is no index; use integers, slices, None, ..., arrays of integers or boolean masks",
       type_of(object));
}

Item array_item(array values) {
  if (values.dtype() == Dtype::boolean) return {Item::Kind::mask, {}, std::move(values)};
  CERMET_CHECK(is_integer(values.dtype()), index, kOp,
               "an index array has dtype {}; it must hold integers or booleans",
               name_of(values.dtype()));
  return {Item::Kind::indices, {}, std::move(values)};
}

Item numpy_item(nb::handle object) {
  if (object.attr("ndim").equal(nb::int_(0)) && PyIndex_Check(object.ptr()) &&
      nb::hasattr(object.attr("dtype"), "kind") &&
      !object.attr("dtype").attr("kind").equal(nb::str("b")))
    return {Item::Kind::integer, nb::borrow(object), {}};
  return array_item(to_array(object));
}

Item to_item(nb::handle object) {
  PyObject* p = object.ptr();
  if (object.is_none()) return {Item::Kind::newaxis, {}, {}};
  if (p == Py_Ellipsis) return {Item::Kind::ellipsis, {}, {}};
  if (PySlice_Check(p)) return {Item::Kind::slice, nb::borrow(object), {}};
  if (PyBool_Check(p)) return array_item(to_array(object));
  if (is_int(object)) return {Item::Kind::integer, nb::borrow(object), {}};
  if (is_array(object)) return array_item(to_array(object));
  if (PyRange_Check(p)) return to_item(nb::list(object));
  if (PyList_Check(p) || PyTuple_Check(p)) {
    array values = to_array(object);
    if (same_size(values.shape().count(), 0))
      values = astype(values, Dtype::int32);  // [] has no dtype of its own
    return array_item(std::move(values));
  }
  if (nb::hasattr(object, "dtype") && nb::hasattr(object, "ndim")) return numpy_item(object);
  if (nb::hasattr(object, "__mlx_array__")) return array_item(to_array(object));
  if (PyIndex_Check(p)) return {Item::Kind::integer, nb::borrow(object), {}};
  if (PyMemoryView_Check(p)) return array_item(to_array(object));
  refuse(object);
}

std::vector<Item> to_items(nb::handle index) {
  std::vector<Item> items;
  if (PyTuple_Check(index.ptr()))
    for (nb::handle item : nb::borrow<nb::tuple>(index)) items.push_back(to_item(item));
  else items.push_back(to_item(index));
  return items;
}

// Every axis consumed by exactly one item: the ellipsis (at the end when there is none) is followed by slices.
std::vector<Item> fill_axes(std::vector<Item> items, int ndim) {
  int consumed = 0;
  size_t at = items.size(), ellipses = 0;
  for (size_t i = 0; i < items.size(); i++) {
    consumed += items[i].consumed();
    if (items[i].kind != Item::Kind::ellipsis) continue;
    ellipses++;
    at = i;
  }
  CERMET_CHECK(ellipses <= 1, index, kOp, "an index has {} ellipses (...); it can have one",
               ellipses);
  CERMET_CHECK(consumed <= ndim, axis, kOp,
               "{} indices for an array of {} axes; there can be {} at most", consumed, ndim, ndim);
  at += ellipses;
  const nb::object all = nb::steal(PySlice_New(nullptr, nullptr, nullptr));
  items.insert(items.begin() + static_cast<ptrdiff_t>(at), static_cast<size_t>(ndim - consumed),
               Item{Item::Kind::slice, all, {}});
  return items;
}

int64_t to_int64(nb::handle object, int axis, int64_t size) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) nb::raise_python_error();
    PyErr_Clear();
    fail(ErrorKind::type, kOp, "{} was given for axis {}; it must be an int, or None in a slice",
         type_of(object), axis);
  }
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  CERMET_CHECK(overflow == 0, index, kOp,
               "index {} is out of range for axis {} of size {}; it must be in [{}, {})",
               nb::str(index).c_str(), axis, size, -size, size);
  return value;
}

IndexEntry integer_entry(nb::handle object, int axis, const Dim& size) {
  const Dim given =
      is_traced_number(object) ? to_size(kOp, object) : Dim(to_int64(object, axis, size.value));
  const bool from_end = is_less(given, 0);
  CERMET_CHECK(is_less(from_end ? minus(-1, given) : given, size), index, kOp,
               "index {} is out of range for axis {} of size {}; it must be in [{}, {})",
               given.value, axis, size.value, -size.value, size.value);
  IndexEntry e;
  e.kind = IndexEntry::Kind::integer;
  e.start = from_end ? plus(size, given) : given;
  e.axis = axis;
  return e;
}

// As MLX, a bound of an ordinary axis must fit 32 bits: a larger one is a mistake more often than not.
void check_bound(nb::handle bound, int axis, int64_t size) {
  if (bound.is_none() || size > kInt32Max || is_traced_number(bound)) return;
  const int64_t value = to_int64(bound, axis, size);
  CERMET_CHECK(value >= -kInt32Max - 1 && value <= kInt32Max, index, kOp,
               "slice bound {} is out of range for axis {} of size {}; it must fit 32 bits", value,
               axis, size);
}

bool is_all(nb::handle item) {
  if (item.ptr() == Py_Ellipsis) return true;
  if (!PySlice_Check(item.ptr())) return false;
  const auto* s = reinterpret_cast<PySliceObject*>(item.ptr());
  return s->start == Py_None && s->stop == Py_None && s->step == Py_None;
}

bool is_open(nb::handle bound) { return is_traced_number(bound); }

// A slice with open numbers, of the axis or among its bounds.
bool is_symbolic_slice(const PySliceObject* s, const Dim& dim) {
  return Dim::trace != nullptr && (dim.expr != 0 || is_open(s->start) || is_open(s->stop));
}

// A bound as a place from low to high; guards are of the relation, not of the size.
Dim bound_on(nb::handle bound, int axis, const Dim& dim, const Dim& low, const Dim& high) {
  check_bound(bound, axis, 0);
  const Dim at = to_size(kOp, bound);
  return clamped(is_less(at, 0) ? plus(dim, at) : at, low, high);
}

IndexEntry symbolic_slice(const PySliceObject* s, int axis, const Dim& dim) {
  IndexEntry e;
  e.axis = axis;
  constexpr int64_t kFar = int64_t{1} << 62;  // past the end of any axis, as larger steps are
  if (s->step != Py_None) e.step = std::clamp(to_int(kOp, "a slice's step", s->step), -kFar, kFar);
  CERMET_CHECK(e.step != 0, value, kOp,
               "the step of a slice is zero; it must be positive or negative");
  const bool forwards = e.step > 0;
  const Dim low = forwards ? 0 : -1, high = forwards ? dim : minus(dim, 1);
  const auto bound = [&](nb::handle given, const Dim& otherwise) {
    return given.is_none() ? otherwise : bound_on(given, axis, dim, low, high);
  };
  const Dim start = bound(s->start, forwards ? low : high);
  const Dim stop = bound(s->stop, forwards ? high : low);
  const Dim &first = forwards ? start : stop, &end = forwards ? stop : start;
  const Dim way = minus(end, first);
  e.size = !is_less(first, end) ? Dim(0)
           : forwards           ? quotient(plus(way, e.step - 1), e.step)
                                : quotient(plus(way, -(e.step + 1)), -e.step);
  e.start = same_size(e.size, 0) ? Dim(0) : start;
  e.whole = e.step == 1 && same_size(e.start, 0) && same_size(e.size, dim);
  // Past the ends of the axis only the first element is met, and the step must not count.
  if (std::abs(e.step) > kInt32Max && is_less(e.size, 2)) e.step = 1;
  return e;
}

IndexEntry whole_entry(int axis, const Dim& dim) {
  IndexEntry e;
  e.axis = axis;
  e.size = dim;
  e.whole = true;
  return e;
}

IndexEntry slice_entry(nb::handle object, int axis, const Dim& dim) {
  const auto* s = reinterpret_cast<PySliceObject*>(object.ptr());
  IndexEntry e = whole_entry(axis, dim);
  if (is_all(object)) return e;
  if (is_symbolic_slice(s, dim)) return symbolic_slice(s, axis, dim);
  const int64_t size = dim;
  check_bound(s->start, axis, size);
  check_bound(s->stop, axis, size);
  CERMET_CHECK(s->step == Py_None || to_int(kOp, "a slice's step", s->step) != 0, value, kOp,
               "the step of a slice is zero; it must be positive or negative");
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(object.ptr(), &start, &stop, &step) < 0) nb::raise_python_error();
  e.size = PySlice_AdjustIndices(size, &start, &stop, step);
  e.start = start;
  e.step = step;
  e.whole = start == 0 && step == 1 && static_cast<int64_t>(e.size) == size;
  if (static_cast<int64_t>(e.size) == 0) e.start = 0;
  if (static_cast<int64_t>(e.size) <= 1) e.step = 1;  // no step is made: a huge one must not count
  return e;
}

IndexEntry indices_entry(array indices, int axis) {
  IndexEntry e;
  e.kind = IndexEntry::Kind::indices;
  e.indices = std::move(indices);
  e.axis = axis;
  return e;
}

IndexEntry newaxis_entry() {
  IndexEntry e;
  e.kind = IndexEntry::Kind::newaxis;
  return e;
}

void check_mask(const array& a, const array& mask, int axis) {
  for (int i = 0; i < mask.ndim(); i++)
    CERMET_CHECK(same_size(mask.shape().dim(i), a.shape().dim(axis + i)), index, kOp,
                 "a boolean mask of shape {} does not fit axes {} to {} of an array of shape {}; "
                 "its sizes must be theirs",
                 mask.shape().to_string(), axis, axis + mask.ndim() - 1, a.shape().to_string());
}

void append_mask(const array& a, const array& mask, int axis, IndexPlan& plan) {
  if (mask.ndim() > 0) check_mask(a, mask, axis);
  if (is_unknown(mask)) refuse_selection(mask);
  const Arrays found = without_gil([&] { return nonzero(mask); });
  for (const array& at : found) plan.entries.push_back(indices_entry(at, axis++));
}

void append(const array& a, const Item& item, int axis, IndexPlan& plan) {
  switch (item.kind) {
    case Item::Kind::integer:
      plan.entries.push_back(integer_entry(item.object, axis, a.shape().dim(axis)));
      break;
    case Item::Kind::slice:
      plan.entries.push_back(slice_entry(item.object, axis, a.shape().dim(axis)));
      break;
    case Item::Kind::newaxis: plan.entries.push_back(newaxis_entry()); break;
    case Item::Kind::indices: plan.entries.push_back(indices_entry(*item.values, axis)); break;
    case Item::Kind::mask: append_mask(a, *item.values, axis, plan); break;
    case Item::Kind::ellipsis: break;
  }
}

void find_advanced(IndexPlan& plan) {
  for (const IndexEntry& e : plan.entries) {
    if (e.kind != IndexEntry::Kind::indices) continue;
    plan.index_shape = plan.advanced ? broadcast_shapes(kOp, plan.index_shape, e.indices->shape())
                                     : e.indices->shape();
    plan.advanced = true;
  }
  std::vector<size_t> at;
  for (size_t i = 0; i < plan.entries.size(); i++)
    if (plan.is_advanced(plan.entries[i])) at.push_back(i);
  if (at.empty()) return;
  plan.first = at.front();
  plan.adjacent =
      at.back() - at.front() + 1 == at.size() &&
      std::none_of(at.begin() + 1, at.end(), [&](size_t i) { return plan.entries[i].behind_gap; });
}

}  // namespace

bool IndexPlan::selects_all() const {
  return std::ranges::all_of(entries, [](const IndexEntry& e) { return e.whole; });
}

Shape IndexPlan::result_shape() const {
  Shape shape;
  if (advanced && !adjacent) shape = index_shape;
  for (size_t i = 0; i < entries.size(); i++) {
    if (advanced && adjacent && i == first)
      for (const Dim& dim : index_shape.dims()) shape.push_back(dim);
    if (is_kept(entries[i])) shape.push_back(entries[i].size);
  }
  return shape;
}

IndexPlan plan_index(const array& given, nb::handle index) {
  IndexPlan plan;
  if (PyLong_CheckExact(index.ptr()) && given.ndim() > 0) {  // most of all, of loops
    plan.entries.reserve(static_cast<size_t>(given.ndim()));
    plan.entries.push_back(integer_entry(index, 0, given.shape().dim(0)));
    for (int axis = 1; axis < given.ndim(); axis++)
      plan.entries.push_back(whole_entry(axis, given.shape().dim(axis)));
    return plan;
  }
  const std::vector<Item> items = fill_axes(to_items(index), given.ndim());
  int axis = 0;
  for (const Item& item : items) {
    if (item.is_scalar_mask()) plan.masked.push_back(axis);
    axis += item.consumed() + item.is_scalar_mask();
  }
  const array a = plan.with_masked(given);
  axis = 0;
  bool gap = false;
  for (const Item& item : items) {
    const size_t next = plan.entries.size();
    append(a, item, axis, plan);
    axis += item.consumed() + item.is_scalar_mask();
    if (plan.entries.size() > next) plan.entries[next].behind_gap = std::exchange(gap, false);
    gap = gap || item.kind == Item::Kind::ellipsis;
  }
  find_advanced(plan);
  return plan;
}

bool is_unknown(const array& mask) {
  KnownValues::look_below({&mask.node(), 1});
  return stands_for_argument(mask.node());
}

std::optional<array> sole_mask(const array& a, nb::handle index) {
  nb::handle first = index;
  int more = 0;  // axes named by slices after the mask
  if (PyTuple_Check(index.ptr())) {
    const nb::tuple items = nb::borrow<nb::tuple>(index);
    if (items.size() == 0) return std::nullopt;
    for (size_t i = 1; i < items.size(); i++) {
      const nb::handle item = items[i];
      if (!is_all(item)) return std::nullopt;
      more += item.ptr() != Py_Ellipsis;
    }
    first = items[0];
  }
  if (first.is_none() || first.ptr() == Py_Ellipsis || PySlice_Check(first.ptr()) ||
      (is_int(first) && !PyBool_Check(first.ptr())))
    return std::nullopt;
  Item item = to_item(first);
  if (item.kind != Item::Kind::mask) return std::nullopt;
  const int named = item.values->ndim() + more;
  CERMET_CHECK(named <= a.ndim(), axis, kOp,
               "{} indices for an array of {} axes; there can be {} at most", named, a.ndim(),
               a.ndim());
  check_mask(a, *item.values, 0);
  return item.values;
}

}  // namespace cermet::python
