"""Controller of a P4 switch with finsy, which nobody of this project wrote.

p4_controller.py ADDRESS P4INFO PROGRAM DEVICE1 DEVICE2 [CERTIFICATES]

The devices are the other ends of the switch's ports 1 and 2. The program is that of the server's tests. With a
directory of certificates (ca.pem, certificate.pem, key.pem), the controller speaks TLS.
"""

import asyncio
import socket
import sys
from pathlib import Path

import finsy as fy

ADDRESS, P4INFO, PROGRAM, DEVICE1, DEVICE2 = sys.argv[1:6]
CERTIFICATES = sys.argv[6:]
PATIENCE = 20


def wire(device):
    """The other end of a port."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
    sock.bind((device, 0))
    sock.setblocking(False)
    return sock


def frame(dst, src):
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + b"\x88\xb5" + bytes(46)


def known(dst, src, port):
    return fy.P4TableEntry(
        "known",
        match=fy.P4TableMatch(dst=dst, src=src),
        action=fy.P4TableAction("forward", port=port, counter=port),
        metadata=b"flow",
    )


async def receive(sock, wanted):
    """Receives this frame; others belong to the kernel."""
    loop = asyncio.get_running_loop()
    while True:
        got = await asyncio.wait_for(loop.sock_recv(sock, 2048), PATIENCE)
        if got == wanted:
            return


async def entries(switch):
    await switch.write([+known(1, 2, 2), +known(3, 4, 2)])
    ranges = fy.P4TableEntry(
        "ranges",
        match=fy.P4TableMatch(dst=(0x0100, 0xFF00)),
        action=fy.P4TableAction("forward", port=2, counter=9),
        priority=5,
    )
    prefixes = fy.P4TableEntry(
        "prefixes",
        match=fy.P4TableMatch(dst=(0x020000000000, 8)),
        action=fy.P4TableAction("forward", port=2, counter=10),
    )
    await switch.write([+ranges, +prefixes])
    read = [entry async for entry in switch.read(fy.P4TableEntry())]
    assert len(read) == 4, read
    one = [entry async for entry in switch.read(known(1, 2, 2))]
    assert len(one) == 1 and one[0].metadata == b"flow", one
    try:
        await switch.write([+known(5, 6, 2), +known(1, 2, 2)])
        raise AssertionError("the second of two equal entries was not refused")
    except fy.P4ClientError as error:
        assert "ALREADY_EXISTS" in str(error), error
    await switch.write([-known(5, 6, 2), -known(3, 4, 2)])
    await switch.write([~known(1, 2, 2)])
    read = [entry async for entry in switch.read(fy.P4TableEntry("known"))]
    assert len(read) == 1, read


async def packets(switch):
    inside, outside = wire(DEVICE1), wire(DEVICE2)
    queue = asyncio.Queue()

    async def collect():
        async for packet in switch.read_packets(eth_types=[0x88B5]):
            queue.put_nowait(packet)

    task = asyncio.create_task(collect())
    await asyncio.sleep(0)
    inside.send(frame(0x0A, 0x0B))
    packet = await asyncio.wait_for(queue.get(), PATIENCE)
    assert packet.payload == frame(0x0A, 0x0B), packet
    assert (packet["reason"], packet["port"]) == (1, 1), packet
    await switch.write([fy.P4PacketOut(frame(0x0C, 0x0D), reserved=0, port=2)])
    await receive(outside, frame(0x0C, 0x0D))
    for dst in (1, 0x0123, 0x02FFFFFFFFFF):
        inside.send(frame(dst, 2))
        await receive(outside, frame(dst, 2))
    task.cancel()
    counted = {}
    async for entry in switch.read([fy.P4CounterEntry("flows", index=n) for n in (2, 9, 10, 11)]):
        counted[entry.index] = (entry.packet_count, entry.byte_count)
    assert counted == {2: (1, 60), 9: (1, 60), 10: (1, 60), 11: (0, 0)}, counted


def credentials():
    if not CERTIFICATES:
        return None
    ca, own, key = [Path(CERTIFICATES[0], name) for name in ("ca.pem", "certificate.pem", "key.pem")]
    return fy.GRPCCredentialsTLS(cacert=ca, cert=own if own.exists() else None, private_key=key if own.exists() else None)


async def main():
    options = fy.SwitchOptions(p4info=Path(P4INFO), p4blob=Path(PROGRAM), channel_credentials=credentials())
    async with fy.Switch("first", ADDRESS, options) as switch:
        assert switch.is_primary and str(switch.p4runtime_version).startswith("1.4"), switch.p4runtime_version
        print("pipeline", flush=True)
        await entries(switch)
        print("entries", flush=True)
        await packets(switch)
        print("packets", flush=True)
    # The entries stay for a controller that comes with the same program.
    async with fy.Switch("second", ADDRESS, options) as switch:
        assert len([entry async for entry in switch.read(fy.P4TableEntry())]) == 3
        await switch.delete_all()
        assert not [entry async for entry in switch.read(fy.P4TableEntry())]
    print("entries stay until they are deleted", flush=True)


asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))
