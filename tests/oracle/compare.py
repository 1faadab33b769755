#!/usr/bin/python3
"""Compares `gatun translate` with the oracle (rfc7915.py) byte for byte, and lets tshark, a parser that
nobody here wrote, look for faults in everything that comes out.

    compare.py path/to/gatun [unittest arguments]

Packets of a case are told by its addresses; fields that the RFC leaves to the translator (the
identification of packets that are not fragments) are compared in length and sum only.
"""

import os
import subprocess
import sys
import tempfile
import unittest
from collections import defaultdict
from ipaddress import IPv4Address, IPv6Address
from struct import pack, unpack_from

import cases
import record
from cases import CONFIG
from rfc7915 import four_to_six, ones_sum, pseudo, six_to_four

GATUN = sys.argv.pop(1) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else "target/debug/gatun"
RAW_IP = 101  # the capture's link type: packets begin with their IP header

CONFIGURATION = f"""
[[port]]
name = "pcap"
[translator]
own4 = "{CONFIG.own4}"
own6 = "{CONFIG.own6}"
[icmp]
rate = 1000000
burst = 100000
[[siit]]
name = "oracle"
pool6 = "{CONFIG.pool6}"
eam = [{{ v4 = "{CONFIG.eamt[0][0]}", v6 = "{CONFIG.eamt[0][1]}" }}]
"""

FAULTS = [
    "_ws.malformed", "ip.checksum.status == bad", "tcp.checksum.status == bad", "udp.checksum.status == bad",
    "icmp.checksum.status == bad", "icmpv6.checksum.status == bad", "ip.bogus_ip_length", "ip.bogus_header_length",
    "ipv6.bogus_payload_length", "udp.length.bad", "ip.reassembled.error", "ipv6.fragment.error"]
CHECKING = ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE", "ip.defragment:FALSE",
            "ipv6.defragment:FALSE"]
# Random payload is nothing that these could read.
PAYLOADS = ["dns", "mdns", "dccp", "sctp", "gre", "esp", "tls", "rtp", "data-l1-events", "quic"]


def write_pcap(path, packets):
    """Packets ten milliseconds apart, so that no rate limit is met."""
    with open(path, "wb") as out:
        out.write(pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, RAW_IP))
        for i, packet in enumerate(packets):
            out.write(pack("<IIII", 1000 + i // 100, i % 100 * 10000, len(packet), len(packet)) + packet)


def read_pcap(path):
    with open(path, "rb") as file:
        raw = file.read()
    order = "<" if raw[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    (link,) = unpack_from(order + "I", raw, 20)
    assert link & 0xFFFF == RAW_IP, f"link type {link}"
    at, packets = 24, []
    while at < len(raw):
        captured, _ = unpack_from(order + "II", raw, at + 8)
        packets.append(raw[at + 16:at + 16 + captured])
        at += 16 + captured
    return packets


def addresses(packet):
    if packet[0] >> 4 == 6:
        return IPv6Address(packet[8:24]), IPv6Address(packet[24:40])
    return IPv4Address(packet[12:16]), IPv4Address(packet[16:20])


def case_of(packet):
    src, dst = addresses(packet)
    number = cases.number_of(dst)
    return cases.number_of(src) if number is None else number


def translate(packets, configuration=CONFIGURATION):
    """What Gatun makes of the packets, and what tshark says of that and did not say of the packets."""
    with tempfile.TemporaryDirectory(prefix="gatun-oracle-") as folder:
        file = lambda name: os.path.join(folder, name)
        write_pcap(file("in.pcap"), packets)
        with open(file("gatun.toml"), "w", encoding="utf-8") as out:
            out.write(configuration)
        command = [GATUN, "translate", file("in.pcap"), file("out.pcap"), "--config", file("gatun.toml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        came = read_pcap(file("out.pcap"))
        before, after = faults(file("in.pcap"), packets), faults(file("out.pcap"), came)
        return came, {case: words for case, words in after.items() if case not in before}


def faults(path, packets):
    """Cases with a packet that tshark finds malformed, or whose sums or lengths it finds wrong: complaints of
    the network and transport layers, with tshark's own words."""
    known = subprocess.run(["tshark", "-G", "fields"], capture_output=True, text=True, check=True).stdout
    names = {line.split("\t")[2] for line in known.splitlines() if line.startswith("F\t")} | {"_ws.malformed"}
    wanted = " || ".join(term for term in FAULTS if term.split()[0] in names)
    preferences = [word for option in CHECKING for word in ("-o", option)]
    quiet = [word for protocol in PAYLOADS for word in ("--disable-protocol", protocol)]
    command = ["tshark", "-r", path, *preferences, *quiet, "-Y", wanted, "-T", "fields", "-e", "frame.number",
               "-e", "frame.protocols", "-e", "_ws.expert.message", "-e", "_ws.col.Info"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    lines = (line.split("\t", 1) for line in done.stdout.splitlines())
    complaints = ((packets[int(number) - 1], words) for number, words in lines)
    return {case_of(packet): words for packet, words in complaints if not quotes_a_part(packet)}


def quotes_a_part(packet):
    """Whether it is an ICMP error that quotes less than a whole TCP segment: tshark sums over the part."""
    at, protocol = (40, packet[6]) if packet[0] >> 4 == 6 else (20, packet[9])
    inner = packet[at + 8:]
    if protocol not in (1, 58) or len(inner) < 20:
        return False
    length, proto = (unpack_from(">H", inner, 4)[0] + 40, inner[6]) if inner[0] >> 4 == 6 else (
        unpack_from(">H", inner, 2)[0], inner[9])
    return proto == 6 and len(inner) < length


def check_reply(test, sent, came, reply):
    """An ICMP error to the sender: kind, addresses, sums, and a quote of what was sent."""
    old, new = (6, CONFIG.own6) if sent[0] >> 4 == 6 else (4, CONFIG.own4)
    test.assertEqual(came[0] >> 4, old, "the error's family")
    test.assertEqual(addresses(came), (new, addresses(sent)[0]), "the error's addresses")
    at, limit = (40, 1280) if old == 6 else (20, CONFIG.icmp4_error_max)
    message = came[at:]
    if reply != "any":
        kind, code, _, word = unpack_from(">BBHI", message)
        test.assertEqual((kind, code, word), reply, "the error's type, code and second word")
    if old == 6:
        src, dst = addresses(came)
        test.assertEqual(ones_sum(pseudo(src, dst, len(message), 58) + message), 0xFFFF, "ICMPv6 sum")
        test.assertEqual(unpack_from(">H", came, 4)[0], len(message), "Payload Length")
    else:
        test.assertEqual((ones_sum(came[:20]), ones_sum(message)), (0xFFFF, 0xFFFF), "sums")
        test.assertEqual(unpack_from(">H", came, 2)[0], len(came), "Total Length")
    quote = message[8:]
    test.assertEqual(quote, sent[:len(quote)], "the quote is what was sent")
    length = unpack_from(">H", sent, 4)[0] + 40 if old == 6 else unpack_from(">H", sent, 2)[0]
    test.assertEqual(len(came), min(limit, at + 8 + length), "as much as fits is quoted")


class Oracle(unittest.TestCase):
    """One group of cases, one run of Gatun, one comparison of everything that came out."""

    def compare(self, generated):
        packets = list(generated)
        came, complaints = translate(packets)
        by_case = defaultdict(list)
        for packet in came:
            by_case[case_of(packet)].append(packet)
        self.assertNotIn(None, by_case, "a packet that belongs to no case")
        expected, sent = defaultdict(list), defaultdict(list)
        for packet in packets:
            translator = six_to_four if packet[0] >> 4 == 6 else four_to_six
            number = case_of(packet)
            expected[number].append(translator(packet, CONFIG))
            sent[number].append(packet)
        self.assertEqual(set(by_case) - set(expected), set(), "cases that nobody sent")
        for number, outcomes in expected.items():
            with self.subTest(case=number, sent=[p.hex() for p in sent[number]]):
                self.check_case(sent[number], outcomes, by_case[number])
        self.assertEqual(complaints, {}, "tshark's complaints")

    def check_case(self, sent, outcomes, came):
        came = list(came)
        for packet, outcome in zip(sent, outcomes):
            for wanted in outcome.packets:
                self.assertTrue(came, f"missing: {wanted.hex()}")
                self.check_packet(came.pop(0), wanted, outcome)
            if outcome.reply == "any":  # whether it is answered is the translator's choice
                if came and len(sent) == 1:
                    check_reply(self, packet, came.pop(0), "any")
            elif outcome.reply:
                self.assertTrue(came, f"missing: an answer {outcome.reply}")
                check_reply(self, packet, came.pop(0), outcome.reply)
        self.assertEqual([p.hex() for p in came], [], "more came than was expected")

    def check_packet(self, came, wanted, outcome):
        blank = lambda p: bytes(0 if i in outcome.free else b for i, b in enumerate(p))
        if blank(came) != blank(wanted):
            at = next((i for i, (a, b) in enumerate(zip(blank(came), blank(wanted))) if a != b), "the end")
            self.fail(f"first difference at {at}\n  came   {came.hex()}\n  wanted {wanted.hex()}")
        if 10 in outcome.free:
            self.assertEqual(ones_sum(came[:20]), 0xFFFF, "the IPv4 header's sum")
        if 38 in outcome.free and len(came) >= 48:
            self.assertEqual(ones_sum(came[28:48]), 0xFFFF, "the inner IPv4 header's sum")

    # proves: A79-50, A79-51, A79-52, A79-56, A79-57, A79-59, A79-60, A79-61, A79-63, A79-22
    def test_headers_6to4(self):
        self.compare(cases.headers_6to4())

    # proves: A79-54, A79-55, A79-58
    def test_fragments_6to4(self):
        self.compare(cases.fragments_6to4())

    # proves: A79-1, A79-2, A79-3, A79-4, A79-5, A79-6, A79-7, A79-8, A79-9, A79-10, A79-11, A79-12, A79-17, A79-22
    def test_headers_4to6(self):
        self.compare(cases.headers_4to6())

    # proves: A79-11, A79-12, A79-13, A79-14, A79-18
    def test_fragments_4to6(self):
        self.compare(cases.fragments_4to6())

    # proves: A79-19, A79-20, A79-21
    def test_checksums(self):
        self.compare(cases.checksums())

    # proves: A79-70, A79-72, A79-38, ICMP6-1/0, ICMP6-1/1, ICMP6-1/2, ICMP6-1/3, ICMP6-1/4, ICMP6-1/other
    # proves: ICMP6-2/0, ICMP6-3/0, ICMP6-3/1, ICMP6-4/0, ICMP6-4/1, ICMP6-4/2, ICMP6-other
    # proves: PTR6-0, PTR6-1, PTR6-2, PTR6-4, PTR6-6, PTR6-7, PTR6-8, PTR6-24, PTR6-40
    def test_icmp_errors_6to4(self):
        self.compare(cases.errors_6to4())

    # proves: A79-30, A79-31, A79-32, A79-33, A79-34, A79-35, A79-36, A79-37, A79-38, A79-8
    # proves: ICMP4-3/0, ICMP4-3/1, ICMP4-3/2, ICMP4-3/3, ICMP4-3/4, ICMP4-3/5, ICMP4-3/6, ICMP4-3/7, ICMP4-3/8
    # proves: ICMP4-3/9, ICMP4-3/10, ICMP4-3/11, ICMP4-3/12, ICMP4-3/13, ICMP4-3/14, ICMP4-3/15, ICMP4-3/other
    # proves: ICMP4-11/0, ICMP4-11/1, ICMP4-12/0, ICMP4-12/1, ICMP4-12/2, ICMP4-other, ICMP4-4, ICMP4-5, ICMP4-6
    # proves: ICMP4-9, ICMP4-10, ICMP4-13, ICMP4-14, ICMP4-15, ICMP4-16, ICMP4-17, ICMP4-18
    # proves: PTR4-0, PTR4-1, PTR4-2, PTR4-4, PTR4-8, PTR4-9, PTR4-10, PTR4-12, PTR4-16, PTR4-20
    def test_icmp_errors_4to6(self):
        self.compare(cases.errors_4to6())

    def test_random_mixtures(self):
        self.compare(cases.mixtures(int(os.environ.get("GATUN_ORACLE_CASES", "2000"))))


if __name__ == "__main__":
    record.main()
