//! The compiled programs, and how they are loaded into the kernel.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use aya::maps::{Map, MapData, MapError};
use aya::programs::{ProgramError, SchedClassifier, Xdp};
use aya::{Btf, Ebpf, EbpfLoader, Endianness};
use aya_obj::Object;
use rustix::io::Errno;

use crate::limits::LOAD_ATTEMPTS_MAX;
use crate::{DatapathError, PinPath};

/// A program as compiled by clang.
pub(crate) struct Compiled {
    /// Name of the object and of its one function.
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
}

macro_rules! compiled {
    ($name:literal) => {
        Compiled {
            name: $name,
            bytes: aya::include_bytes_aligned!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../../bpf/objects/",
                $name,
                ".o"
            )),
        }
    };
}

pub(crate) static DISPATCH_XDP: Compiled = compiled!("dispatch_xdp");
pub(crate) static DISPATCH_TC: Compiled = compiled!("dispatch_tc");
pub(crate) static NODE: Compiled = compiled!("node");
pub(crate) static PASS: Compiled = compiled!("pass");

/// Numbers of entries of the maps whose size is a setting.
pub(crate) type MapSizes = Vec<(&'static str, u32)>;

/// A program in the kernel, with its maps.
pub(crate) struct Loaded {
    name: &'static str,
    object: Ebpf,
}

/// Loads programs that share maps; the first call creates or opens the maps.
pub(crate) struct Loader<'a> {
    library: EbpfLoader<'a>,
}

impl Compiled {
    pub(crate) fn parse(&self) -> Result<Object, DatapathError> {
        Object::parse(self.bytes).map_err(|error| DatapathError::load(self.name, error.into()))
    }
}

/// Where the kernel provides the layout of its structures (BTF).
pub(crate) const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The layout of the kernel's structures, for programs that read them.
///
/// # Errors
/// The layout is not available. A program that needs it must not be loaded then: it would read the wrong
/// fields.
pub(crate) fn kernel_types(path: &Path) -> Result<Btf, DatapathError> {
    Btf::parse_file(path, Endianness::default())
        .map_err(|error| DatapathError::NoKernelTypes { path: path.into(), error })
}

impl<'a> Loader<'a> {
    /// Creates a loader of programs that read packets only, and no kernel structures.
    pub(crate) fn new(place: Option<&PinPath>, sizes: &MapSizes) -> Self {
        let mut library = EbpfLoader::new();
        library.btf(None);
        if let Some(place) = place {
            library.default_map_pin_directory(&place.pins);
        }
        for (map, entries_max) in sizes {
            library.map_max_entries(map, *entries_max);
        }
        Self { library }
    }

    /// Also loads programs that read kernel structures.
    pub(crate) fn with_types(mut self, types: &'a Btf) -> Self {
        self.library.btf(Some(types));
        self
    }

    pub(crate) fn load(&mut self, compiled: &Compiled) -> Result<Loaded, DatapathError> {
        let name = compiled.name;
        let failed = |error| DatapathError::load(name, error);
        let mut object = self.library.load(compiled.bytes).map_err(failed)?;
        for (_, program) in object.programs_mut() {
            load_program(program).map_err(|error| DatapathError::verify(name, error))?;
        }
        Ok(Loaded { name, object })
    }
}

/// Loads a program. The kernel aborts verification with `EAGAIN` when the thread gets a signal; the load is
/// then retried, as in libbpf.
fn load_program(program: &mut aya::programs::Program) -> Result<(), ProgramError> {
    let mut attempts = 1;
    loop {
        let loaded = match program {
            aya::programs::Program::Xdp(program) => program.load(),
            aya::programs::Program::SchedClassifier(program) => program.load(),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        let is_interrupted = matches!(
            &loaded,
            Err(ProgramError::LoadError { io_error, .. })
                if Errno::from_io_error(io_error) == Some(Errno::AGAIN)
        );
        if !is_interrupted || attempts == LOAD_ATTEMPTS_MAX {
            return loaded;
        }
        attempts += 1;
    }
}

impl Loaded {
    pub(crate) fn xdp(&self) -> Result<&Xdp, DatapathError> {
        self.program()
    }

    pub(crate) fn tc(&self) -> Result<&SchedClassifier, DatapathError> {
        self.program()
    }

    pub(crate) fn xdp_fd(&self) -> Result<BorrowedFd<'_>, DatapathError> {
        let fd = self.xdp()?.fd().map_err(|error| DatapathError::verify(self.name, error))?;
        Ok(fd.as_fd())
    }

    pub(crate) fn tc_fd(&self) -> Result<BorrowedFd<'_>, DatapathError> {
        let fd = self.tc()?.fd().map_err(|error| DatapathError::verify(self.name, error))?;
        Ok(fd.as_fd())
    }

    fn program<'a, P>(&'a self) -> Result<&'a P, DatapathError>
    where
        &'a P: TryFrom<&'a aya::programs::Program, Error = ProgramError>,
    {
        let program = self.object.program(self.name).ok_or(ProgramError::NotLoaded);
        program.and_then(TryInto::try_into).map_err(|error| DatapathError::verify(self.name, error))
    }

    /// Removes a map from the set, converted to its type.
    pub(crate) fn map<M>(&mut self, name: &'static str) -> Result<M, DatapathError>
    where
        M: TryFrom<Map, Error = MapError>,
    {
        let map = self.object.take_map(name).ok_or(MapError::ElementNotFound);
        map.and_then(TryInto::try_into).map_err(DatapathError::map(name))
    }

    /// Removes a map that is used in batches.
    pub(crate) fn data(&mut self, name: &'static str) -> Result<MapData, DatapathError> {
        match self.object.take_map(name) {
            Some(Map::Array(map) | Map::LruHashMap(map)) => Ok(map),
            _ => Err(DatapathError::map(name)(MapError::ElementNotFound)),
        }
    }
}

/// Maps of another shape, which were unpinned.
pub(crate) type Misfits = Vec<(String, MapData)>;

/// Prepares the folder of pins for `compiled`; returns the removed maps.
pub(crate) fn prepare(
    place: &PinPath,
    compiled: &Compiled,
    sizes: &MapSizes,
) -> Result<Misfits, DatapathError> {
    place.make()?;
    let misfits = place.unpin_misfits(&compiled.parse()?, sizes)?;
    for (name, _) in &misfits {
        tracing::warn!(
            "the pinned map {} differs in size or version from the current settings: it is \
             recreated empty",
            place.pins.join(name).display()
        );
    }
    Ok(misfits)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn without_the_kernels_types_the_error_says_what_and_where() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, garbage) = (folder.path().join("missing"), folder.path().join("garbage"));
        std::fs::write(&garbage, b"no BTF").unwrap();
        for path in [missing, garbage] {
            let error = kernel_types(&path).unwrap_err();
            assert!(matches!(&error, DatapathError::NoKernelTypes { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(path.to_str().unwrap()) && text.contains("BTF"), "{text}");
        }
    }
}
