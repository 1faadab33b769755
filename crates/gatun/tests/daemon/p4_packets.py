"""A NAT64 session between an IPv6 host and an IPv4 host: its entries and packets, as scripts of controllers need them."""

import ipaddress
import struct

CLIENT, REMOTE6 = [ipaddress.IPv6Address(text) for text in ("2001:db8:1::5", "2001:db8:64::c633:6407")]
POOL, SERVER = [ipaddress.IPv4Address(text) for text in ("192.0.2.1", "198.51.100.7")]
INSIDE_PORT, OUTSIDE_PORT, SERVER_PORT = 5000, 4000, 443
CLIENT_MAC, SERVER_MAC, MAC1, MAC2 = [bytes([2, 0, 0, 0, 0, last]) for last in (0x15, 0x17, 1, 2)]
UDP = 17
NO_ENTRY = 1


def total(data):
    """Sum of 16-bit words in ones' complement."""
    data += bytes(len(data) % 2)
    value = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while value > 0xFFFF:
        value = (value & 0xFFFF) + (value >> 16)
    return value


def datagram(source, destination, ports, payload):
    """UDP datagram with its checksum."""
    length = 8 + len(payload)
    pseudo = source.packed + destination.packed + struct.pack("!HH", UDP, length)
    header = struct.pack("!HHHH", *ports, length, 0)
    checksum = 0xFFFF - total(pseudo + header + payload) or 0xFFFF
    return header[:6] + struct.pack("!H", checksum) + payload


def frame6(macs, ends, ports, hop_limit, payload=b"question", traffic_class=0):
    body = datagram(*ends, ports, payload)
    header = struct.pack("!IHBB", 6 << 28 | traffic_class << 20, len(body), UDP, hop_limit)
    return b"".join(macs) + b"\x86\xdd" + header + ends[0].packed + ends[1].packed + body


def frame4(macs, ends, ports, ttl, payload=b"question", tos=0, ident=0):
    body = datagram(*ends, ports, payload)
    header = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(body), ident, 0, ttl, UDP, 0)
    header += ends[0].packed + ends[1].packed
    checksum = struct.pack("!H", 0xFFFF - total(header))
    return b"".join(macs) + b"\x08\x00" + header[:10] + checksum + header[12:] + body


def halves(name, address):
    value = int(address)
    return {f"{name}_hi": value >> 64, f"{name}_lo": value & (1 << 64) - 1}


def delta(old, new):
    """Change of a checksum's sum by addresses and ports. A switch adds it, and adds nothing for zero."""
    words = lambda ends, ports: total(ends[0].packed + ends[1].packed + struct.pack("!HH", *ports))
    change = words(*new) + (0xFFFF - words(*old))
    return (change & 0xFFFF) + (change >> 16) or 0xFFFF


INSIDE = ((CLIENT, REMOTE6), (INSIDE_PORT, SERVER_PORT))
OUTSIDE = ((POOL, SERVER), (OUTSIDE_PORT, SERVER_PORT))


def reverse(ends_and_ports):
    return tuple(pair[::-1] for pair in ends_and_ports)


def session(tos_keep=0xFF, tos_set=0):
    """Both entries of a session: table, key, action, and arguments."""
    out = (
        "flows6",
        dict(**halves("src", CLIENT), **halves("dst", REMOTE6), sport=INSIDE_PORT, dport=SERVER_PORT, proto=UDP),
        "to_ipv4",
        dict(
            src=int(POOL),
            dst=int(SERVER),
            sport=OUTSIDE_PORT,
            dport=SERVER_PORT,
            delta=delta(INSIDE, OUTSIDE),
            max_len=1500,
            ident=9,
            tos_keep=tos_keep,
            tos_set=tos_set,
            pending=0,
            next_hop=2,
            counter_index=0,
        ),
    )
    back = (
        "flows4",
        dict(src=int(SERVER), dst=int(POOL), sport=SERVER_PORT, dport=OUTSIDE_PORT, proto=UDP),
        "to_ipv6",
        dict(
            **halves("src", REMOTE6),
            **halves("dst", CLIENT),
            sport=SERVER_PORT,
            dport=INSIDE_PORT,
            delta=delta(reverse(OUTSIDE), reverse(INSIDE)),
            max_len=1280,
            max_len_df=1500,
            tos_keep=tos_keep,
            tos_set=tos_set,
            pending=0,
            next_hop=1,
            counter_index=1,
        ),
    )
    return [out, back]


def host():
    """Entries of the interfaces of both ports, and of next hops."""
    for port, mac, peer in ((1, MAC1, CLIENT_MAC), (2, MAC2, SERVER_MAC)):
        own = int.from_bytes(mac, "big")
        interface = dict(number=port, mac=own, ident_step=2, ident_first=1)
        yield "interfaces", dict(in_port=port, vid=0), "interface", interface
        hop = dict(port=port, vid=0, mac=int.from_bytes(peer, "big"), own_mac=own)
        yield "next_hops", dict(next_hop=port), "next_hop", hop


def question():
    return frame6((MAC1, CLIENT_MAC), *INSIDE, 64)


def check_question(got, tos):
    """Compares what the switch makes of the question."""
    ident = struct.unpack("!H", got[18:20])[0]
    assert ident % 2 == 1, f"identification {ident} is not one of the switch's"
    wanted = frame4((SERVER_MAC, MAC2), *OUTSIDE, 63, tos=tos, ident=ident)
    assert got == wanted, f"{got.hex()} is not {wanted.hex()}"


def answer():
    return frame4((MAC2, SERVER_MAC), *reverse(OUTSIDE), 64, payload=b"an answer", ident=77)


def check_answer(got, tos):
    """Compares what the switch makes of the answer."""
    wanted = frame6((CLIENT_MAC, MAC1), *reverse(INSIDE), 63, payload=b"an answer", traffic_class=tos)
    assert got == wanted, f"{got.hex()} is not {wanted.hex()}"


def direct():
    """Frame of the controller to the IPv4 host."""
    return frame4((SERVER_MAC, MAC2), *OUTSIDE, 63)


# Packets and bytes of both entries and of another one after two questions and answers: from the IP header on, as they
# arrived.
COUNTED = {0: (2, 2 * (48 + 8)), 1: (2, 2 * (28 + 9)), 2: (0, 0)}
