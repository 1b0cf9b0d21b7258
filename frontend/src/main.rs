//! The program `streams-frontend`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use streams_frontend::api::crds;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the manifests of the custom resources, or write them into a directory.
    Crds {
        /// Write a file per kind into this directory instead.
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Crds { directory } => {
            for crd in crds::crds()? {
                let manifest = crds::manifest(&crd)?;
                match &directory {
                    Some(directory) => std::fs::write(directory.join(crds::file_name(&crd)), manifest)?,
                    None => print!("---\n{manifest}"),
                }
            }
            Ok(())
        }
    }
}
