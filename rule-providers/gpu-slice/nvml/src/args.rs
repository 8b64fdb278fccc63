use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// The text of `--help`.
pub const HELP: &str = "\
Reads the GPUs of this node by NVML and writes a line of JSON for each reading.

Usage: tautline-nvml [OPTIONS]

  --library FILE      libnvidia-ml.so.1; default: searched below the driver root
  --driver-root DIR   Root of the host's files [default: /]
  --interval TIME     Time between readings, such as 500ms or 2s [default: 2s]
  --once              One reading, then end
  -h, --help          This text

Without --once it ends when its stdin closes, and each line of stdin is a command that makes or
destroys a MIG instance. A fault by an XID lasts until it is restarted.
Exit status: 0 ended, 1 NVML failed, 2 wrong option, 3 no library or no driver, 4 NVML hangs.
";

/// The options of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    pub library: Option<PathBuf>,
    pub driver_root: PathBuf,
    pub interval: Duration,
    pub once: bool,
}

impl Args {
    /// Parses the command line; returns `None` if it asks for help.
    pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Option<Self>> {
        let mut args = Self {
            library: None,
            driver_root: PathBuf::from("/"),
            interval: Duration::from_secs(2),
            once: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let word = word.to_string_lossy().into_owned();
            let (flag, inline) = match word.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(OsString::from(value))),
                None => (word, None),
            };
            let mut value = || {
                let value = inline.clone().or_else(|| words.next());
                value.with_context(|| format!("{flag} needs a value"))
            };
            match flag.as_str() {
                "--library" => args.library = Some(PathBuf::from(value()?)),
                "--driver-root" => args.driver_root = PathBuf::from(value()?),
                "--interval" => args.interval = interval(&value()?.to_string_lossy())?,
                "--once" if inline.is_none() => args.once = true,
                "-h" | "--help" if inline.is_none() => return Ok(None),
                _ => bail!("unknown option {flag}"),
            }
        }
        Ok(Some(args))
    }
}

fn interval(text: &str) -> Result<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or_default(), 1000),
    };
    match number.parse::<u64>().map(|n| n.saturating_mul(unit)) {
        Ok(millis @ 100..=60_000) => Ok(Duration::from_millis(millis)),
        _ => bail!("--interval {text} is not a time of 100ms to 60s, such as 2s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> std::result::Result<Option<Args>, String> {
        Args::parse(words.iter().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_with_and_without_equals_sign() {
        let args = parse(&["--driver-root=/host", "--interval", "500ms"])
            .unwrap()
            .unwrap();
        assert_eq!(args.driver_root, PathBuf::from("/host"));
        assert_eq!(args.interval, Duration::from_millis(500));
        assert_eq!(args.library, None);
        assert!(!args.once);
    }

    #[test]
    fn help_is_no_error() {
        assert_eq!(parse(&["--once", "-h"]), Ok(None));
    }

    #[test]
    fn wrong_options_are_named() {
        assert!(parse(&["--libary", "x"]).unwrap_err().contains("--libary"));
        assert!(
            parse(&["--library"])
                .unwrap_err()
                .contains("--library needs a value")
        );
        for text in [
            "0s",
            "2",
            "1h",
            "99ms",
            "61s",
            "-1s",
            "99999999999999999999s",
        ] {
            assert!(parse(&["--interval", text]).unwrap_err().contains(text));
        }
    }
}
