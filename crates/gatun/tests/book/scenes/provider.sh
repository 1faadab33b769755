# Scene: a provider's translator in this namespace. IPv6-only subscribers are behind `inside`, an IPv4-only server behind
# `outside`. The daemon runs with a log, events, an API for tokens and static bindings; 2001:db8:1::5 has two sessions.
for host in home world; do
    ip netns add $host
    ip -n $host link set lo up
done
ip link add inside type veth peer name eth0 netns home
ip link add outside type veth peer name eth0 netns world
ip address add 2001:db8:1::1/64 dev inside nodad
ip address add 198.51.100.1/24 dev outside
ip -n home address add 2001:db8:1::5/64 dev eth0 nodad
ip -n world address add 198.51.100.7/24 dev eth0
ip link set inside up
ip link set outside up
ip -n home link set eth0 up
ip -n world link set eth0 up
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
: >/etc/resolv.conf
ip -n home route add default via 2001:db8:1::1
ip -n world route add 192.0.2.0/28 via 198.51.100.1
mkdir -p /etc/gatun
cat >/etc/gatun/gatun.toml <<'EOF'
[[pool]]
name = "res"
prefixes = "192.0.2.7"
allocation = { kind = "blocks", size = 256, blocks_per_subscriber = 4 }

[[nat64]]
name = "home"
pool6 = "2001:db8:64::/96"
pool = "res"

[[siit]]
name = "dc"
pool6 = "2001:db8:46::/96"
eam = [
    { v4 = "203.0.113.5", v6 = "2001:db8:5::80" },
]

[events]
file = "/var/lib/gatun/events.json"

[log]
directory = "/var/lib/gatun/log"
EOF
gatun run /etc/gatun/gatun.toml >/run/gatun.log 2>&1 &
disown
for i in $(seq 100); do grep -q "translating with" /run/gatun.log && break; sleep 0.05; done
grep -q "translating with" /run/gatun.log
for i in 1 2; do ip netns exec home ping -c 1 -W 2 2001:db8:64::198.51.100.7 >/dev/null; done
