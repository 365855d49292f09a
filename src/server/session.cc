#include "server/session.h"

#include <algorithm>
#include <exception>

#include "base/log.h"
#include "server/answer.h"

namespace dlo::server {
namespace {

constexpr std::size_t kFirstBuffer = 4 * 1024;
constexpr std::size_t kMaxOneWrite = 4 * 1024;  // smaller bodies are written together with their head
constexpr std::size_t kMaxDiscarded = 1024 * 1024;
constexpr Duration kLinger = std::chrono::seconds(2);
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

Session::Session(std::shared_ptr<IoThread> io, std::shared_ptr<Shared> shared, std::string remote)
    : io_(std::move(io)), shared_(std::move(shared)), remote_(std::move(remote)), scanner_(shared_->options.head) {
  in_.resize(kFirstBuffer);
}

Session::~Session() {
  if (phase_ != Phase::closed) shared_->connections.Leave(remote_);
  Session::Release(reserved_);
}

void Session::Start() {
  if (io_->closing) return Close();
  io_->sessions.insert(shared_from_this());
  SetDeadline(shared_->options.handshake_deadline);
  StartHandshake();
}

void Session::OnHandshake(bool ok) {
  if (phase_ == Phase::closed) return;
  if (!ok) return Close();
  Next();
}

void Session::Next() {
  phase_ = Phase::idle;
  SetDeadline(first_ ? shared_->options.head_deadline : shared_->options.idle_deadline);
  close_ = head_only_ = false;
  scanner_.Reset();
  if (io_->draining && begin_ == end_) return Close();
  ReadHead();
}

void Session::ReadMore() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (end_ == in_.size() && begin_ > 0) {
    std::copy(in_.begin() + static_cast<std::ptrdiff_t>(begin_), in_.begin() + static_cast<std::ptrdiff_t>(end_),
              in_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  // The scanner refuses a head before it fills the largest buffer.
  const HeadLimits& head = shared_->options.head;
  if (end_ == in_.size()) in_.resize(std::min(in_.size() * 2, head.request_line + head.header_bytes + kFirstBuffer));
  StartRead(boost::asio::buffer(in_.data() + end_, in_.size() - end_));
}

void Session::OnRead(bool ok, std::size_t n) {
  if (phase_ == Phase::closed) return;
  if (!ok) return Close();
  switch (phase_) {
    case Phase::idle:
    case Phase::head:
      end_ += n;
      return ReadHead();
    case Phase::body:
      if (framing_.chunked) {
        end_ += n;
        return ReadChunks();
      }
      filled_ += n;
      return ReadBody();
    case Phase::lingering:
      discarded_ += n;
      if (discarded_ > kMaxDiscarded) return Close();
      return StartRead(boost::asio::buffer(in_));
    default:
      return Close();
  }
}

void Session::ReadHead() {
  const std::string_view bytes = buffered();
  if (bytes.empty()) return ReadMore();
  if (phase_ == Phase::idle) {
    phase_ = Phase::head;
    first_ = false;
    SetDeadline(shared_->options.head_deadline);
  }
  switch (scanner_.Scan(bytes)) {
    case HeadScanner::Verdict::more:
      return ReadMore();
    case HeadScanner::Verdict::refused:
      return Write(Refusal(scanner_.status()));
    case HeadScanner::Verdict::complete:
      begin_ += scanner_.length();
      return OnHead(bytes.substr(0, scanner_.length()));
  }
}

void Session::OnHead(std::string_view raw) {
  head_ = RequestHead();
  const auto framing = ParseHead(raw, head_);
  if (!framing) return Write(Refusal(framing.error()));
  framing_ = *framing;
  close_ = !framing_.keep_alive;
  head_only_ = head_.method == "HEAD";
  head_.remote = remote_;
  head_.listens_on_loopback = shared_->listens_on_loopback;
  if (!Admit()) return;

  phase_ = Phase::body;
  SetDeadline(shared_->options.body_deadline);
  body_.clear();
  filled_ = 0;
  body_began_ = io_->now;
  if (framing_.chunked) {
    chunks_ = ChunkDecoder(admission_.max_body);
  } else if (framing_.content_length > 0) {
    // The body is read to where the handler will have it.
    body_.resize(framing_.content_length);
    filled_ = std::min(body_.size(), end_ - begin_);
    std::copy_n(in_.data() + begin_, filled_, body_.data());
    begin_ += filled_;
  }
  const bool waits_for_us = framing_.expect_continue && begin_ == end_ && (framing_.chunked || filled_ < body_.size());
  if (waits_for_us) {
    interim_ = true;
    return StartWrite({boost::asio::buffer(kContinue), boost::asio::const_buffer()});
  }
  framing_.chunked ? ReadChunks() : ReadBody();
}

bool Session::Admit() {
  std::expected<Admission, Response> admission;
  try {
    admission = shared_->handler->Begin(head_);
  } catch (const std::exception& e) {
    log::Error("request_failed", {{"method", head_.method}, {"where", "begin"}, {"error", e.what()}});
    admission = std::unexpected(Refusal(500));
  }
  if (!admission) {
    Refuse(std::move(admission.error()));
    return false;
  }
  admission_ = *admission;
  if (!framing_.chunked && framing_.content_length > admission_.max_body) {
    Refuse(Refusal(413));
    return false;
  }
  if (!framing_.chunked && !Reserve(framing_.content_length)) {
    Refuse(Refusal(503));
    return false;
  }
  return true;
}

// A body that is here already is skipped; one that is still to come would have to be read, so the connection ends.
void Session::Refuse(Response response) {
  const std::size_t here = end_ - begin_;
  if (!framing_.chunked && framing_.content_length <= here) {
    begin_ += framing_.content_length;
  } else {
    response.close = true;
  }
  Write(std::move(response));
}

bool Session::Reserve(std::size_t bytes) {
  const std::size_t before = shared_->body_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes > shared_->options.body_bytes) {
    shared_->body_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  reserved_ += bytes;
  return true;
}

void Session::Release(std::size_t body_bytes) {
  if (body_bytes > 0) shared_->body_bytes.fetch_sub(body_bytes, std::memory_order_relaxed);
}

void Session::ReadBody() {
  if (filled_ == body_.size()) return Dispatch();
  StartRead(boost::asio::buffer(body_.data() + filled_, body_.size() - filled_));
}

void Session::ReadChunks() {
  std::string_view bytes = buffered();
  const std::size_t had = body_.size();
  const ChunkDecoder::Verdict verdict = chunks_.Feed(bytes, body_);
  begin_ = end_ - bytes.size();
  if (!Reserve(body_.size() - had)) return Write(Refusal(503));
  switch (verdict) {
    case ChunkDecoder::Verdict::more:
      return ReadMore();
    case ChunkDecoder::Verdict::bad:
      return Write(Refusal(400));
    case ChunkDecoder::Verdict::too_large:
      return Write(Refusal(413));
    case ChunkDecoder::Verdict::complete:
      return Dispatch();
  }
}

void Session::Dispatch() {
  phase_ = Phase::handling;
  deadline_ = admission_.answer_within ? io_->now + *admission_.answer_within : Duration::max();
  Responder respond(shared_from_this(), ++exchange_, std::exchange(reserved_, 0));
  try {
    shared_->handler->Handle(std::move(head_), std::move(body_), std::move(respond));
  } catch (const std::exception& e) {
    // The Responder has answered 500 on its way out.
    log::Error("request_failed", {{"where", "handle"}, {"error", e.what()}});
  }
}

void Session::Complete(std::uint64_t exchange, Response response) {
  if (io_->IsCurrent()) return OnAnswer(exchange, std::move(response));
  io_->Post(shared_from_this(), exchange, std::move(response));
}

void Session::OnAnswer(std::uint64_t exchange, Response response) {
  if (phase_ != Phase::handling || exchange != exchange_) return;
  Write(std::move(response));
}

void Session::Write(Response response) {
  phase_ = Phase::writing;
  body_ = std::string();
  Release(std::exchange(reserved_, 0));
  close_ = close_ || response.close || io_->draining || ++requests_ >= shared_->options.max_requests;
  answer_ = std::move(response);
  out_ = FormatHead(answer_, io_->date, close_);
  std::string_view rest = answer_.body;
  if (head_only_) rest = {};
  if (rest.size() <= kMaxOneWrite) {
    out_ += rest;
    rest = {};
  }
  SetDeadline(shared_->options.write_deadline + std::chrono::seconds(rest.size() / (64 * 1024)));
  StartWrite({boost::asio::buffer(out_), boost::asio::buffer(rest)});
}

void Session::OnWritten(bool ok) {
  if (phase_ == Phase::closed) return;
  if (!ok) return Close();
  if (interim_) {
    interim_ = false;
    return framing_.chunked ? ReadChunks() : ReadBody();
  }
  answer_ = Response();
  if (!close_) return Next();
  // Closing with unread bytes would make the kernel reset the connection, and the peer might never see our answer.
  phase_ = Phase::lingering;
  SetDeadline(kLinger);
  discarded_ = 0;
  StartShutdown();
}

void Session::OnShutdown(bool can_linger) {
  if (phase_ != Phase::lingering) return;
  if (!can_linger) return Close();
  StartRead(boost::asio::buffer(in_));
}

void Session::Drain() {
  if (phase_ == Phase::idle || phase_ == Phase::handshake) Close();
}

bool Session::TooSlow() const {
  const Duration took = io_->now - body_began_;
  if (took <= shared_->options.body_grace) return false;
  const std::size_t got = framing_.chunked ? body_.size() : filled_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(took - shared_->options.body_grace).count();
  return got < static_cast<std::size_t>(seconds) * shared_->options.body_rate;
}

void Session::OnTick() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::body && TooSlow()) return Close();
  if (io_->now < deadline_) return;
  if (phase_ != Phase::handling) return Close();
  Write(Later(503, "commit_timeout", "The answer was not ready in time. It may still take effect: send it again."));
}

void Session::Close() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  io_->sessions.erase(shared_from_this());
  CloseSocket();
  Release(std::exchange(reserved_, 0));
  shared_->connections.Leave(remote_);
}

bool Connections::Enter(const std::string& address, bool loopback) {
  const std::lock_guard lock(mutex_);
  if (count_ >= max_) return false;
  int& here = by_address_[address];
  if (!loopback && here >= max_per_address_) return false;
  ++here;
  ++count_;
  return true;
}

void Connections::Leave(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto found = by_address_.find(address);
  if (--found->second == 0) by_address_.erase(found);
  if (--count_ == 0) none_.notify_all();
}

int Connections::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

bool Connections::WaitUntilNone(Duration at_most) {
  std::unique_lock lock(mutex_);
  return none_.wait_for(lock, at_most, [this] { return count_ == 0; });
}

}  // namespace dlo::server
