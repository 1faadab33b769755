"""The oracle itself: the RFC's own vectors, and scapy's sums over what it builds."""

import unittest
from ipaddress import IPv4Address, IPv6Address, IPv6Network

import cases
import record
from rfc7915 import embed, extract, four_to_six, kind_4to6, ones_sum, six_to_four
from scapy.all import IP, IPv6

VECTORS = [
    ("2001:db8::/32", "2001:db8:c000:221::"), ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
    ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"), ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
    ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"), ("2001:db8:122:344::/96", "2001:db8:122:344::c000:221"),
    ("64:ff9b::/96", "64:ff9b::c000:221")]


class OracleItself(unittest.TestCase):
    def test_the_vectors_of_rfc_6052(self):
        v4 = IPv4Address("192.0.2.33")
        for prefix, v6 in VECTORS:
            self.assertEqual(embed(IPv6Network(prefix), v4), IPv6Address(v6))
            self.assertEqual(extract(IPv6Network(prefix), IPv6Address(v6)), v4)

    def test_the_sum_of_rfc_1071(self):
        self.assertEqual(ones_sum(bytes.fromhex("0001f203f4f5f6f7")), 0xDDF2)

    def test_a_plateau_is_below_the_quoted_length(self):
        self.assertEqual(kind_4to6(3, 4, 0, 1500, cases.CONFIG), (2, 0, 1500))  # 1492 + 20, at most mtu6

    def test_scapy_computes_the_same_sums(self):
        compared = 0
        for packet in list(cases.headers_6to4())[:60] + list(cases.headers_4to6())[:200]:
            six = packet[0] >> 4 == 6
            if not six and (packet[0] != 0x45 or packet[9] == 4):
                continue  # a source route is another destination for scapy, and random payload an IP header
            for out in (six_to_four if six else four_to_six)(packet, cases.CONFIG).packets:
                again = (IP if six else IPv6)(out)
                for layer in (layer for layer in again.layers() if layer.__name__ in ("TCP", "UDP", "ICMP", "IP")):
                    del again[layer].chksum
                self.assertEqual(bytes(again), out)
                compared += 1
        self.assertGreater(compared, 80)


if __name__ == "__main__":
    record.main()
