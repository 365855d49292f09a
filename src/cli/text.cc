#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <span>

namespace dlo::cli {
namespace {

struct Range {
  char32_t first, last;
};

// Invisible, or changing how what follows is read: soft hyphen, bidirectional marks and isolates, zero-width
// characters, line and paragraph separators, fillers, tags, private use and what no character will ever be.
constexpr Range kHidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},     {0x115f, 0x1160},   {0x180b, 0x180f},
    {0x200b, 0x200f}, {0x2028, 0x202f}, {0x2060, 0x206f}, {0x3164, 0x3164},   {0xe000, 0xf8ff},   {0xfeff, 0xfeff},
    {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff}};

constexpr Range kCombining[] = {
    {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x5bf, 0x5bf},   {0x5c1, 0x5c2},  {0x610, 0x61a},
    {0x64b, 0x65f},   {0x670, 0x670},   {0x6d6, 0x6dc},   {0x6df, 0x6e4},   {0x900, 0x902},  {0x93c, 0x93c},
    {0x941, 0x948},   {0x94d, 0x94d},   {0xe31, 0xe31},   {0xe34, 0xe3a},   {0xe47, 0xe4e},  {0x1ab0, 0x1aff},
    {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0x3099, 0x309a}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

constexpr Range kWide[] = {
    {0x1100, 0x115e},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},   {0x23f0, 0x23f0},
    {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267f, 0x267f},
    {0x2693, 0x2693},   {0x26a1, 0x26a1},   {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
    {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},   {0x26f2, 0x26f3},   {0x26f5, 0x26f5},
    {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},   {0x2728, 0x2728},
    {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x27b0, 0x27b0},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},   {0x2e80, 0x303e},
    {0x3041, 0x33ff},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xa960, 0xa97f},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff01, 0xff60},   {0xffe0, 0xffe6},
    {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f200, 0x1f320},
    {0x1f32d, 0x1f335}, {0x1f337, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb}, {0x1f900, 0x1f9ff},
    {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

bool In(std::span<const Range> ranges, char32_t c) {
  auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c, [](char32_t x, const Range& r) { return x < r.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

struct Decoded {
  char32_t code = 0;
  std::size_t size = 0;  // 0 = not UTF-8 here
};

// Strict: no overlong forms, no surrogates, nothing above U+10FFFF.
Decoded Decode(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {};
  char32_t code = lead & (0xffU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3fU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, size};
}

int WidthOf(char32_t c) {
  return In(kCombining, c) ? 0 : In(kWide, c) ? 2 : 1;
}

std::string Escape(std::string_view text, bool keep_layout) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    Decoded d = Decode(text);
    if (d.size == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    if (keep_layout && (d.code == '\n' || d.code == '\t')) {
      out += static_cast<char>(d.code);
    } else if (d.code == '\n') {
      out += "\\n";
    } else if (d.code == '\t') {
      out += "\\t";
    } else if (d.code == '\r') {
      out += "\\r";
    } else if (!In(kHidden, d.code)) {
      out += text.substr(0, d.size);
    } else if (d.code < 0x80) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(d.code));
    } else {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(d.code));
    }
    text.remove_prefix(d.size);
  }
  return out;
}

bool IsJson(std::string_view text) {
  boost::json::stream_parser parser;
  boost::json::error_code ec;
  parser.write(text.data(), text.size(), ec);
  if (!ec) parser.finish(ec);
  return !ec;
}

}  // namespace

std::string EscapeLine(std::string_view text) {
  return Escape(text, false);
}
std::string EscapeBlock(std::string_view text) {
  return Escape(text, true);
}

int DisplayWidth(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    Decoded d = Decode(text);
    width += d.size == 0 ? 1 : WidthOf(d.code);
    text.remove_prefix(std::max<std::size_t>(d.size, 1));
  }
  return width;
}

std::string Shorten(std::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  if (width <= 0) return {};
  std::size_t end = 0;
  int used = 0;
  while (end < text.size()) {
    Decoded d = Decode(text.substr(end));
    int w = d.size == 0 ? 1 : WidthOf(d.code);
    if (used + w > width - 1) break;
    used += w;
    end += std::max<std::size_t>(d.size, 1);
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-@/+=,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string PrettyJson(std::string_view text) {
  if (!IsJson(text)) return std::string(text);
  std::string out;
  int depth = 0;
  auto new_line = [&] { out += "\n" + std::string(static_cast<std::size_t>(depth) * 2, ' '); };
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) {
        out += text[++i];
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      continue;
    } else if (c == '{' || c == '[') {
      std::size_t next = text.find_first_not_of(" \t\r\n", i + 1);
      out += c;
      if (next != std::string_view::npos && (text[next] == '}' || text[next] == ']')) {
        out += text[next];
        i = next;
      } else {
        ++depth;
        new_line();
      }
    } else if (c == '}' || c == ']') {
      --depth;
      new_line();
      out += c;
    } else if (c == ',') {
      out += c;
      new_line();
    } else if (c == ':') {
      out += ": ";
    } else {
      in_string = c == '"';
      out += c;
    }
  }
  return out;
}

}  // namespace dlo::cli
