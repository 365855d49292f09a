// Where a request ends is decided here and nowhere else. Strict on purpose: whatever two servers could read in two ways
// (RFC 9112, sections 2.2, 5, 6 and 11.2) is refused, so that nothing can be smuggled past a proxy in front of us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "server/http_server.h"

namespace dlo::server {

/// Finds the end of a head while its bytes arrive, each byte looked at once. Refuses as early as it can.
class HeadScanner {
 public:
  enum class Verdict : unsigned char { more, complete, refused };
  explicit HeadScanner(const HeadLimits& limits = {}) : limits_(limits) {}
  /// `bytes`: everything of this request so far; it may only grow between calls.
  Verdict Scan(std::string_view bytes);
  [[nodiscard]] std::size_t length() const { return line_start_; }  // complete: of the head with its empty line
  [[nodiscard]] int status() const { return status_; }              // refused: 400, 414 or 431
  void Reset() { *this = HeadScanner(limits_); }

 private:
  Verdict Refuse(int status);
  Verdict CheckSizes(std::size_t end);
  HeadLimits limits_;
  std::size_t scanned_ = 0, line_start_ = 0, fields_start_ = 0;
  int lines_ = 0, status_ = 0;
};

struct Framing {
  std::uint64_t content_length = 0;
  bool chunked = false;
  bool keep_alive = true;
  bool expect_continue = false;
};

/// `raw` is a head that HeadScanner found complete. Fills method, target and headers. Error: the status to answer.
std::expected<Framing, int> ParseHead(std::string_view raw, RequestHead& head);

/// Takes a chunked body apart. Chunk extensions and trailers are refused: nobody needs them, and both have been ways to
/// send without end.
class ChunkDecoder {
 public:
  enum class Verdict : unsigned char { more, complete, bad, too_large };
  explicit ChunkDecoder(std::size_t max_body) : max_body_(max_body) {}
  /// Takes from the front of `bytes` what it can, appends data to `body`.
  Verdict Feed(std::string_view& bytes, std::string& body);

 private:
  enum class Place : unsigned char { size, size_lf, data, data_cr, data_lf, last_cr, last_lf, done };
  Verdict Step(char c, std::size_t body_size);
  std::size_t max_body_;
  std::uint64_t left_ = 0;  // of this chunk
  int digits_ = 0;
  Place place_ = Place::size;
};

}  // namespace dlo::server
