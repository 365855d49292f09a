// Everything a store can do. The two implementations stand behind this; the contract suite runs over each.
#pragma once

#include "store/access.h"
#include "store/alarms.h"
#include "store/decisions.h"
#include "store/diagnosis.h"
#include "store/figures.h"
#include "store/inbox.h"
#include "store/letters.h"
#include "store/notes.h"
#include "store/quarantine.h"
#include "store/queue.h"
#include "store/replays.h"
#include "store/retention.h"
#include "store/revisions.h"
#include "store/rules.h"
#include "store/sources.h"

namespace dlo::store {

class Store : public Inbox,
              public Queue,
              public Letters,
              public Replays,
              public Decisions,
              public RuleBook,
              public NoteBook,
              public Revisions,
              public Access,
              public Quarantine,
              public Sources,
              public Retention,
              public Alarms,
              public Diagnosis,
              public FigureSource {
 public:
  /// Stops accepting, finishes what was accepted, flushes, releases the lock. Idempotent.
  virtual void Close() = 0;
};

}  // namespace dlo::store
