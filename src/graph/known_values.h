// SPDX-License-Identifier: MIT
// What placeholders of a trace stand for, where the trace may look at it: arrays from outside the traced
// function. A value that was looked at is no part of the graph, so whoever traces has to see that it is
// the same when the trace serves again.
#pragma once

#include <span>

#include "graph/node.h"

namespace cermet {

class KnownValues {
 public:
  // Makes the placeholder ready, if it stands for something known.
  virtual void look(Node& placeholder) = 0;
  // At all that the roots are made of, if this thread traces so.
  static void look_below(std::span<const NodeRef> roots) {
    if (current_ != nullptr) current_->look_at(roots);
  }

  // While it lives, evaluations of this thread look.
  class Scope {
   public:
    explicit Scope(KnownValues& values) : before_(current_) { current_ = &values; }
    ~Scope() { current_ = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    KnownValues* before_;
  };

 protected:
  ~KnownValues() = default;

 private:
  void look_at(std::span<const NodeRef> roots);

  static constinit thread_local KnownValues* current_;
};

}  // namespace cermet
