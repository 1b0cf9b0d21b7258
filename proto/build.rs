//! Compiles the .proto files with protox, so that no protoc has to be installed.

use prost::Message;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "streams/fusion/v1/fusion.proto",
        "streams/elasticity/v1/elasticity.proto",
        "streams/subscription/v1/subscription.proto",
    ];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut compiler = protox::Compiler::new(["."])?;
    // With comments: whoever asks by reflection reads the documentation.
    compiler.include_source_info(true).include_imports(true).open_files(files)?;
    let descriptors = compiler.file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        // Same message, same bytes: a hash map would be written in another order each time.
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
