//! Removes the programs from devices and the pins from bpffs.

use std::fs;
use std::io;

use crate::pins::is_bpffs;
use crate::{DatapathError, PinPath, links};

/// Detaches programs from their devices and removes all pins, then the folders that are thereby empty.
/// Succeeds if there is nothing to remove.
pub(crate) fn remove(place: &PinPath) -> Result<(), DatapathError> {
    let entries = match fs::read_dir(&place.pins) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(place.failed("read the folder")(error)),
    };
    if !is_bpffs(&place.pins) {
        return Err(DatapathError::NotBpffs { path: place.pins.clone() });
    }
    links::remove(&links::found(place)?)?;
    for entry in entries {
        let path = entry.map_err(place.failed("read the folder"))?.path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(place.failed("empty the folder")(error));
            }
            _ => {}
        }
    }
    // Up to the first that others use; the last is the mount point itself.
    for folder in place.pins.ancestors().take_while(|folder| is_bpffs(folder)) {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}
