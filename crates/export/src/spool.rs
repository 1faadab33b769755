//! Units on disk while the collector is away: files of a mebibyte or so, the oldest read first and taken away once the
//! collector has what is in it. What is there when the process ends goes on with the next one; of the file that was
//! being sent then, some units arrive twice.

use crate::format::Unit;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"GATUNSP1";
/// Bytes of a file, about.
const FILE_LEN: u64 = 1 << 20;

/// The spool of one sink.
pub(crate) struct Spool {
    directory: PathBuf,
    name: String,
    len_max: u64,
    /// Numbers and bytes of files, the oldest first.
    files: VecDeque<(u64, u64)>,
    /// The last file, while it is written to.
    open: Option<File>,
}

impl Spool {
    /// Makes the directory where there is none, and a file in it, which is taken away at once.
    ///
    /// # Errors
    /// Where the directory cannot be used.
    pub(crate) fn check(directory: &Path, name: &str) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::read_dir(directory)?;
        let probe = directory.join(format!("{name}.probe"));
        File::create(&probe)?;
        fs::remove_file(probe)
    }

    /// The spool under a name in a directory, which is made where there is none; goes on with what is there.
    ///
    /// # Errors
    /// Where the directory cannot be used.
    pub(crate) fn open(directory: &Path, name: &str, len_max: u64) -> io::Result<Spool> {
        fs::create_dir_all(directory)?;
        let mut files = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let file_name = entry.file_name();
            let number = file_name.to_str().and_then(|file_name| {
                let rest = file_name.strip_prefix(name)?.strip_prefix('.')?;
                rest.strip_suffix(".spool")?.parse().ok()
            });
            if let Some(number) = number {
                files.push((number, entry.metadata()?.len()));
            }
        }
        files.sort_unstable();
        Ok(Spool {
            directory: directory.to_owned(),
            name: name.to_owned(),
            len_max,
            files: files.into(),
            open: None,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.files.iter().map(|(_, len)| len).sum()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{}.{number:012}.spool", self.name))
    }

    /// Takes units; says how many found no room.
    pub(crate) fn put(&mut self, units: &[Unit]) -> u64 {
        let mut refused = 0;
        let mut bytes = Vec::new();
        for (tag, unit) in units {
            if self.len() + (bytes.len() + unit.len() + 6) as u64 > self.len_max {
                refused += 1;
                continue;
            }
            bytes.extend((unit.len() as u32).to_le_bytes());
            bytes.extend(tag.to_le_bytes());
            bytes.extend_from_slice(unit);
        }
        if bytes.is_empty() {
            return refused;
        }
        match self.write(&bytes) {
            Ok(()) => refused,
            Err(_) => {
                // What of it may be there is followed by nothing that could be read.
                self.open = None;
                units.len() as u64
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.files.back().is_none_or(|(_, len)| *len >= FILE_LEN) {
            self.open = None;
        }
        if self.open.is_none() {
            let number = self.files.back().map_or(0, |(number, _)| number + 1);
            let mut options = OpenOptions::new();
            let mut file = options.create_new(true).write(true).mode(0o640).open(self.path(number))?;
            self.files.push_back((number, MAGIC.len() as u64));
            file.write_all(MAGIC)?;
            self.open = Some(file);
        }
        if let (Some(file), Some((_, len))) = (&mut self.open, self.files.back_mut()) {
            file.write_all(bytes)?;
            *len += bytes.len() as u64;
        }
        Ok(())
    }

    /// The units of the oldest file, which [`Spool::drop_oldest`] takes away.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) fn oldest(&mut self) -> io::Result<Vec<Unit>> {
        let Some((number, _)) = self.files.front() else { return Ok(Vec::new()) };
        let bytes = fs::read(self.path(*number))?;
        if self.files.len() == 1 {
            // Nothing is written behind what is being sent.
            self.open = None;
        }
        Ok(units(&bytes))
    }

    pub(crate) fn drop_oldest(&mut self) {
        if let Some((number, _)) = self.files.pop_front() {
            if self.files.is_empty() {
                self.open = None;
            }
            // Where it stays, it is sent once more by the next process.
            let _ = fs::remove_file(self.path(number));
        }
    }
}

/// The units of a file, up to the end or to what cannot be one.
fn units(bytes: &[u8]) -> Vec<Unit> {
    let mut units = Vec::new();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else { return units };
    while let Some((len, after)) = rest.split_first_chunk::<4>()
        && let Some((tag, after)) = after.split_first_chunk::<2>()
        && let Some((unit, after)) = after.split_at_checked(u32::from_le_bytes(*len) as usize)
    {
        units.push((u16::from_le_bytes(*tag), unit.to_vec()));
        rest = after;
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_comes_out_in_order_also_of_another_process_up_to_the_bound() {
        let directory = std::env::temp_dir().join(format!("gatun-spool-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let unit = |n: u32| (n as u16, vec![n as u8; 1000]);
        let mut spool = Spool::open(&directory, "a", 3 << 20).unwrap();
        let mut refused = 0;
        for n in 0..4_000u32 {
            refused += spool.put(&[unit(n)]);
        }
        assert!((800..1_000).contains(&refused), "{refused} refused");
        let other = Spool::open(&directory, "b", 1 << 20).unwrap();
        assert!(other.is_empty());
        drop(spool);
        let mut spool = Spool::open(&directory, "a", 3 << 20).unwrap();
        let mut n = 0;
        while !spool.is_empty() {
            for got in spool.oldest().unwrap() {
                assert_eq!(got, unit(n));
                n += 1;
            }
            spool.drop_oldest();
        }
        assert_eq!(u64::from(n) + refused, 4_000);
        assert_eq!(spool.put(&[unit(7)]), 0);
        assert_eq!(spool.oldest().unwrap(), [unit(7)]);
        // A torn end is left out.
        assert_eq!(units(&[&MAGIC[..], &[1, 0, 0, 0, 9, 0, 5], &[200, 0, 0, 0, 1]].concat()), [(9, vec![5])]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
