#include "store/embedded/quarantine.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr int kMaxRows = 500;

/// [["name","value"],…]. Values keep whatever bytes they had.
std::string EncodeHeaders(const std::vector<Header>& headers) {
  json::array list;
  for (const Header& h : headers) list.push_back(json::array{h.name, h.value});
  return json::serialize(list);
}

std::string Text(const json::value& value) {
  const json::string& text = value.as_string();
  return {text.data(), text.size()};
}

Result<std::vector<Header>> DecodeHeaders(std::string_view text) {
  json::parse_options options;
  options.allow_invalid_utf8 = true;
  boost::system::error_code error;
  const json::value value = json::parse({text.data(), text.size()}, error, {}, options);
  const auto bad = [] {
    return Fail(ErrorKind::corrupt, "corrupt", "The headers of this rejected delivery cannot be read.");
  };
  if (error || !value.is_array()) return bad();
  std::vector<Header> headers;
  for (const json::value& member : value.get_array()) {
    const json::array* pair = member.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string()) return bad();
    headers.push_back({Text((*pair)[0]), Text((*pair)[1])});
  }
  return headers;
}

/// The columns of both reads: id, at, source, reason, remote, headers, bytes of the body, the body or ''.
Result<Rejected> ReadRow(const Statement& row) {
  auto headers = DecodeHeaders(row.Text(5));
  if (!headers) return std::unexpected(headers.error());
  return Rejected{.id = row.Int(0),
                  .at = FromMicros(row.Int(1)),
                  .source = row.String(2),
                  .reason = row.String(3),
                  .remote = row.String(4),
                  .headers = std::move(*headers),
                  .body = row.String(7),
                  .body_bytes = row.Int(6)};
}

/// The newest id that must go, 0 if none.
Result<std::int64_t> OverCaps(Db& db) {
  // length() of a blob is in its row's head: no body is read.
  Statement rows = db.Prepare("SELECT id, length(headers) + length(body) FROM rejected ORDER BY id DESC");
  std::int64_t kept = 0, bytes = 0;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return 0;
    bytes += rows.Int(1);
    ++kept;
    if (kept > kMaxRejected || (bytes > kMaxRejectedBytes && kept > 1)) return rows.Int(0);
  }
}

}  // namespace

Result<void> KeepRejected(Db& db, std::span<const Rejected> rejected) {
  if (rejected.empty()) return {};
  for (const Rejected& r : rejected) {
    const std::string headers = EncodeHeaders(r.headers);
    const std::string source = CleanText(r.source, 200), reason = CleanText(r.reason, 200),
                      remote = CleanText(r.remote, 200);
    auto kept =
        db.Prepare("INSERT INTO rejected (at, source, reason, remote, headers, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
            .Bind(1, ToMicros(r.at))
            .Bind(2, source)
            .Bind(3, reason)
            .Bind(4, remote)
            .BindBlob(5, headers)
            .BindBlob(6, r.body)
            .Run();
    if (!kept) return kept;
  }
  auto last = OverCaps(db);
  if (!last) return std::unexpected(last.error());
  if (*last == 0) return {};
  return db.Prepare("DELETE FROM rejected WHERE id <= ?1").Bind(1, *last).Run();
}

Result<std::vector<Rejected>> ListRejected(Db& db, const std::string& source, std::int64_t before, int limit) {
  Statement rows = db.Prepare(
      "SELECT id, at, source, reason, remote, headers, length(body), '' FROM rejected "
      "WHERE id < ?1 AND (?2 = '' OR source = ?2) ORDER BY id DESC LIMIT ?3");
  rows.Bind(1, before > 0 ? before : INT64_MAX).Bind(2, source).Bind(3, std::clamp(limit, 1, kMaxRows));
  std::vector<Rejected> list;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return list;
    auto one = ReadRow(rows);
    if (!one) return std::unexpected(one.error());
    list.push_back(std::move(*one));
  }
}

Result<Rejected> ReadRejected(Db& db, std::int64_t id) {
  Statement rows =
      db.Prepare("SELECT id, at, source, reason, remote, headers, length(body), body FROM rejected WHERE id = ?1");
  auto row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) {
    return Fail(ErrorKind::not_found, "not_found", "No rejected delivery has this number; only the newest are kept.");
  }
  return ReadRow(rows);
}

}  // namespace dlo::store
