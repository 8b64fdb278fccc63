//! Implements `tautline crds`, which prints the custom resource definitions, or JSON Schemas of the
//! kinds, or writes them to files.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use tautline_api::crds;

use crate::output;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  tautline crds | kubectl apply --server-side -f -")]
pub(crate) struct Args {
    /// Write one file for each kind into this folder instead of printing them
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Output {
    /// Custom resource definitions, for kubectl
    #[default]
    Yaml,
    /// A JSON Schema of each kind, for editors and kubeconform
    JsonSchema,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    for crd in crds::all() {
        let files = match args.output {
            Output::Yaml => vec![crds::file(&crd)?],
            Output::JsonSchema => crds::json_schemas(&crd)?,
        };
        for (name, text) in files {
            match (&args.dir, args.output) {
                (Some(dir), _) => output::write_file(dir, &name, &text)?,
                (None, Output::Yaml) => output::write(&format!("---\n{text}"))?,
                (None, Output::JsonSchema) => output::write(&text)?,
            }
        }
    }
    Ok(())
}
