//! Generates `proto/src/generated` from `proto/*.proto`, without protoc.
//! `cargo run -p tautline-codegen`; CI runs it and refuses a difference.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use prost::Message;

const FILES: [&str; 4] = [
    "ruleprovider.proto",
    "underlay.proto",
    "allocator.proto",
    "latency.proto",
];

fn main() -> Result<()> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = proto.join("src/generated");
    fs::create_dir_all(&out)?;

    let set = protox::compile(FILES, [&proto]).context("a .proto file does not compile")?;
    fs::write(out.join("descriptors.bin"), set.encode_to_vec())?;
    tonic_prost_build::configure()
        .out_dir(&out)
        // Maps are written in key order, so equal questions are equal bytes.
        .btree_map(".")
        .compile_fds(set)
        .context("the descriptors do not generate")?;
    Ok(())
}
