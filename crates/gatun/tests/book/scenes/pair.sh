# Scene: two boxes of a pair. This one is `a`; the other one is in a namespace of its own.
ip link set lo up
ip netns add b
ip link add wire type veth peer name wire netns b
ip link set wire up
ip -n b link set lo up
ip -n b link set wire up
ip address add 10.0.3.1/30 dev wire
ip -n b address add 10.0.3.2/30 dev wire
mkdir -p /etc/gatun
gatun init --pair 10.0.3.1,10.0.3.2 --mode nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.0/28 --output /etc/gatun/pair
ln -s pair/a /etc/gatun/peer
cp /etc/gatun/pair/a.toml /etc/gatun/gatun.toml
cat >>/etc/gatun/pair/b.toml <<'END'
directory = "/etc/gatun/pair/b"

[state]
directory = "off"

[api]
listen = "unix:/run/b.sock"
END
gatun run /etc/gatun/gatun.toml >/run/a.log 2>&1 &
disown
ip netns exec b gatun run /etc/gatun/pair/b.toml >/run/b.log 2>&1 &
echo $! >/run/b.pid
disown
for i in $(seq 400); do gatun peer status --quiet && break; sleep 0.05; done >/dev/null
gatun peer status
