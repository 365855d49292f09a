#include "server/head.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <charconv>
#include <cstring>

namespace dlo::server {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::beast::error_code;
using Text = boost::beast::string_view;

// Beast's grammar for the request line and the fields, without its container: that one groups fields of one name, and a
// receipt keeps the order in which they came.
class HeadParser final : public http::basic_parser<true> {
 public:
  HeadParser(RequestHead& head, std::size_t length) : head_(head) {
    header_limit(static_cast<std::uint32_t>(length) + 16);  // the scanner has judged it
    body_limit(boost::none);
  }
  [[nodiscard]] int version() const { return version_; }

 private:
  void on_request_impl(http::verb, Text method, Text target, int version, ErrorCode&) override {
    head_.method.assign(method.data(), method.size());
    head_.target.assign(target.data(), target.size());
    version_ = version;
  }
  void on_field_impl(http::field, Text name, Text value, ErrorCode&) override {
    head_.headers.push_back({std::string(name.data(), name.size()), std::string(value.data(), value.size())});
  }
  void on_response_impl(int, Text, int, ErrorCode&) override {}
  void on_header_impl(ErrorCode&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}
  std::size_t on_body_impl(Text, ErrorCode&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, Text, ErrorCode&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text, ErrorCode&) override { return 0; }
  void on_finish_impl(ErrorCode&) override {}

  RequestHead& head_;
  int version_ = 0;
};

bool Same(std::string_view a, std::string_view b) {
  return boost::beast::iequals(Text(a.data(), a.size()), Text(b.data(), b.size()));
}

bool ListHas(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (Same(item, word)) return true;
  }
  return false;
}

// Beast takes "5, 5", "gzip, chunked" and Transfer-Encoding in HTTP/1.0; a proxy in front may read those otherwise.
std::expected<Framing, int> CheckFraming(const RequestHead& head, int version) {
  Framing framing;
  framing.keep_alive = version >= 11;
  int hosts = 0, lengths = 0, codings = 0;
  for (const Header& h : head.headers) {
    if (Same(h.name, "Content-Length")) {
      ++lengths;
      const char* end = h.value.data() + h.value.size();
      const bool digits = !h.value.empty() && std::ranges::all_of(h.value, [](char c) { return c >= '0' && c <= '9'; });
      if (!digits || std::from_chars(h.value.data(), end, framing.content_length).ec != std::errc()) {
        return std::unexpected(400);
      }
    } else if (Same(h.name, "Transfer-Encoding")) {
      ++codings;
      if (!Same(h.value, "chunked")) return std::unexpected(400);
      framing.chunked = true;
    } else if (Same(h.name, "Host")) {
      ++hosts;
    } else if (Same(h.name, "Connection")) {
      if (ListHas(h.value, "close")) framing.keep_alive = false;
    } else if (Same(h.name, "Expect")) {
      if (!Same(h.value, "100-continue")) return std::unexpected(417);
      framing.expect_continue = version >= 11;
    }
  }
  if (lengths > 1 || codings > 1 || (lengths > 0 && codings > 0)) return std::unexpected(400);
  if (codings > 0 && version < 11) return std::unexpected(400);
  if (hosts > 1 || (hosts == 0 && version >= 11)) return std::unexpected(400);
  return framing;
}

}  // namespace

HeadScanner::Verdict HeadScanner::Refuse(int status) {
  status_ = status;
  return Verdict::refused;
}

HeadScanner::Verdict HeadScanner::CheckSizes(std::size_t end) {
  if (lines_ == 0) return end > limits_.request_line ? Refuse(414) : Verdict::more;
  if (end - fields_start_ > limits_.header_bytes || lines_ - 1 > limits_.header_fields) return Refuse(431);
  return Verdict::more;
}

HeadScanner::Verdict HeadScanner::Scan(std::string_view bytes) {
  while (true) {
    const std::size_t lf = bytes.find('\n', scanned_);
    if (lf == std::string_view::npos) {
      scanned_ = bytes.size();
      return CheckSizes(bytes.size());
    }
    const std::string_view line = bytes.substr(line_start_, lf - line_start_);  // with its CR, without LF
    // The only CR of a line is the one before its LF: no bare LF, no bare CR.
    if (line.find('\r') != line.size() - 1 || line.empty()) return Refuse(400);
    if (CheckSizes(lf + 1) == Verdict::refused) return Verdict::refused;
    line_start_ = scanned_ = lf + 1;
    if (line.size() == 1) return lines_ == 0 ? Refuse(400) : Verdict::complete;
    if (lines_ > 0 && (line.front() == ' ' || line.front() == '\t')) return Refuse(400);  // a folded line
    if (lines_++ == 0) fields_start_ = line_start_;
    if (CheckSizes(line_start_) == Verdict::refused) return Verdict::refused;
  }
}

std::expected<Framing, int> ParseHead(std::string_view raw, RequestHead& head) {
  head.headers.reserve(16);
  HeadParser parser(head, raw.size());
  ErrorCode error;
  parser.put(boost::asio::const_buffer(raw.data(), raw.size()), error);
  if (error && error != http::error::need_more) return std::unexpected(400);
  if (!parser.is_header_done()) return std::unexpected(400);
  const bool visible = std::ranges::all_of(head.target, [](char c) { return c > ' ' && c < 0x7f; });
  if (!visible || !head.target.starts_with('/') || head.target.find('#') != std::string::npos)
    return std::unexpected(400);
  return CheckFraming(head, parser.version());
}

ChunkDecoder::Verdict ChunkDecoder::Step(char c, std::size_t body_size) {
  switch (place_) {
    case Place::size: {
      if (c == '\r') {
        if (digits_ == 0) return Verdict::bad;
        place_ = Place::size_lf;
        return Verdict::more;
      }
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0 || ++digits_ > 16) return Verdict::bad;
      left_ = left_ << 4 | static_cast<unsigned>(digit);
      return Verdict::more;
    }
    case Place::size_lf:
      if (c != '\n') return Verdict::bad;
      if (left_ > max_body_ - body_size) return Verdict::too_large;
      digits_ = 0;
      place_ = left_ == 0 ? Place::last_cr : Place::data;
      return Verdict::more;
    case Place::data_cr:
      place_ = Place::data_lf;
      return c == '\r' ? Verdict::more : Verdict::bad;
    case Place::data_lf:
      place_ = Place::size;
      return c == '\n' ? Verdict::more : Verdict::bad;
    case Place::last_cr:
      place_ = Place::last_lf;
      return c == '\r' ? Verdict::more : Verdict::bad;
    case Place::last_lf:
      place_ = Place::done;
      return c == '\n' ? Verdict::complete : Verdict::bad;
    case Place::data:
    case Place::done:
      break;
  }
  return Verdict::bad;
}

ChunkDecoder::Verdict ChunkDecoder::Feed(std::string_view& bytes, std::string& body) {
  while (!bytes.empty()) {
    if (place_ == Place::data) {
      const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
      body.append(bytes.substr(0, n));
      bytes.remove_prefix(n);
      left_ -= n;
      if (left_ == 0) place_ = Place::data_cr;
      continue;
    }
    const Verdict verdict = Step(bytes.front(), body.size());
    bytes.remove_prefix(1);
    if (verdict != Verdict::more) return verdict;
  }
  return Verdict::more;
}

}  // namespace dlo::server
