"""Controller of Gatun's own program with finsy, which nobody of this project wrote.

p4_gatun_program.py ADDRESS P4INFO PROGRAM DEVICE1 DEVICE2

The devices are the other ends of the switch's ports 1 and 2: an IPv6 host and an IPv4 host. The controller gives the
switch a NAT64 session, and computes the packets that the switch has to make of its packets.
"""

import asyncio
import ipaddress
import socket
import struct
import sys
from pathlib import Path

import finsy as fy

ADDRESS, P4INFO, PROGRAM, DEVICE1, DEVICE2 = sys.argv[1:6]
PATIENCE = 20

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
    """Both entries of a session."""
    out = fy.P4TableEntry(
        "flows6",
        match=fy.P4TableMatch(
            **halves("src", CLIENT), **halves("dst", REMOTE6), sport=INSIDE_PORT, dport=SERVER_PORT, proto=UDP
        ),
        action=fy.P4TableAction(
            "to_ipv4",
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
        metadata=b"session 7",
    )
    back = fy.P4TableEntry(
        "flows4",
        match=fy.P4TableMatch(src=int(SERVER), dst=int(POOL), sport=SERVER_PORT, dport=OUTSIDE_PORT, proto=UDP),
        action=fy.P4TableAction(
            "to_ipv6",
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
        metadata=b"session 7",
    )
    return [out, back]


def host():
    """Interfaces of both ports, and next hops."""
    for port, mac, peer in ((1, MAC1, CLIENT_MAC), (2, MAC2, SERVER_MAC)):
        yield +fy.P4TableEntry(
            "interfaces",
            match=fy.P4TableMatch(in_port=port, vid=0),
            action=fy.P4TableAction(
                "interface", number=port, mac=int.from_bytes(mac, "big"), ident_step=2, ident_first=1
            ),
        )
        macs = {"mac": int.from_bytes(peer, "big"), "own_mac": int.from_bytes(mac, "big")}
        yield +fy.P4TableEntry(
            "next_hops",
            match=fy.P4TableMatch(next_hop=port),
            action=fy.P4TableAction("next_hop", port=port, vid=0, **macs),
        )


def question():
    return frame6((MAC1, CLIENT_MAC), *INSIDE, 64)


class Wire:
    """The other end of a port."""

    def __init__(self, device):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((device, 0))
        self.socket.setblocking(False)

    def send(self, frame):
        self.socket.send(frame)

    async def receive(self):
        """Receives a frame of the switch; others are our own."""
        loop = asyncio.get_running_loop()
        while True:
            frame, address = await asyncio.wait_for(loop.sock_recvfrom(self.socket, 2048), PATIENCE)
            if address[2] != socket.PACKET_OUTGOING:
                return frame


def entries_of(read):
    """Key, action, arguments and metadata of each entry."""
    of = lambda entry: (
        entry.table_id,
        sorted((name, int(value)) for name, value in entry.match.items()),
        entry.action.name,
        sorted((name, int(value)) for name, value in entry.action.args.items()),
        entry.metadata,
    )
    return sorted(of(entry) for entry in read)


async def read_session(switch):
    names = ("flows6", "flows4")
    return [entry for name in names async for entry in switch.read(fy.P4TableEntry(name))]


async def translated(inside, outside, tos):
    """Sends a datagram in each direction, and compares what the switch sends."""
    inside.send(question())
    got = await outside.receive()
    ident = struct.unpack("!H", got[18:20])[0]
    assert ident % 2 == 1, f"identification {ident} is not one of the switch's"
    macs = (SERVER_MAC, MAC2)
    wanted = frame4(macs, *OUTSIDE, 63, tos=tos, ident=ident)
    assert got == wanted, f"{got.hex()} is not {wanted.hex()}"
    outside.send(frame4((MAC2, SERVER_MAC), *reverse(OUTSIDE), 64, payload=b"an answer", ident=77))
    got = await inside.receive()
    wanted = frame6((CLIENT_MAC, MAC1), *reverse(INSIDE), 63, payload=b"an answer", traffic_class=tos)
    assert got == wanted, f"{got.hex()} is not {wanted.hex()}"


async def given(switch, queue, inside):
    """Sends a datagram that no entry translates, and returns the controller's packet."""
    inside.send(question())
    packet = await asyncio.wait_for(queue.get(), PATIENCE)
    assert packet.payload == question(), packet
    assert (packet["reason"], packet["port"]) == (NO_ENTRY, 1), packet


async def play(switch):
    inside, outside = Wire(DEVICE1), Wire(DEVICE2)
    queue = asyncio.Queue()

    async def collect():
        async for packet in switch.read_packets(eth_types=[0x86DD]):
            queue.put_nowait(packet)

    task = asyncio.create_task(collect())
    await switch.write(list(host()))
    await given(switch, queue, inside)
    await switch.write([fy.P4PacketOut(frame4((SERVER_MAC, MAC2), *OUTSIDE, 63), kind=0, port=2)])
    assert await outside.receive() == frame4((SERVER_MAC, MAC2), *OUTSIDE, 63)
    print("packets to and from the controller", flush=True)

    await switch.write([+entry for entry in session()])
    assert entries_of(await read_session(switch)) == entries_of(session())
    await translated(inside, outside, 0)
    await switch.write([~entry for entry in session(0, 0xB8)])
    assert entries_of(await read_session(switch)) == entries_of(session(0, 0xB8))
    await translated(inside, outside, 0xB8)
    counted = {}
    async for entry in switch.read([fy.P4CounterEntry("entry_packets", index=n) for n in range(3)]):
        counted[entry.index] = (entry.packet_count, entry.byte_count)
    # From the IP header on, as they arrived.
    assert counted == {0: (2, 2 * (48 + 8)), 1: (2, 2 * (28 + 9)), 2: (0, 0)}, counted
    print("session", flush=True)

    await switch.write([-entry for entry in session()])
    assert not await read_session(switch)
    await given(switch, queue, inside)
    async for entry in switch.read([fy.P4CounterEntry("to_controller", index=NO_ENTRY)]):
        assert entry.packet_count == 2, entry
    task.cancel()


async def main():
    options = fy.SwitchOptions(p4info=Path(P4INFO), p4blob=Path(PROGRAM))
    async with fy.Switch("first", ADDRESS, options) as switch:
        assert switch.is_primary, switch
        print("pipeline", flush=True)
        await play(switch)
    print("a session came and went", flush=True)


asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))
