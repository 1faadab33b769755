//! Gatun on a TUN device between the cables of a bed; the kernel routes to the device and from it.

use crate::bed::{Bed, MIDDLE};
use crate::middle::{Gatun, Place, Programs, SOCKET};
use gatun_api::client::Client;
use gatun_testkit::traffic::{Family, Traffic};
use gatun_testkit::{Error, Namespace};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Time limit for a state to be reached.
const PATIENCE: Duration = Duration::from_secs(20);
const STATE: &str = "/run/gatun-lab-state";

/// Settings of Gatun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Value of `kernel` in `[fastpath]`; `None` if this Gatun has no such section.
    pub(crate) kernel: Option<&'static str>,
    /// Sessions that the kernel has room for.
    pub(crate) kernel_sessions_max: u32,
    pub(crate) lease: Duration,
    /// Packets after which a TCP session is given to the kernel; `None` for Gatun's default.
    pub(crate) tcp_packets: Option<u8>,
    /// Translates at the interfaces, too.
    pub(crate) xdp: bool,
}

/// Counts of the fast path, as the API answers them; zero without a fast path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offloaded {
    /// Sessions in the kernel.
    pub(crate) sessions: u64,
    pub(crate) installed: u64,
    pub(crate) removed: u64,
    pub(crate) refused_full: u64,
    pub(crate) install_p99_us: u64,
    /// Packets translated in the kernel.
    pub(crate) translated: u64,
    /// Part of them: at the interfaces.
    pub(crate) xdp_translated: u64,
}

/// Gatun, running or killed.
pub(crate) struct Tun<'a> {
    /// Namespace of the device.
    host: &'a Namespace,
    programs: &'a Programs,
    traffic: &'a Traffic,
    settings: Settings,
    gatun: Option<Gatun>,
}

impl<'a> Tun<'a> {
    /// Starts Gatun, and routes the generator's packets to its device.
    pub(crate) fn start(
        bed: &'a Bed,
        programs: &'a Programs,
        traffic: &'a Traffic,
        settings: Settings,
    ) -> anyhow::Result<Tun<'a>> {
        // Sessions of an earlier run.
        let _ = std::fs::remove_dir_all(STATE);
        route(bed)?;
        let mut tun = Tun { host: &bed.middle, programs, traffic, settings, gatun: None };
        tun.start_again()?;
        if traffic.spec().family == Family::V4 {
            bed.middle.steer_private()?;
        }
        Ok(tun)
    }

    /// Starts Gatun after it was killed.
    pub(crate) fn start_again(&mut self) -> Result<(), Error> {
        let config = self.config();
        self.gatun = Some(Gatun::start(self.host, Place::Anywhere, self.programs, "gatun", &config)?);
        Ok(())
    }

    /// Kills Gatun.
    pub(crate) fn kill(&mut self) -> Result<(), Error> {
        match self.gatun.take() {
            Some(gatun) => gatun.kill(),
            None => Err(Error("Gatun does not run".into())),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.running()?.signal(signal)
    }

    /// Runs `ip` in the namespace of the device.
    pub(crate) fn ip(&self, line: &str) -> Result<(), Error> {
        self.host.ip(line)
    }

    /// Switches the fast path on or off by a reload.
    pub(crate) fn switch(&mut self, kernel: &'static str) -> Result<(), Error> {
        self.settings.kernel = Some(kernel);
        let config = self.config();
        self.running()?.reload(self.programs, "gatun", &config)
    }

    /// Ends all sessions.
    pub(crate) fn clear(&self) -> Result<u64, Error> {
        let cleared: gatun_api::types::Cleared =
            client().ask("DELETE", "/v1/sessions?all=true", &[]).map_err(|e| Error(e.to_string()))?;
        Ok(cleared.sessions)
    }

    /// Sessions of the engine.
    pub(crate) fn sessions(&self) -> Result<u64, Error> {
        self.running()?.counters().map(|counters| counters.sessions)
    }

    /// Packets that the device's queue and the cables dropped so far, because they were full.
    pub(crate) fn queue_drops(&self) -> Result<u64, Error> {
        let mut dropped = 0;
        for device in ["nat64", "a0", "b0"] {
            let json = self.host.run(&format!("ip -j -s link show dev {device}"))?;
            let value: serde_json::Value = serde_json::from_str(&json).map_err(|e| Error(e.to_string()))?;
            let count = value[0]["stats64"]["tx"]["dropped"].as_u64();
            dropped += count.ok_or_else(|| Error(format!("{device} has no count of drops: {json}")))?;
        }
        Ok(dropped)
    }

    /// Reason why the kernel has no fast path although it is configured, if it has none.
    pub(crate) fn unavailable(&self) -> Result<Option<String>, Error> {
        let answer: serde_json::Value =
            client().get("/v1/fastpath").map_err(|e| Error(format!("/v1/fastpath: {e}")))?;
        let is_unavailable = answer["state"] == "unavailable";
        Ok(is_unavailable.then(|| answer["why"].as_str().unwrap_or("no reason given").to_owned()))
    }

    /// Resident memory of Gatun, MiB.
    pub(crate) fn memory_mib(&self) -> Option<f64> {
        self.gatun.as_ref().and_then(Gatun::memory_mib)
    }

    /// Counts of the fast path.
    pub(crate) fn offloaded(&self) -> Result<Offloaded, Error> {
        if self.settings.kernel.is_none() {
            return Ok(Offloaded::default());
        }
        let answer: serde_json::Value =
            client().get("/v1/fastpath").map_err(|e| Error(format!("/v1/fastpath: {e}")))?;
        let number = |key: &str| {
            answer[key].as_u64().ok_or_else(|| Error(format!("/v1/fastpath has no {key}: {answer}")))
        };
        let instances = answer["instances"].as_array().map(Vec::as_slice).unwrap_or_default();
        let sum = |key: &str| instances.iter().filter_map(|of| of[key].as_u64()).sum();
        Ok(Offloaded {
            sessions: number("sessions")?,
            installed: number("installed")?,
            removed: number("removed")?,
            refused_full: number("refused_full")?,
            install_p99_us: number("install_p99_us")?,
            translated: sum("translated"),
            xdp_translated: sum("xdp_translated"),
        })
    }

    /// Waits until the fast path's counts are as wanted; returns the time that it took, `None` if they were
    /// not in time.
    pub(crate) fn wait_until(
        &self,
        is_reached: impl Fn(&Offloaded) -> bool,
    ) -> Result<Option<Duration>, Error> {
        let begin = Instant::now();
        while !is_reached(&self.offloaded()?) {
            if begin.elapsed() > PATIENCE {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(begin.elapsed()))
    }

    /// Ends Gatun.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        if self.traffic.spec().family == Family::V4 {
            self.host.unsteer_private()?;
        }
        match self.gatun.take() {
            Some(gatun) => gatun.stop().map(drop),
            None => Ok(()),
        }
    }

    fn running(&self) -> Result<&Gatun, Error> {
        self.gatun.as_ref().ok_or_else(|| Error("Gatun does not run".into()))
    }

    fn config(&self) -> String {
        let spec = self.traffic.spec();
        let flows = u64::from(self.traffic.flows());
        let addresses = (2 * flows).div_ceil(64_512).next_power_of_two();
        let pool = format!("198.18.0.0/{}", 32 - addresses.ilog2());
        let (prefix, instance) = match spec.family {
            Family::V6 => ("\"2001:db8:64::/96\", ", "[[nat64]]\npool6 = \"2001:db8:64::/96\""),
            Family::V4 => ("", "[[nat44]]\ninside = \"100.64.0.0/10\""),
        };
        let Settings { kernel, kernel_sessions_max, lease, tcp_packets, xdp } = self.settings;
        let tcp_packets = tcp_packets.map(|count| format!("tcp_packets = {count}\n")).unwrap_or_default();
        let xdp = if xdp { format!("xdp = {MIDDLE:?}\n") } else { String::new() };
        let fast_path = kernel.map(|kernel| {
            format!(
                "[fastpath]\nkernel = \"{kernel}\"\nsessions_max = {kernel_sessions_max}\nlease = \"{}s\"\n{xdp}{tcp_packets}",
                lease.as_secs()
            )
        });
        format!(
            "[api]\nlisten = \"unix:{SOCKET}\"\n[state]\ndirectory = \"{STATE}\"\n\
             [[port]]\ndevice = \"nat64\"\nroutes = [{prefix}\"{pool}\"]\n\
             [[pool]]\nprefixes = \"{pool}\"\n{instance}\n\
             [limits]\nsessions_max = {}\nsubscribers_max = {}\n{}",
            // The rest of a table is reserved for subscribers with few sessions.
            (2 * flows).max(1024),
            spec.subscribers.max(1024),
            fast_path.unwrap_or_default(),
        )
    }
}

fn client() -> Client {
    Client::new(SOCKET)
}

/// Routes of the generator's hosts and of the servers.
fn route(bed: &Bed) -> Result<(), Error> {
    bed.middle.forward()?;
    for route in [
        "-6 route replace 2001:db8:8000::/33 via 2001:db8:1::2",
        "route replace 100.64.0.0/10 via 10.1.0.2",
        "route replace 198.19.0.0/16 via 198.51.100.2",
    ] {
        bed.middle.ip(route)?;
    }
    Ok(())
}

/// Lets the kernel forward the generator's packets untranslated.
pub(crate) fn route_plain(bed: &Bed) -> Result<(), Error> {
    route(bed)?;
    bed.middle.ip("-6 route replace 2001:db8:64::/96 via 2001:db8:2::2")
}

/// Removes the route of [`route_plain`].
pub(crate) fn unroute_plain(bed: &Bed) -> Result<(), Error> {
    bed.middle.ip("-6 route del 2001:db8:64::/96")
}
