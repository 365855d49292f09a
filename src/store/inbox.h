// Durable receipt: the one door by which events come in.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dlo/event.h"
#include "dlo/result.h"
#include "dlo/service.h"

namespace dlo::store {

using AcceptDone = std::move_only_function<void(Result<std::vector<Accepted>>)>;

class Inbox {
 public:
  virtual ~Inbox() = default;
  /// Stores a batch; its members become durable together (one request may hold many events). `done` is called exactly
  /// once, on a thread of the store, after the commit, with one Accepted per receipt in order; it must not block.
  /// `stored` is answered as soon as the bytes are flushed; `duplicate` and `conflict` only when the first receipt of
  /// the key is durable too. Errors: unavailable (nothing of the batch is acknowledged; it may be stored all the same,
  /// and a resend is then a duplicate), code "disk_full", "stopping", "store_failed" or "overloaded".
  virtual void Accept(std::vector<std::shared_ptr<Receipt>> batch, AcceptDone done) = 0;
};

}  // namespace dlo::store
