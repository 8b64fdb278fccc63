//! The name of this process: `tautline`, or `kubectl tautline` as kubectl's plugin.

use std::path::Path;

use clap::{Arg, Command};

/// The name of the plugin: kubectl runs `kubectl-NAME` for `kubectl NAME`.
const PLUGIN: &str = "kubectl-tautline";

pub(crate) fn current() -> &'static str {
    from_path(std::env::args_os().next().as_deref().map(Path::new))
}

fn from_path(program: Option<&Path>) -> &'static str {
    match program.and_then(Path::file_stem) {
        Some(stem) if stem == PLUGIN => "kubectl tautline",
        _ => "tautline",
    }
}

/// Puts the command line under this name, examples included.
pub(crate) fn apply_to(command: Command, name: &'static str) -> Command {
    let command = command.bin_name(name);
    if name == "tautline" {
        command
    } else {
        rename_examples(command, name)
    }
}

fn rename_examples(mut command: Command, name: &str) -> Command {
    if let Some(help) = command.get_after_help() {
        let help = help.to_string();
        command = command.after_help(help.replace("\n  tautline ", &format!("\n  {name} ")));
    }
    command.mut_subcommands(|c| rename_examples(c, name))
}

/// Removes environment variables that are set and empty from the command line, since they count as
/// unset.
pub(crate) fn without_empty_env(command: Command) -> Command {
    let is_empty = |arg: &Arg| {
        let value = arg.get_env().and_then(std::env::var_os);
        value.is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| if is_empty(&arg) { arg.env(None) } else { arg })
        .mut_subcommands(without_empty_env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_name_comes_from_the_file_name() {
        for (program, expected) in [
            ("tautline", "tautline"),
            ("/usr/local/bin/tautline", "tautline"),
            ("/usr/local/bin/kubectl-tautline", "kubectl tautline"),
            ("./kubectl-tautline", "kubectl tautline"),
        ] {
            assert_eq!(from_path(Some(Path::new(program))), expected);
        }
        assert_eq!(from_path(None), "tautline");
    }
}
