//! A running switch: pipeline, ports, controller's port.

use crate::environment::Environment;
use crate::error::SwitchError;
use crate::layout::{self, Description, Layout, Objects, check};
use crate::object::Object;
use crate::sys::{self, Mempool, Pipeline, Port, RawRates, Ring};
use gatun_dpdk_shim::free_socket;
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

/// Frames that wait in a ring between the pipeline and a port.
const RING: u32 = 1024;
/// Instructions of the pipeline between two bursts of the devices.
const TURN: u32 = 4096;
/// Turns after which no frame is in the pipeline: the rings between it and the ports are empty by then.
const DRAIN: u32 = 256;
/// Ports that a program may send to. The pipeline does not check a port's number.
pub const PORTS_MAX: usize = 256;
/// Counter of Gatun's program that has the echoes: name and number.
const ECHOES: (&str, u32) = ("gatun_dropped", 2);
/// Longest frame, bytes.
const FRAME_MAX: usize = 2048;

/// Port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Name of the device in DPDK, as "net_memif0". `None`: frames only come and go by [`Switch::put`] and
    /// [`Switch::take`].
    pub device: Option<String>,
    /// Arguments of the device, as "role=client,socket=/run/a".
    pub arguments: String,
}

/// Configuration of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Ports from number 0 on, up to [`PORTS_MAX`]. Number 0 is the controller's. Frames to other ports are
    /// dropped.
    pub ports: Vec<PortConfig>,
    /// Packet buffers.
    pub buffers: u32,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames received.
    pub received: u64,
    /// Frames sent by the device.
    pub sent: u64,
    /// Frames shorter than their headers say, which the controller got.
    pub truncated: u64,
    /// Frames without a whole Ethernet header, or in several buffers.
    pub runts: u64,
    /// Frames lost between the port and the pipeline.
    pub lost_in: u64,
    /// Frames that the device, or the controller's queue, did not take.
    pub lost_out: u64,
    /// Frames of the program that the queue to the port did not take.
    pub queue_full: u64,
}

/// Rates of a meter: units for each second, and units at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MeterRates {
    /// Committed rate.
    pub cir: u64,
    /// Committed burst.
    pub cbs: u64,
    /// Peak rate.
    pub pir: u64,
    /// Peak burst.
    pub pbs: u64,
}

impl MeterRates {
    /// More than any port carries.
    pub const UNLIMITED: MeterRates = {
        let most = 1_000_000_000_000;
        MeterRates { cir: most, cbs: most, pir: most, pbs: most }
    };
}

/// A pipeline with its program.
pub(crate) struct Loaded {
    pub(crate) pipeline: *mut Pipeline,
    pub(crate) objects: Objects,
    pub(crate) own_code: sys::OwnCode,
}

impl Loaded {
    fn new(name: &str, object: &Object, ports: &str) -> Result<Loaded, SwitchError> {
        let path = object.path();
        let text = [name, &path.to_string_lossy()].map(|text| CString::new(text).unwrap_or_default());
        let [name_text, path_text] = text.each_ref().map(|text| text.as_ptr());
        let mut bytes = ports.as_bytes().to_vec();
        let (mut pipeline, mut own_code) = (std::ptr::null_mut(), sys::OwnCode::default());
        // SAFETY: strings that end with a zero, and a buffer of this length.
        let status = unsafe {
            sys::build(
                &mut pipeline,
                &mut own_code,
                name_text,
                path_text,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
            )
        };
        check(name, "building the pipeline", status)?;
        let mut loaded = Loaded { pipeline, objects: Objects::default(), own_code };
        // SAFETY: the pipeline has just been made.
        loaded.objects = unsafe { layout::read(pipeline, own_code.run.is_some()) }?;
        Ok(loaded)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: nothing uses the pipeline any more.
        unsafe { sys::free(self.pipeline) };
    }
}

/// A switch. It belongs to the thread that made it.
pub struct Switch {
    pub(crate) program: Loaded,
    pub(crate) unsettled: bool,
    candidate: Option<Loaded>,
    /// Lines for the pipeline: its ports.
    specification: String,
    /// Frames that earlier programs dropped, or a queue behind them: for each port of the pipeline.
    earlier_drops: Vec<u64>,
    /// Echoes that earlier programs read.
    earlier_echoes: u64,
    /// Profile of each cell of a meter.
    profiles: HashMap<(String, u32), CString>,
    /// Room for a frame that is taken.
    frame: Box<[u8]>,
    ports: Vec<Port>,
    pool: *mut Mempool,
}

impl Switch {
    /// Makes a switch of a compiled program.
    ///
    /// # Errors
    /// The pipeline or a device cannot be made.
    pub fn new(_: Environment, object: &Object, config: &SwitchConfig) -> Result<Switch, SwitchError> {
        let name = unique_name();
        let pool = make(&format!("{name}-pool"), "making its buffers", |name| {
            // SAFETY: the environment runs; a name that ends with a zero.
            unsafe { sys::pool(name, config.buffers) }
        })?;
        let mut specification = String::new();
        // The pipeline wants a power of two.
        let inputs = config.ports.len().next_power_of_two();
        let rings = (0..inputs).map(|number| rings(&name, number, config.ports.len(), &mut specification));
        let rings = rings.collect::<Result<Vec<_>, _>>()?;
        for number in config.ports.len()..PORTS_MAX {
            let _ = writeln!(specification, "port out {number} sink file none");
        }
        let mut switch = Switch {
            program: Loaded::new(&name, object, &specification)?,
            unsettled: false,
            candidate: None,
            specification,
            earlier_drops: vec![0; PORTS_MAX + 1],
            earlier_echoes: 0,
            profiles: HashMap::new(),
            frame: vec![0; FRAME_MAX].into(),
            ports: Vec::new(),
            pool,
        };
        for (port, (input, output)) in config.ports.iter().zip(rings) {
            let device = port.device.as_ref().map_or(Ok(-1), |device| open(device, &port.arguments, pool))?;
            switch.ports.push(Port {
                device,
                input,
                output,
                received: 0,
                sent: 0,
                truncated: 0,
                runts: 0,
                lost_in: 0,
                lost_out: 0,
            });
        }
        Ok(switch)
    }

    /// Moves frames from the devices through the pipeline and out again. False: no frame came.
    pub fn turn(&mut self) -> bool {
        let received = |ports: &[Port]| ports.iter().map(|port| port.received).fold(0, u64::wrapping_add);
        let before = received(&self.ports);
        let count = self.ports.len() as u32;
        // SAFETY: the ports are alive, the first is the controller's.
        unsafe { sys::receive(self.ports.as_mut_ptr(), count, 0) };
        self.run(TURN);
        // SAFETY: as above.
        unsafe { sys::send(self.ports.as_mut_ptr(), count) };
        received(&self.ports) != before
    }

    /// Lets the pipeline execute instructions, and send what it has collected. The host's own code takes as
    /// many packets through the program, and ends earlier if no other waits.
    pub fn run(&mut self, instructions: u32) {
        // SAFETY: the pipeline is alive. A port sends at the second flush after a frame.
        unsafe {
            match self.program.own_code.run {
                Some(run) => run(self.program.pipeline, instructions),
                None => sys::run(self.program.pipeline, instructions),
            }
            sys::flush(self.program.pipeline);
            sys::flush(self.program.pipeline);
        }
    }

    /// Makes a pipeline of another program, beside the running one. [`Switch::describe_next`] has its tables,
    /// [`Switch::replace`] runs it.
    ///
    /// # Errors
    /// The pipeline cannot be made: memory for both is needed.
    pub fn prepare(&mut self, object: &Object) -> Result<(), SwitchError> {
        self.candidate = None;
        self.candidate = Some(Loaded::new(&unique_name(), object, &self.specification)?);
        Ok(())
    }

    /// Runs the prepared pipeline. Ports and their waiting frames stay. False: there is none.
    pub fn replace(&mut self) -> bool {
        let Some(candidate) = self.candidate.take() else { return false };
        // The frames inside would be lost with their buffers.
        (0..DRAIN).for_each(|_| self.run(TURN));
        self.earlier_drops = self.drops();
        self.earlier_echoes = self.echoes();
        self.program = candidate;
        self.profiles.clear();
        self.unsettled = false;
        true
    }

    /// Gives a frame to the pipeline as if `port` had received it.
    ///
    /// # Errors
    /// No buffer is free, or the frame is longer than one.
    pub fn put(&mut self, port: usize, frame: &[u8]) -> Result<(), SwitchError> {
        let len = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        let ports = self.ports.as_mut_ptr();
        assert!(port < self.ports.len(), "the switch has no port {port}");
        let status = match frame.len() <= FRAME_MAX {
            // SAFETY: the ports and the pool are alive, and the frame has `len` bytes.
            true => unsafe { sys::admit(ports, port as u32, 0, self.pool, frame.as_ptr(), len) },
            false => -libc::EMSGSIZE,
        };
        check("port", "receiving a frame", status)
    }

    /// Takes the next frame that the pipeline sent to `port`, which has no device.
    pub fn take(&mut self, port: usize) -> Option<Vec<u8>> {
        let (ring, frame) = (self.ports.get(port)?.output, &mut self.frame);
        // SAFETY: the ring is alive, and the buffer has this length.
        let len = unsafe { sys::take(ring, frame.as_mut_ptr(), FRAME_MAX as u16) };
        frame.get(..usize::try_from(len).ok()?).map(<[u8]>::to_vec)
    }

    /// Counters of the ports, in their order.
    pub fn counters(&self) -> Vec<PortCounters> {
        let of = |(p, queue_full): (&Port, u64)| PortCounters {
            received: p.received,
            sent: p.sent,
            truncated: p.truncated,
            runts: p.runts,
            lost_in: p.lost_in,
            lost_out: p.lost_out,
            queue_full,
        };
        self.ports.iter().zip(self.drops()).map(of).collect()
    }

    /// Frames that the programs have dropped, those to ports that do not exist among them.
    pub fn dropped(&self) -> u64 {
        self.drops()[self.ports.len()..].iter().sum()
    }

    /// Frames of [`dropped`](Switch::dropped) that were echoes of the controller: Gatun's program reads and
    /// drops them.
    pub fn echoes(&self) -> u64 {
        self.earlier_echoes + self.register(ECHOES.0, ECHOES.1).unwrap_or(0)
    }

    /// Drops behind the programs, for each port of the pipeline. The last one is for what a program drops.
    fn drops(&self) -> Vec<u64> {
        let of = |(port, earlier): (usize, &u64)| {
            let mut drops = 0;
            // SAFETY: the pipeline is alive, and the result has its type's layout. Without such a port, it
            // stays.
            let _ = unsafe { sys::port_drops(self.program.pipeline, port as u32, &mut drops) };
            earlier + drops
        };
        self.earlier_drops.iter().enumerate().map(of).collect()
    }

    /// Reads a register or counter of the program.
    ///
    /// # Errors
    /// The program has no such register.
    pub fn register(&self, name: &str, index: u32) -> Result<u64, SwitchError> {
        let mut value = 0;
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the pipeline is alive, and the name ends with a zero.
        match unsafe { sys::read_register(self.program.pipeline, text.as_ptr(), index, &mut value) } {
            0 => Ok(value),
            _ => Err(SwitchError::Missing { kind: "register", name: format!("{name}[{index}]") }),
        }
    }

    /// Writes a register or counter of the program.
    ///
    /// # Errors
    /// The program has no such register.
    pub fn set_register(&mut self, name: &str, index: u32, value: u64) -> Result<(), SwitchError> {
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the pipeline is alive, and the name ends with a zero.
        match unsafe { sys::write_register(self.program.pipeline, text.as_ptr(), index, value) } {
            0 => Ok(()),
            _ => Err(SwitchError::Missing { kind: "register", name: format!("{name}[{index}]") }),
        }
    }

    /// Sets a meter of the program.
    ///
    /// # Errors
    /// The program has no such meter, or the rates are impossible: no rate may be zero, nor the peak rate
    /// below the committed one.
    pub fn set_meter(&mut self, name: &str, index: u32, rates: &MeterRates) -> Result<(), SwitchError> {
        let text = CString::new(name).unwrap_or_default();
        let MeterRates { cir, cbs, pir, pbs } = *rates;
        let profile = CString::new(format!("{cir}/{cbs}/{pir}/{pbs}")).unwrap_or_default();
        let raw = RawRates { cir, cbs, pir, pbs };
        // SAFETY: the pipeline is alive, the names end with a zero, and the rates have the shim's layout.
        let status =
            unsafe { sys::limit(self.program.pipeline, text.as_ptr(), index, profile.as_ptr(), &raw) };
        check(name, "setting its rates", status)?;
        let before = self.profiles.insert((name.to_owned(), index), profile.clone());
        if let Some(before) = before.filter(|before| *before != profile) {
            // SAFETY: as above. The library keeps a profile that another meter uses.
            unsafe { sys::forget_limit(self.program.pipeline, before.as_ptr()) };
        }
        Ok(())
    }

    /// Descriptions of the prepared pipeline's tables, register arrays and arrays of meters.
    pub fn describe_next(&self) -> Option<Description> {
        let objects = &self.candidate.as_ref()?.objects;
        Some(describe(objects))
    }

    /// Descriptions of the tables, register arrays and arrays of meters.
    pub fn describe(&self) -> Description {
        describe(&self.program.objects)
    }

    /// Empties all tables, sets all registers to zero, and takes the limits off all meters.
    ///
    /// # Errors
    /// Memory for another empty table is lacking.
    pub fn clear(&mut self) -> Result<(), SwitchError> {
        for place in 0..self.program.objects.tables.len() {
            self.empty(place)?;
        }
        for (name, size) in self.program.objects.arrays.clone() {
            (0..size).try_for_each(|index| self.set_register(&name, index, 0))?;
        }
        self.lift_limits()
    }

    /// Takes the limits off all meters: DPDK's own limit is low.
    ///
    /// # Errors
    /// DPDK refuses the rates.
    pub fn lift_limits(&mut self) -> Result<(), SwitchError> {
        for (name, size) in self.program.objects.meters.clone() {
            (0..size).try_for_each(|index| self.set_meter(&name, index, &MeterRates::UNLIMITED))?;
        }
        Ok(())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for port in self.ports.iter().filter(|port| port.device >= 0) {
            // SAFETY: the device was opened by this switch.
            unsafe { sys::device_close(port.device) };
        }
    }
}

fn describe(objects: &Objects) -> Description {
    Description {
        tables: objects.tables.iter().map(Layout::describe).collect(),
        arrays: objects.arrays.clone(),
        meters: objects.meters.clone(),
    }
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("gatun{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Makes an object of DPDK by its name.
fn make<T>(
    name: &str,
    step: &'static str,
    new: impl FnOnce(*const std::ffi::c_char) -> *mut T,
) -> Result<*mut T, SwitchError> {
    let text = CString::new(name).unwrap_or_default();
    match new(text.as_ptr()) {
        made if made.is_null() => Err(SwitchError::step(name, step, -libc::ENOMEM)),
        made => Ok(made),
    }
}

/// Rings of a port, and its lines of the specification. Inputs beyond the number of ports fill up a power
/// of two.
fn rings(
    name: &str,
    number: usize,
    ports: usize,
    specification: &mut String,
) -> Result<(*mut Ring, *mut Ring), SwitchError> {
    let ring = |suffix: &str| {
        // SAFETY: the environment runs; a name that ends with a zero.
        make(&format!("{name}-{number}{suffix}"), "making a ring", |name| unsafe { sys::ring(name, RING) })
    };
    let input = ring("i")?;
    let _ = writeln!(specification, "port in {number} ring {name}-{number}i bsz 32");
    if number >= ports {
        return Ok((input, std::ptr::null_mut()));
    }
    let output = ring("o")?;
    let _ = writeln!(specification, "port out {number} ring {name}-{number}o bsz 32");
    Ok((input, output))
}

fn open(device: &str, arguments: &str, pool: *mut Mempool) -> Result<i32, SwitchError> {
    free_socket(&format!("{device},{arguments}")).map_err(SwitchError::SocketBusy)?;
    let text = [device, arguments].map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: the environment runs; strings that end with a zero, and a pool that is never freed.
    match unsafe { sys::device(text[0].as_ptr(), text[1].as_ptr(), pool) } {
        number if number >= 0 => Ok(number),
        error => Err(SwitchError::step(device, "opening it", error)),
    }
}
