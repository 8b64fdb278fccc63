//! Implements `tautline completion` and `tautline man`, whose output is made from the commands
//! themselves.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, output};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  source <(tautline completion bash)\n  \
                  tautline completion fish > ~/.config/fish/completions/tautline.fish")]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tautline", &mut script);
    output::write(&String::from_utf8(script)?)
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  tautline man --dir ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write one page for each command into this folder
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
        .with_context(|| dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script_with_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tautline", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {command}");
            }
        }
    }

    #[test]
    fn man_has_a_page_for_each_command() {
        let dir = tempfile::tempdir().unwrap();
        man(&ManArgs {
            dir: dir.path().join("man1"),
        })
        .unwrap();
        for page in ["tautline.1", "tautline-doctor.1", "tautline-latency-pair.1"] {
            let text = std::fs::read_to_string(dir.path().join("man1").join(page)).unwrap();
            assert!(text.contains(".SH NAME"), "{page}");
        }
    }
}
