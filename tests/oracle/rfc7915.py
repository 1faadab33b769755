"""What RFC 6052 and RFC 7915 ask of a stateless translator, written from their text in another language
and by other means than Gatun's own code: whole packets are built anew, sums are taken over what they cover.

`six_to_four(packet, config)` and `four_to_six(packet, config)` return an Outcome for one packet.
"""

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from struct import pack, unpack_from

ICMP, IGMP, TCP, UDP, ICMPV6 = 1, 2, 6, 17, 58
HOP_BY_HOP, ROUTING, FRAGMENT, AH, DEST_OPTIONS = 0, 43, 44, 51, 60
PLATEAUS = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68]  # RFC 1191 7


@dataclass
class Config:
    """The settings of the configuration file that the oracle knows."""

    pool6: IPv6Network
    eamt: list  # of (IPv4Network, IPv6Network)
    own4: IPv4Address
    own6: IPv6Address
    mtu4: int = 1500
    mtu6: int = 1500
    lowest_ipv6_mtu: int = 1280
    icmp4_error_max: int = 576


@dataclass
class Outcome:
    """What has to come out: packets, an ICMP error to the sender, or nothing."""

    packets: list = field(default_factory=list)
    reply: tuple = None  # (type, code, second word)
    free: set = field(default_factory=set)  # bytes of the packets that the RFC leaves open


class Drop(Exception):
    """Dropped, with an ICMP error of (type, code, second word) or silently."""

    def __init__(self, reply=None):
        super().__init__(reply)
        self.reply = reply


def ones_sum(data, start=0):
    """The ones' complement sum of 16-bit words (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total = start + sum(unpack_from(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def pseudo(src, dst, length, proto):
    """The pseudo-header of either family: both sum alike."""
    return src.packed + dst.packed + pack(">IHBB", length, 0, 0, proto)


def adjusted(checksum, old, new):
    """A checksum field after covered bytes `old` became `new`, right or wrong before (RFC 1624)."""
    total = (0xFFFF - checksum) + (0xFFFF - ones_sum(old)) + ones_sum(new)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


# --- RFC 6052, RFC 7757 ---------------------------------------------------------------------------


def embed(prefix, v4):
    """The IPv6 address of an IPv4 one under a prefix of any length (RFC 6052 2.2), octet by octet."""
    octets = bytearray(prefix.network_address.packed)
    place = prefix.prefixlen // 8
    for octet in v4.packed:
        if place == 8:
            place += 1  # the u octet
        octets[place] = octet
        place += 1
    return IPv6Address(bytes(octets))


def extract(prefix, v6):
    """The IPv4 address in an IPv6 one, or None; what follows it is ignored."""
    if v6 not in prefix:
        return None
    octets, place = bytearray(), prefix.prefixlen // 8
    while len(octets) < 4:
        if place != 8:
            octets.append(v6.packed[place])
        place += 1
    return IPv4Address(bytes(octets))


def to_v6(v4, config):
    matches = [(n4, n6) for n4, n6 in config.eamt if v4 in n4]
    if not matches:
        return embed(config.pool6, v4)
    n4, n6 = max(matches, key=lambda m: m[0].prefixlen)
    suffix = int(v4) & int(n4.hostmask)
    shift = (128 - n6.prefixlen) - (32 - n4.prefixlen)
    return IPv6Address(int(n6.network_address) | suffix << shift)


def to_v4(v6, config):
    matches = [(n4, n6) for n4, n6 in config.eamt if v6 in n6]
    if not matches:
        return extract(config.pool6, v6)
    n4, n6 = max(matches, key=lambda m: m[1].prefixlen)
    shift = (128 - n6.prefixlen) - (32 - n4.prefixlen)
    suffix = (int(v6) & int(n6.hostmask)) >> shift
    return IPv4Address(int(n4.network_address) | suffix)


# --- Headers --------------------------------------------------------------------------------------


@dataclass
class Header:
    """What both families' headers say, extension headers and options taken off."""

    tos: int
    ttl: int
    proto: int
    src: object
    dst: object
    payload: bytes
    length: int  # of the whole payload, even where an ICMP error quotes less of it
    fragment: tuple = None  # (offset in bytes, more, identification)
    df: bool = False
    ident: int = 0

    @property
    def first(self):
        return self.fragment is None or self.fragment[0] == 0

    @property
    def whole(self):
        return self.fragment is None or self.fragment[:2] == (0, False)


def parse4(packet, quoted=False):
    if len(packet) < 20:
        raise Drop()
    ihl = (packet[0] & 15) * 4
    total, ident, flags = unpack_from(">HHH", packet, 2)
    if packet[0] >> 4 != 4 or ihl < 20 or total < ihl or (not quoted and total > len(packet)):
        raise Drop()
    if ones_sum(packet[:ihl]) != 0xFFFF:
        raise Drop()
    header = Header(packet[1], packet[8], packet[9], IPv4Address(packet[12:16]), IPv4Address(packet[16:20]),
                    packet[ihl:total], total - ihl, df=bool(flags & 0x4000), ident=ident)
    if flags & 0x3FFF:
        header.fragment = ((flags & 0x1FFF) * 8, bool(flags & 0x2000), ident)
    if not quoted and source_route_left(packet[20:ihl]):
        raise Drop((3, 5, 0))
    return header


def source_route_left(options):
    """Whether a loose or strict source route has addresses left (RFC 791 3.1)."""
    at = 0
    while at < len(options) and options[at] != 0:
        if options[at] == 1:
            at += 1
            continue
        if at + 1 >= len(options) or options[at + 1] < 2:
            return False
        if options[at] in (131, 137):
            return options[at + 2] <= options[at + 1]
        at += options[at + 1]
    return False


def parse6(packet, quoted=False):
    if len(packet) < 40 or packet[0] >> 4 != 6:
        raise Drop()
    first, length, proto, hops = unpack_from(">IHBB", packet)
    if not quoted and 40 + length > len(packet):
        raise Drop()
    end, at = min(40 + length, len(packet)), 40
    header = Header(first >> 20 & 0xFF, hops, proto, IPv6Address(packet[8:24]), IPv6Address(packet[24:40]), b"", 0)
    while header.proto in (HOP_BY_HOP, ROUTING, DEST_OPTIONS, FRAGMENT, AH):
        if header.proto == AH or header.fragment:
            raise Drop("any")
        if header.proto == FRAGMENT:
            offset, ident = unpack_from(">HI", packet, at + 2)
            header.fragment = (offset & 0xFFF8, bool(offset & 1), ident)
            header.proto, at = packet[at], at + 8
            if not header.first:
                break
            continue
        if header.proto == ROUTING and packet[at + 3] != 0:
            raise Drop((4, 0, at + 3))
        header.proto, at = packet[at], at + 8 + 8 * packet[at + 1]
    header.payload, header.length = packet[at:end], 40 + length - at
    return header


def build4(h, src, dst, proto, payload, length, free, base, ttl):
    """An IPv4 packet; `length` is its payload's length where `payload` is only a quote of it."""
    total = 20 + length
    if h.fragment and not h.whole:
        ident, flags = h.fragment[2] & 0xFFFF, (h.fragment[1] << 13) | h.fragment[0] >> 3
    elif h.fragment:
        ident, flags = h.fragment[2] & 0xFFFF, 0
    else:
        ident, flags = 0, 0x4000 if total > 1260 else 0
        free.update({base + 4, base + 5, base + 10, base + 11})
    head = pack(">BBHHHBBH", 0x45, h.tos, total, ident, flags, ttl, proto, 0) + src.packed + dst.packed
    checksum = 0xFFFF - ones_sum(head)
    return head[:10] + pack(">H", checksum) + head[12:] + payload


def build6(h, src, dst, proto, payload, length, hops):
    """An IPv6 packet, with a Fragment header where `h` is a fragment."""
    if h.fragment:
        offset, more, ident = h.fragment
        payload = pack(">BBHI", proto, 0, offset | more, ident & 0xFFFF) + payload
        proto, length = FRAGMENT, length + 8
    return pack(">IHBB", 6 << 28 | h.tos << 20, length, proto, hops) + src.packed + dst.packed + payload


def transport(h, src, dst, new_proto, mapping):
    """The payload of `h` once its addresses are `src` and `dst`: checksums and ICMP types changed."""
    p = bytearray(h.payload)
    if not h.first:
        return bytes(p)
    old = b"" if h.proto == ICMP else pseudo(h.src, h.dst, h.length, h.proto)
    new = b"" if new_proto == ICMP else pseudo(src, dst, h.length, new_proto)
    at = {TCP: 16, UDP: 6, ICMP: 2, ICMPV6: 2}.get(h.proto)
    if at is None or len(p) < at + 2:
        return bytes(p)
    if h.proto in (ICMP, ICMPV6):
        old += bytes(p[:2])
        p[0] = mapping[p[0]]
        new += bytes(p[:2])
    (field_,) = unpack_from(">H", p, at)
    if h.proto == UDP and field_ == 0:
        return bytes(p)  # a packet without checksum, quoted in an error
    value = adjusted(field_, old, new)
    if h.proto == UDP and value == 0:
        value = 0xFFFF
    p[at:at + 2] = pack(">H", value)
    return bytes(p)


# --- IPv6 to IPv4 (RFC 7915 5) --------------------------------------------------------------------

UNREACHABLE_6TO4 = {0: (3, 1), 1: (3, 10), 2: (3, 1), 3: (3, 1), 4: (3, 3)}
QUERY_6TO4 = {128: 8, 129: 0}


def pointer_6to4(pointer):
    table = {0: 0, 1: 1, 4: 2, 5: 2, 6: 9, 7: 8}
    if pointer in table:
        return table[pointer]
    if 8 <= pointer <= 39:
        return 12 if pointer <= 23 else 16
    raise Drop()


def kind_6to4(kind, code, word, fragmented, config):
    """Type, code and second word of an ICMPv4 error (RFC 7915 5.2). Where the packet in error has a
    Fragment header, the two headers differ by 28 bytes, not 20."""
    if kind == 1 and code in UNREACHABLE_6TO4:
        return *UNREACHABLE_6TO4[code], 0
    if kind == 2:
        smaller = 28 if fragmented else 20
        return 3, 4, min(word - smaller, config.mtu4, config.mtu6 - smaller)
    if kind == 3:
        return 11, code, 0
    if kind == 4 and code == 0:
        return 12, 0, pointer_6to4(word) << 24
    if kind == 4 and code == 1:
        return 3, 2, 0
    raise Drop()


def six_to_four(packet, config):
    return run(six_to_four_or_drop, packet, config)


def six_to_four_or_drop(packet, config):
    h = parse6(packet)
    error = h.proto == ICMPV6 and h.first and h.payload[:1] and h.payload[0] < 128
    if h.proto == ICMPV6 and not h.whole:
        raise Drop()
    src, dst = to_v4(h.src, config), to_v4(h.dst, config)
    if src is None or dst is None:
        raise Drop("any")
    if h.ttl <= 1:
        raise Drop(None if error or not h.first else (3, 0, 0))
    out = Outcome()
    if error:
        payload = error_6to4(h, config, out.free)
    elif h.proto == ICMPV6 and h.payload[0] not in QUERY_6TO4:
        raise Drop()
    else:
        payload = transport(h, src, dst, ICMP if h.proto == ICMPV6 else h.proto, QUERY_6TO4)
    if 20 + len(payload) > config.mtu4:
        raise Drop((2, 0, config.mtu4 + 20))
    proto = ICMP if h.proto == ICMPV6 else h.proto
    out.packets.append(build4(h, src, dst, proto, payload, len(payload), out.free, 0, h.ttl - 1))
    return out


def error_6to4(h, config, free):
    if ones_sum(pseudo(h.src, h.dst, h.length, ICMPV6) + h.payload) != 0xFFFF or len(h.payload) < 8:
        raise Drop()
    kind, code, _, word = unpack_from(">BBHI", h.payload)
    quote, extension = h.payload[8:], b""
    words = h.payload[4] if kind in (1, 3) else 0
    if words:
        quote, extension = quote[:words * 8], quote[words * 8:]
    inner = parse6(quote, quoted=True)
    new_kind, new_code, new_word = kind_6to4(kind, code, 0 if words else word, bool(inner.fragment), config)
    if len(inner.payload) < min(8, inner.length):
        raise Drop()
    if inner.proto == ICMPV6 and inner.first and inner.payload[0] not in QUERY_6TO4:
        raise Drop()
    src, dst = to_v4(inner.src, config), to_v4(inner.dst, config)
    proto = ICMP if inner.proto == ICMPV6 else inner.proto
    inner_payload = transport(inner, src, dst, proto, QUERY_6TO4)
    quote = build4(inner, src, dst, proto, inner_payload, inner.length, free, 28, inner.ttl)
    body = quote_and_extension(quote, extension, 4, config.icmp4_error_max - 28)
    if extension:
        new_word = (len(body) - len(extension)) // 4 << 16
    message = pack(">BBHI", new_kind, new_code, 0, new_word) + body
    # The inner identification is open, the sum over it is not: an IPv4 header always sums to all ones.
    return message[:2] + pack(">H", 0xFFFF - ones_sum(message)) + message[4:]


def quote_and_extension(quote, extension, unit, limit):
    """The original datagram, padded to the unit and to 128 bytes where an extension follows (RFC 4884 4)."""
    if not extension:
        return quote[:limit]
    size = min(max(128, len(quote)), (limit - len(extension)) // unit * unit)
    size = (size + unit - 1) // unit * unit
    return quote[:size].ljust(size, b"\0") + extension


# --- IPv4 to IPv6 (RFC 7915 4) --------------------------------------------------------------------

UNREACHABLE_4TO6 = {**{code: (1, 0) for code in (0, 1, 5, 6, 7, 8, 11, 12)}, **{code: (1, 1) for code in (9, 10, 13, 15)},
                    3: (1, 4)}
QUERY_4TO6 = {8: 128, 0: 129}


def pointer_4to6(pointer):
    table = {0: 0, 1: 1, 2: 4, 3: 4, 8: 7, 9: 6}
    if pointer in table:
        return table[pointer]
    if 12 <= pointer <= 19:
        return 8 if pointer <= 15 else 24
    raise Drop()


def kind_4to6(kind, code, word, quoted_length, config):
    """Type, code and second word of an ICMPv6 error (RFC 7915 4.2)."""
    if kind == 3 and code in UNREACHABLE_4TO6:
        return *UNREACHABLE_4TO6[code], 0
    if kind == 3 and code == 2:
        return 4, 1, 6
    if kind == 3 and code == 4:
        advertised = word & 0xFFFF
        if advertised < 68:
            advertised = next(p for p in PLATEAUS if p < quoted_length or p == 68)
        return 2, 0, max(1280, min(advertised + 20, config.mtu6, config.mtu4 + 20))
    if kind == 11:
        return 3, code, 0
    if kind == 12 and code in (0, 2):
        return 4, 0, pointer_4to6(word >> 24)
    raise Drop()


def illegal_source(address):
    return (address in IPv4Network("0.0.0.0/8") or address.is_loopback or address.is_multicast
            or address == IPv4Address("255.255.255.255"))


def four_to_six(packet, config):
    return run(four_to_six_or_drop, packet, config)


def four_to_six_or_drop(packet, config):
    h = parse4(packet)
    error = h.proto == ICMP and h.first and h.payload[:1] and h.payload[0] in (3, 4, 5, 11, 12)
    if h.proto == ICMP and not h.whole:
        raise Drop()
    if h.proto in (ICMPV6, HOP_BY_HOP, ROUTING, FRAGMENT, DEST_OPTIONS, AH):
        raise Drop("any")  # RFC 7915 has no word for these; whether they are answered is open
    if h.proto == IGMP:
        raise Drop()
    if illegal_source(h.src) and not error:
        raise Drop()
    src, dst = to_v6(h.src, config), to_v6(h.dst, config)
    if h.ttl <= 1:
        raise Drop(None if error or not h.first else (11, 0, 0))
    if error:
        payload = error_4to6(h, src, dst, config)
    elif h.proto == ICMP and h.payload[0] not in QUERY_4TO6:
        raise Drop()
    elif h.proto == UDP and h.first and h.payload[6:8] == b"\0\0":
        if not h.whole:
            raise Drop((3, 13, 0))  # RFC 7915 4.5, 4.4
        checksum = 0xFFFF - ones_sum(pseudo(src, dst, h.length, UDP) + h.payload) or 0xFFFF
        payload = h.payload[:6] + pack(">H", checksum) + h.payload[8:]
    else:
        payload = transport(h, src, dst, ICMPV6 if h.proto == ICMP else h.proto, QUERY_4TO6)
    proto = ICMPV6 if h.proto == ICMP else h.proto
    return fragments6(h, src, dst, proto, payload, config)


def fragments6(h, src, dst, proto, payload, config):
    """One IPv6 packet, or fragments of at most the lowest IPv6 MTU (RFC 7915 4)."""
    size = 40 + len(payload) + (8 if h.fragment else 0)
    if h.df:
        if size > config.mtu6:
            # RFC 7915 4 says less 20; a fragment grows by its Fragment header too.
            raise Drop((3, 4, config.mtu6 - (28 if h.fragment else 20)) if h.first else None)
    elif size > config.lowest_ipv6_mtu:
        room = (config.lowest_ipv6_mtu - 48) // 8 * 8
        base, more, ident = h.fragment or (0, False, h.ident)
        out = Outcome()
        for at in range(0, len(payload), room):
            piece = payload[at:at + room]
            h.fragment = (base + at, more or at + room < len(payload), ident)
            out.packets.append(build6(h, src, dst, proto, piece, len(piece), h.ttl - 1))
        return out
    return Outcome([build6(h, src, dst, proto, payload, len(payload), h.ttl - 1)])


def error_4to6(h, src, dst, config):
    if ones_sum(h.payload) != 0xFFFF or len(h.payload) < 8:
        raise Drop()
    kind, code, _, word = unpack_from(">BBHI", h.payload)
    quote, extension = h.payload[8:], b""
    words = h.payload[5] if kind in (3, 11, 12) else 0
    if words:
        quote, extension = quote[:words * 4], quote[words * 4:]
    inner = parse4(quote, quoted=True)
    if len(inner.payload) < min(8, inner.length):
        raise Drop()
    ihl = (quote[0] & 15) * 4
    new_kind, new_code, new_word = kind_4to6(kind, code, word, inner.length + ihl, config)
    if inner.proto == ICMP and inner.first and inner.payload[0] not in QUERY_4TO6:
        raise Drop()
    inner_src, inner_dst = to_v6(inner.src, config), to_v6(inner.dst, config)
    proto = ICMPV6 if inner.proto == ICMP else inner.proto
    inner_payload = transport(inner, inner_src, inner_dst, proto, QUERY_4TO6)
    quote = build6(inner, inner_src, inner_dst, proto, inner_payload, inner.length, inner.ttl)
    if new_kind not in (1, 3):
        extension = b""  # RFC 4884 4.4, 4.5: only these types have room for the length
    body = quote_and_extension(quote, extension, 8, 1280 - 48)
    if extension:
        new_word = (len(body) - len(extension)) // 8 << 24
    message = pack(">BBHI", new_kind, new_code, 0, new_word) + body
    checksum = 0xFFFF - ones_sum(pseudo(src, dst, len(message), ICMPV6) + message)
    return message[:2] + pack(">H", checksum) + message[4:]


def run(translate, packet, config):
    try:
        return translate(packet, config)
    except Drop as drop:
        return Outcome(reply=drop.reply)
