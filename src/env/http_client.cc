// One thread drives one curl multi handle. Start puts a request into a queue and wakes the thread; only that thread
// touches curl's handles. A Transfer is one easy handle with what belongs to the request it carries now; it goes back
// to a pool when the request is over.
#include "env/http_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/thread_name.h"

#include "env/address_policy.h"
#include "env/curl_http_client.h"
#include "env/curl_poller.h"

namespace dlo {
namespace {

constexpr long kKeptConnections = 256;

/// Whether an easy handle that was set up for one serves the other, but for body and headers.
bool SameOptions(const HttpRequest& a, const HttpRequest& b) {
  return a.url == b.url && a.method == b.method && a.timeout == b.timeout && a.connect_timeout == b.connect_timeout;
}

struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct Transfer {
  Transfer() : easy(curl_easy_init()) {
    if (easy == nullptr) std::abort();  // out of memory
  }
  ~Transfer() { curl_easy_cleanup(easy); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void Begin(HttpRequest r, HttpClient::Done d) {
    set_up = set_up && SameOptions(request, r);
    request = std::move(r);
    done = std::move(d);
    response = {};
    header_bytes = body_bytes = 0;
    headers_ended = false;
    blocked.clear();
    too_large = nullptr;
    error_text[0] = '\0';
  }

  CURL* easy;
  bool set_up = false;  // for requests with the options of `request`
  HttpRequest request;  // the last one, without its body, while idle
  HttpClient::Done done;
  std::unique_ptr<curl_slist, ListFree> headers;
  HttpResponse response;
  std::size_t header_bytes = 0, body_bytes = 0;
  bool headers_ended = false;       // of the last answer begun
  std::string blocked;              // the refused address
  const char* too_large = nullptr;  // which part
  std::array<char, CURL_ERROR_SIZE> error_text{};
};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' || text.back() == '\n')) {
    text.remove_suffix(1);
  }
  return text;
}

std::size_t OnHeader(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size * count);
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > transfer.request.max_header_bytes) {
    transfer.too_large = "headers";
    return CURL_WRITEFUNC_ERROR;
  }
  if (line.starts_with("HTTP/")) {
    // Each interim answer (100, 103) begins anew; only the last one's headers count.
    transfer.response.headers.clear();
    transfer.headers_ended = false;
    return line.size();
  }
  if (line == "\r\n" || line == "\n") transfer.headers_ended = true;
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  transfer.response.headers.push_back(
      {std::string(Trim(line.substr(0, colon))), std::string(Trim(line.substr(colon + 1)))});
  return line.size();
}

std::size_t OnBody(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::size_t length = size * count;
  transfer.body_bytes += length;
  std::string& kept = transfer.response.body;
  kept.append(data, std::min(length, transfer.request.keep_body_bytes - kept.size()));
  if (transfer.body_bytes > transfer.request.max_body_bytes) {
    transfer.too_large = "body";
    return CURL_WRITEFUNC_ERROR;
  }
  return length;
}

// Every new connection passes here with the address it will dial.
curl_socket_t OnOpenSocket(void* user, curlsocktype /*purpose*/, curl_sockaddr* address) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (!MayDial(address->addr, transfer.request.allow_private)) {
    transfer.blocked = AddressText(address->addr);
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// Every request passes here before it is sent, with the address it goes to. A kept connection may have been opened by a
// request with wider rights.
int OnBeforeRequest(void* user, char* remote, char* /*local*/, int /*remote_port*/, int /*local_port*/) {
  auto& transfer = *static_cast<Transfer*>(user);
  sockaddr_storage storage{};
  if (inet_pton(AF_INET, remote, &reinterpret_cast<sockaddr_in*>(&storage)->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, remote, &reinterpret_cast<sockaddr_in6*>(&storage)->sin6_addr) == 1) {
    storage.ss_family = AF_INET6;
  }
  if (MayDial(reinterpret_cast<const sockaddr&>(storage), transfer.request.allow_private)) return CURL_PREREQFUNC_OK;
  transfer.blocked = remote;
  return CURL_PREREQFUNC_ABORT;
}

void SetHeaders(Transfer& transfer) {
  curl_slist* list = nullptr;
  bool has_type = false;
  for (const std::string& header : transfer.request.headers) {
    const std::size_t colon = std::min(header.find(':'), header.size());
    const std::string name = header.substr(0, colon);
    has_type = has_type || strcasecmp(name.c_str(), "content-type") == 0;
    const bool empty = colon == header.size() || Trim(std::string_view(header).substr(colon + 1)).empty();
    // libcurl reads "Name:" as "leave it out"; "Name;" sends it without a value.
    list = curl_slist_append(list, empty ? (name + ";").c_str() : header.c_str());
  }
  // What libcurl would add by itself and nobody asked for.
  list = curl_slist_append(list, "Expect:");
  if (!has_type) list = curl_slist_append(list, "Content-Type:");
  transfer.headers.reset(list);
  curl_easy_setopt(transfer.easy, CURLOPT_HTTPHEADER, list);
}

long ToMs(Duration duration) {
  return static_cast<long>(std::max<Duration::rep>(1, std::chrono::ceil<std::chrono::milliseconds>(duration).count()));
}

/// What stays the same from request to request.
void SetOptions(Transfer& transfer) {
  CURL* easy = transfer.easy;
  const HttpRequest& request = transfer.request;
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, &transfer);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer.error_text.data());
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, ToMs(request.timeout));
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, ToMs(std::min(request.connect_timeout, request.timeout)));
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &OnOpenSocket);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, &OnBeforeRequest);
  curl_easy_setopt(easy, CURLOPT_PREREQDATA, &transfer);
  if (request.method == "GET") {
    curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
  } else {
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    if (request.method != "POST") curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  transfer.set_up = true;
}

void SetUp(Transfer& transfer) {
  if (!transfer.set_up) SetOptions(transfer);
  const HttpRequest& request = transfer.request;
  if (request.method != "GET") {
    // Size before pointer, or libcurl measures the body with strlen. An empty view may have no pointer at all.
    curl_easy_setopt(transfer.easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(transfer.easy, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
  }
  SetHeaders(transfer);
}

HttpFailure FailureOf(CURLcode code, CURL* easy) {
  switch (code) {
    case CURLE_OK:
      return HttpFailure::none;
    case CURLE_URL_MALFORMAT:
      return HttpFailure::invalid_url;
    case CURLE_UNSUPPORTED_PROTOCOL: {
      // Also what libcurl says of an answer that is not HTTP/1: then there was a connection.
      curl_off_t connected = 0;
      curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &connected);
      return connected > 0 ? HttpFailure::reset : HttpFailure::invalid_url;
    }
    case CURLE_COULDNT_RESOLVE_HOST:
      return HttpFailure::resolve;
    case CURLE_COULDNT_CONNECT:
      return HttpFailure::connect;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpFailure::timeout;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
    case CURLE_USE_SSL_FAILED:
      return HttpFailure::tls;
    default:
      return HttpFailure::reset;
  }
}

HttpResponse ResponseOf(Transfer& transfer, CURLcode code) {
  HttpResponse response = std::move(transfer.response);
  curl_off_t took = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_TOTAL_TIME_T, &took);
  response.took = Duration(took);
  long status = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  response.status = static_cast<int>(status);
  if (code == CURLE_OK) {
    // libcurl takes a connection closed within the headers, or after an interim answer, for the end of an answer.
    if (transfer.headers_ended && status >= 200) return response;
    response.failure = HttpFailure::reset;
    response.failure_message = "the connection was closed before the answer's headers ended";
    return response;
  }
  if (!transfer.blocked.empty()) {
    response.failure = HttpFailure::blocked_address;
    response.failure_message = "refused to call " + transfer.blocked;
  } else if (transfer.too_large != nullptr) {
    response.failure = HttpFailure::answer_too_large;
    const std::size_t limit =
        transfer.body_bytes > 0 ? transfer.request.max_body_bytes : transfer.request.max_header_bytes;
    response.failure_message =
        std::string("the answer's ") + transfer.too_large + " went over " + std::to_string(limit) + " bytes";
  } else {
    response.failure = FailureOf(code, transfer.easy);
    const char* text = transfer.error_text.data();
    response.failure_message = *text != '\0' ? text : curl_easy_strerror(code);
  }
  return response;
}

HttpResponse Stopped() {
  HttpResponse response;
  response.failure = HttpFailure::stopped;
  response.failure_message = "the HTTP client was stopped";
  return response;
}

void InitialiseCurlOnce() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) std::abort();
}

}  // namespace

struct RealHttpClient::State {
  struct Queued {
    HttpRequest request;
    Done done;
  };

  Poller poller;
  CURLM* multi = nullptr;
  std::mutex mutex;
  std::deque<Queued> queue;  // under mutex
  bool stopping = false;     // under mutex
  std::thread thread;
  // Of the thread:
  std::unordered_set<Transfer*> active;
  std::vector<std::unique_ptr<Transfer>> idle;

  void Add(Queued queued) {
    std::unique_ptr<Transfer> transfer;
    if (idle.empty()) {
      transfer = std::make_unique<Transfer>();
    } else {
      transfer = std::move(idle.back());
      idle.pop_back();
    }
    transfer->Begin(std::move(queued.request), std::move(queued.done));
    SetUp(*transfer);
    if (curl_multi_add_handle(multi, transfer->easy) != CURLM_OK) std::abort();  // out of memory
    active.insert(transfer.release());
  }

  void Finish(Transfer* transfer, HttpResponse response) {
    curl_multi_remove_handle(multi, transfer->easy);
    active.erase(transfer);
    Done done = std::move(transfer->done);
    transfer->request.body = {};
    transfer->request.body_owner.reset();
    idle.emplace_back(transfer);
    done(std::move(response));
  }

  void TellDone() {
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      char* user = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
      auto* transfer = reinterpret_cast<Transfer*>(user);
      HttpResponse response = ResponseOf(*transfer, message->data.result);
      Finish(transfer, std::move(response));
    }
  }

  void Run() {
    int running = 0;
    for (;;) {
      std::deque<Queued> arrived;
      bool stop = false;
      {
        const std::lock_guard lock(mutex);
        arrived.swap(queue);
        stop = stopping;
      }
      if (stop) {
        for (Queued& queued : arrived) queued.done(Stopped());
        while (!active.empty()) Finish(*active.begin(), Stopped());
        return;
      }
      for (Queued& queued : arrived) Add(std::move(queued));
      for (const Poller::Ready& ready : poller.Wait())
        curl_multi_socket_action(multi, ready.socket, ready.what, &running);
      if (poller.TimerDue()) curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
      TellDone();
    }
  }
};

RealHttpClient::RealHttpClient() : state_(std::make_unique<State>()) {
  InitialiseCurlOnce();
  state_->multi = curl_multi_init();
  if (state_->multi == nullptr) std::abort();  // out of memory
  curl_multi_setopt(state_->multi, CURLMOPT_MAXCONNECTS, kKeptConnections);
  state_->poller.Serve(state_->multi);
  state_->thread = std::thread([state = state_.get()] {
    NameThread("dlo-targets");
    state->Run();
  });
}

RealHttpClient::~RealHttpClient() {
  Stop();
  state_->idle.clear();
  curl_multi_cleanup(state_->multi);
}

void RealHttpClient::Start(HttpRequest request, Done done) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->stopping) {
      state_->queue.push_back({std::move(request), std::move(done)});
      state_->poller.Wake();
      return;
    }
  }
  done(Stopped());
}

void RealHttpClient::Stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->poller.Wake();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

}  // namespace dlo
