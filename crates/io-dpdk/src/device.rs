//! Devices: look-up, properties, start, close.

use crate::eal::text;
use crate::error::DpdkError;
use crate::frame::Pool;
use crate::sys;
use std::ffi::{CStr, CString, c_int};

/// Device of the environment.
pub(crate) struct Device {
    /// Name for operators.
    pub(crate) name: String,
    /// Number of the device in the environment.
    pub(crate) port: u16,
    pub(crate) info: Info,
    /// True for the memif end that connects to the other one.
    pub(crate) is_client: bool,
}

/// Properties of a device.
#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub(crate) driver: String,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu_max: u16,
    pub(crate) queues_max: u16,
    /// Largest number of ring entries, each way; 0 if unknown.
    pub(crate) ring_max: [u16; 2],
    socket: c_int,
}

/// Counters of frames that a device did not deliver, and the result of its set-up.
pub(crate) use sys::{DeviceCounters, SetupResult};

/// Name part of a device's text.
pub(crate) fn name(device: &str) -> &str {
    device.split_once(',').map_or(device, |(name, _)| name)
}

/// Checks whether the text is the address of a network card rather than a driver's name.
pub(crate) fn is_pci(device: &str) -> bool {
    !name(device).starts_with("net_") && !name(device).starts_with("eth_")
}

fn c_string(text: &str) -> Result<CString, DpdkError> {
    let missing = |_| DpdkError::Missing { device: text.to_owned(), error: "a zero byte".to_owned() };
    CString::new(text).map_err(missing)
}

impl Device {
    /// Creates a software device, or finds a card that existed when the environment started.
    pub(crate) fn open(device: &str) -> Result<Device, DpdkError> {
        let (name, arguments) = device.split_once(',').unwrap_or((device, ""));
        let missing = |error| DpdkError::Missing { device: device.to_owned(), error: text(error) };
        let (name_c, arguments) = (c_string(name)?, c_string(arguments)?);
        if !is_pci(device) {
            // SAFETY: two strings that are copied; one thread does this.
            let error = unsafe { sys::gatun_device_add(name_c.as_ptr(), arguments.as_ptr()) };
            if error != 0 {
                return Err(missing(error));
            }
        }
        let (mut port, mut raw) = (0, sys::Device::default());
        // SAFETY: a string, and a place for the number.
        let error = unsafe { sys::gatun_device_find(name_c.as_ptr(), &mut port) };
        if error != 0 {
            return Err(missing(error));
        }
        // SAFETY: an existing device, and a place for its properties.
        let error = unsafe { sys::gatun_device_info(port, &mut raw) };
        if error != 0 {
            return Err(missing(error));
        }
        // SAFETY: the shim's string is shorter than its buffer, which was zeroed.
        let driver = unsafe { CStr::from_ptr(raw.driver.as_ptr()) }.to_string_lossy().into_owned();
        let info = Info {
            driver,
            mac: raw.mac,
            mtu_max: raw.mtu_max,
            queues_max: raw.queues_max,
            ring_max: [raw.rx_ring_max, raw.tx_ring_max],
            socket: raw.socket,
        };
        Ok(Device { name: name.to_owned(), port, info, is_client: false })
    }

    fn failed(&self, step: &'static str, error: c_int) -> DpdkError {
        DpdkError::Step { device: self.name.clone(), step, error: text(error) }
    }

    /// Creates a pool of buffers, each with this much room after the headroom.
    pub(crate) fn pool(&self, queue: usize, buffers: u32, room: u16) -> Result<Pool, DpdkError> {
        let name = c_string(&format!("{}-{queue}", self.port))?;
        // SAFETY: a string that is copied.
        let pool = unsafe { sys::gatun_pool_new(name.as_ptr(), buffers, room, self.info.socket) };
        let step = DpdkError::Step {
            device: self.name.clone(),
            step: "allocating packet buffers",
            error: format!("no memory for {buffers} buffers"),
        };
        Pool::of(pool).ok_or(step)
    }

    /// Sets up a receive and a transmit queue for each of these pools.
    pub(crate) fn set_up(
        &self,
        mtu: Option<u16>,
        rings: [u16; 2],
        pools: &[Pool],
    ) -> Result<SetupResult, DpdkError> {
        let pointers: Vec<_> = pools.iter().map(|pool| pool.as_ptr()).collect();
        let setup = sys::Setup {
            queues: pools.len() as u16,
            mtu: mtu.unwrap_or(0),
            rx_ring: rings[0],
            tx_ring: rings[1],
            pools: pointers.as_ptr(),
        };
        let mut done = SetupResult::default();
        // SAFETY: an existing device that nobody uses yet, and as many pools as queues; pools are never
        // freed.
        let error = unsafe { sys::gatun_device_setup(self.port, &setup, &mut done) };
        match error {
            0 => Ok(done),
            error => Err(self.failed("setting up its queues", error)),
        }
    }

    /// Starts the device. Returns false for a memif client whose peer is not there yet.
    pub(crate) fn start(&self) -> Result<bool, DpdkError> {
        // SAFETY: a device that was set up, in the thread that did it.
        match unsafe { sys::gatun_device_start(self.port) } {
            0 => Ok(true),
            _ if self.is_client => Ok(false),
            error => Err(self.failed("starting it", error)),
        }
    }

    pub(crate) fn is_memif(&self) -> bool {
        self.info.driver == "net_memif"
    }

    /// Checks whether the driver marks buffers as taken when it takes them from a pool. [`Pool::recover`]
    /// requires this.
    pub(crate) fn marks_buffers(&self) -> bool {
        const DRIVERS: [&str; 5] = ["net_memif", "net_af_packet", "net_pcap", "net_null", "net_tap"];
        DRIVERS.contains(&&self.info.driver[..])
    }

    /// Stops the device, so that [`start`](Self::start) can start it again. Nobody may use its queues
    /// meanwhile.
    pub(crate) fn stop(&self) {
        // SAFETY: as above.
        unsafe { sys::gatun_device_stop(self.port) }
    }

    /// Checks whether the link is up.
    pub(crate) fn link(&self) -> bool {
        // SAFETY: an existing device, in the thread that started it.
        unsafe { sys::gatun_device_link(self.port) != 0 }
    }

    /// Stops and closes the device. Nobody may use its queues afterwards.
    pub(crate) fn close(&self) {
        // SAFETY: as above.
        unsafe { sys::gatun_device_close(self.port) }
    }
}

/// Counters of a device. Zeros if it has none.
pub(crate) fn missed(port: u16) -> DeviceCounters {
    let mut missed = DeviceCounters::default();
    // SAFETY: a place for the numbers, which are zeros if the device does not exist.
    unsafe { sys::gatun_device_missed(port, &mut missed) }
    missed
}
