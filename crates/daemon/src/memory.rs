//! Memory of the daemon: how much it needs, if that is available, and the kinds of pages it got.
//!
//! All memory is allocated before the first packet: memory that is only promised is refused on the busiest
//! day, and ends the process.

use super::{ClusterSettings, PortSettings, Settings, cluster, fastpath, offload, peer};
use gatun_api::types::TablePages;
use gatun_config::{Bytes, Cluster, FastPath, Memory};
use gatun_nat::Plan;
use gatun_nat::memory::TableBytes;
use gatun_nat::session_file::RECORDS_AT;
use gatun_wire::text::counted;
use gatun_worker::exchange;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Additional memory of program, heap and stacks, as measured with small configurations.
const PROGRAM: u64 = 4 << 20;
/// Additional memory of the kernel fast path's loader and of its thread, as measured.
const FASTPATH: u64 = 2 << 20;
/// Size of tables above which huge pages help much, bytes.
pub const LARGE: u64 = 64 << 20;
const HUGE_PAGE: u64 = 2 << 20;
/// Number of steps between zero and `sessions_max` in the search for a fitting number.
const STEPS: u64 = 1000;

/// Memory needs of a daemon.
#[derive(Clone, Debug, Default)]
pub struct MemoryNeeds {
    /// Tables of each worker.
    pub tables: Vec<TableBytes>,
    /// Explicit address mappings, which all workers share.
    pub mappings: u64,
    /// Packets in flight between workers, and receive buffers of ports.
    pub packets: u64,
    /// Huge pages for packets.
    packet_huge_pages: u64,
    /// Kernel memory of the fast path: its sessions.
    pub fastpath_sessions: u64,
    /// Kernel memory of the fast path: mappings of stateless instances.
    pub fastpath_mappings: u64,
    /// Manager of the fast path's sessions, and the rings through which it hears of them.
    pub fastpath_manager: u64,
    /// Members of a pair or a cluster: their streams, and the rings through which they hear of sessions.
    pub peer: u64,
    /// Headers of session files, and the program.
    pub program: u64,
    /// True if sessions are saved in files.
    keeps: bool,
}

impl MemoryNeeds {
    /// Needs of a daemon whose workers have these plans. `keeps` is true if it saves sessions in files.
    pub fn of(plans: &[&Plan], ports: &PortSettings, keeps: bool) -> MemoryNeeds {
        let each: Vec<Memory> = plans.iter().copied().map(Memory::of).collect();
        let is_divided = plans.len() > 1 || plans.iter().any(|plan| plan.shards.is_some());
        let shared = is_divided && plans.iter().any(|plan| plan.is_stateful());
        let keeps = keeps && plans.iter().any(|plan| plan.is_stateful());
        let heads = if keeps { plans.len() as u64 * RECORDS_AT } else { 0 };
        let exchange = if shared { exchange::memory_bytes(plans.len()) as u64 } else { 0 };
        let of_ports = ports.memory_bytes();
        MemoryNeeds {
            mappings: each.first().map_or(0, |memory| memory.mappings),
            tables: each.into_iter().map(|memory| memory.tables).collect(),
            packets: exchange + of_ports,
            packet_huge_pages: if ports.wants_huge_pages() { of_ports.div_ceil(HUGE_PAGE) } else { 0 },
            fastpath_sessions: 0,
            fastpath_mappings: 0,
            fastpath_manager: 0,
            peer: 0,
            program: PROGRAM + heads,
            keeps,
        }
    }

    /// Adds the memory of a kernel fast path for the whole plan: the kernel's and the daemon's.
    pub fn with_fastpath(self, fastpath: &FastPath, plan: &Plan) -> MemoryNeeds {
        let (fastpath_sessions, fastpath_mappings) = (fastpath.session_bytes(), fastpath.mapping_bytes(plan));
        let workers = self.tables.len();
        let manager =
            fastpath::manager_bytes(fastpath.sessions_max) + offload::feed_bytes(workers) + FASTPATH;
        let fastpath_manager = if fastpath.kernel { manager } else { 0 };
        MemoryNeeds { fastpath_sessions, fastpath_mappings, fastpath_manager, ..self }
    }

    /// Adds the memory of a member of a pair, or of a cluster's node, if there is one.
    pub fn with_boxes(self, is_paired: bool, cluster: Option<&Cluster>) -> MemoryNeeds {
        let workers = self.tables.len();
        let pair = if is_paired { peer::memory_bytes(workers) } else { 0 };
        let cluster = cluster.map_or(0, |cluster| cluster::memory_bytes(workers, cluster.nodes.len()));
        MemoryNeeds { peer: pair + cluster, ..self }
    }

    /// Total memory.
    pub fn total(&self) -> u64 {
        let tables: u64 = self.tables.iter().map(TableBytes::total).sum();
        tables + self.mappings + self.packets + self.of_fastpath() + self.peer + self.program
    }

    /// Bytes of the kernel fast path.
    fn of_fastpath(&self) -> u64 {
        self.fastpath_sessions + self.fastpath_mappings + self.fastpath_manager
    }

    /// Bytes of the tables.
    pub fn of_tables(&self) -> u64 {
        self.tables.iter().map(TableBytes::total).sum()
    }

    /// Huge pages to reserve for tables and packets. Sessions in files are on other pages.
    pub fn huge_pages(&self) -> u64 {
        self.huge_pages_of_tables() + self.packet_huge_pages
    }

    /// True if huge pages make packets much faster.
    pub fn wants_huge_pages(&self) -> bool {
        self.huge_pages() > 0 && (self.of_tables() > LARGE || self.packet_huge_pages > 0)
    }

    fn huge_pages_of_tables(&self) -> u64 {
        let of = |t: &TableBytes| t.huge_pages + if self.keeps { 0 } else { t.record_huge_pages };
        self.tables.iter().map(of).sum()
    }
}

/// Result of a successful check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryFit {
    /// There is enough memory together with the previous process's sessions.
    Beside,
    /// There is enough memory only if the previous process's sessions are discarded.
    WithoutPrevious,
}

/// Checks that workers with these plans have memory. `left` is the memory of the previous process's files, or
/// `None` if sessions are not saved.
///
/// # Errors
/// Returns an error if the machine, the control group or a limit of the process has less memory than needed.
pub(super) fn check(plans: &[&Plan], settings: &Settings, left: Option<u64>) -> anyhow::Result<MemoryFit> {
    let (keeps, left) = (left.is_some(), left.unwrap_or(0));
    let ports = &settings.ports;
    let needs = MemoryNeeds::of(plans, ports, keeps)
        .with_fastpath(&settings.fastpath, &settings.plan)
        .with_boxes(settings.peer.is_some(), settings.cluster.as_ref().map(ClusterSettings::cluster));
    let (needed, fixed) = (needs.total(), needs.of_fastpath() + needs.peer);
    let Some((available, whose)) = available() else { return Ok(MemoryFit::Beside) };
    if needed <= available {
        return Ok(MemoryFit::Beside);
    }
    if needed <= available.saturating_add(left) {
        return Ok(MemoryFit::WithoutPrevious);
    }
    let instead = match sessions_that_fit(
        plans,
        (ports, keeps),
        available.saturating_add(left).saturating_sub(fixed),
    ) {
        Some(n) => format!("`sessions_max = {n}` in [limits] would fit"),
        None => {
            "lower subscribers_max in [limits] or the size of the pools as well as sessions_max".to_owned()
        }
    };
    anyhow::bail!(
        "{} worker{} need {} of memory, and {whose} has {} left: {instead}; `gatun check` shows what each table needs",
        plans.len(),
        if plans.len() == 1 { "" } else { "s" },
        Bytes(needed),
        Bytes(available.saturating_add(left)),
    )
}

/// Largest number of sessions of all workers that fits `available` bytes.
fn sessions_that_fit(plans: &[&Plan], (ports, keeps): (&PortSettings, bool), available: u64) -> Option<u64> {
    let with = |step: u64| -> (Vec<Plan>, u64) {
        let mut fewer: Vec<Plan> = plans.iter().map(|plan| (*plan).clone()).collect();
        let mut all = 0;
        for plan in &mut fewer {
            let sessions = u64::from(plan.limits.sessions_max) * step / STEPS;
            plan.limits.sessions_max = u32::try_from(sessions).unwrap_or(u32::MAX);
            all += sessions;
        }
        (fewer, all)
    };
    let fits = |step: u64| {
        let (fewer, all) = with(step);
        let needed = MemoryNeeds::of(&fewer.iter().collect::<Vec<_>>(), ports, keeps).total();
        (needed <= available && all > 0).then_some(all)
    };
    let (mut low, mut high) = (0, STEPS);
    while low + 1 < high {
        let middle = low.midpoint(high);
        match fits(middle) {
            Some(_) => low = middle,
            // With zero sessions the search continues upwards.
            None if with(middle).1 == 0 => low = middle,
            None => high = middle,
        }
    }
    fits(low)
}

/// Like [`check`], for the additional memory of new tables of all workers.
///
/// # Errors
/// Like [`check`].
pub(super) fn check_more(old: &[&Plan], new: &[&Plan]) -> Result<(), String> {
    let more = Memory::of_workers(new).saturating_sub(Memory::of_workers(old));
    match available() {
        Some((available, whose)) if more > available => {
            Err(format!("the tables need {} more, and {whose} has {} left", Bytes(more), Bytes(available)))
        }
        _ => Ok(()),
    }
}

/// Memory in bytes that this process can get, and the origin of the limit. `None` if unknown.
fn available() -> Option<(u64, &'static str)> {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let of_machine = of_machine.map(|bytes| (bytes, "the machine"));
    let of_group = group_limit(Path::new("/")).map(|bytes| (bytes, "the control group (memory.max)"));
    let of_process = process_limits().map(|bytes| (bytes, "the process (RLIMIT_AS, RLIMIT_DATA)"));
    of_machine.into_iter().chain(of_group).chain(of_process).min_by_key(|(bytes, _)| *bytes)
}

/// Available memory of the machine, including free reserved huge pages: tables use those first.
fn mem_available(meminfo: &str) -> Option<u64> {
    let value = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let set_aside = value("HugePages_Free:").unwrap_or(0).saturating_mul(HUGE_PAGE);
    Some((value("MemAvailable:")? * 1024).saturating_add(set_aside))
}

/// Bytes left of the limits of the control group (version 2) and its ancestors, if any has one. `root` is the
/// root directory.
fn group_limit(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::"))?.trim_matches('/');
    let groups = root.join("sys/fs/cgroup");
    let own = groups.join(group);
    own.ancestors().take_while(|group| group.starts_with(&groups)).filter_map(left_of_group).min()
}

/// Bytes left of one control group's limit. The kernel takes pages of files back when it needs them.
fn left_of_group(group: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    let number = |text: String| text.trim().parse::<u64>().ok();
    let (max, used) = (number(read("memory.max")?)?, number(read("memory.current")?)?);
    let stat = read("memory.stat").unwrap_or_default();
    let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let files = files.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
    Some(max.saturating_sub(used.saturating_sub(files)))
}

/// Memory left within the limits of this process, if it has any.
fn process_limits() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let left = |limit: &str, used: &str| -> Option<u64> {
        let max = limits.lines().find_map(|line| line.strip_prefix(limit))?;
        let max: u64 = max.split_whitespace().next()?.parse().ok()?;
        let used = status.lines().find_map(|line| line.strip_prefix(used))?;
        let used: u64 = used.split_whitespace().next()?.parse().ok()?;
        Some(max.saturating_sub(used * 1024))
    };
    let all = [left("Max address space", "VmSize:"), left("Max data size", "VmData:")];
    all.into_iter().flatten().min()
}

/// Pages of this process's tables, and of `files`, which contain sessions.
pub(super) fn pages(files: &[File]) -> Option<TablePages> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let mut pages = of_rollup(&text);
    for file in files.iter().filter_map(|file| file.metadata().ok()) {
        let bytes = file.blocks() * 512;
        // On tmpfs the block size is the page size.
        match file.blksize() >= HUGE_PAGE {
            true => pages.transparent_bytes += bytes,
            false => pages.small_bytes += bytes,
        }
    }
    Some(pages)
}

fn of_rollup(text: &str) -> TablePages {
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let transparent_bytes = value("AnonHugePages:");
    TablePages {
        set_aside_bytes: value("Private_Hugetlb:") + value("Shared_Hugetlb:"),
        transparent_bytes,
        small_bytes: value("Anonymous:").saturating_sub(transparent_bytes),
    }
}

/// Text about memory by kind of pages.
pub fn by_pages(pages: &TablePages) -> String {
    let kinds = [
        (pages.set_aside_bytes, "on reserved huge pages"),
        (pages.transparent_bytes, "on transparent huge pages"),
        (pages.small_bytes, "on small pages"),
    ];
    let some = kinds.iter().filter(|(bytes, _)| *bytes > 0);
    some.map(|(bytes, kind)| format!("{} {kind}", Bytes(*bytes))).collect::<Vec<_>>().join(", ")
}

/// Log lines about the pages of the tables, and how to get better ones if that matters.
pub(super) fn describe(pages: &TablePages, needs: &MemoryNeeds) -> Vec<String> {
    let mut lines = vec![format!("memory: {}", by_pages(pages))];
    // Packets get theirs later.
    let missing = needs.huge_pages_of_tables().saturating_sub(pages.set_aside_bytes / HUGE_PAGE);
    let (wanted, tables) = (needs.huge_pages(), needs.of_tables());
    if pages.set_aside_bytes > 0 && missing > 0 {
        lines.push(format!(
            "reserved huge pages do not hold all tables, {} are missing: sysctl -w vm.nr_hugepages={wanted}",
            counted(missing, "huge page")
        ));
    } else if tables > LARGE && pages.small_bytes > tables / 2 {
        lines.push(format!(
            "large tables are on small pages, which makes them several times slower: sysctl -w \
             vm.nr_hugepages={wanted}, or echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_and_compared() {
        let text = "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(mem_available(text), Some(2 << 20));
        assert_eq!(mem_available(&format!("{text}HugePages_Free:  3\n")), Some(8 << 20));
        assert_eq!(mem_available("MemFree: 1 kB\n"), None);
        assert!(available().is_some_and(|(bytes, _)| bytes > 1 << 20));
    }

    #[test]
    fn the_least_limit_of_a_control_group_and_its_ancestors_counts() {
        let root = std::env::temp_dir().join(format!("gatun-groups-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(group_limit(&root), None, "no control groups");
        write("proc/self/cgroup", "1:memory:/other\n0::/system.slice/gatun.service\n");
        assert_eq!(group_limit(&root), None, "no limits");
        let (slice, service) = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/system.slice/gatun.service");
        write(&format!("{service}/memory.max"), "max\n");
        write(&format!("{service}/memory.current"), "1000\n");
        assert_eq!(group_limit(&root), None, "no limit of its own");
        write(&format!("{slice}/memory.max"), "9000\n");
        write(&format!("{slice}/memory.current"), "5000\n");
        assert_eq!(group_limit(&root), Some(4000), "the slice's");
        write(&format!("{slice}/memory.stat"), "anon 1\ninactive_file 500\n");
        assert_eq!(group_limit(&root), Some(4500), "pages of files can be taken back");
        write(&format!("{service}/memory.max"), "3000\n");
        assert_eq!(group_limit(&root), Some(2000), "its own");
        write(&format!("{service}/memory.current"), "4000\n");
        assert_eq!(group_limit(&root), Some(0), "over the limit");
        write("sys/fs/memory.max", "1\n");
        write("sys/fs/memory.current", "1\n");
        write(&format!("{service}/memory.current"), "0\n");
        assert_eq!(group_limit(&root), Some(3000), "nothing above the groups");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_refusal_names_a_fitting_number_of_sessions() {
        let text = "[[port]]\ndevice = \"x\"\n[[pool]]\nprefixes = \"192.0.2.1\"\n[[nat64]]\n\
                    pool6 = \"64:ff9b::/96\"\n[limits]\nsessions_max = 1000000\n";
        let (config, _) = gatun_config::load_str(text, "t.toml").unwrap();
        let ports = PortSettings::Tun(Vec::new());
        let plans = [&config.plan];
        let whole = MemoryNeeds::of(&plans, &ports, true).total();
        assert_eq!(sessions_that_fit(&plans, (&ports, true), 1 << 20), None);
        // Half of all but the program itself, which does not become smaller.
        let available = (whole + PROGRAM) / 2;
        let half = sessions_that_fit(&plans, (&ports, true), available).unwrap();
        assert!((300_000..500_000).contains(&half), "{half}");
        let need = |sessions: u64| {
            let mut fewer = config.plan.clone();
            fewer.limits.sessions_max = sessions as u32;
            MemoryNeeds::of(&[&fewer], &ports, true).total()
        };
        assert!(need(half) <= available);
        assert!(need(half + 1_000_000 / STEPS) > available, "{half} is not the largest number");
    }

    #[test]
    fn pages_are_described_by_kind_with_a_remedy_for_missing_ones() {
        let pages = of_rollup(
            "Rss: 9 kB\nAnonymous:  6144 kB\nAnonHugePages:  4096 kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: 2048 kB\n",
        );
        let figures = (pages.set_aside_bytes, pages.transparent_bytes, pages.small_bytes);
        assert_eq!(figures, (2 << 20, 4 << 20, 2 << 20));
        let table =
            TableBytes { indexes: 1 << 30, huge_pages: 512, record_huge_pages: 100, ..TableBytes::default() };
        let needs = |keeps| MemoryNeeds { tables: vec![table.clone()], keeps, ..MemoryNeeds::default() };
        let said = |pages: &TablePages, keeps| describe(pages, &needs(keeps))[1..].join("\n");
        assert!(
            said(&pages, true).contains("all tables, 511 huge pages are missing"),
            "{}",
            said(&pages, true)
        );
        assert!(said(&pages, false).ends_with("vm.nr_hugepages=612"), "{}", said(&pages, false));
        let small = TablePages { small_bytes: 1 << 30, ..TablePages::default() };
        assert!(said(&small, true).contains("vm.nr_hugepages=512,"), "{}", said(&small, true));
        assert_eq!(said(&TablePages { transparent_bytes: 1 << 30, ..TablePages::default() }, true), "");
    }
}
