"""Small peers for the demo. Senders check every byte that comes back."""
import hashlib, http.server, os, socket, sys


def server_socket(kind, port):
    family = socket.AF_INET6 if os.path.exists("/proc/net/if_inet6") else socket.AF_INET
    s = socket.socket(family, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", int(port)))
    return s


def udp_echo(port):
    s = server_socket(socket.SOCK_DGRAM, port)
    while True:
        data, peer = s.recvfrom(65535)
        s.sendto(data, peer)


def tcp_hash(port):
    """Reads to the end, then answers with the hash of the data."""
    s = server_socket(socket.SOCK_STREAM, port)
    s.listen()
    while True:
        c, _ = s.accept()
        with c:
            h = hashlib.sha256()
            while data := c.recv(1 << 20):
                h.update(data)
            c.sendall(h.hexdigest().encode())


def http_files(port, directory):
    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if os.path.exists("/proc/net/if_inet6") else socket.AF_INET

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    os.chdir(directory)
    Server(("", int(port)), Quiet).serve_forever()


def connect(kind, host, port):
    family, _, _, _, address = socket.getaddrinfo(host, int(port), type=kind)[0]
    s = socket.socket(family, kind)
    s.settimeout(5)
    s.connect(address)
    return s


def udp_send(host, port, size):
    s = connect(socket.SOCK_DGRAM, host, port)
    data = os.urandom(int(size))
    for _ in range(10):
        s.send(data)
        assert s.recv(65535) == data, "the datagram came back changed"
    print(f"10 datagrams of {size} bytes came back unchanged")


def tcp_send(host, port, size):
    s = connect(socket.SOCK_STREAM, host, port)
    data = os.urandom(int(size))
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    answer = s.recv(64, socket.MSG_WAITALL).decode()
    expected = hashlib.sha256(data).hexdigest()
    assert answer == expected, f"hash {answer}, expected {expected}"
    print(f"{int(size) // 1000000} MB, SHA-256 {answer[:16]}... at both ends")


globals()[sys.argv[1]](*sys.argv[2:])
