// Receipts to write and ways to read them back, for the journal's tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "env/clock.h"
#include "env/crash_points.h"
#include "env/memory_files.h"
#include "env/random.h"
#include "store/embedded/journal.h"

namespace dlo::store {

using Receipts = std::vector<std::shared_ptr<Receipt>>;

inline std::shared_ptr<Receipt> MakeReceipt(std::string key, std::string body) {
  auto receipt = std::make_shared<Receipt>();
  receipt->source = "stripe";
  receipt->key = std::move(key);
  receipt->kind = "invoice.paid";
  receipt->received_at = Time(Duration(1'700'000'000'123'456));
  receipt->verdict = {true, "stripe", "secrets[0]", Time(Duration(1'700'000'000'000'000))};
  receipt->headers = {{"Stripe-Signature", "t=1,v1=ab"}, {"content-type", "application/json"}};
  receipt->body = std::move(body);
  return receipt;
}

inline std::string AnyBytes(Random& random, std::size_t at_most) {
  std::string bytes(random.Next() % (at_most + 1), '\0');
  for (char& c : bytes) c = static_cast<char>(random.Next());
  return bytes;
}

/// Every field may be anything: empty, NUL, invalid UTF-8.
inline std::shared_ptr<Receipt> AnyReceipt(Random& random, std::size_t body_at_most) {
  auto receipt = std::make_shared<Receipt>();
  for (std::string* text : {&receipt->source, &receipt->key, &receipt->kind, &receipt->subject, &receipt->account,
                            &receipt->verdict.scheme, &receipt->verdict.secret_id, &receipt->disposition_reason}) {
    *text = AnyBytes(random, 20);
  }
  const std::uint64_t dice = random.Next();
  if ((dice & 1) != 0) receipt->livemode = (dice & 2) != 0;
  if ((dice & 4) != 0) receipt->occurred_at = Time(Duration(static_cast<std::int64_t>(random.Next())));
  if ((dice & 8) != 0) receipt->verdict.signed_at = Time(Duration(static_cast<std::int64_t>(random.Next())));
  receipt->verdict.verified = (dice & 16) != 0;
  receipt->received_at = Time(Duration(static_cast<std::int64_t>(random.Next() >> 12)));
  receipt->disposition = static_cast<Disposition>((dice >> 5) % 3);
  for (std::uint64_t i = (dice >> 8) % 4; i > 0; --i)
    receipt->headers.push_back({AnyBytes(random, 9), AnyBytes(random, 30)});
  receipt->body = AnyBytes(random, body_at_most);
  return receipt;
}

inline void ExpectSame(const Receipt& a, const Receipt& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.subject, b.subject);
  EXPECT_EQ(a.account, b.account);
  EXPECT_EQ(a.livemode, b.livemode);
  EXPECT_EQ(a.occurred_at, b.occurred_at);
  EXPECT_EQ(a.received_at, b.received_at);
  EXPECT_EQ(a.verdict.verified, b.verdict.verified);
  EXPECT_EQ(a.verdict.scheme, b.verdict.scheme);
  EXPECT_EQ(a.verdict.secret_id, b.verdict.secret_id);
  EXPECT_EQ(a.verdict.signed_at, b.verdict.signed_at);
  EXPECT_EQ(a.disposition, b.disposition);
  EXPECT_EQ(a.disposition_reason, b.disposition_reason);
  EXPECT_TRUE(a.headers == b.headers);
  EXPECT_TRUE(a.body == b.body) << "bodies of " << a.body.size() << " and " << b.body.size() << " bytes";
}

/// A journal on a disk in memory that can be closed, damaged and opened again.
class JournalTest : public testing::Test {
 protected:
  void Open() {
    auto opened = TryOpen();
    ASSERT_TRUE(opened) << opened.error().message;
    journal_ = std::move(*opened);
  }
  Result<std::unique_ptr<Journal>> TryOpen() {
    journal_.reset();
    return Journal::Open(*files_, clock_, crash_points_, {"j", segment_bytes_, false});
  }
  Result<void> TryAppend(const Receipts& receipts) {
    if (journal_ == nullptr) return Fail(ErrorKind::unavailable, "closed", "the journal did not open");
    auto done = journal_->Append(receipts, places_, digests_);
    if (done) written_.insert(written_.end(), receipts.begin(), receipts.end());
    return done;
  }
  void Append(const Receipts& receipts) {
    auto done = TryAppend(receipts);
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_EQ(places_.size(), receipts.size());
    ASSERT_EQ(digests_.size(), receipts.size());
  }
  Result<std::vector<JournalRecord>> ReadAll(std::size_t at_once = 1) {
    if (journal_ == nullptr) return Fail(ErrorKind::unavailable, "closed", "the journal did not open");
    std::vector<JournalRecord> all;
    Mark mark;
    while (true) {
      auto some = journal_->ReadFrom(mark, at_once);
      if (!some) return std::unexpected(some.error());
      if (some->empty()) return all;
      for (auto& record : *some) all.push_back(std::move(record));
    }
  }
  /// Reading from the start gives exactly what was written, and so does each place.
  void ExpectAllThere() {
    ASSERT_NE(journal_, nullptr) << "it did not open";
    const auto all = ReadAll();
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), written_.size());
    for (std::size_t i = 0; i < all->size(); ++i) {
      ExpectSame(*(*all)[i].receipt, *written_[i]);
      EXPECT_EQ((*all)[i].receipt->id, static_cast<EventId>(i + 1));
      const auto alone = journal_->ReadAt((*all)[i].place);
      ASSERT_TRUE(alone) << alone.error().message;
      ExpectSame(*alone->receipt, *written_[i]);
      EXPECT_EQ(alone->body_sha256, Sha256(written_[i]->body));
    }
    EXPECT_EQ(journal_->last_seq(), static_cast<std::int64_t>(written_.size()));
  }
  /// An empty disk, nothing written.
  void StartAnew() {
    journal_.reset();
    files_ = std::make_unique<MemoryFiles>();
    written_.clear();
  }
  static std::string Path(int number) { return "j/000000000" + std::to_string(number) + ".seg"; }

  std::unique_ptr<MemoryFiles> files_ = std::make_unique<MemoryFiles>();
  ManualClock clock_{Time(Duration(1'700'000'000'000'000))};
  NoCrashPoints crash_points_;
  std::int64_t segment_bytes_ = 4096;
  std::unique_ptr<Journal> journal_;
  std::vector<Place> places_;
  std::vector<Sha256Digest> digests_;
  Receipts written_;  // acknowledged, in order
};

}  // namespace dlo::store
