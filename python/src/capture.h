// SPDX-License-Identifier: MIT
// What a compiled function can reach besides the arrays among its arguments: closure cells, defaults,
// bound selves, named globals, objects and containers that it is given, Modules, dicts and lists, to any
// depth. Each array object found is a slot: it is read at each call and may be written back; the places
// where it lies may be given another. Numbers and strings on the way are constants of a trace.
#pragma once

#include <set>
#include <vector>

#include "bind.h"
#include "capture_check.h"

namespace cermet::python {

// 128 bits over what a trace depends on but its data.
struct CaptureKey {
  uint64_t lo = 0x452821e638d01377u, hi = 0xbe5466cf34e90c6cu;
  void add(uint64_t value);
  bool operator==(const CaptureKey&) const = default;
};
struct CaptureKeyHash {
  size_t operator()(const CaptureKey& key) const { return key.lo; }
};

// Where something lies: container[key], container.key, or the content of a cell. none: cannot be written;
// in_tuple: only in a tuple that nobody has seen.
struct Place {
  enum class Kind : uint8_t { none, item, attribute, cell, in_tuple } kind = Kind::none;
  nb::object container, key;
  bool same_as(const Place& other) const;
  nb::object get() const;  // invalid when it is gone
  void put(nb::handle object) const;
};

struct Captured {
  struct SlotPlace {
    Place place;
    size_t slot;
  };
  struct Constant {
    Place place;
    uint64_t key;  // hash
    nb::object object;
  };
  struct Container {
    Place place;
    nb::object object;
  };
  std::vector<nb::object> holders;  // of the slots: array objects, each once
  std::vector<SlotPlace> places;    // all of them
  std::vector<Constant> constants;
  std::vector<Container> containers;   // for each place, if asked for: what copy_of copies
  std::vector<Place> numbers;          // where numbers of a trace were left
  CaptureKey structure;                // everything but constants, dtypes and shapes
  WalkChecks checks;                   // whether the next walk would find the same
  std::vector<nb::object> identified;  // what counts by its address or hash
  bool refused = false;                // an argument cannot be hashed ...
  nb::object refused_type;             // ... its type

  const array& value(size_t slot) const { return content_of(holders[slot]); }
};

// Constants that are no part of a key: numbers that the traced code may store, which are open numbers of
// the trace, and what it appends to lists that it does not read.
class OpenPlaces {
 public:
  void add_number(const Captured::Constant& c);
  void add_list(nb::handle list);
  // The number, if it is an open one.
  std::optional<Number> number(const Captured::Constant& c) const;
  bool is_ignored(const Captured::Constant& c) const {
    return !lists_.empty() && lists_.contains(c.place.container.ptr());
  }
  template <typename F>
  void for_each_object(F&& f) const {
    for (const nb::object& container : kept_) f(container);
  }
  void clear();

 private:
  std::set<std::pair<PyObject*, uint64_t>> numbers_;
  std::set<PyObject*> lists_;
  std::vector<nb::object> kept_;  // keeps the addresses taken
};

// What a trace needs to know beforehand: what the code on the way may change, and the contents of the
// containers, to undo what a failed trace did to them.
class Snapshot {
 public:
  std::set<uint64_t> stored;  // hashes of the names that code on the way may bind anew
  std::set<PyObject*> appended,
      read;  // lists that it only appends to, objects that it loads otherwise

  void keep(nb::handle container);                  // list, dict or cell
  void keep_item(nb::handle dict, nb::handle key);  // one entry of a dict
  void restore() const;

 private:
  struct Content {
    nb::object container, copy;
  };
  struct Item {
    nb::object dict, key, value;
  };
  std::vector<Content> contents_;
  std::vector<Item> items_;
};

bool is_key_constant(nb::handle object);  // None, numbers, strings, dtypes, and tuples of them
uint64_t key_of_constant(nb::handle constant);         // over type and value
std::optional<Number> open_number(nb::handle object);  // an int or float that 64 bits hold

// A dict, list or tuple (of a class of tuples without attributes, too) that can be made again.
bool is_container(nb::handle object);
nb::object copy_of(nb::handle container);

// roots: what the trace reaches by itself; arguments: what the caller gave, where a leaf that cannot be
// hashed is refused.
Captured capture(const std::vector<nb::object>& roots, const std::vector<nb::handle>& arguments,
                 bool containers, Snapshot* snapshot = nullptr);

}  // namespace cermet::python
