#include "cli/api_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <utility>

#include "cli/json.h"

namespace dlo::cli {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(5);

long Milliseconds(Duration d) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

std::size_t Append(char* data, std::size_t size, std::size_t count, void* out) {
  static_cast<std::string*>(out)->append(data, size * count);
  return size * count;
}

struct SlistFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Slist = std::unique_ptr<curl_slist, SlistFree>;

void AddHeader(Slist& list, const std::string& line) {
  if (curl_slist* longer = curl_slist_append(list.get(), line.c_str())) {
    // The old head is in the longer list.
    [[maybe_unused]] curl_slist* const old = list.release();
    list.reset(longer);
  }
}

ErrorKind KindOf(int status) {
  switch (status) {
    case 400:
    case 415:
    case 422:
      return ErrorKind::invalid;
    case 401:
    case 403:
      return ErrorKind::forbidden;
    case 404:
      return ErrorKind::not_found;
    case 413:
      return ErrorKind::too_large;
    default:
      return status >= 500 ? ErrorKind::unavailable : ErrorKind::conflict;
  }
}

}  // namespace

struct ApiClient::Handle {
  CURL* curl = curl_easy_init();
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { curl_easy_cleanup(curl); }
};

struct ApiClient::Call {
  std::string path;
  std::vector<std::string> headers;
  bool post = false;
  std::string_view body;
  Duration timeout;
};

ApiClient::ApiClient(std::string server, std::string token)
    : server_(std::move(server)), token_(std::move(token)), handle_(std::make_unique<Handle>()) {
  while (server_.ends_with('/')) server_.pop_back();
}

ApiClient::~ApiClient() = default;

Result<ApiAnswer> ApiClient::Perform(const Call& call) {
  CURL* curl = handle_->curl;
  if (!curl) return Fail(ErrorKind::unavailable, "no_client", "libcurl could not start: out of memory?");
  curl_easy_reset(curl);  // keeps the connection
  std::string url = server_ + call.path;
  Slist headers;
  for (const std::string& line : call.headers) AddHeader(headers, line);
  AddHeader(headers, "Expect:");  // bodies are small; waiting for 100 Continue would cost a round trip
  ApiAnswer answer;
  char why[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "dlo/" DLO_VERSION);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(kConnectTimeout));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, Milliseconds(call.timeout));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
  if (call.post) {
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call.body.empty() ? "" : call.body.data());
  }
  CURLcode code = curl_easy_perform(curl);
  if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT) {
    return Fail(ErrorKind::invalid, "bad_server",
                fmt::format("\"{}\" is no server address; write it like http://127.0.0.1:8686", server_));
  }
  curl_off_t connected_after = 0;
  curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &connected_after);
  if (code == CURLE_OPERATION_TIMEDOUT && connected_after > 0) {
    return Fail(ErrorKind::unavailable, kUnreachableCode,
                fmt::format("{} did not answer in time ({}). What was asked may have been done all the same: look "
                            "before asking again",
                            server_, why[0] ? why : curl_easy_strerror(code)));
  }
  if (code != CURLE_OK) {
    return Fail(ErrorKind::unavailable, kUnreachableCode,
                fmt::format("cannot reach {} ({}): is `dlo serve` running there? --server or DLO_SERVER names another "
                            "address",
                            server_, why[0] ? why : curl_easy_strerror(code)));
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

Error ApiClient::Explain(const ApiAnswer& answer) const {
  boost::json::error_code ec;
  boost::json::value body = boost::json::parse(answer.body, ec);
  std::string code = ec ? std::string() : Text(body, "code");
  std::string said;
  if (!ec) {
    for (const char* field : {"detail", "message", "title"}) {
      if (said.empty()) said = Text(body, field);
    }
  }
  Error error{KindOf(answer.status), code, said};
  if (answer.status == 401) {
    if (code.empty()) error.code = "unauthorized";
    error.message = token_.empty()
                        ? "the server wants a token: set DLO_TOKEN (`dlo serve` printed how to get one), or "
                          "give --token"
                        : "the server does not know this token; was it revoked? An admin makes a new one with "
                          "`dlo token create NAME --role ROLE`, then set DLO_TOKEN";
  } else if (answer.status == 403) {
    error.message = (said.empty() ? "this token's role may not do that" : said) +
                    "; an admin can make a token that may: `dlo token create NAME --role ROLE`";
  } else if (code.empty()) {
    error.code = fmt::format("http_{}", answer.status);
    error.message =
        fmt::format("{} answered {}{}{}; is it a dlo server?", server_, answer.status, said.empty() ? "" : ": ", said);
  } else if (said.empty()) {
    error.message = fmt::format("the server refused: {}", code);
  }
  return error;
}

Result<ApiAnswer> ApiClient::Get(const std::string& path, Duration timeout) {
  Call call{.path = path, .headers = {"Accept: application/json"}, .post = false, .body = {}, .timeout = timeout};
  if (!token_.empty()) call.headers.push_back("Authorization: Bearer " + token_);
  Result<ApiAnswer> answer = Perform(call);
  if (answer && answer->status / 100 != 2) return std::unexpected(Explain(*answer));
  return answer;
}

Result<ApiAnswer> ApiClient::Post(const std::string& path, const boost::json::object& body, Duration timeout) {
  return PostAs("application/json", path, boost::json::serialize(body), timeout);
}

Result<ApiAnswer> ApiClient::PostBytes(const std::string& path, std::string_view body, Duration timeout) {
  return PostAs("application/octet-stream", path, body, timeout);
}

Result<ApiAnswer> ApiClient::PostAs(const char* type, const std::string& path, std::string_view body,
                                    Duration timeout) {
  Call call{.path = path,
            .headers = {std::string("Content-Type: ") + type, "Accept: application/json"},
            .post = true,
            .body = body,
            .timeout = timeout};
  if (!token_.empty()) call.headers.push_back("Authorization: Bearer " + token_);
  Result<ApiAnswer> answer = Perform(call);
  if (answer && answer->status / 100 != 2) return std::unexpected(Explain(*answer));
  return answer;
}

Result<ApiAnswer> ApiClient::Deliver(const std::string& path, const std::vector<std::string>& headers,
                                     std::string_view body) {
  return Perform({.path = path, .headers = headers, .post = true, .body = body, .timeout = std::chrono::seconds(30)});
}

Result<boost::json::value> ParseBody(const ApiAnswer& answer) {
  boost::json::error_code ec;
  boost::json::value value = boost::json::parse(answer.body, ec);
  if (ec) {
    return Fail(ErrorKind::unavailable, "bad_answer",
                fmt::format("the answer is not JSON ({}); is this a dlo server?", ec.message()));
  }
  return value;
}

std::string UrlEncode(std::string_view text) {
  std::string out;
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                 c == '_' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace dlo::cli
