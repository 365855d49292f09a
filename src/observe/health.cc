#include "observe/health.h"

#include <boost/json.hpp>

#include "base/encoding.h"

namespace dlo::observe {

Health::Report Health::Ready() const {
  const auto store = store_.Ready();
  const bool stops = draining();
  Report report;
  report.ready = store.has_value() && !stops;
  const boost::json::value json = {
      {"status", report.ready ? "ready" : "not_ready"},
      {"checks", {{"store", store ? std::string("ok") : CleanText(store.error().message, 300)}, {"draining", stops}}}};
  report.json = boost::json::serialize(json);
  return report;
}

}  // namespace dlo::observe
