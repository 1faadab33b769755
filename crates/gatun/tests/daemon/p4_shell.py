"""Controller of Gatun's own program with p4runtime-shell, which nobody of this project wrote.

p4_shell.py ADDRESS P4INFO PROGRAM DEVICE1 DEVICE2

The devices are the other ends of the switch's ports 1 and 2: an IPv6 host and an IPv4 host.
"""

import socket
import sys
from pathlib import Path

import google.protobuf.text_format
import grpc
import p4runtime_sh.shell as shell
from p4.config.v1 import p4info_pb2
from p4_packets import *
from p4runtime_sh.p4runtime import P4RuntimeClient, P4RuntimeWriteException

ADDRESS, P4INFO, PROGRAM, DEVICE1, DEVICE2 = sys.argv[1:6]
PATIENCE = 20
ELECTION = (0, 7)


class Wire:
    """The other end of a port."""

    def __init__(self, device):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((device, 0))
        self.socket.settimeout(PATIENCE)

    def send(self, frame):
        self.socket.send(frame)

    def receive(self):
        """Receives a frame of the switch; others are our own."""
        while True:
            frame, address = self.socket.recvfrom(2048)
            if address[2] != socket.PACKET_OUTGOING:
                return frame


def entry(table, key, action, arguments):
    """Entry of the form that `p4_packets` has."""
    new = shell.TableEntry(table)(action=action)
    for name, value in key.items():
        new.match[name] = str(value)
    for name, value in arguments.items():
        new.action[name] = str(value)
    return new


def entries(all):
    return [entry(*of) for of in all]


def form(entry):
    """Table, key, action and arguments. The shell sends values in full width, the switch in the shortest form."""
    message = entry.msg()
    action = message.action.action
    number = lambda value: int.from_bytes(value, "big")
    key = sorted((field.field_id, number(field.exact.value)) for field in message.match)
    arguments = sorted((param.param_id, number(param.value)) for param in action.params)
    return message.table_id, key, action.action_id, arguments


def read_session():
    return [form(found) for table in ("flows6", "flows4") for found in shell.TableEntry(table).read()]


def check_read(wanted):
    read, wanted = read_session(), [form(of) for of in wanted]
    assert read == wanted, f"{read} is not {wanted}"


def counter(name, index):
    counter = shell.CounterEntry(name)
    counter.index = index
    [found] = counter.read()
    return found.packet_count, found.byte_count


def translated(inside, outside, tos):
    """Sends a datagram in each direction, and compares what the switch sends."""
    inside.send(question())
    check_question(outside.receive(), tos)
    outside.send(answer())
    check_answer(inside.receive(), tos)


def given(inside):
    """Sends a datagram that no entry translates: the controller gets it."""
    inside.send(question())
    message = shell.client.get_stream_packet("packet", timeout=PATIENCE)
    packet = message.packet
    assert packet.payload == question(), packet
    metadata = {of.metadata_id: int.from_bytes(of.value, "big") for of in packet.metadata}
    info = shell.P4Objects(shell.P4Type.controller_packet_metadata)["packet_in"].metadata
    named = {of.name: metadata[of.id] for of in info if of.id in metadata}
    assert (named["reason"], named["port"]) == (NO_ENTRY, 1), named


def refused(write, why):
    try:
        write()
    except P4RuntimeWriteException as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"not refused: {why}")


def check_backup(entry):
    """A controller with a lower election number reads, and writes nothing."""
    backup = P4RuntimeClient(1, ADDRESS, (0, 1))
    primary, shell.client = shell.client, backup
    assert len(read_session()) == 2
    try:
        entry.delete()
        raise AssertionError("a backup has written")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.PERMISSION_DENIED, error
    finally:
        shell.client = primary
        backup.tear_down()


def play():
    inside, outside = Wire(DEVICE1), Wire(DEVICE2)
    for new in entries(host()):
        new.insert()
    given(inside)
    shell.PacketOut(direct(), kind="0", port="2").send()
    assert outside.receive() == direct()
    print("packets to and from the controller", flush=True)

    first, second = entries(session()), entries(session(0, 0xB8))
    refused(first[0].modify, "NOT_FOUND")
    for new in first:
        new.insert()
    refused(first[0].insert, "ALREADY_EXISTS")
    check_read(first)
    translated(inside, outside, 0)
    for changed in second:
        changed.modify()
    check_read(second)
    translated(inside, outside, 0xB8)
    counted = {index: counter("entry_packets", index) for index in COUNTED}
    assert counted == COUNTED, counted
    check_backup(first[0])
    print("session", flush=True)

    for old in first:
        old.delete()
    refused(first[0].delete, "NOT_FOUND")
    assert not read_session()
    given(inside)
    assert counter("to_controller", NO_ENTRY)[0] == 2


def main():
    shell.setup(1, ADDRESS, ELECTION, config=shell.FwdPipeConfig(P4INFO, PROGRAM), verbose=False)
    try:
        wanted = p4info_pb2.P4Info()
        google.protobuf.text_format.Merge(Path(P4INFO).read_text(), wanted, allow_unknown_field=True)
        assert shell.client.get_p4info() == wanted, "the switch has another p4info"
        print("pipeline", flush=True)
        play()
    finally:
        shell.teardown()
    print("a session came and went", flush=True)


main()
