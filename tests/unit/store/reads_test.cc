#include "store/embedded/reads.h"

#include <functional>

#include "store/embedded/filter_sql.h"
#include "unit/store/letters_fixture.h"

namespace dlo::store {
namespace {

using std::chrono::seconds;
using Expected = std::vector<EventId>;

class Reads : public LettersFixture {
 protected:
  /// 1..10, so that each word of a filter tells some from the others.
  void AddVariety() {
    Add({.subject = "sub_1", .account = "acct_a", .livemode = true});  // 1
    Add({.source = "github",
         .kind = "push",
         .livemode = false,
         .failure_class = FailureClass::exhausted,
         .fingerprint = "ffffffffffffffff",
         .message = "Timeout: 100% of 30 s"});                                                            // 2
    Add({.state = State::waiting});                                                                       // 3
    Add({.state = State::held, .failure_class = FailureClass::poison});                                   // 4
    Add({.state = State::succeeded});                                                                     // 5
    Add({.key = "o'Reilly\"_%", .kind = "charge.failed", .account = "acct_b"});                           // 6
    Add({.state = State::resolved, .failure_class = FailureClass::permanent});                            // 7
    Add({.state = State::replayed, .failure_class = FailureClass::permanent});                            // 8
    Add({.subject = "sub_9", .state = State::running});                                                   // 9
    Add({.subject = "sub_2", .failure_class = FailureClass::crashed, .code = "crashed", .message = ""});  // 10
  }
  Expected Listed(const Filter& filter) { return Ids(OrThrow(ListLetters(*db_, filter, 100, "")).items); }
};

struct WordRow {
  const char* name;
  std::function<void(Filter&)> set;
  Expected expected;
};

TEST_F(Reads, EachWordOfTheFilterSelectsInListsAndCounts) {
  AddVariety();
  const WordRow rows[] = {
      {"nothing", [](Filter&) {}, {10, 6, 4, 2, 1}},
      {"type", [](Filter& f) { f.types = {"push"}; }, {2}},
      {"types", [](Filter& f) { f.types = {"push", "charge.failed", "none"}; }, {6, 2}},
      {"source", [](Filter& f) { f.sources = {"github"}; }, {2}},
      {"sources", [](Filter& f) { f.sources = {"github", "stripe"}; }, {10, 6, 4, 2, 1}},
      {"unknown source", [](Filter& f) { f.sources = {"nobody"}; }, {}},
      {"subject", [](Filter& f) { f.subjects = {"sub_1", "sub_9"}; }, {1}},
      {"account", [](Filter& f) { f.accounts = {"acct_a", "acct_b"}; }, {6, 1}},
      {"class", [](Filter& f) { f.classes = {FailureClass::poison}; }, {4}},
      {"classes", [](Filter& f) { f.classes = {FailureClass::poison, FailureClass::exhausted}; }, {4, 2}},
      {"state dead", [](Filter& f) { f.states = {State::dead}; }, {10, 6, 2, 1}},
      {"state held", [](Filter& f) { f.states = {State::held}; }, {4}},
      {"states dead held", [](Filter& f) { f.states = {State::held, State::dead, State::held}; }, {10, 6, 4, 2, 1}},
      {"other states", [](Filter& f) { f.states = {State::waiting, State::succeeded}; }, {5, 3}},
      {"mixed states",
       [](Filter& f) { f.states = {State::held, State::resolved, State::replayed, State::running}; },
       {9, 8, 7, 4}},
      {"since before", [](Filter& f) { f.since = kStart + seconds(6) - Duration(1); }, {10, 6}},
      {"since at", [](Filter& f) { f.since = kStart + seconds(6); }, {10, 6}},
      {"since after", [](Filter& f) { f.since = kStart + seconds(6) + Duration(1); }, {10}},
      {"until before", [](Filter& f) { f.until = kStart + seconds(2) - Duration(1); }, {1}},
      {"until at", [](Filter& f) { f.until = kStart + seconds(2); }, {1}},
      {"until after", [](Filter& f) { f.until = kStart + seconds(2) + Duration(1); }, {2, 1}},
      {"livemode", [](Filter& f) { f.livemode = true; }, {1}},
      {"test mode", [](Filter& f) { f.livemode = false; }, {2}},
      {"fingerprint", [](Filter& f) { f.fingerprint = "ffffffffffffffff"; }, {2}},
      {"fingerprint upper case", [](Filter& f) { f.fingerprint = "FFFFFFFFFFFFFFFF"; }, {2}},
      {"q in message, any case", [](Filter& f) { f.q = "tIMEOUT"; }, {2}},
      {"q in key", [](Filter& f) { f.q = "EVT_1"; }, {10, 1}},
      {"q in subject", [](Filter& f) { f.q = "sub_2"; }, {10}},
      {"q empty", [](Filter& f) { f.q = ""; }, {10, 6, 4, 2, 1}},
      {"q percent is itself", [](Filter& f) { f.q = "100% of"; }, {2}},
      {"q percent is no wildcard", [](Filter& f) { f.q = "No%subscription"; }, {}},
      {"q underscore is no wildcard", [](Filter& f) { f.q = "evt__"; }, {}},
      {"q with quotes", [](Filter& f) { f.q = "'REILLY\"_%"; }, {6}},
      {"q with NUL", [](Filter& f) { f.q = std::string("evt\0", 4); }, {}},
      {"q as SQL", [](Filter& f) { f.q = "') OR 1=1 --"; }, {}},
      {"type as SQL", [](Filter& f) { f.types = {"x') OR 1=1 --", "\"", "'"}; }, {}},
      {"type with NUL", [](Filter& f) { f.types = {std::string("push\0x", 6)}; }, {}},
      {"invalid UTF-8", [](Filter& f) { f.q = "\xFF\xFE"; }, {}},
      {"ids", [](Filter& f) { f.ids = {1, 4, 5, 99, -1}; }, {4, 1}},
      {"fields are and-ed",
       [](Filter& f) {
         f.types = {"push"};
         f.sources = {"stripe"};
       },
       {}},
      {"all at once",
       [](Filter& f) {
         f.types = {"push"};
         f.sources = {"github"};
         f.classes = {FailureClass::exhausted};
         f.states = {State::dead};
         f.since = kStart;
         f.until = kStart + std::chrono::hours(1);
         f.livemode = false;
         f.fingerprint = "ffffffffffffffff";
         f.q = "30 s";
         f.ids = {2};
       },
       {2}},
  };
  for (const WordRow& row : rows) {
    SCOPED_TRACE(row.name);
    Filter filter;
    row.set(filter);
    EXPECT_EQ(Listed(filter), row.expected);
    EXPECT_EQ(OrThrow(CountLetters(*db_, filter)), static_cast<std::int64_t>(row.expected.size()));
    std::int64_t grouped = 0;
    for (const Group& g : OrThrow(GroupLetters(*db_, filter, "class"))) grouped += g.count;
    EXPECT_EQ(grouped, static_cast<std::int64_t>(row.expected.size()));
  }
}

TEST_F(Reads, RefuseAFilterThatCannotBeRead) {
  Filter short_print, word_print, long_list;
  short_print.fingerprint = "abc";
  word_print.fingerprint = "0x00000000000aaa";
  long_list.types.assign(FilterSql::kMaxListed + 1, "a");
  for (const Filter& f : {short_print, word_print, long_list}) {
    EXPECT_EQ(ListLetters(*db_, f, 10, "").error().code, "bad_filter");
    EXPECT_EQ(CountLetters(*db_, f).error().code, "bad_filter");
    EXPECT_EQ(GroupLetters(*db_, f, "type").error().kind, ErrorKind::invalid);
  }
  Filter full_list;
  full_list.types.assign(FilterSql::kMaxListed, "a");
  EXPECT_TRUE(ListLetters(*db_, full_list, 10, ""));
}

TEST_F(Reads, PagesShowEachLetterOnceWhateverTheirSizeAndTies) {
  Expected all;
  for (int i = 0; i < 23; ++i) all.insert(all.begin(), Add({.received_at = kStart}));  // one moment for all
  Add({.state = State::succeeded});
  for (int limit = 1; limit <= 24; ++limit) {
    Expected seen;
    std::string cursor;
    for (int page_number = 0; page_number < 30; ++page_number) {
      const Page page = OrThrow(ListLetters(*db_, {}, limit, cursor));
      ASSERT_LE(page.items.size(), static_cast<std::size_t>(limit));
      for (const Letter& l : page.items) seen.push_back(l.id);
      if (!page.next) break;
      ASSERT_EQ(page.items.size(), static_cast<std::size_t>(limit));
      cursor = *page.next;
    }
    EXPECT_EQ(seen, all) << limit;
  }
}

TEST_F(Reads, ALetterThatLeavesBetweenPagesShiftsNothing) {
  for (int i = 0; i < 6; ++i) Add();
  const Page first = OrThrow(ListLetters(*db_, {}, 3, ""));
  OrThrow(db_->Exec("UPDATE events SET state = 6, letter = NULL, finished_at = 1 WHERE id IN (6, 4)"));
  EXPECT_EQ(Ids(OrThrow(ListLetters(*db_, {}, 3, *first.next)).items), (Expected{3, 2, 1}));
}

TEST_F(Reads, BoundsOfLimitAndCursor) {
  Add();
  for (const int limit : {0, -1, kMaxPage + 1})
    EXPECT_EQ(ListLetters(*db_, {}, limit, "").error().code, "bad_limit") << limit;
  for (const int limit : {1, kMaxPage}) EXPECT_TRUE(ListLetters(*db_, {}, limit, "")) << limit;
  for (const char* cursor : {"0", "-1", "x", "1x", " 1", "99999999999999999999"}) {
    EXPECT_EQ(ListLetters(*db_, {}, 10, cursor).error().code, "bad_cursor") << cursor;
  }
  EXPECT_TRUE(OrThrow(ListLetters(*db_, {}, 10, "1")).items.empty());
}

TEST_F(Reads, ALetterShowsEveryColumn) {
  const EventId id = Add({.source = "stripe",
                          .key = "k",
                          .subject = "s",
                          .account = "a",
                          .livemode = true,
                          .state = State::held,
                          .failure_class = FailureClass::exhausted,
                          .replay_id = 7,
                          .replays_failed = 2});
  OrThrow(
      db_->Exec("UPDATE receipts SET occurred_at = 5, last_seen_at = 6, deliveries = 3, conflict_of = 9;"
                "UPDATE events SET attempts = 6, tries = 1, attempt_no = 8, crashes = 1, replays = 2"));
  OrThrow(db_->Exec(
      "UPDATE failures SET hold_link = 'http://x', hold_owner = 'jo', hold_until = 11, wake_on_handler = 'v2', "
      "handler_version = 'v1', resolve_code = 3, resolve_reason = 'r'"));
  const Letter l = OrThrow(ReadLetter(*db_, id));
  EXPECT_EQ(std::tie(l.source, l.key, l.kind, l.subject, l.account),
            std::make_tuple("stripe", "k", "invoice.paid", "s", "a"));
  EXPECT_EQ(l.livemode, true);
  EXPECT_EQ(l.occurred_at, FromMicros(5));
  EXPECT_EQ(l.received_at, kStart + seconds(1));
  EXPECT_EQ(l.last_seen_at, FromMicros(6));
  EXPECT_EQ(std::make_tuple(l.deliveries, l.body_bytes, l.state, l.failure_class),
            std::make_tuple(3, 10, State::held, FailureClass::exhausted));
  EXPECT_EQ(std::make_tuple(l.attempts, l.tries, l.attempt_number, l.crashes, l.replays, l.replays_failed, l.replay_id),
            std::make_tuple(6, 1, 8, 1, 2, 2, 7));
  EXPECT_EQ(l.due_at, std::nullopt);
  EXPECT_EQ(l.lease_until, std::nullopt);
  EXPECT_EQ(l.first_failed_at, kStart + seconds(1));
  EXPECT_EQ(l.parked_at, kStart + seconds(1) + std::chrono::hours(1));
  EXPECT_EQ(l.finished_at, std::nullopt);
  EXPECT_EQ(std::tie(l.code, l.message, l.fingerprint),
            std::make_tuple("http_422", "No such subscription", "00000000000000aa"));
  EXPECT_EQ(std::tie(l.hold_link, l.hold_owner, l.wake_on_handler, l.handler_version),
            std::make_tuple("http://x", "jo", "v2", "v1"));
  EXPECT_EQ(l.hold_until, FromMicros(11));
  EXPECT_EQ(l.resolve_code, ResolveCode::duplicate);
  EXPECT_EQ(l.resolve_reason, "r");
  EXPECT_EQ(l.conflict_of, 9);
  EXPECT_FALSE(l.behind);
}

TEST_F(Reads, AnEventThatNeverFailedHasNoFailure) {
  const Letter l = OrThrow(ReadLetter(*db_, Add({.state = State::waiting})));
  EXPECT_EQ(l.fingerprint, "");
  EXPECT_EQ(l.first_failed_at, std::nullopt);
  EXPECT_EQ(l.code, "");
  EXPECT_TRUE(l.due_at);
  EXPECT_EQ(ReadLetter(*db_, 99).error().code, "not_found");
}

TEST_F(Reads, GroupsByEachKeyLargestFirst) {
  Add({.source = "github",
       .kind = "push",
       .account = "b",
       .failure_class = FailureClass::exhausted,
       .parked_at = kStart + seconds(50),
       .fingerprint = "0000000000000001",
       .code = "timeout",
       .message = "old"});
  Add({.account = "a", .parked_at = kStart + seconds(10)});
  Add({.account = "a", .parked_at = kStart + seconds(30), .message = "newest"});
  Add({.state = State::succeeded});
  const std::pair<const char*, std::pair<const char*, const char*>> rows[] = {
      {"fingerprint", {"00000000000000aa", "0000000000000001"}},
      {"type", {"invoice.paid", "push"}},
      {"account", {"a", "b"}},
      {"source", {"stripe", "github"}},
      {"class", {"permanent", "exhausted"}}};
  for (const auto& [by, values] : rows) {
    SCOPED_TRACE(by);
    const auto groups = OrThrow(GroupLetters(*db_, {}, by));
    ASSERT_EQ(groups.size(), 2U);
    EXPECT_EQ(groups[0].value, values.first);
    EXPECT_EQ(groups[0].count, 2);
    EXPECT_EQ(groups[0].first_seen, kStart + seconds(10));
    EXPECT_EQ(groups[0].last_seen, kStart + seconds(30));
    EXPECT_EQ(groups[0].sample_id, 3);
    EXPECT_EQ(groups[0].message, "newest");
    EXPECT_EQ(groups[0].failure_class, "permanent");
    EXPECT_EQ(groups[1].value, values.second);
    EXPECT_EQ(groups[1].count, 1);
    EXPECT_EQ(groups[1].code, "timeout");
    EXPECT_EQ(groups[1].kind, "push");
  }
  EXPECT_EQ(GroupLetters(*db_, {}, "subject").error().code, "bad_group");
  EXPECT_EQ(GroupLetters(*db_, {}, "").error().code, "bad_group");
}

TEST_F(Reads, ShowGivesAttemptsNewestFirstAndWhatTheJournalKnows) {
  const EventId id = Add();
  const std::int64_t worker = NameId("w1"), target = NameId("billing");
  OrThrow(db_->Prepare("INSERT INTO attempts (event_id, number, token, started_at, finished_at, worker, target, "
                       "outcome, code, message, "
                       "detail, http_status, handler_version, effect, replay_id, late) VALUES (?1, 1, 1, 5, 6, ?2, ?3, "
                       "4, 'http_422', "
                       "'m', 'd', 422, 'v1', 'e', 3, 1)")
              .Bind(1, id)
              .Bind(2, worker)
              .Bind(3, target)
              .Run());
  OrThrow(
      db_->Prepare(
             "INSERT INTO attempts (event_id, number, token, started_at, worker, target) VALUES (?1, 2, 2, 7, ?2, ?3)")
          .Bind(1, id)
          .Bind(2, worker)
          .Bind(3, target)
          .Run());
  Receipt receipt;
  receipt.headers = {{"A", "b"}};
  receipt.verdict.scheme = "stripe";
  const LetterDetail detail = OrThrow(ShowLetter(*db_, id, &receipt));
  EXPECT_EQ(detail.letter.id, id);
  EXPECT_EQ(detail.detail, "detail");
  EXPECT_EQ(detail.body_sha256, HexEncode(std::string(32, '\x11')));
  EXPECT_EQ(detail.headers, receipt.headers);
  EXPECT_EQ(detail.verdict.scheme, "stripe");
  ASSERT_EQ(detail.attempts.size(), 2U);
  EXPECT_EQ(detail.attempts[0].number, 2);
  EXPECT_EQ(detail.attempts[0].finished_at, std::nullopt);
  EXPECT_EQ(detail.attempts[0].outcome, std::nullopt);
  const Attempt& a = detail.attempts[1];
  EXPECT_EQ(std::tie(a.worker, a.target, a.code, a.message, a.detail, a.handler_version, a.effect),
            std::make_tuple("w1", "billing", "http_422", "m", "d", "v1", "e"));
  EXPECT_EQ(std::make_tuple(a.outcome, a.http_status, a.replay_id, a.late),
            std::make_tuple(OutcomeKind::permanent, 422, 3, true));
  EXPECT_TRUE(OrThrow(ShowLetter(*db_, id, nullptr)).headers.empty());
  EXPECT_EQ(ShowLetter(*db_, 99, nullptr).error().code, "not_found");
  EXPECT_EQ(ReadAttempts(*db_, 99).error().code, "not_found");
  EXPECT_TRUE(OrThrow(ReadAttempts(*db_, Add())).empty());
  const Place place = OrThrow(PlaceOf(*db_, id));
  EXPECT_EQ(std::make_tuple(place.segment, place.position, place.length), std::make_tuple(1, 100, 100));
}

/// With a million letters a plan without these indexes is a scan of every event.
TEST_F(Reads, ThePartialIndexesServeTheDefaultStates) {
  const auto plan = [&](const FilterSql& sql, const std::string& select, const std::string& rest) {
    auto rows = OrThrow(db_->PrepareOnce("EXPLAIN QUERY PLAN SELECT " + select + " FROM events e" + sql.Joins(true) +
                                         " WHERE " + sql.where() + rest));
    std::string text;
    while (OrThrow(rows.Step())) text += rows.String(3) + "; ";
    return text;
  };
  Filter none, dead, print, ids;
  dead.states = {State::dead};
  print.fingerprint = "00000000000000aa";
  ids.ids = {1, 2};
  const auto expect = [&](const Filter& f, const char* index) {
    for (const auto& sql : {OrThrow(FilterSql::ForLetters(f)), OrThrow(FilterSql::ForReplay(f))}) {
      const std::string list = plan(sql, "r.key", " ORDER BY e.id DESC LIMIT 50");
      EXPECT_NE(list.find(index), std::string::npos) << list;
      EXPECT_EQ(list.find("TEMP B-TREE FOR ORDER BY"), std::string::npos) << list;
    }
  };
  expect(none, "events_letters");
  expect(dead, "events_letters");
  expect(print, "events_groups");
  const std::string by_ids = plan(OrThrow(FilterSql::ForLetters(ids)), "r.key", " ORDER BY e.id DESC LIMIT 50");
  EXPECT_NE(by_ids.find("PRIMARY KEY (rowid=?)"), std::string::npos) << by_ids;
}

TEST_F(Reads, ASnapshotHoldsOnlyOutsideATransaction) {
  {
    const Snapshot outer(*db_);
    EXPECT_EQ(sqlite3_get_autocommit(db_->handle()), 0);
    {
      const Snapshot inner(*db_);
    }
    EXPECT_EQ(sqlite3_get_autocommit(db_->handle()), 0);
  }
  EXPECT_NE(sqlite3_get_autocommit(db_->handle()), 0);
}

}  // namespace
}  // namespace dlo::store
