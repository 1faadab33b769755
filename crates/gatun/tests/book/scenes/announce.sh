# Scene: a translator that announces routes, with a routing daemon's tables empty of others.
ip link set lo up
mkdir -p /etc/gatun
cat >/etc/gatun/gatun.toml <<'END'
[[pool]]
prefixes = "192.0.2.0/28"

[[nat64]]
pool6 = "2001:db8:64::/96"

[announce]
stall = "10s"
END
gatun run /etc/gatun/gatun.toml >/run/gatun.log 2>&1 &
disown
for i in $(seq 200); do gatun health 2>/dev/null | grep -q "2 routes" && break; sleep 0.05; done
gatun health
