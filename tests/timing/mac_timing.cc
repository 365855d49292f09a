// Does the time that a refusal takes tell where a forged signature first differs? Samples of two kinds, wrong in the
// first byte and wrong in the last, are taken in random order and compared by Welch's t; beyond 4.5 either way the two
// differ (the bound that dudect uses). The last row is a comparison that leaks on purpose: it shows that the method
// sees one. By hand only: build/release/mac_timing [samples]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/encoding.h"
#include "env/random.h"
#include "intake/sign.h"
#include "intake/verify.h"

namespace {

using dlo::Time;

bool LeakyEqual(std::string_view a, std::string_view b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (static_cast<volatile const char&>(a[i]) != b[i]) return false;
  }
  return true;
}

struct Moments {
  double mean, variance, count;
};

// Without the slowest tenth: interrupts and other processes.
Moments Of(std::vector<double>& samples) {
  std::ranges::sort(samples);
  samples.resize(samples.size() * 9 / 10);
  const auto n = static_cast<double>(samples.size());
  double sum = 0, squares = 0;
  for (const double s : samples) sum += s;
  for (const double s : samples) squares += (s - sum / n) * (s - sum / n);
  return {sum / n, squares / (n - 1), n};
}

// `forge` makes the next sample wrong in its first or its last byte, in the place where `judge` looks: two samples
// differ in nothing else, not even in their address.
template <typename Forge, typename Judge>
double Compare(const char* name, int samples, int repeats, Forge forge, Judge judge) {
  dlo::SeededRandom random(20261130);
  std::array<std::vector<double>, 2> taken;
  volatile bool sink = false;
  for (int i = 0; i < samples; ++i) {
    const auto kind = random.Next() % 2;
    forge(kind == 0);
    const auto begin = std::chrono::steady_clock::now();
    for (int r = 0; r < repeats; ++r) sink = judge();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    taken[kind].push_back(took.count() / repeats);
  }
  (void)sink;
  const Moments last = Of(taken[1]), first = Of(taken[0]);
  const double t = (first.mean - last.mean) / std::sqrt(first.variance / first.count + last.variance / last.count);
  fmt::print("{:<28} {:>9} samples  first byte {:8.2f} ns  last byte {:8.2f} ns  t {:8.1f}\n", name, samples,
             first.mean, last.mean, t);
  return std::abs(t);
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 1'000'000;
  const Time now{std::chrono::seconds(1'700'000'000)};
  const std::string secret = "whsec_0123456789abcdef", body(200, 'x');
  dlo::SourceConfig source;
  source.name = "timing";
  source.scheme = "github";
  source.secrets = {{"secrets[0]", secret}};
  const auto verifier = dlo::OrThrow(dlo::intake::Verifier::Compile(source));
  const auto good = dlo::OrThrow(dlo::intake::Signer::Compile("github", {}, secret)).Sign(body, now, "id");
  auto forged = good;
  const auto forge_header = [&](bool at_first) {
    std::string& value = forged[0].value;
    value = good[0].value;
    char& digit = at_first ? value[value.find('=') + 1] : value.back();
    digit = digit == '0' ? '1' : '0';
  };
  const std::string mac(32, 'm');
  std::string wrong(32, ' ');
  const auto forge_mac = [&](bool at_first) {
    wrong = mac;
    (at_first ? wrong.front() : wrong.back()) = 'x';
  };

  const double verify =
      Compare("verification", samples, 1, forge_header, [&] { return verifier.Verify(forged, body, now).has_value(); });
  const double equal =
      Compare("comparison", samples, 16, forge_mac, [&] { return dlo::ConstantTimeEqual(wrong, mac); });
  const double leaky = Compare("comparison that leaks", samples, 16, forge_mac, [&] { return LeakyEqual(wrong, mac); });
  constexpr double kDiffer = 4.5;
  fmt::print("{}\n", leaky < kDiffer                       ? "too noisy: not even the leak was seen"
                     : verify < kDiffer && equal < kDiffer ? "no difference"
                                                           : "the two DIFFER");
  return leaky > kDiffer && verify < kDiffer && equal < kDiffer ? 0 : 1;
}
