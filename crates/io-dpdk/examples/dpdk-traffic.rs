//! Numbered traffic through a translator over devices of DPDK, and an account of every packet (`scripts/bench-dpdk`).
//!
//!   dpdk-traffic --inside DEVICE --outside DEVICE [options]        both ends of a translator: an account as JSON
//!   dpdk-traffic --forward --inside DEVICE --outside DEVICE        copies across: the backend without an engine
//!
//! The other end's addresses are 2001:db8:1::64 inside, with 2001:db8:100::/40 by 2001:db8:1::2, the prefix
//! 2001:db8:64::/96, and outside 203.0.113.0/24 by 198.51.100.2.
//!
//!   --subscribers N  --flows N     of each; 16 and 16
//!   --size BYTES[,BYTES...]        of IPv6 frames, in turn; 128
//!   --window N                     packets on their way; 1024
//!   --rate PPS                     at most; no bound
//!   --seconds S                    5
//!   --scattered                    flows in no order
//!   --build-up                     first one packet of each flow, and an account of that on a line before
//!   --check-every N                of so many packets, one's checksum; 1
//!   --to any                       a forwarder in the translator's place, which answers nobody
//!   --core N                       the processor
//!   --progress                     a line a second on standard error
//!   --eal ARGUMENT                 passed on to DPDK; several times

use gatun_ends::{Generator, Order, Settings};
use gatun_ether::Mac;
use gatun_io_dpdk::{DeviceConfig, Dpdk, DpdkConfig, EalConfig, HugePages};
use gatun_io_ether::Frames as _;
use std::str::FromStr;
use std::time::{Duration, Instant};

type Any = Box<dyn std::error::Error>;

/// The words behind the program's name.
struct Words(Vec<String>);

impl Words {
    fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|word| word == name)
    }

    fn all<'w>(&'w self, name: &'w str) -> impl Iterator<Item = &'w str> {
        let values = self.0.iter().zip(self.0.iter().skip(1));
        values.filter(move |(word, _)| *word == name).map(|(_, value)| value.as_str())
    }

    fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T, Any> {
        match self.all(name).last() {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("{name} {text}: not a value for it").into()),
        }
    }
}

fn main() -> Result<(), Any> {
    let words = Words(std::env::args().skip(1).collect());
    let mut dpdk = open(&words)?;
    let ports = dpdk.workers.pop().ok_or("no worker")?;
    let seconds = Duration::from_secs_f64(words.get("--seconds", 5.0)?);
    if words.flag("--forward") {
        return forward(ports, seconds);
    }
    let settings = settings(&words, [Mac(dpdk.opened[0].mac), Mac(dpdk.opened[1].mac)])?;
    let flows = u64::from(settings.flows.count());
    let mut generator = Generator::new(ports, settings)?;
    if words.flag("--build-up") {
        println!("{}", serde_json::to_string(&generator.run(|now| now.tx < flows)?)?);
    }
    let progress = words.flag("--progress");
    let (mut said, mut last) = (Duration::from_secs(1), 0);
    let report = generator.run(|now| {
        if progress && now.elapsed >= said {
            eprintln!(
                "{:.0} s: {:.3} Mpps returned",
                now.elapsed.as_secs_f64(),
                (now.rx - last) as f64 / 1e6
            );
            (said, last) = (said + Duration::from_secs(1), now.rx);
        }
        now.elapsed < seconds
    })?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn open(words: &Words) -> Result<Dpdk, Any> {
    let device = |name: &str| -> Result<DeviceConfig, Any> {
        let device = words.all(name).last().ok_or_else(|| format!("{name} DEVICE is missing"))?;
        let largest =
            words.all("--size").flat_map(|sizes| sizes.split(',')).filter_map(|s| s.parse::<u16>().ok());
        let mtu = largest.max().filter(|len| *len > 1518).map(|len| len - 14);
        Ok(DeviceConfig { device: device.to_owned(), mtu })
    };
    let core = words.all("--core").map(str::parse).collect::<Result<Vec<u16>, _>>()?;
    let arguments = words.all("--eal").map(str::to_owned).collect();
    let eal = EalConfig { huge_pages: HugePages::Auto, cores: core, arguments };
    let config = DpdkConfig { devices: vec![device("--inside")?, device("--outside")?], queues: 1, eal };
    Ok(Dpdk::open(&config, || Ok(()))?)
}

fn settings(words: &Words, macs: [Mac; 2]) -> Result<Settings, Any> {
    let sizes: String = words.get("--size", "128".to_owned())?;
    let rate: f64 = words.get("--rate", 0.0)?;
    Ok(Settings {
        frame_lens: sizes.split(',').map(str::parse).collect::<Result<_, _>>()?,
        order: if words.flag("--scattered") { Order::Scattered } else { Order::Sequential },
        rate_pps: (rate > 0.0).then_some(rate),
        window: words.get("--window", 1024)?,
        check_every: words.get("--check-every", 1)?,
        to: words.all("--to").last().map(|_| Mac([2, 0, 0, 0, 0, 0xff])),
        ..Settings::of(words.get("--subscribers", 16)?, words.get("--flows", 16)?, macs)
    })
}

fn forward(mut ports: gatun_io_dpdk::Ports, seconds: Duration) -> Result<(), Any> {
    let begin = Instant::now();
    gatun_io_ether::forward(&mut ports, |_| begin.elapsed() < seconds)?;
    let stats = ports.stats();
    println!(
        "forwarded {} of {}; {:?} {:?}",
        stats.tx_packets, stats.rx_packets, stats.rx_errors, stats.tx_errors
    );
    Ok(())
}
