# Times from an open connection until two boxes have its session, and times of an answer of a box, in
# milliseconds, as two lists in JSON.
import http.client, json, socket, sys, time

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sockets, hosts, server = sys.argv[4].split(","), sys.argv[5].split(","), sys.argv[6]
PATIENCE_S = 10.0
# The kernel chooses the port once it knows the server.
IP_BIND_ADDRESS_NO_PORT = 24

class Box(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def has(self, filters):
        self.request("GET", f"/v1/sessions?limit=1&{filters}")
        answer = self.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"{self.path}: {answer.status} {text}")
        return bool(json.loads(text)["items"])

boxes = [Box(path) for path in sockets]
lags, answers, kept = [], [], []
for number in range(count):
    one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    one.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    one.settimeout(10)
    one.bind((hosts[number % len(hosts)], 0))
    one.connect((address, port))
    begin = time.monotonic()
    host, inside_port = one.getsockname()[:2]
    filters = f"protocol=tcp&inside={host}&inside_port={inside_port}&remote={server}&remote_port={port}"
    without = list(boxes)
    while len(without) > len(boxes) - 2:
        without = [box for box in without if not box.has(filters)]
        if time.monotonic() > begin + PATIENCE_S:
            sys.exit(f"{host} {inside_port}: only {len(boxes) - len(without)} box has it")
    seen = time.monotonic()
    lags.append(1e3 * (seen - begin))
    boxes[0].has(filters)
    answers.append(1e3 * (time.monotonic() - seen))
    kept.append(one)
print(json.dumps([lags, answers]))
