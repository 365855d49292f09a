// A request as a stranger sends it, in pieces of any size: nothing may crash, and where it ends must not depend on how
// it was cut. The first byte says how.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/head.h"

namespace {

using namespace dlo::server;

struct Read {
  HeadScanner::Verdict head = HeadScanner::Verdict::more;
  std::size_t head_bytes = 0;
  int status = 0;
  ChunkDecoder::Verdict chunks = ChunkDecoder::Verdict::more;
  std::string body;
  bool operator==(const Read&) const = default;
};

Read ReadInPieces(std::string_view input, std::size_t piece) {
  Read read;
  HeadScanner scanner;
  std::size_t end = 0;
  while (read.head == HeadScanner::Verdict::more && end < input.size()) {
    end = std::min(input.size(), end + piece);
    read.head = scanner.Scan(input.substr(0, end));
  }
  if (read.head == HeadScanner::Verdict::refused) read.status = scanner.status();
  if (read.head != HeadScanner::Verdict::complete) return read;
  read.head_bytes = scanner.length();
  RequestHead head;
  const auto framing = ParseHead(input.substr(0, read.head_bytes), head);
  if (!framing) {
    read.status = framing.error();
    return read;
  }
  if (!framing->chunked) return read;
  ChunkDecoder decoder(4'096);
  std::string_view rest = input.substr(read.head_bytes);
  while (read.chunks == ChunkDecoder::Verdict::more && !rest.empty()) {
    std::string_view now = rest.substr(0, piece);
    const std::size_t before = now.size();
    read.chunks = decoder.Feed(now, read.body);
    rest.remove_prefix(before - now.size());
  }
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read whole = ReadInPieces(input, input.size() + 1);
  const Read pieces = ReadInPieces(input, 1 + data[0] % 16);
  // What is refused may be refused sooner or later, but not taken.
  const bool refused = whole.chunks == ChunkDecoder::Verdict::bad || whole.chunks == ChunkDecoder::Verdict::too_large;
  if (whole.head != pieces.head || whole.head_bytes != pieces.head_bytes || whole.status != pieces.status) std::abort();
  if (whole.chunks != pieces.chunks) std::abort();
  if (!refused && whole.body != pieces.body) std::abort();
  return 0;
}
