// Any bytes as a segment file; and any bytes as a record behind right checksums. Must never crash.
#include "base/log.h"
#include "journal_mutations.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  dlo::log::SetLevel("off");  // a cut tail is logged, and here nearly every input has one
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(dlo::store::ReadWhole(bytes));
  static_cast<void>(dlo::store::ReadWhole(dlo::store::SegmentAround(std::string(bytes))));
  return 0;
}
