# Echoes datagrams and TCP streams at a port.
import resource, select, socket, sys

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

port = int(sys.argv[1])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", port))
listener = socket.create_server(("0.0.0.0", port), backlog=1024)
for one in (udp, listener):
    one.setblocking(False)
poll = select.epoll()
by_fd = {one.fileno(): one for one in (udp, listener)}
for fd in by_fd:
    poll.register(fd, select.EPOLLIN)
print("ready", flush=True)
while True:
    for fd, _ in poll.poll():
        one = by_fd[fd]
        try:
            if one is udp:
                data, peer = udp.recvfrom(2048)
                udp.sendto(data, peer)
            elif one is listener:
                new, _ = listener.accept()
                by_fd[new.fileno()] = new
                poll.register(new.fileno(), select.EPOLLIN)
            else:
                data = one.recv(65536)
                if not data:
                    raise OSError
                one.sendall(data)
        except BlockingIOError:
            pass
        except OSError:
            # No route at this moment, or the end of a stream.
            if one not in (udp, listener):
                poll.unregister(fd)
                del by_fd[fd]
                one.close()
