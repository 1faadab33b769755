"""Controller of Gatun's own program with finsy, which nobody of this project wrote.

p4_gatun_program.py ADDRESS P4INFO PROGRAM DEVICE1 DEVICE2

The devices are the other ends of the switch's ports 1 and 2: an IPv6 host and an IPv4 host. The controller gives the
switch a NAT64 session, and computes the packets that the switch has to make of its packets.
"""

import asyncio
import socket
import sys
from pathlib import Path

import finsy as fy
from p4_packets import *

ADDRESS, P4INFO, PROGRAM, DEVICE1, DEVICE2 = sys.argv[1:6]
PATIENCE = 20


def entries(*all):
    """Entries of the form that `p4_packets` has."""
    of = lambda table, key, action, arguments: fy.P4TableEntry(
        table, match=fy.P4TableMatch(**key), action=fy.P4TableAction(action, **arguments), metadata=b"session 7"
    )
    return [of(*entry) for entry in all]


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
    check_question(await outside.receive(), tos)
    outside.send(answer())
    check_answer(await inside.receive(), tos)


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
    await switch.write([+entry for entry in entries(*host())])
    await given(switch, queue, inside)
    await switch.write([fy.P4PacketOut(direct(), kind=0, port=2)])
    assert await outside.receive() == direct()
    print("packets to and from the controller", flush=True)

    first, second = entries(*session()), entries(*session(0, 0xB8))
    await switch.write([+entry for entry in first])
    assert entries_of(await read_session(switch)) == entries_of(first)
    await translated(inside, outside, 0)
    await switch.write([~entry for entry in second])
    assert entries_of(await read_session(switch)) == entries_of(second)
    await translated(inside, outside, 0xB8)
    counted = {}
    async for entry in switch.read([fy.P4CounterEntry("entry_packets", index=n) for n in range(3)]):
        counted[entry.index] = (entry.packet_count, entry.byte_count)
    assert counted == COUNTED, counted
    print("session", flush=True)

    await switch.write([-entry for entry in entries(*session())])
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
