//! Loads a shim into the program.

use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

/// Reason why a shim cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The processor lacks instructions that DPDK's libraries use.
    Instructions(&'static str),
    /// DPDK's libraries cannot be loaded.
    Libraries(String),
}

/// Checks whether the processor supports the instructions that DPDK's libraries use.
///
/// # Errors
/// Returns an error if instructions are missing. The error names them.
pub fn supported() -> Result<(), LoadError> {
    #[cfg(target_arch = "x86_64")]
    if !(is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("popcnt")) {
        return Err(LoadError::Instructions("SSE4.2 and POPCNT"));
    }
    Ok(())
}

/// Arguments for DPDK's environment, as C's `main` has them. The environment may keep and change them, so
/// they are never freed. Returns `None` if an argument has a zero byte.
#[must_use]
pub fn arguments(words: Vec<String>) -> Option<Vec<*mut c_char>> {
    let words: Result<Vec<CString>, _> = words.into_iter().map(CString::new).collect();
    Some(words.ok()?.into_iter().map(CString::into_raw).collect())
}

/// Shared object that is embedded in the program, and the table `F` of its functions. `functions!` makes
/// one.
#[derive(Debug)]
pub struct Shim<F: 'static> {
    object: &'static [u8],
    table: &'static CStr,
    loaded: OnceLock<&'static F>,
}

impl<F> Shim<F> {
    /// Creates a shim that is not loaded.
    ///
    /// # Safety
    /// `object` is a shared object whose symbol `table` has the layout of `F`.
    #[must_use]
    pub const unsafe fn new(object: &'static [u8], table: &'static CStr) -> Shim<F> {
        Shim { object, table, loaded: OnceLock::new() }
    }

    /// Functions of the shim.
    ///
    /// # Panics
    /// Panics unless [`Shim::load`] has succeeded.
    #[inline]
    pub fn functions(&self) -> &'static F {
        self.loaded.get().expect("the environment is started before anything of it is used")
    }

    /// Loads the shim and DPDK's libraries, unless they are loaded already. The libraries execute code as
    /// soon as they are loaded, with instructions that older processors lack. So they are not loaded on such
    /// processors, or if nothing needs them.
    ///
    /// # Errors
    /// The processor lacks instructions, or libraries are missing.
    pub fn load(&self) -> Result<(), LoadError> {
        if self.loaded.get().is_some() {
            return Ok(());
        }
        supported()?;
        let functions = self.open().map_err(LoadError::Libraries)?;
        let _ = self.loaded.set(functions);
        Ok(())
    }

    fn open(&self) -> Result<&'static F, String> {
        let file = self.file().map_err(|e| format!("creating a file in memory: {e}"))?;
        let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
        // SAFETY: the path ends with a zero. The loaded object is the shim, whose libraries are trusted like
        // those of the linker. Drivers and pipelines that are loaded later must find its symbols before those
        // of its libraries: hence RTLD_GLOBAL.
        let shim = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if shim.is_null() {
            return Err(dl_error());
        }
        // SAFETY: an open object, and a name that ends with a zero.
        let table = unsafe { libc::dlsym(shim, self.table.as_ptr()) };
        // SAFETY: the table has the layout of `F`, as the caller of `new` guaranteed. The object is never
        // closed.
        unsafe { table.cast::<F>().as_ref() }.ok_or_else(dl_error)
    }

    /// Creates an anonymous file that contains the object.
    fn file(&self) -> std::io::Result<File> {
        let create = |flags| memfd_create(self.table, MemfdFlags::CLOEXEC | flags);
        // Nobody executes it as a program, and if vm.memfd_noexec is 2 the kernel requires this flag. Before
        // Linux 6.3 the flag does not exist.
        let file = create(MemfdFlags::NOEXEC_SEAL).or_else(|_| create(MemfdFlags::empty()))?;
        let mut file = File::from(file);
        file.write_all(self.object)?;
        Ok(file)
    }
}

/// Error of the last call.
fn dl_error() -> String {
    // SAFETY: the text stays valid until the thread's next call of this kind.
    let text = unsafe { libc::dlerror().as_ref() };
    // SAFETY: as above; it ends with a zero.
    text.map_or_else(String::new, |text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Declares the functions of a crate's shim: `shim.so`, which `compile` made, with the
/// given table of pointers to them, in this order. Defines `load`, and a function that calls each.
#[macro_export]
macro_rules! functions {
    ($table:literal: $($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        #[doc = "Table of the shim's functions."]
        #[repr(C)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        // SAFETY: the shim was compiled with this crate, and `Functions` has the layout of its table.
        static SHIM: $crate::Shim<Functions> =
            unsafe { $crate::Shim::new(include_bytes!(concat!(env!("OUT_DIR"), "/shim.so")), $table) };

        /// Loads the shim, unless it is loaded already.
        pub(crate) fn load() -> Result<(), $crate::LoadError> {
            SHIM.load()
        }

        $(
            /// # Safety
            /// As documented in shim.c: pointers are valid, and objects alive; [`load`] has succeeded.
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: guaranteed by the caller.
                unsafe { (SHIM.functions().$name)($($argument),*) }
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_none_is_refused_in_words() {
        // SAFETY: nothing is found in it.
        let shim = unsafe { Shim::<u64>::new(b"not an object", c"table") };
        let Err(LoadError::Libraries(why)) = shim.load() else { panic!("it was loaded") };
        assert!(!why.is_empty());
    }

    #[test]
    fn arguments_with_a_zero_byte_are_refused() {
        assert!(arguments(vec!["-m".into(), "6\0".into()]).is_none());
        assert_eq!(arguments(vec!["-m".into(), "64".into()]).map(|words| words.len()), Some(2));
    }
}
