//! Tables of ended processes in other folders than the present one: `[fastpath] directory` has changed, for
//! example. Their program would translate until its lease expires, though their ports are free.

use crate::link::ProgramLink;
use gatun_netlink::query::link;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Name of the pinned link in a folder of pins.
pub(crate) const LINK: &str = "link";
/// Levels of folders in a bpffs that are read, and folders at most.
const LEVELS: usize = 3;
const FOLDERS_MAX: usize = 1_000;

/// Folders with pins of a program that is at a device, other than `own`. Needs the right to read them: others
/// are not found. A process may still use them.
///
/// Before Linux 6.6, the program is a filter without a link, which the next process replaces wherever the
/// tables are.
pub fn pins_elsewhere(device: &str, own: &Path) -> Vec<PathBuf> {
    let Ok(Some(found)) = link(device) else { return Vec::new() };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = own.canonicalize();
    let is_other = |pins: &PathBuf| !own.as_ref().is_ok_and(|own| own == pins);
    let is_at_device = |pins: &PathBuf| {
        let pinned = ProgramLink::pinned(&pins.join(LINK));
        pinned.is_ok_and(|link| link.interface() == Some(found.index))
    };
    let all = bpffs(&mounts).into_iter().flat_map(folders).map(|folder| folder.join(device));
    all.filter(|pins| is_other(pins) && is_at_device(pins)).collect()
}

/// Mount points of bpffs, by the text of `/proc/self/mountinfo`.
fn bpffs(mounts: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let path = mount.split(' ').nth(4)?;
        (kind.split(' ').next() == Some("bpf")).then(|| unescaped(path))
    };
    mounts.lines().filter_map(of_line).collect()
}

/// A path of mountinfo, in which some characters are octal numbers, such as `\040`.
fn unescaped(path: &str) -> PathBuf {
    let mut parts = path.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (number, rest) = part.split_at_checked(3).unwrap_or((part, ""));
        match u8::from_str_radix(number, 8) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend(number.bytes()),
        }
        bytes.extend(rest.bytes());
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// A folder, and those below it.
fn folders(top: PathBuf) -> Vec<PathBuf> {
    let mut all = vec![top];
    let mut begin = 0;
    for _ in 1..LEVELS {
        let end = all.len();
        for at in begin..end {
            let entries = fs::read_dir(&all[at]).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let room = FOLDERS_MAX.saturating_sub(all.len());
            all.extend(below.map(|entry| entry.path()).take(room));
        }
        begin = end;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_of_bpffs_are_found_among_others() {
        let text = "22 1 0:20 / /sys rw shared:7 - sysfs sysfs rw\n\
                    30 22 0:26 / /sys/fs/bpf rw,nosuid shared:9 - bpf bpf rw,mode=700\n\
                    99 1 0:77 / /run/a\\040b\\134c rw - bpf none rw\n\
                    100 1 0:78 / /run/bpf rw - tmpfs bpf rw\n";
        let found: Vec<PathBuf> = ["/sys/fs/bpf", "/run/a b\\c"].map(PathBuf::from).into();
        assert_eq!(bpffs(text), found);
    }

    #[test]
    fn folders_are_read_down_to_a_depth() {
        let top = std::env::temp_dir().join(format!("gatun-folders-{}", std::process::id()));
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::write(top.join("file"), "").unwrap();
        let found = folders(top.clone());
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(found, [top.clone(), top.join("a"), top.join("a/b")]);
    }
}
