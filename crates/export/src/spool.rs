//! Spool: records on disk while the collector is away, in files of about a mebibyte. The oldest file is read
//! first and deleted once the collector has received it. The next process continues with the remaining files;
//! some records of the file that was being sent arrive twice.

use crate::event::Record;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"GATUNSP1";
/// Approximate size of a file in bytes.
const FILE_LEN: u64 = 1 << 20;

/// Spool of one sink.
pub(crate) struct Spool {
    directory: PathBuf,
    name: String,
    len_max: u64,
    /// Numbers and sizes of files, oldest first.
    files: VecDeque<(u64, u64)>,
    /// The last file, while it is being written.
    open: Option<File>,
}

impl Spool {
    /// Creates the directory if needed and checks that a file can be written in it.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used.
    pub(crate) fn check(directory: &Path, name: &str) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::read_dir(directory)?;
        let probe = directory.join(format!("{name}.probe"));
        File::create(&probe)?;
        fs::remove_file(probe)
    }

    /// Opens the spool of a sink in a directory, which is created if needed. Continues with existing files.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used.
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

    /// Size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.files.iter().map(|(_, len)| len).sum()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{}.{number:012}.spool", self.name))
    }

    /// Appends records. Returns the number of records that did not fit.
    pub(crate) fn put(&mut self, records: &[Record]) -> u64 {
        let mut refused = 0;
        let mut bytes = Vec::new();
        for (tag, record) in records {
            if self.len() + (bytes.len() + record.len() + 6) as u64 > self.len_max {
                refused += 1;
                continue;
            }
            bytes.extend((record.len() as u32).to_le_bytes());
            bytes.extend(tag.to_le_bytes());
            bytes.extend_from_slice(record);
        }
        if bytes.is_empty() {
            return refused;
        }
        match self.write(&bytes) {
            Ok(()) => refused,
            Err(_) => {
                // A partial record at the end of the file is never read.
                self.open = None;
                records.len() as u64
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

    /// Reads the records of the oldest file. [`Spool::drop_oldest`] deletes it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn oldest(&mut self) -> io::Result<Vec<Record>> {
        let Some((number, _)) = self.files.front() else { return Ok(Vec::new()) };
        let bytes = fs::read(self.path(*number))?;
        if self.files.len() == 1 {
            // Nothing may be appended to a file that is being sent.
            self.open = None;
        }
        Ok(records(&bytes))
    }

    pub(crate) fn drop_oldest(&mut self) {
        if let Some((number, _)) = self.files.pop_front() {
            if self.files.is_empty() {
                self.open = None;
            }
            // If the file remains, the next process sends it again.
            let _ = fs::remove_file(self.path(number));
        }
    }
}

/// Records of a file, up to its end or to the first invalid record.
fn records(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else { return records };
    while let Some((len, after)) = rest.split_first_chunk::<4>()
        && let Some((tag, after)) = after.split_first_chunk::<2>()
        && let Some((record, after)) = after.split_at_checked(u32::from_le_bytes(*len) as usize)
    {
        records.push((u16::from_le_bytes(*tag), record.to_vec()));
        rest = after;
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_returns_records_in_order_to_the_next_process_up_to_its_limit() {
        let directory = std::env::temp_dir().join(format!("gatun-spool-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let record = |n: u32| (n as u16, vec![n as u8; 1000]);
        let mut spool = Spool::open(&directory, "a", 3 << 20).unwrap();
        let mut refused = 0;
        for n in 0..4_000u32 {
            refused += spool.put(&[record(n)]);
        }
        assert!((800..1_000).contains(&refused), "{refused} refused");
        let other = Spool::open(&directory, "b", 1 << 20).unwrap();
        assert!(other.is_empty());
        drop(spool);
        let mut spool = Spool::open(&directory, "a", 3 << 20).unwrap();
        let mut n = 0;
        while !spool.is_empty() {
            for got in spool.oldest().unwrap() {
                assert_eq!(got, record(n));
                n += 1;
            }
            spool.drop_oldest();
        }
        assert_eq!(u64::from(n) + refused, 4_000);
        assert_eq!(spool.put(&[record(7)]), 0);
        assert_eq!(spool.oldest().unwrap(), [record(7)]);
        // An incomplete record at the end is ignored.
        assert_eq!(
            records(&[&MAGIC[..], &[1, 0, 0, 0, 9, 0, 5], &[200, 0, 0, 0, 1]].concat()),
            [(9, vec![5])]
        );
        fs::remove_dir_all(&directory).unwrap();
    }
}
