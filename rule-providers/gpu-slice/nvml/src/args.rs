use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;

/// Reads the GPUs of this node by NVML and writes a line of JSON for each reading.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(after_help = "\
Without --once it ends when its stdin closes, and each line of stdin is a command that makes or
destroys a MIG instance. A fault by an XID lasts until it is restarted.
Exit status: 0 ended, 1 NVML failed, 2 wrong option, 3 no library or no driver, 4 NVML hangs.")]
pub struct Args {
    /// libnvidia-ml.so.1; by default searched below the driver root
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Root of the host's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub driver_root: PathBuf,
    /// Time between readings, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
    /// One reading, then end
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or_default(), 1000),
    };
    match number.parse::<u64>().map(|n| n.saturating_mul(unit)) {
        Ok(millis @ 100..=60_000) => Ok(Duration::from_millis(millis)),
        _ => bail!("write a time of 100ms to 60s, such as 2s"),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn parse(words: &[&str]) -> std::result::Result<Args, clap::Error> {
        Args::try_parse_from(["tautline-nvml"].iter().chain(words))
    }

    #[test]
    fn options_with_and_without_equals_sign() {
        let args = parse(&["--driver-root=/host", "--interval", "500ms"]).unwrap();
        assert_eq!(args.driver_root, PathBuf::from("/host"));
        assert_eq!(args.interval, Duration::from_millis(500));
        assert_eq!(args.library, None);
        assert!(!args.once);
    }

    #[test]
    fn help_tells_the_exit_status() {
        let help = parse(&["--once", "-h"]).unwrap_err();
        assert_eq!(help.kind(), ErrorKind::DisplayHelp);
        assert!(help.to_string().contains("3 no library or no driver"));
    }

    #[test]
    fn wrong_options_are_named() {
        let wrong = |words: &[&str]| parse(words).unwrap_err().to_string();
        assert!(wrong(&["--libary", "x"]).contains("--libary"));
        assert!(wrong(&["--library"]).contains("--library"));
        let long = "99999999999999999999s";
        for text in ["0s", "2", "1h", "99ms", "61s", "1e3s", long] {
            assert!(wrong(&["--interval", text]).contains(text));
        }
    }
}
