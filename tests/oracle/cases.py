"""Packets for the oracle: every combination of headers that the RFCs name, each of a flow of its own.

Case n has the inside address 2001:db8:2::n (mapped to 10.1.x.y) and the server 100.64.x.y (under the
prefix), so that whatever comes out can be told to belong to it.

As a program it writes all packets, each behind four bytes with its length.
"""

import sys
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import count, product
from random import Random
from struct import pack

from rfc7915 import Config, embed, ones_sum
from scapy.all import (ICMP, IP, TCP, UDP, ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest,
                       ICMPv6PacketTooBig, ICMPv6ParamProblem, ICMPv6TimeExceeded, IPOption, IPv6,
                       IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, PadN,
                       Raw, fragment, fragment6)

INSIDE6, INSIDE4 = IPv6Network("2001:db8:2::/112"), IPv4Network("10.1.0.0/16")
SERVERS = IPv4Network("100.64.0.0/16")
CONFIG = Config(IPv6Network("2001:db8:64::/96"), [(INSIDE4, INSIDE6)], IPv4Address("192.0.2.1"),
                IPv6Address("2001:db8:ffff::1"))
RANDOM = Random(7915)


class Flow:
    """Case n's addresses, as text for scapy."""

    numbers = count(1)

    def __init__(self):
        self.number = next(Flow.numbers)
        self.inside6, self.inside4 = str(INSIDE6[self.number]), str(INSIDE4[self.number])
        self.server4 = str(SERVERS[self.number])
        self.server6 = str(embed(CONFIG.pool6, SERVERS[self.number]))


def number_of(address):
    """The case that an address belongs to, or None."""
    if address.version == 4:
        net = next((n for n in (INSIDE4, SERVERS) if address in n), None)
    else:
        net = INSIDE6 if address in INSIDE6 else None
        if address in CONFIG.pool6:
            return number_of(IPv4Address(int(address) & 0xFFFFFFFF))
    return None if net is None else int(address) - int(net.network_address)


def data(size):
    return Raw(bytes(RANDOM.randrange(256) for _ in range(size)))


def transports(size=33):
    """(IPv4 protocol, what follows an IPv4 header, IPv6 Next Header, what follows an IPv6 header)."""
    payload = data(size)
    yield 6, TCP(sport=40000, dport=443, flags="PA", seq=7) / payload, 6, None
    yield 17, UDP(sport=40000, dport=53) / payload, 17, None
    yield 1, ICMP(type=8, id=77, seq=3) / payload, 58, ICMPv6EchoRequest(id=77, seq=3) / payload
    yield 1, ICMP(type=0, id=77, seq=3) / payload, 58, ICMPv6EchoReply(id=77, seq=3) / payload
    for proto in (33, 47, 50, 132, 4, 41, 253):  # DCCP, GRE, ESP, SCTP, IP in IP, a test protocol
        yield proto, payload, proto, None


def chains():
    """IPv6 extension headers before the transport header."""
    hop, dest = IPv6ExtHdrHopByHop(options=PadN(optdata=b"\0" * 4)), IPv6ExtHdrDestOpt(options=PadN(optdata=b"\0" * 12))
    routing = IPv6ExtHdrRouting(type=4, segleft=0, addresses=["2001:db8::9"])
    for chain in ((), (hop,), (dest,), (routing,), (hop, dest, routing), (dest, dest), (hop, routing, dest)):
        yield chain


def v6(flow, chain, proto, upper, **fields):
    packet = IPv6(src=flow.inside6, dst=flow.server6, **fields)
    for header in chain:
        packet = packet / header.copy()
    last = packet.lastlayer()
    last.nh = proto
    return bytes(packet / upper.copy())


def v4(flow, proto, upper, **fields):
    return bytes(IP(src=flow.server4, dst=flow.inside4, proto=proto, **fields) / upper.copy())


def headers_6to4():
    for (_, upper4, nh, upper6), chain in product(transports(), chains()):
        yield v6(Flow(), chain, nh, upper6 or upper4)
    for size, tc, hops in product((0, 1, 8, 100, 1211, 1212, 1213, 1240, 1241, 1452), (0, 0xB8, 0xFF), (2, 64, 255)):
        yield v6(Flow(), (), 17, UDP(sport=1, dport=2) / data(size), tc=tc, hlim=hops, fl=0x12345)
    for hops, (_, upper4, nh, upper6) in product((0, 1), transports()):
        yield v6(Flow(), (), nh, upper6 or upper4, hlim=hops)
    yield v6(Flow(), (), 59, data(0))
    yield v6(Flow(), (IPv6ExtHdrHopByHop(),), 59, data(4))
    for segments in (1, 2):
        routing = IPv6ExtHdrRouting(type=4, segleft=segments, addresses=["2001:db8::9", "2001:db8::8"])
        yield v6(Flow(), (IPv6ExtHdrHopByHop(), routing), 17, UDP() / data(9))
    yield v6(Flow(), (), 17, UDP() / data(9)) + b"padding behind the packet"
    yield v6(Flow(), (), 51, data(40))


def fragments_6to4():
    for size, ident, (_, upper4, nh, upper6) in product((9, 1500, 4000), (0x1234, 0xABCD5678), transports(2000)):
        if nh == 58:
            continue
        flow = Flow()
        whole = IPv6(src=flow.inside6, dst=flow.server6, nh=44) / IPv6ExtHdrFragment(id=ident, nh=nh) / (upper6 or upper4)
        yield from (bytes(f) for f in fragment6(whole, 1000) or [])
        flow = Flow()  # an atomic fragment
        yield v6(flow, (IPv6ExtHdrFragment(id=ident, offset=0, m=0),), nh, UDP(dport=size) / data(9) if nh == 17 else data(40))
    for chain in ((IPv6ExtHdrFragment(id=1, m=1), IPv6ExtHdrDestOpt()), (IPv6ExtHdrFragment(id=1), IPv6ExtHdrHopByHop())):
        yield v6(Flow(), chain, 17, UDP() / data(32))
    for more, offset in ((1, 0), (0, 4), (1, 4)):  # fragmented ICMP
        yield v6(Flow(), (IPv6ExtHdrFragment(id=1, m=more, offset=offset),), 58, ICMPv6EchoRequest() / data(32))


def options():
    """IPv4 options: none, padding, record route, timestamp, used-up and open source routes."""
    yield b""
    yield b"\1\1\1\0"
    yield b"\x07\x0b\x04" + b"\0" * 8 + b"\0"
    yield b"\x44\x0c\x05\0" + b"\0" * 8
    for kind, pointer in product((0x83, 0x89), (4, 8, 12)):
        yield bytes([kind, 11, pointer]) + b"\xc0\0\2\7\xc0\0\2\x09" + b"\0"


def headers_4to6():
    for (proto, upper, _, _), option in product(transports(), options()):
        yield v4(Flow(), proto, upper, options=[IPOption(option)] if option else [])
    for size, tos, ttl, df in product((0, 1, 8, 100, 1232, 1233, 1452, 3000), (0, 0xB8, 0xFF), (2, 64, 255), (0, 2)):
        yield v4(Flow(), 17, UDP(sport=1, dport=2) / data(size), tos=tos, ttl=ttl, flags=df, id=RANDOM.randrange(65536))
    for ttl, (proto, upper, _, _) in product((0, 1), transports()):
        yield v4(Flow(), proto, upper, ttl=ttl)
    for proto in (0, 2, 43, 44, 58, 60):
        yield v4(Flow(), proto, data(16))
    for source in ("0.0.0.1", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"):
        flow = Flow()
        yield bytes(IP(src=source, dst=flow.inside4) / UDP() / data(3))
    yield v4(Flow(), 17, UDP() / data(9)) + b"padding behind the packet"
    yield v4(Flow(), 17, UDP() / data(9), chksum=0x1234)
    for size in (0, 1, 100, 1300):
        yield v4(Flow(), 17, UDP(chksum=0) / data(size))


def fragments_4to6():
    for df, (proto, upper, _, _) in product((0, 2), transports(4001)):
        if proto == 1:
            continue
        for size in (1000, 1232, 1400, 1480):
            flow = Flow()
            pieces = fragment(IP(src=flow.server4, dst=flow.inside4, proto=proto, id=0xFEDC) / upper, size)
            for piece in pieces:
                piece.flags = int(piece.flags) | df
                del piece.chksum
                yield bytes(piece)
    for more, offset in ((1, 0), (0, 4), (1, 4)):
        yield v4(Flow(), 1, ICMP() / data(32), flags=more, frag=offset)
    yield v4(Flow(), 17, UDP(chksum=0) / data(32), flags=1)


def checksums():
    """Wrong checksums, odd lengths, all ones, all zeros, and UDP sums that come out as zero."""
    for (proto, upper4, nh, upper6), size in product(list(transports())[:4], (1, 2, 3, 20)):
        for fill in (b"\0", b"\xff"):
            one, other = upper4.copy(), (upper6 or upper4).copy()
            one.lastlayer().load = other.lastlayer().load = fill * size
            yield v4(Flow(), proto, one)
            yield v6(Flow(), (), nh, other)
        wrong, other = upper4.copy(), (upper6 or upper4).copy()
        wrong.chksum = 0xBEEF
        setattr(other, "cksum" if nh == 58 else "chksum", 0xBEEF)
        yield v4(Flow(), proto, wrong)
        yield v6(Flow(), (), nh, other)
    for _ in range(8):
        flow, ports = Flow(), RANDOM.randrange(1, 65536)
        # The datagram that makes the translated sum all ones: its complement, zero, is sent as 0xffff.
        head = pack(">HHHH", ports, 53, 10, 0)
        pseudo = INSIDE4[flow.number].packed + SERVERS[flow.number].packed + pack(">HH", 17, 10)
        word = 0xFFFF - ones_sum(pseudo + head)
        yield v6(flow, (), 17, UDP(sport=ports, dport=53) / Raw(pack(">H", word)))


def quoted_by_6(flow, size=40):
    """What an inside host may quote: packets that came to it from the server."""
    there = {"src": flow.server6, "dst": flow.inside6, "hlim": 9}
    for _, upper4, nh, upper6 in transports(size):
        yield bytes(IPv6(nh=nh, **there) / (upper6 or upper4))
    udp = UDP(sport=53, dport=40000) / data(size)
    yield bytes(IPv6(**there) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / udp)
    for more, offset in ((1, 0), (1, 5), (0, 5), (0, 0)):
        yield bytes(IPv6(**there) / IPv6ExtHdrFragment(id=0x8765ABCD, m=more, offset=offset, nh=17) / bytes(udp))


def quoted_by_4(flow, size=40):
    there = {"src": flow.inside4, "dst": flow.server4, "ttl": 9}
    for proto, upper, _, _ in transports(size):
        yield bytes(IP(proto=proto, **there) / upper)
    udp = UDP(sport=40000, dport=53) / data(size)
    yield bytes(IP(options=[IPOption(b"\1\1\1\0")], **there) / udp)
    for more, offset in ((1, 0), (1, 5), (0, 5)):
        yield bytes(IP(flags=more, frag=offset, id=0x4321, proto=17, **there) / bytes(udp))


def errors_6to4():
    kinds = [(1, code, 0) for code in range(8)] + [(2, 0, mtu) for mtu in (500, 1280, 1300, 1400, 1500, 1520, 9000)]
    kinds += [(3, code, 0) for code in range(4)] + [(4, 0, pointer) for pointer in range(48)]
    kinds += [(4, code, 6) for code in range(1, 4)] + [(kind, 0, 0) for kind in range(5, 128, 13)]
    for kind, code, word in kinds:
        flow = Flow()
        yield error6(flow, kind, code, word, list(quoted_by_6(flow))[1])
    for kind, code in ((1, 4), (3, 0), (2, 0)):
        for i in range(len(list(quoted_by_6(Flow())))):
            flow = Flow()
            yield error6(flow, kind, code, 1400, list(quoted_by_6(flow))[i])
            yield error6(flow, kind, code, 1400, list(quoted_by_6(flow, 900))[i])
    for cut in (20, 40, 44, 47, 48, 52):
        flow = Flow()
        yield error6(flow, 1, 4, 0, list(quoted_by_6(flow))[1][:cut])
    flow = Flow()  # an error about an error
    inner = IPv6(src=flow.server6, dst=flow.inside6) / ICMPv6DestUnreach() / data(48)
    yield error6(flow, 1, 0, 0, bytes(inner))
    flow = Flow()
    yield error6(flow, 1, 4, 0, list(quoted_by_6(flow))[1], wrong=1)
    for size, kind in product((40, 80, 200), (1, 3)):  # extensions (RFC 4884)
        flow = Flow()
        inner = list(quoted_by_6(flow, size))[1]
        inner = inner.ljust(max(128, (len(inner) + 7) // 8 * 8), b"\0")
        yield error6(flow, kind, 0, len(inner) // 8 << 24, inner + EXTENSION)


def errors_4to6():
    kinds = [(3, code, 0) for code in list(range(4)) + list(range(5, 18))] + [(11, code, 0) for code in range(4)]
    kinds += [(3, 4, mtu) for mtu in (0, 1, 67, 68, 500, 1260, 1280, 1300, 1400, 1480, 1500, 9000)]
    kinds += [(12, 0, pointer << 24) for pointer in range(24)] + [(12, code, 0) for code in range(1, 4)]
    kinds += [(kind, 0, 0) for kind in range(256) if kind not in (0, 3, 8, 11, 12)]
    for kind, code, word in kinds:
        flow = Flow()
        yield error4(flow, kind, code, word, list(quoted_by_4(flow))[1])
    for kind, code in ((3, 3), (11, 0), (3, 4)):
        for i in range(len(list(quoted_by_4(Flow())))):
            flow = Flow()
            yield error4(flow, kind, code, 1400, list(quoted_by_4(flow))[i])
            yield error4(flow, kind, code, 1400, list(quoted_by_4(flow, 1250))[i])
    for cut in (10, 20, 24, 27, 28, 32):
        flow = Flow()
        yield error4(flow, 3, 3, 0, list(quoted_by_4(flow))[1][:cut])
    for size in (100, 300, 600, 1000, 1400):  # plateaus
        flow = Flow()
        yield error4(flow, 3, 4, 0, list(quoted_by_4(flow, size))[1][:28])
    flow = Flow()
    yield error4(flow, 3, 0, 0, bytes(IP(src=flow.inside4, dst=flow.server4) / ICMP(type=3) / data(28)))
    flow = Flow()
    yield error4(flow, 3, 3, 0, list(quoted_by_4(flow))[1], wrong=1)
    flow = Flow()  # an illegal source may send an error
    inner = list(quoted_by_4(flow))[1]
    yield bytes(IP(src="127.0.0.1", dst=flow.inside4) / ICMP(type=11) / inner)
    for size, kind in product((40, 101, 200), (3, 11)):  # extensions (RFC 4884)
        flow = Flow()
        inner = list(quoted_by_4(flow, size))[1]
        inner = inner.ljust(max(128, (len(inner) + 3) // 4 * 4), b"\0")
        yield error4(flow, kind, 0, len(inner) // 4 << 16, inner + EXTENSION)


# An MPLS label stack (RFC 4950) in an extension structure, its checksum right.
EXTENSION = bytes.fromhex("20000000000801010000a1ff")
EXTENSION = EXTENSION[:2] + pack(">H", 0xFFFF - ones_sum(EXTENSION)) + EXTENSION[4:]


def error6(flow, kind, code, word, quote, wrong=0):
    message = pack(">BBHI", kind, code, 0, word) + quote
    source, destination = IPv6Address(flow.inside6), IPv6Address(flow.server6)
    pseudo = source.packed + destination.packed + pack(">II", len(message), 58)
    checksum = 0xFFFF - ones_sum(pseudo + message) ^ wrong
    message = message[:2] + pack(">H", checksum) + message[4:]
    return bytes(IPv6(src=flow.inside6, dst=flow.server6, nh=58, hlim=60) / message)


def error4(flow, kind, code, word, quote, wrong=0):
    message = pack(">BBHI", kind, code, 0, word) + quote
    message = message[:2] + pack(">H", 0xFFFF - ones_sum(message) ^ wrong) + message[4:]
    return bytes(IP(src=flow.server4, dst=flow.inside4, proto=1, ttl=60) / message)


def mixtures(how_many):
    """Random combinations of everything above that a seed gives again."""
    for _ in range(how_many):
        proto, upper4, nh, upper6 = RANDOM.choice(list(transports(RANDOM.randrange(1400))))
        if RANDOM.random() < 0.5:
            fields = {"tc": RANDOM.randrange(256), "fl": RANDOM.randrange(1 << 20), "hlim": RANDOM.randrange(2, 256)}
            yield v6(Flow(), RANDOM.choice(list(chains())), nh, upper6 or upper4, **fields)
        else:
            option = RANDOM.choice(list(options())[:4])
            fields = {"tos": RANDOM.randrange(256), "ttl": RANDOM.randrange(2, 256), "flags": RANDOM.choice((0, 2)),
                      "id": RANDOM.randrange(65536), "options": [IPOption(option)] if option else []}
            yield v4(Flow(), proto, upper4, **fields)


if __name__ == "__main__":
    for group in (headers_6to4(), fragments_6to4(), headers_4to6(), fragments_4to6(), checksums(), errors_6to4(),
                  errors_4to6(), mixtures(1000)):
        for one in group:
            sys.stdout.buffer.write(pack(">I", len(one)) + one)
