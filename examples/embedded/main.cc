// An office inside a program: events are stored durably, handed to a C++ callable, retried, dead-lettered, replayed.
#include <dlo/service.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

int main() {
  std::atomic<bool> knows_annual_plans = false;
  dlo::TargetConfig ledger{.name = "ledger", .type = dlo::TargetType::in_process};
  ledger.handler = [&](const dlo::Delivery& delivery) {
    // Your effect goes here, once per delivery.IdempotencyKey().
    if (delivery.receipt->body.contains("annual") && !knows_annual_plans) {
      return dlo::Outcome::Permanent("unknown_plan", "no such plan: annual");
    }
    return dlo::Outcome::Applied();
  };
  dlo::SourceConfig invoices{.name = "invoices", .scheme = "none", .target = "ledger"};
  invoices.key = "/id";
  invoices.kind = "/type";
  invoices.subject = "/subscription";
  dlo::Config config;
  config.store.url = "sqlite:office/dlo.db";
  config.server.listen = "";  // no HTTP: this program hands events in
  config.log_level = "error";
  config.sources = {invoices};
  config.targets = {ledger};

  const auto office = dlo::OrThrow(dlo::Service::Open(config));
  dlo::OrThrow(office->Start());
  for (const char* body : {R"({"id":"evt_1","type":"invoice.paid","subscription":"sub_1","plan":"monthly"})",
                           R"({"id":"evt_2","type":"invoice.paid","subscription":"sub_2","plan":"annual"})",
                           R"({"id":"evt_1","type":"invoice.paid","subscription":"sub_1","plan":"monthly"})"}) {
    const auto accepted = dlo::OrThrow(office->Receive("invoices", {}, body)).front();  // on disk from here on
    std::printf("event %lld %s\n", static_cast<long long>(accepted.id),
                accepted.status == dlo::AcceptStatus::duplicate ? "again" : "stored");
  }

  dlo::DeadLetters& letters = office->dead_letters();
  const auto wait_until = [](auto&& condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  wait_until([&] { return letters.CountOrThrow({}) == 1; });
  const dlo::Letter dead = letters.ListOrThrow({}).items.front();
  std::printf("event %lld is dead: %s, %s\n", static_cast<long long>(dead.id), dead.code.c_str(), dead.message.c_str());

  knows_annual_plans = true;  // the fix
  letters.RequeueOrThrow(dead.id, {.name = "example", .reason = "annual plans are known now"});
  wait_until([&] { return letters.ShowOrThrow(dead.id).letter.state == dlo::State::replayed; });
  std::printf("event %lld is replayed\n", static_cast<long long>(dead.id));
  office->Stop();
}
