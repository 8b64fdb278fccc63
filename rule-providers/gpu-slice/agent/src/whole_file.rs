//! Reads and writes files of JSON that the agent keeps.

use std::{fs, io, path::Path};

use serde::{Serialize, de::DeserializeOwned};

/// Reads a file; returns the default value if it is missing.
pub(crate) fn read<T: DeserializeOwned + Default>(file: &Path) -> io::Result<T> {
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// Writes a file, of which a reader sees all or nothing.
pub(crate) fn write<T: Serialize>(file: &Path, value: &T) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    // A container runtime ignores this file in a directory of CDI specs.
    let next = file.with_extension("next");
    fs::write(&next, serde_json::to_vec(value)?)?;
    fs::rename(next, file)
}
