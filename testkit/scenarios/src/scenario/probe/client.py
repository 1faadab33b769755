# Numbered datagrams and TCP connections to an echo server, and what became of them in each phase.
# Each line of standard input begins a phase. At its end, each connection says something a last time, and the
# report is printed as JSON. A connection says its own number again and again, so an answer to another one shows.
import collections, json, math, os, resource, select, socket, sys, time

address, port, flows, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
# The file exists once all connections are open. The hosts' addresses follow.
ready, hosts = sys.argv[5], sys.argv[6:] or ["::"]
EVERY_S, GRACE_S = 0.001, 15.0
# Time between two slices of the connections, each of which says something in each round.
SLICE_S, ROUND_S = 0.01, max(0.1, connections / 2000)
# The kernel chooses the port of a connection only once it knows the server. Else ports of closed connections
# would be missing.
IP_BIND_ADDRESS_NO_PORT = 24
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

def datagrams(number):
    one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    one.setblocking(False)
    one.bind((hosts[number % len(hosts)], 0))
    one.connect((address, port))
    return one

def stream(number):
    one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    one.settimeout(10)
    one.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.bind((hosts[number % len(hosts)], 0))
    one.connect((address, port))
    one.setblocking(False)
    return one

udp = [datagrams(number) for number in range(flows)]
flow_of = {one: number for number, one in enumerate(udp)}
# Bytes said and heard of each connection, and what it says.
tcp = {stream(number): [0, 0, number.to_bytes(8, "big")] for number in range(connections)}
ended, strange = [], set()
sent_in, arrived = [], {}
phases = [time.monotonic()]
poll = select.epoll()
by_fd = {one.fileno(): one for one in udp + list(tcp)}
for fd in by_fd:
    poll.register(fd, select.EPOLLIN)
os.set_blocking(0, False)
poll.register(0, select.EPOLLIN)
turns = collections.deque(tcp)
open(ready, "w").close()

def end(one, why):
    ended.append(why)
    poll.unregister(one.fileno())
    del tcp[one]

def take(timeout):
    """Takes what has arrived. Returns false at the end of standard input."""
    for fd, _ in poll.poll(timeout):
        if fd == 0:
            line = os.read(0, 4096)
            if not line:
                return False
            phases.extend([time.monotonic()] * line.count(b"\n"))
            continue
        one = by_fd[fd]
        try:
            if one in tcp:
                data = one.recv(65536)
                if not data:
                    end(one, "closed")
                else:
                    _, heard, word = tcp[one]
                    begin = heard % len(word)
                    if (word * (len(data) // len(word) + 2))[begin:begin + len(data)] != data:
                        strange.add(fd)
                    tcp[one][1] += len(data)
            else:
                number = int.from_bytes(one.recv(64)[:8], "big")
                if number % flows != flow_of[one]:
                    strange.add(fd)
                arrived.setdefault(number, time.monotonic())
        except BlockingIOError:
            pass
        except OSError as error:
            if one in tcp:
                end(one, str(error))
    return True

def say(one):
    try:
        tcp[one][0] += one.send(tcp[one][2])
    except BlockingIOError:
        pass
    except OSError as error:
        end(one, str(error))

next_s = say_s = time.monotonic()
goes_on = True
while goes_on:
    now = time.monotonic()
    if now >= next_s:
        number = len(sent_in)
        sent_in.append(len(phases) - 1)
        try:
            udp[number % flows].send(number.to_bytes(8, "big") + bytes(56))
        except OSError:
            pass  # no route at this moment: it is lost
        next_s = max(next_s + EVERY_S, now - 0.05)
    if now >= say_s:
        say_s = now + SLICE_S
        for _ in range(min(len(turns), math.ceil(connections * SLICE_S / ROUND_S))):
            one = turns[0]
            turns.rotate(-1)
            if one in tcp:
                say(one)
    goes_on = take(max(0, min(next_s, say_s) - time.monotonic()))

# Each connection goes on.
poll.unregister(0)
for count, one in enumerate(list(tcp)):
    if one in tcp:
        say(one)
    if count % 20 == 0:
        take(0.005)

# Late answers, and retransmissions.
last = time.monotonic() + GRACE_S
while time.monotonic() < last and any(said > heard for said, heard, _ in tcp.values()):
    take(0.1)
# A poll ends with the first answers that come.
last = time.monotonic() + 0.2
while time.monotonic() < last and len(arrived) < len(sent_in):
    take(0.05)
silent = sum(said > heard for said, heard, _ in tcp.values())
times = sorted(arrived.values())
by_flow = collections.defaultdict(list)
for number, at in arrived.items():
    by_flow[number % flows].append(at)
report = []

def longest(times, begin, until):
    # A gap belongs to the phase in which it begins.
    return 1e3 * max([b - a for a, b in zip(times, times[1:]) if begin <= a < until], default=0)

for n, begin in enumerate(phases):
    until = phases[n + 1] if n + 1 < len(phases) else float("inf")
    within = [at for at in times if begin <= at < until]
    of_flow = max((longest(sorted(times), begin, until) for times in by_flow.values()), default=0)
    numbers = [number for number, phase in enumerate(sent_in) if phase == n]
    lost = sum(number not in arrived for number in numbers)
    report.append({"sent": len(numbers), "lost": lost, "gap_ms": longest(times, begin, until),
                   "flow_gap_ms": of_flow, "received": len(within)})
why = sorted(set(ended)) + ["no answer"] * min(silent, 1)
print(json.dumps({"phases": report, "ended": len(ended) + silent, "strange": len(strange), "why": why}))
