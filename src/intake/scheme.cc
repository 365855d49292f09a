#include "intake/scheme.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "base/encoding.h"

namespace dlo::intake {
namespace {

constexpr std::int64_t kYear10000 = 253'402'300'800;  // 10000-01-01T00:00:00Z

std::unexpected<Error> Broken(std::string message) {
  return Fail(ErrorKind::invalid, "bad_scheme", std::move(message));
}

bool IsHeaderName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

template <typename T>
std::optional<T> Choose(std::string_view word, std::initializer_list<std::pair<std::string_view, T>> choices) {
  for (const auto& [name, value] : choices) {
    if (name == word) return value;
  }
  return std::nullopt;
}

HmacSettings StripeSettings() {
  HmacSettings s;
  s.signature_header = "Stripe-Signature";
  s.signature_format = "pairs";
  s.signed_template = "{timestamp}.{body}";
  return s;
}

HmacSettings GithubSettings() {
  HmacSettings s;
  s.signature_header = "X-Hub-Signature-256";
  s.prefix = "sha256=";
  return s;
}

HmacSettings StandardWebhooksSettings() {
  HmacSettings s;
  s.signature_header = "webhook-signature";
  s.timestamp_header = "webhook-timestamp";
  s.id_header = "webhook-id";
  s.signed_template = "{id}.{timestamp}.{body}";
  s.encoding = "base64";
  s.key_decoding = "whsec";
  return s;
}

Result<void> CheckHeaders(const HmacSettings& s) {
  for (const auto& [field, name] :
       {std::pair{"signature_header", &s.signature_header}, std::pair{"timestamp_header", &s.timestamp_header},
        std::pair{"id_header", &s.id_header}}) {
    if (!name->empty() && !IsHeaderName(*name)) return Broken(std::string(field) + " is not a header name");
  }
  if (s.signature_header.empty()) return Broken("signature_header must be set");
  return {};
}

// Every field of the template must have a source, and every source must be signed: a timestamp that is not part of the
// signed bytes could be set by anyone, and its age check would promise what it cannot keep.
Result<void> CheckFields(const HmacSettings& s, const Scheme& scheme) {
  const auto& t = scheme.signed_bytes;
  const bool pairs = scheme.format == SignatureFormat::pairs;
  if (!t.uses_body()) return Broken("signed_template must contain {body}");
  if (t.uses_timestamp() && s.timestamp_header.empty() && !(pairs && !s.timestamp_name.empty())) {
    return Broken(
        "signed_template uses {timestamp}: set timestamp_header, or signature_format \"pairs\" with a timestamp_name");
  }
  if (!t.uses_timestamp() && !s.timestamp_header.empty()) {
    return Broken("timestamp_header is set but signed_template has no {timestamp}: an unsigned time proves nothing");
  }
  if (t.uses_id() && s.id_header.empty()) return Broken("signed_template uses {id}: set id_header");
  if (!t.uses_id() && !s.id_header.empty()) return Broken("id_header is set but signed_template has no {id}");
  if (t.uses_url() && s.url.empty()) return Broken("signed_template uses {url}: set url to the exact public URL");
  return {};
}

Result<void> CompileFormat(const HmacSettings& s, Scheme& scheme) {
  const auto format = Choose<SignatureFormat>(
      s.signature_format,
      {{"plain", SignatureFormat::plain}, {"list", SignatureFormat::list}, {"pairs", SignatureFormat::pairs}});
  if (!format) return Broken("signature_format must be plain, list or pairs");
  scheme.format = *format;
  if (*format != SignatureFormat::pairs) return {};
  if (!s.prefix.empty()) return Broken("prefix goes with signature_format plain or list, not with pairs");
  if (s.signature_name.empty() || s.signature_name == s.timestamp_name) {
    return Broken("signature_name must be set and differ from timestamp_name");
  }
  if (s.pair_separator.size() != 1 || s.pair_separator == "=" ||
      std::isalnum(static_cast<unsigned char>(s.pair_separator[0]))) {
    return Broken("pair_separator must be one character, neither '=' nor a letter nor a digit");
  }
  scheme.pair_separator = s.pair_separator[0];
  return {};
}

Result<Scheme> CompileSettings(std::string_view name, const HmacSettings& s) {
  Scheme scheme;
  scheme.name = name;
  if (auto ok = CheckHeaders(s); !ok) return std::unexpected(ok.error());
  if (auto ok = CompileFormat(s, scheme); !ok) return std::unexpected(ok.error());
  auto signed_bytes = Template::Parse(s.signed_template);
  if (!signed_bytes) return std::unexpected(signed_bytes.error());
  scheme.signed_bytes = std::move(*signed_bytes);
  if (auto ok = CheckFields(s, scheme); !ok) return std::unexpected(ok.error());

  if (s.hash != "sha1" && s.hash != "sha256" && s.hash != "sha512")
    return Broken("hash must be sha1, sha256 or sha512");
  const auto encoding = Choose<Encoding>(s.encoding, {{"hex", Encoding::hex}, {"base64", Encoding::base64}});
  if (!encoding) return Broken("encoding must be hex or base64");
  const auto decoding = Choose<KeyDecoding>(s.key_decoding, {{"text", KeyDecoding::text},
                                                             {"hex", KeyDecoding::hex},
                                                             {"base64", KeyDecoding::base64},
                                                             {"whsec", KeyDecoding::whsec}});
  if (!decoding) return Broken("key_decoding must be text, hex, base64 or whsec");
  if (s.timestamp_unit != "s" && s.timestamp_unit != "ms") return Broken("timestamp_unit must be s or ms");

  scheme.signature_headers = {s.signature_header};
  if (!s.timestamp_header.empty()) scheme.timestamp_headers = {s.timestamp_header};
  if (!s.id_header.empty()) scheme.id_headers = {s.id_header};
  scheme.prefix = s.prefix;
  scheme.timestamp_name = s.timestamp_name;
  scheme.signature_name = s.signature_name;
  scheme.url = s.url;
  scheme.hash = s.hash;
  scheme.encoding = *encoding;
  scheme.key_decoding = *decoding;
  scheme.milliseconds = s.timestamp_unit == "ms";
  return scheme;
}

constexpr std::array<std::string_view, 5> kSchemeNames = {"stripe", "standard-webhooks", "github", "hmac", "none"};

}  // namespace

Result<Template> Template::Parse(std::string_view text) {
  Template made;
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) made.pieces_.push_back({Part::literal, std::exchange(literal, {})});
  };
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '{') {
      literal += text[i++];
      continue;
    }
    const auto close = text.find('}', i);
    const auto field = close == std::string_view::npos ? std::string_view{} : text.substr(i + 1, close - i - 1);
    const auto part = Choose<Part>(
        field, {{"timestamp", Part::timestamp}, {"id", Part::id}, {"body", Part::body}, {"url", Part::url}});
    if (!part) return Broken("signed_template knows {timestamp}, {id}, {body} and {url}; a '{' must begin one of them");
    flush();
    made.pieces_.push_back({*part, {}});
    i = close + 1;
  }
  flush();
  if (made.pieces_.size() > kMaxParts) return Broken("signed_template has more than 16 parts");
  return made;
}

Template::Joined Template::Fill(const Fields& fields) const {
  Joined joined;
  for (const auto& piece : pieces_) {
    std::string_view& out = joined.parts[joined.count++];
    switch (piece.part) {
      case Part::literal:
        out = piece.literal;
        break;
      case Part::timestamp:
        out = fields.timestamp;
        break;
      case Part::id:
        out = fields.id;
        break;
      case Part::body:
        out = fields.body;
        break;
      case Part::url:
        out = fields.url;
        break;
    }
  }
  return joined;
}

std::string Template::Joined::Text() const {
  std::string text;
  for (const auto part : span()) text += part;
  return text;
}

bool Template::Uses(Part part) const {
  return std::ranges::any_of(pieces_, [part](const Piece& piece) { return piece.part == part; });
}

std::span<const std::string_view> SchemeNames() {
  return kSchemeNames;
}

Result<Scheme> CompileScheme(std::string_view name, const HmacSettings& hmac) {
  if (name == "none") {
    Scheme scheme;
    scheme.name = name;
    scheme.signs = false;
    return scheme;
  }
  if (name == "stripe") return CompileSettings(name, StripeSettings());
  if (name == "github") return CompileSettings(name, GithubSettings());
  if (name == "hmac") return CompileSettings(name, hmac);
  if (name == "standard-webhooks") {
    auto scheme = CompileSettings(name, StandardWebhooksSettings());
    if (!scheme) return scheme;
    scheme->format = SignatureFormat::versioned;
    scheme->signature_headers.emplace_back("svix-signature");
    scheme->timestamp_headers.emplace_back("svix-timestamp");
    scheme->id_headers.emplace_back("svix-id");
    return scheme;
  }
  if (name.empty()) {
    return Broken(
        "scheme must be set: stripe, standard-webhooks, github, hmac, or none for a source without signatures");
  }
  return Broken("scheme \"" + CleanText(name, 64) + "\" is not known: stripe, standard-webhooks, github, hmac or none");
}

std::optional<std::string> DecodeSecret(KeyDecoding decoding, std::string_view secret) {
  constexpr std::string_view kPrefix = "whsec_";
  switch (decoding) {
    case KeyDecoding::text:
      return std::string(secret);
    case KeyDecoding::hex:
      return HexDecode(secret);
    case KeyDecoding::whsec:
      if (secret.starts_with(kPrefix)) secret.remove_prefix(kPrefix.size());
      return Base64Decode(secret);
    case KeyDecoding::base64:
      return Base64Decode(secret);
  }
  return std::nullopt;
}

Result<Key> CompileKey(const Scheme& scheme, std::string_view secret, KeyUse use) {
  if (secret.empty()) return Fail(ErrorKind::invalid, "empty_secret", "is empty");
  if (scheme.format == SignatureFormat::versioned) {
    const bool is_public = secret.starts_with("whpk_");
    if (is_public || secret.starts_with("whsk_")) {
      if (is_public && use == KeyUse::sign) {
        return Fail(ErrorKind::invalid, "bad_key", "is a public key (whpk_); signing needs the secret one (whsk_)");
      }
      const auto bytes = Base64Decode(secret.substr(5));
      if (!bytes) return Fail(ErrorKind::invalid, "bad_key", "is not base64 after its prefix");
      auto key = is_public ? Ed25519Key::FromPublic(*bytes) : Ed25519Key::FromSecret(*bytes);
      if (!key) return Fail(ErrorKind::invalid, "bad_key", "is not usable: " + key.error().message);
      return Key(std::move(*key));
    }
  }
  const auto bytes = DecodeSecret(scheme.key_decoding, secret);
  if (!bytes) {
    const char* form = scheme.key_decoding == KeyDecoding::hex ? "hex" : "base64 with padding";
    return Fail(ErrorKind::invalid, "bad_key",
                std::string("is not ") + form + ", as the scheme's key decoding demands");
  }
  if (bytes->empty()) return Fail(ErrorKind::invalid, "empty_secret", "is empty once decoded");
  auto key = HmacKey::Create(scheme.hash, *bytes);
  if (!key) return std::unexpected(key.error());
  return Key(std::move(*key));
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<std::int64_t> ParseDigits(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const int digit = c - '0';
    if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

std::optional<Time> TimeFromSeconds(std::int64_t seconds) {
  if (seconds < 0 || seconds >= kYear10000) return std::nullopt;
  return Time(std::chrono::seconds(seconds));
}

}  // namespace dlo::intake
