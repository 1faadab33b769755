#!/usr/bin/python3
"""Sends the oracle's packets through Gatun and through tayga 0.9.2, each as a daemon on a TUN device, and compares what comes
out byte for byte. Where both differ, an entry of the list below has to say why, with the RFC's section and the requirement;
an entry that no packet needs any more is a failure, too.

    tayga.py path/to/gatun        as root of a network namespace of its own, with a /run of its own

Packets go straight to the devices' queues and are read before the kernel sees them: nothing else has a hand in them.
"""

import os
import select
import socket
import subprocess
import sys
import time
import unittest
from collections import Counter, defaultdict

GATUN = sys.argv.pop(1) if len(sys.argv) > 1 else "target/debug/gatun"

import cases  # noqa: E402
import record  # noqa: E402
from cases import CONFIG  # noqa: E402
from compare import addresses, case_of  # noqa: E402
from rfc7915 import ICMP, ICMPV6, UDP, ones_sum, pseudo  # noqa: E402

(INSIDE4, INSIDE6), = CONFIG.eamt
TAYGA_CONF = f"""tun-device tayga0
ipv4-addr {CONFIG.own4}
ipv6-addr {CONFIG.own6}
prefix {CONFIG.pool6}
map {INSIDE4} {INSIDE6}
data-dir /run
"""
GATUN_CONF = f"""
[[port]]
device = "gatun0"
[translator]
own4 = "{CONFIG.own4}"
own6 = "{CONFIG.own6}"
[icmp]
rate = 1000000
burst = 100000
[[siit]]
pool6 = "{CONFIG.pool6}"
eam = [{{ v4 = "{INSIDE4}", v6 = "{INSIDE6}" }}]
"""
MTU = 1500
REQUIREMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/rfc/requirements.toml")


# --- what a packet is -----------------------------------------------------------------------------


class View:
    """A packet's fields, of either family."""

    def __init__(self, packet):
        self.bytes, self.six = packet, packet[0] >> 4 == 6
        self.ttl = packet[7] if self.six else packet[8]
        self.chain, at = [], 40 if self.six else (packet[0] & 15) * 4
        self.proto = packet[6] if self.six else packet[9]
        self.fragment = None
        while self.six and self.proto in (0, 43, 44, 60) and at + 8 <= len(packet):
            self.chain.append((self.proto, packet[at:]))
            if self.proto == 44:
                word = int.from_bytes(packet[at + 2:at + 4], "big")
                self.fragment = word & 0xFFF8, word & 1
            length = 8 if self.proto == 44 else 8 + packet[at + 1] * 8
            self.proto, at = packet[at], at + length
        if not self.six:
            word = int.from_bytes(packet[6:8], "big")
            self.df = bool(word & 0x4000)
            self.fragment = ((word & 0x1FFF) * 8, word >> 13 & 1) if word & 0x3FFF else None
        self.payload = packet[at:]

    @property
    def is_own(self):
        """Whether a translator sent it itself."""
        return addresses(self.bytes)[0] in (CONFIG.own4, CONFIG.own6)

    @property
    def is_icmp(self):
        return self.proto == (ICMPV6 if self.six else ICMP) and len(self.payload) >= 8

    @property
    def is_error(self):
        return self.is_icmp and not (self.payload[0] & 0x80 if self.six else self.payload[0] in (0, 8))

    @property
    def quoted(self):
        """The packet that an ICMP error quotes, or None."""
        inner = self.payload[8:] if self.is_error else b""
        return View(inner) if len(inner) >= (40 if inner[:1] and inner[0] >> 4 == 6 else 20) else None


def without_identification(packet, at=0):
    """An IPv4 header without its identification, DF and sum; and that of a quoted packet."""
    if packet[at] >> 4 != 4:
        return packet
    out = bytearray(packet)
    if not int.from_bytes(packet[at + 6:at + 8], "big") & 0x3FFF:
        out[at + 4:at + 6] = b"\0\0"
    out[at + 6] &= 0xBF
    out[at + 10:at + 12] = b"\0\0"
    inner = at + (packet[at] & 15) * 4 + 8
    if at == 0 and View(packet).is_error and len(packet) >= inner + 20:
        return without_identification(bytes(out), inner)
    return bytes(out)


# --- where tayga differs, and the sentence by which Gatun does what it does -------------------------


def answers_alone(gatun, tayga):
    """Gatun answers with an ICMP error of its own; tayga translates, or does nothing."""
    return any(View(p).is_own for p in gatun) and not any(View(p).is_own for p in tayga)


def segments_left(sent):
    return any(kind == 43 and header[3] > 0 for s in sent for kind, header in s.chain)


def extension_behind_fragment(sent):
    kinds = [kind for s in sent for kind, _ in s.chain]
    return 44 in kinds[:-1] or (44 in kinds and sent[0].proto == 51)


def open_source_route(sent):
    header = sent[0].bytes[20:(sent[0].bytes[0] & 15) * 4]
    return not sent[0].six and len(header) > 3 and header[0] in (0x83, 0x89) and header[2] <= header[1]


def udp_without_sum(sent):
    return all(s.proto == UDP and not s.six and s.payload[6:8] == b"\0\0" for s in sent)


def wrong_icmp_sum(s):
    if not s.is_icmp or s.fragment:
        return False
    start = ones_sum(pseudo(*addresses(s.bytes), len(s.payload), ICMPV6)) if s.six else 0
    return ones_sum(s.payload, start) != 0xFFFF


def quotes(sent, holds):
    return all(s.quoted for s in sent) and all(holds(s.quoted) for s in sent)


def is_a_fragment_with_df(sent):
    return any(not s.six and s.df and s.fragment for s in sent)


def differs_in_zero_sum(gatun, tayga):
    """The datagram alone differs, in a sum of 0xffff for 0."""
    pairs = list(zip(gatun, tayga))
    return len(gatun) == len(tayga) and all(
        View(a).proto == UDP and View(a).payload[6:8] == b"\xff\xff" and View(b).payload[6:8] == b"\0\0" and
        View(a).payload[:6] == View(b).payload[:6] and View(a).payload[8:] == View(b).payload[8:] for a, b in pairs)


def but_for_precedence(gatun, tayga):
    """Both answer, in the same words."""
    calm = lambda p: bytes(0 if i in (1, 10, 11) else b for i, b in enumerate(without_identification(p)))
    return [calm(p) for p in gatun] == [calm(p) for p in tayga] and all(View(p).is_own for p in gatun + tayga)


def same_kind(sent, six, four):
    """Whether all are ICMP errors of that type, or type and code."""
    return all(x.is_error and tuple(x.payload[:2]) in (six if x.six else four) for x in sent)


# Why a case differs: a name with what tayga does, the sentence (section, and id in docs/rfc/requirements.toml), and whether that
# explains the case: from the packets that were sent, what Gatun and what tayga made of them.
DIFFERENCES = [
    ("TTL or Hop Limit 0 on arrival: tayga is silent", "RFC 7915 4.1, 5.1", ["A79-5", "A79-59"],
     lambda s, g, t: all(x.ttl == 0 for x in s) and not t and all(View(p).is_own for p in g)),
    ("echo whose TTL or Hop Limit ends: tayga is silent", "RFC 7915 4.1, 5.1", ["A79-5", "A79-59"],
     lambda s, g, t: all(x.ttl == 1 and x.is_icmp for x in s) and not t and all(View(p).is_own for p in g)),
    ("IGMP: tayga translates it", "RFC 7915 4.2", ["ICMP4-other"],
     lambda s, g, t: not s[0].six and s[0].proto == 2 and not g and len(t) == 1),
    ("precedence of its own errors: tayga's is 0", "RFC 1812 4.3.2.5", [],
     lambda s, g, t: bool(g) and but_for_precedence(g, t)),
    ("segments left in a Routing header: tayga translates", "RFC 7915 5.1", ["A79-57"],
     lambda s, g, t: segments_left(s) and answers_alone(g, t)),
    ("extension header behind a Fragment header: tayga translates", "RFC 7915 5.1.1", ["A79-58"],
     lambda s, g, t: extension_behind_fragment(s) and all(View(p).is_own for p in g) and len(t) == len(s)),
    ("Authentication Header, whose sum covers the addresses: tayga translates", "RFC 4302 3.3.3", [],
     lambda s, g, t: s[0].proto == 51 and s[0].six and all(View(p).is_own for p in g) and len(t) == len(s)),
    ("source route that is not used up: tayga translates", "RFC 7915 4.1", ["A79-7"],
     lambda s, g, t: open_source_route(s) and answers_alone(g, t)),
    ("IPv6 extension header as an IPv4 protocol: tayga translates", "RFC 7915 4.1", ["A79-4"],
     lambda s, g, t: not s[0].six and s[0].proto in (0, 43, 44, 58, 60) and all(View(p).is_own for p in g) and len(t) == 1),
    ("UDP without a checksum: tayga drops it whatever is wished", "RFC 7915 4.5", ["A79-17"],
     lambda s, g, t: udp_without_sum(s) and bool(g) and not t),
    ("illegal source 0.0.0.1: tayga translates it", "RFC 7915 4.1, RFC 1122 3.2.1.3", ["A79-8"],
     lambda s, g, t: str(addresses(s[0].bytes)[0]) == "0.0.0.1" and not g and len(t) == 1),
    ("reserved source, which is not illegal: tayga drops it", "RFC 7915 4.1", ["A79-8"],
     lambda s, g, t: str(addresses(s[0].bytes)[0]) == "240.0.0.1" and len(g) == 1 and not t),
    ("ICMP error from an illegal source: tayga drops it", "RFC 7915 4.1", ["A79-8"],
     lambda s, g, t: str(addresses(s[0].bytes)[0]) == "127.0.0.1" and s[0].is_error and len(g) == 1 and not t),
    ("fragments with DF: tayga cuts them", "RFC 7915 4", ["A79-11", "A79-15"],
     lambda s, g, t: is_a_fragment_with_df(s) and len(t) > len([p for p in g if not View(p).is_own])),
    ("wrong ICMP checksum: tayga drops the message", "RFC 7915 4.1", ["A79-21"],
     lambda s, g, t: all(map(wrong_icmp_sum, s)) and len(g) == len(s) and not t),
    ("UDP checksum that comes out as zero: tayga sends zero, which is none", "RFC 768", ["A79-19"],
     lambda s, g, t: bool(g) and differs_in_zero_sum(g, t)),
    ("error about an echo: tayga drops it", "RFC 7915 4.3, 5.3", ["A79-35"],
     lambda s, g, t: quotes(s, lambda q: q.is_icmp) and len(g) == len(s) and not t),
    ("Parameter Problem: tayga drops it", "RFC 7915 4.2, 5.2", ["PTR6-0", "PTR4-0"],
     lambda s, g, t: same_kind(s, [(4, 0), (4, 1)], [(12, 0), (12, 2)]) and len(g) == len(s) and not t),
    ("address unreachable: tayga drops it", "RFC 7915 5.2", ["ICMP6-1/3"],
     lambda s, g, t: same_kind(s, [(1, 3)], []) and len(g) == len(s) and not t),
    ("extensions of an error: tayga cuts them off", "RFC 7915 4.2, 5.2, RFC 4884", ["A79-38"],
     lambda s, g, t: all(x.is_error and cases.EXTENSION in x.bytes for x in s) and len(g) == len(t) == 1 and len(g[0]) > len(t[0])),
    ("error about a fragment: tayga leaves the Fragment header out, or drops the error", "RFC 7915 4.1, 4.3, 5.3", ["A79-36"],
     lambda s, g, t: quotes(s, lambda q: q.fragment is not None) and len(g) == len(s) >= len(t)),
]


# --- the two of them ------------------------------------------------------------------------------


def run(command):
    subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)


def wait_for(what, holds):
    deadline = time.monotonic() + 20
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within 20 s: {what}")
        time.sleep(0.02)


def start():
    """Both daemons, on devices whose packets the kernel throws away once they have been read."""
    run("ip link set lo up")
    for family in ("-4", "-6"):
        run(f"ip {family} route add blackhole default")
    for name, text in (("tayga.conf", TAYGA_CONF), ("gatun.toml", GATUN_CONF)):
        with open(f"/run/{name}", "w", encoding="utf-8") as out:
            out.write(text)
    run("tayga --mktun -c /run/tayga.conf")
    run("ip link set tayga0 up")
    with open("/run/gatun.log", "w", encoding="utf-8") as log:
        gatun = subprocess.Popen([GATUN, "run", "/run/gatun.toml"], stdout=log, stderr=log)
    tayga = subprocess.Popen(["tayga", "-d", "-c", "/run/tayga.conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up():
        with open("/run/gatun.log", encoding="utf-8") as log:
            text = log.read()
        assert gatun.poll() is None and tayga.poll() is None, f"one of both has ended: {text}"
        return "translating with" in text
    wait_for("gatun translates", is_up)
    wait_for("tayga translates", lambda: through("tayga0", [cases.v4(cases.Flow(), UDP, cases.UDP() / cases.data(1))]))
    return gatun, tayga


def through(device, packets):
    """What a translator makes of packets, by their cases."""
    came = defaultdict(list)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        wire.bind((device, 3))

        def read(patience):
            while select.select([wire], [], [], patience)[0]:
                packet, where = wire.recvfrom(1 << 16)
                number = None if where[2] == socket.PACKET_OUTGOING else case_of(packet)
                if number is not None:  # what the kernel says of itself is of no case
                    came[number].append(packet)
        for i, packet in enumerate(packets):
            wire.sendto(packet, (device, 0x86DD if packet[0] >> 4 == 6 else 0x0800))
            # Before a device's queue is full.
            read(0.02 if i % 20 == 19 else 0)
        read(0.5)
    return came


class Tayga(unittest.TestCase):
    used = Counter()

    @classmethod
    def setUpClass(cls):
        cls.daemons = start()

    @classmethod
    def tearDownClass(cls):
        for daemon in cls.daemons:
            daemon.terminate()
            daemon.wait()

    def compare(self, generated, at_least):
        packets = [packet for packet in generated if len(packet) <= MTU]
        sent = defaultdict(list)
        for packet in packets:
            if case_of(packet) is not None:
                sent[case_of(packet)].append(packet)
        gatun, tayga = through("gatun0", packets), through("tayga0", packets)
        same = 0
        for number, case in sent.items():
            same += self.compare_case([View(p) for p in case], gatun[number], tayga[number])
        self.assertGreaterEqual(same, at_least * len(sent), f"{same} of {len(sent)} cases are alike")

    def compare_case(self, sent, gatun, tayga):
        """Whether both do the same; where not, it is known why."""
        if sent[0].six:
            for packet in gatun:
                self.check_header(sent[0], packet)
        if [without_identification(p) for p in gatun] == [without_identification(p) for p in tayga]:
            return True
        why = next((name for name, _, _, holds in DIFFERENCES if holds(sent, gatun, tayga)), None)
        if why is None:
            hexes = lambda packets: [p.hex() for p in packets]
            with self.subTest(sent=hexes(s.bytes for s in sent)):
                self.assertEqual(hexes(gatun), hexes(tayga), "and DIFFERENCES has no reason")
        Tayga.used[why] += 1
        return False

    def check_header(self, sent, packet):
        """What is left out of the comparison: DF by size (RFC 7915 5.1, A79-52) and a right sum; tayga always sets DF, and
        identification 0."""
        if View(packet).six:
            return
        self.assertEqual(ones_sum(packet[:20]), 0xFFFF, packet.hex())
        if sent.fragment is None and not View(packet).is_own:
            self.assertEqual(View(packet).df, len(packet) > 1260, packet.hex())

    def test_1_headers_6to4(self):
        self.compare(cases.headers_6to4(), 0.9)

    def test_2_fragments_6to4(self):
        self.compare(cases.fragments_6to4(), 0.9)

    def test_3_headers_4to6(self):
        self.compare(cases.headers_4to6(), 0.7)

    def test_4_fragments_4to6(self):
        self.compare(cases.fragments_4to6(), 0.7)

    def test_5_checksums(self):
        self.compare(cases.checksums(), 0.7)

    def test_6_icmp_errors_6to4(self):
        self.compare(cases.errors_6to4(), 0.5)

    def test_7_icmp_errors_4to6(self):
        self.compare(cases.errors_4to6(), 0.8)

    def test_8_random_mixtures(self):
        self.compare(cases.mixtures(500), 0.9)

    def test_9_every_difference_is_still_one(self):
        self.assertEqual([name for name, _, _, _ in DIFFERENCES if not Tayga.used[name]], [])
        with open(REQUIREMENTS, encoding="utf-8") as file:
            listed = file.read()
        for name, section, ids, _ in DIFFERENCES:
            self.assertEqual([known for known in ids if f'id = "{known}"' not in listed], [], name)
            print(f"{Tayga.used[name]:4} {name} ({', '.join([section, *ids])})")


if __name__ == "__main__":
    record.main()
