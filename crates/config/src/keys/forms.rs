//! Forms of strings.

use super::kind::Kind;
use super::words::{PROTOCOL, words};
use gatun_nat::EventKind;

pub(super) const NAME: Kind = Kind::Text { form: "name", pattern: "^[A-Za-z0-9._-]{1,63}$" };
pub(super) const DEVICE: Kind = Kind::Text {
    form: "device name",
    pattern: "^([A-Za-z0-9._@-]{1,15}|[0-9A-Fa-f:.]{7,12}|(net|eth)_[!-~]{1,251})$",
};
pub(super) const INTERFACE: Kind =
    Kind::Text { form: "name of a network interface", pattern: "^[A-Za-z0-9._@-]{1,15}$" };
pub(super) const ARGUMENT: Kind = Kind::Text { form: "argument", pattern: "^-[!-~]+$" };
pub(super) const FILE: Kind = Kind::Text { form: "file name", pattern: "^.+$" };
pub(super) const FOLDER: Kind = Kind::Text { form: "absolute path of a directory", pattern: "^/.*$" };
pub(super) const COLLECTOR: Kind =
    Kind::Text { form: "udp:ADDRESS:PORT, tcp:ADDRESS:PORT or unix:PATH", pattern: "^(udp|tcp|unix):.+$" };
pub(super) const SIZE: Kind = Kind::Text { form: "size, as 50GiB", pattern: "^[0-9]+ *(MiB|GiB|TiB)$" };
pub(super) const ADDRESS4: Kind = Kind::Text { form: "IPv4 address", pattern: "^[0-9.]+$" };
pub(super) const ADDRESS6: Kind = Kind::Text { form: "IPv6 address", pattern: "^[0-9A-Fa-f:.]+$" };
pub(super) const ADDRESS: Kind = Kind::Text { form: "address/length", pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?$" };
pub(super) const ROUTE: Kind = Kind::Text {
    form: "prefix, or prefix via next hop",
    pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?( via [0-9A-Fa-f:.]+)?$",
};
pub(super) const NEIGHBOUR: Kind =
    Kind::Text { form: "address at MAC", pattern: "^[0-9A-Fa-f:.]+ at [0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$" };
pub(super) const SWITCH: Kind = Kind::Text {
    form: "name at address:port",
    pattern: "^[A-Za-z0-9._-]{1,63} at ([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]+( device [0-9]+)?$",
};
pub(super) const NET4: Kind = Kind::Text { form: "IPv4 prefix", pattern: "^[0-9.]+(/[0-9]+)?$" };
pub(super) const NET6: Kind = Kind::Text { form: "IPv6 prefix", pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?$" };
pub(super) const NET: Kind =
    Kind::Text { form: "IPv6 or IPv4 prefix", pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?$" };
pub(super) const RANGE4: Kind =
    Kind::Text { form: "IPv4 prefix or range", pattern: "^[0-9.]+(/[0-9]+| *- *[0-9.]+)?$" };
pub(super) const POOL6: Kind =
    Kind::Text { form: "IPv6 prefix", pattern: "^[0-9A-Fa-f:.]+/(32|40|48|56|64|96)$" };
pub(super) const ENDPOINT4: Kind =
    Kind::Text { form: "IPv4 address:port", pattern: "^[0-9.]+:[0-9]+( *- *[0-9]+)?$" };
pub(super) const LISTEN: Kind = Kind::Text { form: "unix:PATH, or \"off\"", pattern: "^(unix:/.*[^/]|off)$" };
pub(super) const PATH: Kind = Kind::Text { form: "absolute path of a file", pattern: "^/.*[^/]$" };
pub(super) const HOST_NAME: Kind =
    Kind::Text { form: "name or address", pattern: "^[0-9A-Za-z_.:-]{1,253}$" };
pub(super) const DIRECTORY: Kind = Kind::Text { form: "directory, or \"off\"", pattern: "^(/.*[^/].*|off)$" };
pub(super) const GROUP: Kind = Kind::Text { form: "group", pattern: "^[A-Za-z0-9_.$-]{1,32}$" };
pub(super) const ENDPOINT: Kind =
    Kind::Text { form: "address:port", pattern: "^([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]+$" };
pub(super) const ENDPOINT6: Kind =
    Kind::Text { form: "[IPv6 address]:port", pattern: "^\\[[0-9A-Fa-f:.]+\\]:[0-9]+( *- *[0-9]+)?$" };
pub(super) const EVENT_KIND: Kind = Kind::Words(|| EventKind::ALL.iter().map(|kind| kind.name()).collect());
pub(super) const PROTOCOL_KIND: Kind = Kind::Words(|| words(PROTOCOL));
pub(super) const REASON: Kind =
    Kind::Words(|| gatun_wire::DropReason::ALL.iter().map(|r| r.name()).collect());
pub(super) const DAEMON: Kind =
    Kind::Text { form: "https://HOST:PORT or /PATH", pattern: "^(https://[^/@ ]+|/.*[^/])$" };
pub(super) const NODE_NAME: Kind =
    Kind::Text { form: "name of a node", pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" };
pub(super) const IP_ADDRESS: Kind = Kind::Text { form: "address", pattern: "^[0-9A-Fa-f:.]+$" };
pub(super) const ETCD_ENDPOINT: Kind = Kind::Text {
    form: "http://ADDRESS:PORT or https://ADDRESS:PORT",
    pattern: "^https?://([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]+$",
};
