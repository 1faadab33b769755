#!/bin/busybox sh
# First process of the guest: creates a network, and runs a daemon through the steps of the kernel's command line.
# Each step writes `ok NAME` or `FAILED NAME reason` to the second serial port, which the host reads.
#
#   client (netns) eth0 --- inside [ this namespace ] outside --- eth0 server (netns)
#   2001:db8:1::2  100.64.0.2                                     198.51.100.2
#
# With TUN the translator is .1, an address of its host; on an Ethernet it is .64.

/bin/busybox mkdir -p /proc /sys /dev /tmp /run /bin
/bin/busybox --install -s /bin
export PATH=/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
exec 3>/dev/ttyS1

DAEMON_LOG=/tmp/daemon
SERVER=198.51.100.2
SERVER_NAT64=2001:db8:64::c633:6402
SERVER_SIIT=2001:db8:46::c633:6402
CONTENT=1000000

# step NAME COMMAND...: the first word of NAME is its group. After a failure the rest of the group is not tried.
broken=
step() {
  local step=$1
  shift
  if [ -n "$broken" ]; then
    echo "FAILED $step: not tried, as \"$broken\" has failed" >&3
  elif "$@" >/tmp/step 2>&1; then
    echo "ok $step" >&3
  else
    broken=$step
    echo "FAILED $step: $(tail -n 12 /tmp/step | tr '\n' '|') log: $(tail -n 6 $DAEMON_LOG 2>/dev/null | tr '\n' '|')" >&3
  fi
}

fails() {
  echo "$*"
  return 1
}

# until_true SECONDS COMMAND...
until_true() {
  local tries=$(($1 * 10))
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    usleep 100000
  done
}

says() {
  until_true 30 grep -q -- "$1" $DAEMON_LOG || fails "the daemon did not log: $1"
}

## The network.

client() { /sbin/ip netns exec client "$@"; }
server() { /sbin/ip netns exec server "$@"; }

# link HOST DEVICE: creates a cable with as many queues as the daemon has workers.
link() {
  /sbin/ip link add "$2" numrxqueues $queues numtxqueues $queues type veth \
    peer name eth0 numrxqueues $queues numtxqueues $queues netns "$1" &&
    /sbin/ip link set "$2" up && /sbin/ip -n "$1" link set eth0 up && /sbin/ip -n "$1" link set lo up
}

# network QUEUES ROUTER: recreates both cables; the translator's addresses on them end in ROUTER.
network() {
  local queues=$1
  /sbin/ip link del inside 2>/dev/null
  /sbin/ip link del outside 2>/dev/null
  link client inside && link server outside && addresses &&
    /sbin/ip address add 100.64.0.1/24 dev inside &&
    /sbin/ip address add 198.51.100.1/24 dev outside &&
    /sbin/ip -n client route add default via "100.64.0.$2" &&
    /sbin/ip -n server route add default via "198.51.100.$2" || return
  if has_ipv6; then
    /sbin/ip address add 2001:db8:1::1/64 dev inside nodad &&
      /sbin/ip -n client route add default via "2001:db8:1::$2" || return
  fi
  # In native mode the program gets single packets; in skb mode it would get unsegmented super-packets.
  /sbin/ip -n client link set eth0 gso_max_segs 1 && /sbin/ip -n server link set eth0 gso_max_segs 1
}

has_ipv6() { [ -d /proc/sys/net/ipv6 ]; }

# Addresses and routes of the hosts.
addresses() {
  ! has_ipv6 || /sbin/ip -n client address add 2001:db8:1::2/64 dev eth0 nodad || return
  /sbin/ip -n client address add 100.64.0.2/24 dev eth0 && /sbin/ip -n server address add $SERVER/24 dev eth0
}

hosts() {
  /sbin/ip link set lo up &&
    /sbin/ip netns add client && /sbin/ip netns add server &&
    sysctl -w net.ipv4.ip_forward=1 && { ! has_ipv6 || sysctl -w net.ipv6.conf.all.forwarding=1; } &&
    mkdir -p /tmp/www && head -c $CONTENT /dev/urandom >/tmp/www/content &&
    server httpd -p 80 -h /tmp/www
}

# fetch URL: TCP in both directions, compared byte by byte.
fetch() {
  client timeout 30 wget -q -O - "http://$1/content" | cmp - /tmp/www/content || fails "$1: the content differs"
}

# reaches PING ADDRESS: the first packets may wait for a neighbour.
reaches() { until_true 10 client "$1" -c 1 -W 2 "$2"; }

nat64_carries() { reaches ping6 $SERVER_NAT64 && fetch "[$SERVER_NAT64]"; }
siit_carries() { reaches ping6 $SERVER_SIIT && fetch "[$SERVER_SIIT]"; }
nat44_carries() { reaches ping $SERVER && fetch $SERVER; }

## The daemon.

TRANSLATION='
[[pool]]
prefixes = ["192.0.2.1", "192.0.2.2"]
[[nat64]]
pool6 = "2001:db8:64::/96"
[[siit]]
pool6 = "2001:db8:46::/96"
eam = [{ v4 = "192.0.2.9", v6 = "2001:db8:1::2" }]
[[nat44]]
inside = ["100.64.0.0/10"]
'
OWN='
[translator]
own4 = "192.0.2.14"
own6 = "2001:db8:ffff::1"
'

# ethernet MODE QUEUES
ethernet() {
  for port in inside:2001:db8:1::64/64,100.64.0.64/24 outside:198.51.100.64/24; do
    printf '[[port]]\nbackend = "xdp"\ndevice = "%s"\nmode = "%s"\nqueues = %s\naddresses = ["%s"]\n' \
      "${port%%:*}" "$1" "$2" "$(echo "${port#*:}" | sed 's/,/", "/g')"
  done
  echo "$TRANSLATION"
}

tun() { printf '%s[[port]]\ndevice = "nat64"\nqueues = %s\n%s' "$OWN" "$1" "$TRANSLATION"; }

# start CONFIGURATION [PREFIX...]: starts a daemon, optionally by a wrapper program, and waits until it translates.
start() {
  echo "$1" >/tmp/gatun.toml
  shift
  # The log still has the messages of the previous daemon.
  : >$DAEMON_LOG
  "$@" gatun run /tmp/gatun.toml >$DAEMON_LOG 2>&1 &
  daemon=$!
  until_true 60 translates_or_ended && translates || fails "no daemon: $(tail -n 3 $DAEMON_LOG)"
}

translates() { grep -q "translating with" $DAEMON_LOG; }
translates_or_ended() { translates || ended; }

# NAT44 on TUN needs policy rules: packets go into the device once, and packets from it follow the main table.
steer() {
  /sbin/ip rule del priority 100 2>/dev/null
  /sbin/ip rule del priority 101 2>/dev/null
  /sbin/ip rule add priority 100 iif nat64 lookup main &&
    /sbin/ip rule add priority 101 from 100.64.0.0/10 lookup 4464 &&
    /sbin/ip route replace default dev nat64 table 4464
}

stop() {
  kill "$daemon" && until_true 20 ended || return
  grep -q "every packet received is accounted for" $DAEMON_LOG || fails "packets are not accounted for"
}

killed() { kill -9 "$daemon" && until_true 10 ended; }
ended() { ! kill -0 "$daemon" 2>/dev/null; }

reloaded() {
  sed -i 's/"192.0.2.2"\]/"192.0.2.2", "192.0.2.3"]/' /tmp/gatun.toml
  kill -HUP "$daemon"
  says "192.0.2.3" && nat64_carries
}

# Checks capabilities: none in any thread of the daemon, except $2 in the one that watches interfaces; $1 in the network helper.
rights() {
  local thread name effective allowed threads=0 helper
  helper=$(grep -l "^PPid:.$daemon\$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3)
  [ -n "$helper" ] || fails "no network helper" || return
  effective=$((0x$(sed -n 's/^CapEff:\t//p' "/proc/$helper/status")))
  [ $effective -eq "$1" ] || fails "the network helper has the capabilities $effective" || return
  grep -q '^Seccomp:.2$' "/proc/$helper/status" || fails "the network helper has no seccomp filter" || return
  for thread in "/proc/$daemon/task/"*; do
    name=$(cat "$thread/comm")
    effective=$((0x$(sed -n 's/^CapEff:\t//p' "$thread/status")))
    case $name in links*) allowed=${2:-0} ;; *) allowed=0 ;; esac
    [ $((effective & ~allowed)) -eq 0 ] || fails "thread $name has the capabilities $effective" || return
    grep -q '^NoNewPrivs:.1$' "$thread/status" || fails "thread $name may gain privileges" || return
    grep -q '^Seccomp:.2$' "$thread/status" || fails "thread $name has no seccomp filter" || return
    threads=$((threads + 1))
  done
  [ $threads -gt 3 ] || fails "only $threads threads"
}

NET_ADMIN=$((1 << 12))
XDP=$((1 << 12 | 1 << 13 | 1 << 14 | 1 << 39))
IPC_LOCK=$((1 << 14))

# The log names the missing parts of the sandbox on this kernel, and `doctor` does the same.
sandboxed() {
  rights $NET_ADMIN || return
  gatun doctor >/tmp/doctor
  for part in "truncat" "TCP" "ioctl" "abstract"; do
    case $1 in
      whole) grep "sandbox" $DAEMON_LOG /tmp/doctor | grep -q "$part" && { fails "$part is reported as missing"; return 1; } ;;
      *) grep "sandbox" $DAEMON_LOG | grep -q "$part" && grep "sandbox" /tmp/doctor | grep -q "$part" ||
        fails "$part is missing but not reported: $(grep sandbox $DAEMON_LOG /tmp/doctor)" || return ;;
    esac
  done
  grep -q "sandbox: .*seccomp" $DAEMON_LOG || fails "$(grep sandbox $DAEMON_LOG)"
}

program_on() { /sbin/ip -d link show "$1" | grep -q "prog/xdp"; }
no_program() { ! program_on inside && ! program_on outside; }

## Steps, by group.

steps_tun() {
  network 1 1
  step "tun starts" start "$(tun 1)"
  step "tun steers" steer
  step "tun nat64" nat64_carries
  step "tun siit" siit_carries
  step "tun nat44" nat44_carries
  case $(uname -r) in 6.1.*) step "tun sandbox" sandboxed partly ;; *) step "tun sandbox" sandboxed whole ;; esac
  step "tun reload" reloaded
  step "tun kill -9" killed
  step "tun starts again" start "$(tun 1)"
  step "tun goes on with its sessions" says "of the previous process in"
  step "tun nat64 again" nat64_carries
  step "tun accounts" stop
}

# The kernel translates established sessions. The fetch is repeated until it has.
in_kernel() { nat64_carries && gatun show fastpath -o json | grep -q '"translated": *[1-9]'; }
attached() {
  gatun show fastpath -o json >/tmp/fastpath && grep -q "\"hook\": *\"$1\"" /tmp/fastpath || fails "$(cat /tmp/fastpath)"
}

# Translated packets, over all instances.
translated() { gatun show fastpath -o json | sed -n 's/.*"translated": *\([0-9]*\).*/\1/p' | awk '{ n += $1 } END { print n + 0 }'; }
translates_more() {
  local before
  before=$(translated)
  fetch "[$SERVER_NAT64]" && until_true 10 eval "[ \$(translated) -gt $((before + 10)) ]" || fails "$(gatun show fastpath)"
}

# The lease depends on no time of day.
clock_jumps() {
  for seconds in 86400 -172800 86400; do
    date -s "@$(($(date +%s) + seconds))" && usleep 500000 && translates_more || return
  done
}

# A helper of the daemon attaches the programs again. Without tcx, the daemon notices by packets that pass
# between two of its looks, so the fetch is repeated, at most 30 times.
detached() {
  gatun fastpath detach /tmp/gatun.toml && until_true 3 attached_again && translates_more ||
    fails "$(gatun show fastpath)"
}
attached_again() { nat64_carries && gatun show fastpath -o json | grep -q '"attached_again": *[1-9]'; }

doctor_says() { gatun doctor >/tmp/doctor; grep -q "$1" /tmp/doctor || fails "$(cat /tmp/doctor)"; }

steps_fastpath() {
  local hook=tcx says="has tcx" configuration
  case $(uname -r) in 6.1.*) hook=clsact says="has no tcx: the program is a filter of a clsact qdisc" ;; esac
  configuration="$(tun 1)
[fastpath]
kernel = \"auto\""
  network 1 1
  step "fastpath starts" start "$configuration"
  step "fastpath is attached" attached $hook
  step "fastpath steers" steer
  step "fastpath translates" until_true 10 in_kernel
  step "fastpath doctor" doctor_says "$says"
  step "fastpath nat44" nat44_carries
  step "fastpath clock" clock_jumps
  step "fastpath kill -9" killed
  step "fastpath starts again" start "$configuration"
  step "fastpath translates again" until_true 10 in_kernel
  step "fastpath detached" detached
  step "fastpath accounts" stop
}

steps_tun_queues() {
  network 1 1
  step "tun_queues starts" start "$(tun 2)"
  step "tun_queues has two workers" says "translating with 2 workers"
  step "tun_queues steers" steer
  step "tun_queues nat64" nat64_carries
  step "tun_queues nat44" nat44_carries
  step "tun_queues accounts" stop
}

# xdp GROUP MODE QUEUES [PREFIX...]
xdp() {
  local group=$1 mode=$2 queues=$3
  shift 3
  network "$queues" 64
  xdp_carries "$@"
}

xdp_carries() {
  step "$group starts" start "$(ethernet "$mode" "$queues")" "$@"
  step "$group runs in its mode" says "($mode)"
  step "$group nat64" nat64_carries
  step "$group siit" siit_carries
  step "$group nat44" nat44_carries
  step "$group rights" rights $XDP $IPC_LOCK
}

steps_native() {
  xdp native native 1
  step "native reload" reloaded
  step "native kill -9" killed
  step "native leaves no program" until_true 10 no_program
  step "native starts again" start "$(ethernet native 1)"
  step "native nat64 again" nat64_carries
  step "native accounts" stop
}

steps_skb() {
  xdp skb skb 1
  step "skb accounts" stop
}

steps_queues() {
  xdp queues native 2
  step "queues has two workers" says "translating with 2 workers"
  step "queues accounts" stop
}

# Renames a card.
card() { /sbin/ip link set "$(grep -l "$1" /sys/class/net/*/address | cut -d / -f 5)" name "$2"; }

# The virtual machine's cards replace the client's cable: the host connects them.
virtio_network() {
  /sbin/ip link del inside && card 02:00:00:00:00:00 inside && card 02:00:00:00:00:01 far &&
    /sbin/ip link set far netns client && /sbin/ip -n client link set far name eth0 &&
    /sbin/ip -n client link set eth0 up && /sbin/ip link set inside up &&
    /sbin/ip -n client address add 2001:db8:1::2/64 dev eth0 nodad &&
    /sbin/ip -n client address add 100.64.0.2/24 dev eth0 &&
    /sbin/ip -n client route add default via 2001:db8:1::64 &&
    /sbin/ip -n client route add default via 100.64.0.64
}

steps_virtio() {
  local group=virtio mode=native queues=1
  network 1 64
  step "virtio network" virtio_network
  xdp_carries
  step "virtio accounts" stop
}

# The card of the client's cable has the router's addresses. A third card has a large MTU.
fastpath_cards() {
  virtio_network && /sbin/ip address add 100.64.0.1/24 dev inside &&
    /sbin/ip address add 2001:db8:1::1/64 dev inside nodad &&
    /sbin/ip -n client route replace default via 2001:db8:1::1 &&
    card 02:00:00:00:00:02 large && /sbin/ip link set large mtu 9000 up &&
    server ethtool -K eth0 gro on tx off
}

cards_back() {
  /sbin/ip link set inside down && /sbin/ip link set inside name card0 && /sbin/ip address flush dev card0 &&
    /sbin/ip -n client link set eth0 down && /sbin/ip -n client link set eth0 name far &&
    /sbin/ip -n client link set far netns 1
}

# Packets that the program translated at network interfaces, over all instances.
translated_by_xdp() {
  gatun show fastpath -o json | sed -n 's/.*"xdp_translated": *\([0-9]*\).*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}
at_cards() { nat64_carries && [ "$(translated_by_xdp)" -gt 500 ]; }

steps_fastpath_virtio() {
  network 1 1
  step "fastpath_virtio network" fastpath_cards
  step "fastpath_virtio starts" start "$(tun 1)
[fastpath]
kernel = \"auto\"
xdp = [\"inside\", \"outside\", \"large\"]"
  step "fastpath_virtio is attached" says "attached to inside by XDP"
  step "fastpath_virtio names a refusal" says "no XDP at large: .*its driver refuses XDP, perhaps because of its MTU"
  step "fastpath_virtio translates" until_true 10 at_cards
  step "fastpath_virtio accounts" stop
  step "fastpath_virtio returns the cards" cards_back
}

# A user with only the capabilities of docs/how-to/xdp.md, as with AmbientCapabilities= in a unit.
steps_ambient() {
  chmod 777 /run /tmp
  rights=+net_admin,+net_raw,+bpf,+ipc_lock
  xdp ambient native 1 /sbin/setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps $rights --ambient-caps $rights \
    --bounding-set -all,$rights
  step "ambient accounts" stop
}

# Without IPv6, the daemon and `doctor` report it; NAT44 alone works.
steps_ipv6_off() {
  echo "$(tun 1)" >/tmp/gatun.toml
  says_ipv6_is_off() { "$@" >$DAEMON_LOG 2>&1; cat $DAEMON_LOG; grep -qE "IPv6 is disabled in this kernel" $DAEMON_LOG; }
  step "ipv6_off run" says_ipv6_is_off timeout 20 gatun run /tmp/gatun.toml
  step "ipv6_off doctor" says_ipv6_is_off gatun doctor /tmp/gatun.toml
  network 1 1
  step "ipv6_off nat44 starts" start '
[translator]
own4 = "192.0.2.14"
[[port]]
device = "nat64"
[[pool]]
prefixes = ["192.0.2.1"]
[[nat44]]
inside = ["100.64.0.0/10"]
'
  step "ipv6_off nat44 steers" steer
  step "ipv6_off nat44 carries" nat44_carries
  step "ipv6_off nat44 accounts" stop
}

# A control group whose processes may have 120 MB together.
control_group() {
  mkdir -p /sys/fs/cgroup && mount -t cgroup2 cgroup /sys/fs/cgroup &&
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control &&
    mkdir /sys/fs/cgroup/small && echo 120M >/sys/fs/cgroup/small/memory.max &&
    printf '#!/bin/sh\necho $$ >/sys/fs/cgroup/small/cgroup.procs\nexec "$@"\n' >/tmp/in_group && chmod +x /tmp/in_group
}

# limited SESSIONS: a configuration with that many sessions.
limited() { printf '%s\n[limits]\nsessions_max = %s\n' "$(tun 1)" "$1"; }

# A daemon that its group's limit keeps from its memory says so, and how many sessions would fit. The kernel kills nobody.
refuses() {
  limited 4000000 >/tmp/gatun.toml
  timeout 30 /tmp/in_group gatun run /tmp/gatun.toml >$DAEMON_LOG 2>&1 && { fails "it runs"; return 1; }
  grep -q "the control group (memory.max) has" $DAEMON_LOG || fails "$(cat $DAEMON_LOG)" || return
  fit=$(sed -n 's/.*`sessions_max = \([0-9]*\).*/\1/p' $DAEMON_LOG | head -n 1)
  [ "${fit:-0}" -gt 100000 ] || fails "it names no number that fits: $(cat $DAEMON_LOG)" || return
  grep -q "^oom_kill 0" /sys/fs/cgroup/small/memory.events || fails "$(cat /sys/fs/cgroup/small/memory.events)"
}

steps_limit() {
  network 1 1
  step "limit group" control_group
  step "limit refuses" refuses
  step "limit starts with what fits" start "$(limited $((fit * 9 / 10)))" /tmp/in_group
  step "limit nat64" nat64_carries
  step "limit accounts" stop
}

ulimit -l 64
# Loads modules with their dependencies, whose order differs between kernels.
modules() {
  local module
  for _ in 1 2 3 4; do
    for module in /modules/*; do insmod "$module" 2>/dev/null; done
  done
  for module in /modules/*; do
    module=${module##*/}
    [ -d "/sys/module/${module%.ko}" ] || fails "no module $module" || return
  done
}
words=$(tr ' ' '\n' </proc/cmdline)
step "kernel modules" modules
step "kernel hosts" hosts
for group in $(echo "$words" | sed -n 's/^gatun.steps=//p' | tr ',' ' '); do
  "steps_$group"
  broken=
done
echo "end" >&3
poweroff -f
