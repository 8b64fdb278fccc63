//! Generates `proto/src/generated` from `proto/*.proto`, and the same of the GPU agent's `proto/`,
//! without protoc. CI refuses a difference to the committed files; unchanged files are not written,
//! so that nothing is rebuilt.

use std::{fs, io, path::Path};

use anyhow::{Context, Result};
use prost::Message;
use prost_types::FileDescriptorSet;

const FILES: [&str; 5] = [
    "ruleprovider.proto",
    "underlay.proto",
    "allocator.proto",
    "latency.proto",
    "gpu.proto",
];

const KUBELET_FILES: [&str; 4] = [
    "deviceplugin.proto",
    "podresources.proto",
    "dra.proto",
    "pluginregistration.proto",
];

fn main() -> Result<()> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = proto.join("src/generated");

    let set = generate(&FILES, &proto, &out)?;
    put(&out.join("descriptors.bin"), &set.encode_to_vec())?;
    let agent = proto.join("../rule-providers/gpu-slice/agent");
    generate(
        &KUBELET_FILES,
        &agent.join("proto"),
        &agent.join("src/generated"),
    )?;
    Ok(())
}

fn generate(files: &[&str], from: &Path, out: &Path) -> Result<FileDescriptorSet> {
    let set = protox::compile(files, [from]).context("a .proto file does not compile")?;
    fs::create_dir_all(out)?;
    let fresh = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .out_dir(fresh.path())
        // Maps are written in key order, so equal questions are equal bytes.
        .btree_map(".")
        .compile_fds(set.clone())
        .context("the descriptors do not generate")?;
    for entry in fs::read_dir(fresh.path())? {
        let entry = entry?;
        put(&out.join(entry.file_name()), &fs::read(entry.path())?)?;
    }
    Ok(set)
}

/// Writes a file unless it holds just that; returns whether it did.
fn put(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    fs::write(path, bytes).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codegen_skips_unchanged_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.rs");
        assert!(put(&path, b"one").unwrap());
        let written = || fs::metadata(&path).unwrap().modified().unwrap();
        let before = written();
        assert!(!put(&path, b"one").unwrap());
        assert_eq!(written(), before);
        assert!(put(&path, b"two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }
}
