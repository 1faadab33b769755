# Scene: a translator with two network interfaces, `eth0` towards subscribers and `eth1` towards the Internet.
for host in home world; do
    ip netns add $host
    ip -n $host link set lo up
done
ip link add eth0 type veth peer name eth0 netns home
ip link add eth1 type veth peer name eth0 netns world
ip link set eth0 up
ip link set eth1 up
ip -n home link set eth0 up
ip -n world link set eth0 up
