//! Arbitrary bytes in log files: an answer or a fault, never a panic. The first byte selects the input:
//! parts of files, or whole files of a store with their names.
#![no_main]

use gatun_logstore::time::Span;
use gatun_logstore::{Disk, LogError, Reader};
use std::io::{Error, ErrorKind, Result};

struct Files(Vec<(&'static str, Vec<u8>)>);

impl Files {
    fn of(&self, name: &str) -> Result<&[u8]> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, bytes)| &bytes[..]).ok_or(ErrorKind::NotFound.into())
    }
}

fn read_only() -> Error {
    ErrorKind::ReadOnlyFilesystem.into()
}

impl Disk for Files {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.0.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    fn len(&self, name: &str) -> Result<u64> {
        Ok(self.of(name)?.len() as u64)
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let from = self.of(name)?.get(offset as usize..).unwrap_or_default();
        let from = from.get(..bytes.len()).ok_or(Error::from(ErrorKind::UnexpectedEof))?;
        bytes.copy_from_slice(from);
        Ok(())
    }

    fn append(&mut self, _: &str, _: &[u8]) -> Result<()> {
        Err(read_only())
    }

    fn write_at(&mut self, _: &str, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only())
    }

    fn truncate(&mut self, _: &str, _: u64) -> Result<()> {
        Err(read_only())
    }

    fn sync(&mut self, _: &str) -> Result<()> {
        Err(read_only())
    }

    fn rename(&mut self, _: &str, _: &str) -> Result<()> {
        Err(read_only())
    }

    fn remove(&mut self, _: &str) -> Result<()> {
        Err(read_only())
    }

    fn sync_names(&mut self) -> Result<()> {
        Err(read_only())
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((what, bytes)) = bytes.split_first() else { return };
    if what & 1 == 0 {
        gatun_logstore::parse_as_each_part(bytes);
        return;
    }
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let files = vec![
        ("000000000001.segment", first.to_vec()),
        ("000000000002.journal", second.to_vec()),
        ("000000000001.carried", bytes.to_vec()),
    ];
    let Ok(reader) = Reader::open(Box::new(Files(files))) else { return };
    let _ = reader.verify(None);
    let _ = reader.show((0, u64::MAX), |_| Ok::<(), LogError>(()));
    reader.who("192.0.2.1".parse().unwrap(), 2048, Span { from_ms: 1, precision_ms: 1 }, None);
});
