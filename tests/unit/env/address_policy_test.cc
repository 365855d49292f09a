#include "env/address_policy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>
#include <string>

namespace dlo {
namespace {

sockaddr_storage Parse(const std::string& text) {
  sockaddr_storage storage{};
  if (inet_pton(AF_INET, text.c_str(), &reinterpret_cast<sockaddr_in*>(&storage)->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, text.c_str(), &reinterpret_cast<sockaddr_in6*>(&storage)->sin6_addr) == 1) {
    storage.ss_family = AF_INET6;
  } else {
    ADD_FAILURE() << "bad address in the test: " << text;
  }
  return storage;
}

struct Row {
  const char* address;
  AddressKind kind;
};

using enum AddressKind;

const Row kRows[] = {
    {"0.0.0.0", never_allowed},
    {"0.255.255.255", never_allowed},
    {"1.0.0.0", global},
    {"9.255.255.255", global},
    {"10.0.0.0", local},
    {"10.255.255.255", local},
    {"11.0.0.0", global},
    {"100.63.255.255", global},
    {"100.64.0.0", local},
    {"100.100.100.200", never_allowed},  // metadata
    {"100.127.255.255", local},
    {"100.128.0.0", global},
    {"126.255.255.255", global},
    {"127.0.0.0", local},
    {"127.0.0.1", local},
    {"127.255.255.255", local},
    {"128.0.0.0", global},
    {"168.63.129.16", never_allowed},  // metadata
    {"168.63.129.17", global},
    {"169.253.255.255", global},
    {"169.254.0.0", never_allowed},
    {"169.254.169.254", never_allowed},
    {"169.254.255.255", never_allowed},
    {"169.255.0.0", global},
    {"172.15.255.255", global},
    {"172.16.0.0", local},
    {"172.31.255.255", local},
    {"172.32.0.0", global},
    {"191.255.255.255", global},
    {"192.0.0.192", never_allowed},  // metadata
    {"192.0.1.0", global},
    {"192.0.2.1", never_allowed},
    {"192.88.99.1", never_allowed},
    {"192.167.255.255", global},
    {"192.168.0.0", local},
    {"192.168.255.255", local},
    {"192.169.0.0", global},
    {"198.17.255.255", global},
    {"198.18.0.0", never_allowed},
    {"198.19.255.255", never_allowed},
    {"198.20.0.0", global},
    {"198.51.100.7", never_allowed},
    {"203.0.113.7", never_allowed},
    {"223.255.255.255", global},
    {"224.0.0.0", never_allowed},
    {"240.0.0.1", never_allowed},
    {"255.255.255.255", never_allowed},
    {"::", never_allowed},
    {"::1", local},
    {"::2", never_allowed},
    {"::127.0.0.1", never_allowed},  // IPv4-compatible
    {"::ffff:127.0.0.1", local},
    {"::ffff:10.1.2.3", local},
    {"::ffff:169.254.169.254", never_allowed},
    {"::ffff:8.8.8.8", global},
    {"::fffe:8.8.8.8", never_allowed},
    {"64:ff9b::7f00:1", local},
    {"64:ff9b::a9fe:a9fe", never_allowed},
    {"64:ff9b::808:808", global},
    {"64:ff9b:1::808:808", never_allowed},
    {"1fff:ffff::1", never_allowed},
    {"2000::1", global},
    {"2001::1", never_allowed},  // Teredo
    {"2001:1ff:ffff::1", never_allowed},
    {"2001:200::1", global},
    {"2001:db8::1", never_allowed},
    {"2001:db9::1", global},
    {"2002:7f00:1::1", never_allowed},  // 6to4
    {"2003::1", global},
    {"2606:4700:4700::1111", global},
    {"3fff::1", never_allowed},
    {"3fff:1000::1", global},
    {"4000::1", never_allowed},
    {"fbff::1", never_allowed},
    {"fc00::1", local},
    {"fd00:ec2::254", never_allowed},  // metadata
    {"fd00:ec2::253", local},
    {"fd20:ce::254", never_allowed},  // metadata
    {"fdff:ffff::1", local},
    {"fe80::1", never_allowed},
    {"fec0::1", never_allowed},
    {"ff02::1", never_allowed},
};

TEST(AddressPolicy, EveryNetAtItsEnds) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.address);
    const sockaddr_storage storage = Parse(row.address);
    const auto& address = reinterpret_cast<const sockaddr&>(storage);
    EXPECT_EQ(Classify(address), row.kind);
    EXPECT_EQ(MayDial(address, false), row.kind == global);
    EXPECT_EQ(MayDial(address, true), row.kind != never_allowed);
  }
}

TEST(AddressPolicy, OtherFamiliesAreNeverAllowed) {
  sockaddr_storage storage{};
  storage.ss_family = AF_UNIX;
  EXPECT_FALSE(MayDial(reinterpret_cast<const sockaddr&>(storage), true));
}

TEST(CheckTargetUrl, Good) {
  for (const char* url : {"http://127.0.0.1:3000/webhooks", "https://billing.example.com/in?a=b", "HTTPS://EXAMPLE.com",
                          "http://[::1]:80/", "http://localhost", "http://10.0.0.1/%20x"}) {
    const auto ok = CheckTargetUrl(url);
    EXPECT_TRUE(ok.has_value()) << url << ": " << ok.error().message;
  }
}

TEST(CheckTargetUrl, Bad) {
  for (const char* url : {"",
                          "billing.example.com",
                          "/webhooks",
                          "ftp://example.com/",
                          "file:///etc/passwd",
                          "gopher://example.com",
                          "http://",
                          "http:///path",
                          "http://exa mple.com/",
                          "http://example.com/a\r\nHost: b",
                          "http://example.com/a\tb",
                          "http://user:hunter2@example.com/",
                          "http://user@example.com/",
                          "http://example.com:99999/",
                          "http://169.254.169.254/latest/meta-data",
                          "http://2852039166/",
                          "http://0xa9fea9fe/",
                          "http://0251.0376.0251.0376/",
                          "http://[::ffff:169.254.169.254]/",
                          "http://[fd00:ec2::254]/",
                          "http://0.0.0.0/",
                          "http://0/"}) {
    const auto ok = CheckTargetUrl(url);
    ASSERT_FALSE(ok.has_value()) << url;
    EXPECT_EQ(ok.error().kind, ErrorKind::invalid);
    EXPECT_FALSE(ok.error().message.empty());
    EXPECT_EQ(ok.error().message.find("hunter2"), std::string::npos);
  }
}

}  // namespace
}  // namespace dlo
